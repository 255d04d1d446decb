"""Asking saved rows: what they say, and which of them are of the same run."""

import re

from .text import SIZES, options

PEER = "peer"
# Verdicts that are no failure; every other one is, but see judged().
HARMLESS = ("ok", "not checked", "refused", "cannot run", "skipped")
LIMIT = 1e18  # larger numbers, which no run gives, are damage
CHECKED = {"forward": ("o",), "backward": ("dq", "dk", "dv")}


def at(row, *keys):
    """The value at a path of keys; None if there is none."""
    for key in keys:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def number(row, *keys):
    value = at(row, *keys)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LIMIT else None


def text(row, *keys):
    """ "" if there is none."""
    value = at(row, *keys)
    return value if isinstance(value, str) else ""


def grouped(rows, key):
    """{key(row): its rows}, in the order of first appearance."""
    found = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def label(row):
    return f"{row['stage']}/{row['variant']}"


def is_peer(row):
    return row["stage"] == PEER


def verdict(row):
    """What `compare` says, or what the check of a stage program's own row says. A failed check overrules the rest."""
    passed = at(row, "check", "passed")
    if passed is False:
        return "WRONG"
    return text(row, "verdict") or ("ok" if passed else "not checked")


def absence(row):
    """Why a row has no result, in a word or two. A run that the time limit ended and one that it foresaw are the same to a reader; so are a
    run that found no memory and one that was not begun for that."""
    said, message = verdict(row), text(row, "message")
    if said == "TIMED OUT" or (said in ("skipped", "cannot run") and re.search("would take|took more than the limit", message)):
        return "too long"
    if said == "cannot run" or (said == "skipped" and re.search("memory|could not run", message)):
        return "no room"
    return said if said in ("refused", "skipped") else "failed"


def is_good(row):
    return verdict(row) in ("ok", "not checked")


def is_failure(row):
    return verdict(row) not in HARMLESS and not row.get("long")


def judged(rows):
    """By the rule of `compare`, a run that the time limit ended is a failure only if its variant finished no problem in that pass, and so may
    hang. The others are marked as long."""
    finished = {(device_name(row), label(row), row["pass"]) for row in rows if is_good(row)}
    return [{**row, "long": verdict(row) == "TIMED OUT" and (device_name(row), label(row), row["pass"]) in finished} for row in rows]


def is_gpu(row):
    return text(row, "device", "kind") == "gpu"


def device_name(row):
    """Counts of the simulator are the same on every CPU, so that all of them are one device; but not for every GPU that it simulates."""
    if text(row, "device", "kind") == "cpu":
        sm = number(row, "device", "simulates_sm")
        return "CPU simulator" + ("" if sm in (None, 90) else f" of sm_{sm:g}")
    return text(row, "device", "name") or "unknown device"


def moved_bytes(row):
    """What the threads ask of global memory, read and written."""
    read_bytes, written = number(row, "hbm_read_bytes"), number(row, "hbm_written_bytes")
    return None if read_bytes is None or written is None else read_bytes + written


def max_error(row):
    """The largest error of the tensors that the pass is about."""
    errors = [number(row, "check", "tensors", tensor, "max_abs") for tensor in CHECKED[row["pass"]]]
    return max((error for error in errors if error is not None), default=None)


def is_borrowed(row):
    """Is the pass one that the row's stage is not about? A backward stage runs the forward pass of another stage before its own."""
    return row["pass"] == "forward" and row["stage"].endswith("_backward")


def borrowed_from(row):
    """The stage whose forward pass this row runs; "" if it is its own."""
    if not is_borrowed(row):
        return ""
    folders = [path.split("/")[0] for path in row["sources"]] if isinstance(row.get("sources"), dict) else []
    return max((folder for folder in folders if folder[:1].isdigit() and folder.endswith("_forward")), default="another stage")


def place(row):
    """Stages by number, their variants by the number of the kernel file; then the peers as they come."""
    if is_peer(row):
        return True, "", ""
    files = list(row["sources"]) if isinstance(row.get("sources"), dict) else []
    return False, row["stage"], text(row, "kernel") or next(iter(files), "")


def problem_key(problem):
    """What makes two problems the same: every field, whether it is known here or not."""
    return (*(problem[key] for key in SIZES), problem["causal"], problem["dtype"], *options(problem))


def latest(rows, by_tiles=False):
    """Of runs of the same kernel and problem the one with the latest date, so that overlapping files give no line twice, in the order of
    first appearance. `by_tiles`: of each choice of tiles. A run that ended without a report does not say its tiles: it stands for all of
    them, and they for it."""
    newest = {}  # run: {tiles: row}
    for row in sorted(rows, key=lambda row: text(row, "date")):
        tiles = (number(row, "tiles", "br"), number(row, "tiles", "bc")) if by_tiles else (None, None)
        problem = problem_key(row["problem"]) if row.get("problem") else id(row)
        of_run = newest.setdefault((device_name(row), label(row), row["pass"], problem), {})
        if tiles == (None, None):
            of_run.clear()
        of_run.pop((None, None), None)
        of_run[tiles] = row
    kept = {id(row) for of_run in newest.values() for row in of_run.values()}
    return [row for row in rows if id(row) in kept]
