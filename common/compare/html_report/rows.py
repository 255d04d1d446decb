"""Rows of `compare --save` and of peers.py: reading them, asking them, and sorting them into tables."""

import dataclasses
import json
import math
import sys
from pathlib import Path

from usage import Failure

sys.path.insert(1, str(Path(__file__).resolve().parents[3] / "docs"))
from tools.formatting import problem_text  # noqa: E402

PEER = "peer"
# Verdicts that are no failure; every other one is, but see judged().
HARMLESS = ("ok", "not checked", "refused", "cannot run", "skipped")
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")
WORDS = ("dtype", "bias", "layout")
CHECKED = {"forward": ("o",), "backward": ("dq", "dk", "dv")}


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON number")


def read_file(path):
    """The rows of one file, as they are. Failure if it is not one."""
    allowed = "allowed: rows of compare --save or peers.py --save"
    try:
        contents = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse_constant)
    except OSError as error:
        raise Failure(2, f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failure(2, f"'{path}' is damaged or no JSON ({error}); {allowed}") from None
    rows = contents.get("rows") if isinstance(contents, dict) else contents
    if not isinstance(rows, list):
        raise Failure(2, f"'{path}' holds no list of rows; {allowed}")
    if not rows:
        raise Failure(2, f"'{path}' has no rows; {allowed}")
    for index, row in enumerate(rows, start=1):
        wrong = what_is_wrong(row)
        if wrong:
            raise Failure(2, f"'{path}', row {index}: {wrong}; {allowed}")
    return rows


def what_is_wrong(row):
    """"" or why this is no row."""
    if not isinstance(row, dict):
        return "is no object"
    for key in ("stage", "variant"):
        if not isinstance(row.get(key), str):
            return f"{key} is {json.dumps(row.get(key))[:60]}, no name"
    if row.get("pass") not in CHECKED:
        return f"pass is {json.dumps(row.get('pass'))[:60]}, not forward or backward"
    if not isinstance(row.get("verdict"), str) and not isinstance(row.get("check"), dict) and not isinstance(row.get("time"), dict):
        return "has no verdict"
    problem = row.get("problem")
    if problem is None:
        return ""
    if not isinstance(problem, dict):
        return "problem is no object"
    for key in SIZES:
        if type(problem.get(key)) is not int or not 1 <= problem[key] < 2**63:
            return f"problem.{key} is {json.dumps(problem.get(key))[:60]}, no whole number from 1"
    for key in WORDS:
        if not isinstance(problem.get(key), str):
            return f"problem.{key} is {json.dumps(problem.get(key))[:60]}, no name"
    return "" if isinstance(problem.get("causal"), bool) else "problem.causal is neither true nor false"


def read(paths):
    """The rows of all files, each with the number of its `file`. A run that ended without a report says nothing about its problem and its device: it has those of the other
    rows of its file where these agree."""
    every = []
    for index, path in enumerate(paths):
        rows = read_file(path)
        for key, name in (("device", device_name), ("problem", lambda row: problem_key(row["problem"]))):
            known = {name(row): row[key] for row in rows if row.get(key)}
            if len(known) == 1:
                rows = [row if row.get(key) else {**row, key: next(iter(known.values()))} for row in rows]
        every += [{**row, "file": index} for row in rows]
    return every


def number(row, *keys):
    """The number at a path of keys; None if there is none that is finite."""
    for key in keys:
        row = row.get(key) if isinstance(row, dict) else None
    if isinstance(row, bool) or not isinstance(row, (int, float)):
        return None
    try:
        return row if math.isfinite(row) else None
    except OverflowError:  # a whole number beyond every float
        return None


def text(row, *keys):
    """The text at a path of keys; "" if there is none."""
    for key in keys:
        row = row.get(key) if isinstance(row, dict) else None
    return row if isinstance(row, str) else ""


def label(row):
    return f"{row['stage']}/{row['variant']}"


def is_peer(row):
    return row["stage"] == PEER


def verdict(row):
    """What `compare` says, or what the check of a stage program's own row says. A failed check overrules the rest."""
    passed = row["check"].get("passed") if isinstance(row.get("check"), dict) else None
    if passed is False:
        return "WRONG"
    return text(row, "verdict") or ("ok" if passed else "not checked")


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


def borrowed_from(row):
    """The stage whose forward pass this row of a backward stage runs, or ""."""
    folders = [path.split("/")[0] for path in row["sources"]] if isinstance(row.get("sources"), dict) else []
    others = [folder for folder in folders if folder[:1].isdigit() and folder != row["stage"]]
    return others[0] if row["pass"] == "forward" and others else ""


def place(row):
    """Stages by number, their variants by the number of the kernel file; then the peers as they come."""
    if is_peer(row):
        return True, "", ""
    files = list(row["sources"]) if isinstance(row.get("sources"), dict) else []
    return False, row["stage"], text(row, "kernel") or next(iter(files), "")


def problem_key(problem):
    """What makes two problems the same; the scale as far as programs agree on it, inputs but not their seed."""
    scale = number(problem, "scale")
    words = (text(problem, "input"), None if scale is None else float(f"{scale:.6g}"))
    return (*(problem[key] for key in SIZES), problem["causal"], *(problem[key] for key in WORDS), *words)


@dataclasses.dataclass
class Group:
    """The rows of one table: a device, a problem and a pass. Peers last."""

    rows: list

    @property
    def problem(self):
        return self.rows[0]["problem"]

    @property
    def which(self):
        return self.rows[0]["pass"]

    @property
    def gpu(self):
        return is_gpu(self.rows[0])

    @property
    def title(self):
        return f"{self.which.capitalize()}, {problem_text(self.problem)}"

    def cost(self, row):
        """What a row is judged by: its median time on a GPU, the bytes that it moves on the simulator. None if it has not run well."""
        return None if not is_good(row) else number(row, "time", "median_ms") if self.gpu else moved_bytes(row)

    def first(self):
        """The row that gains are measured against: the first of a stage that has run well."""
        return next((row for row in self.rows if not is_peer(row) and self.cost(row)), None)

    def best(self, peers=False):
        """The row of a stage, or of a peer, that costs least. Forward passes borrowed from another stage are not its own."""
        rows = [row for row in self.rows if is_peer(row) == peers and not borrowed_from(row) and self.cost(row)]
        return min(rows, key=self.cost, default=None)


def latest(rows):
    """Of runs of the same kernel, tiles and problem the one with the latest date, so that overlapping files give no line twice. A run that
    ended without a report does not say its tiles: it stands for all of them, and they for it."""
    newest = {}  # run: {tiles: row}
    for row in sorted(rows, key=lambda row: text(row, "date")):
        tiles = number(row, "tiles", "br"), number(row, "tiles", "bc")
        problem = problem_key(row["problem"]) if row.get("problem") else id(row)
        of_run = newest.setdefault((device_name(row), label(row), row["pass"], problem), {})
        if tiles == (None, None):
            of_run.clear()
        of_run.pop((None, None), None)
        of_run[tiles] = row
    kept = {id(row) for of_run in newest.values() for row in of_run.values()}
    return [row for row in rows if id(row) in kept]


def groups(rows):
    """One group for each device, problem and pass, small problems first. Rows without a problem are in none."""
    found = {}
    for row in rows:
        if row.get("problem"):
            found.setdefault((device_name(row), problem_key(row["problem"]), row["pass"]), []).append(row)
    devices = list(dict.fromkeys(device_name(row) for row in rows))

    def order(group):
        p = group.problem
        dtype = ("fp32", "fp16", "bf16").index(p["dtype"]) if p["dtype"] in ("fp32", "fp16", "bf16") else 3
        sizes = [p[key] for key in ("seq_q", "seq_k", "batch", "heads", "kv_heads")]
        return devices.index(device_name(group.rows[0])), dtype, p["head_dim"], p["causal"], sizes, group.which == "backward"

    return sorted((Group(sorted(found_rows, key=place)) for found_rows in found.values()), key=order)
