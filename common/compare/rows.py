"""Saved rows of `compare`: what a row is, and the one place in Python that reads, judges and writes them. A file of rows is JSON Lines."""

import dataclasses
import datetime
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")
USUAL = {"bias": "none", "layout": "bhnd", "input": "normal", "seed": 1}  # what describe() leaves out
PASSES = ("forward", "backward")
FAILED = ("WRONG", "STOPPED", "CRASHED", "TIMED OUT")
VERDICTS = ("ok", "refused", "cannot run", "skipped", *FAILED)

# Needed fields of a nested object that a row has. A problem may have further fields: each is an option of its own.
NEEDED = {
    "problem": {**dict.fromkeys(SIZES, int), "causal": bool, **dict.fromkeys(("dtype", "bias", "layout"), str)},
    "device": {"kind": str, "name": str},
    "time": {"median_ms": float},
    "check": {"passed": bool, "tensors": dict},
    "tiles": {"br": int, "bc": int},
}


class Failure(Exception):
    """(exit code, message): ends a script with one line on stderr."""


@dataclasses.dataclass(eq=False)
class Row(Mapping):
    """One run: one variant, one pass, one problem. The fields are the keys of the JSON object (`pass_` is "pass"); row["time"] works too. A field
    is None if the run has no such result."""

    stage: str
    variant: str
    pass_: str
    verdict: str
    device: dict
    problem: dict
    idea: str = ""
    kernel: str = ""
    flops: float = None
    compulsory_bytes: float = None
    extra_memory_bytes: int = None
    tiles: dict = None
    check: dict = None
    threads: dict = None  # races, and barriers that threads miss
    time: dict = None
    tflops: float = None
    percent_of_peak: float = None
    predicted: dict = None
    counters: dict = None
    remarks: list = None
    tune: dict = None
    wall_s: float = None  # of older rows, with the next two
    hbm_read_bytes: int = None
    hbm_written_bytes: int = None
    message: str = ""
    commit: str = ""
    date: str = ""
    sources: dict = None  # path of a kernel file: code_hash() of then
    torch: str = ""
    cudnn: str = ""
    profile: list = None  # from profile_gpu.py
    counters_of_a_head: dict = None
    sustained: dict = None  # from power_gpu.py

    def __getitem__(self, key):
        value = getattr(self, FIELDS[key].name)
        if value in (None, ""):
            raise KeyError(key)
        return value

    def __iter__(self):
        return (key for key, field in FIELDS.items() if getattr(self, field.name) not in (None, ""))

    def __len__(self):
        return sum(1 for _ in self)

    @property
    def label(self):
        return f"{self.stage}/{self.variant}"

    @property
    def is_peer(self):
        return self.stage == "peer"

    @property
    def is_gpu(self):
        return self.device["kind"] == "gpu"

    @property
    def is_good(self):
        return self.verdict == "ok"

    @property
    def is_borrowed(self):
        """The forward pass that a backward stage runs first is another stage's."""
        return self.pass_ == "forward" and self.stage.endswith("_backward")

    @property
    def device_name(self):
        """Counts of the simulator are the same on every CPU, but not for every GPU that it simulates. An "NVIDIA H100 80GB HBM3" is an NVIDIA H100;
        one with other memory keeps its whole name."""
        if self.is_gpu:
            return self.device["name"].removesuffix(" 80GB HBM3") or "unknown device"
        sm = self.device.get("simulates_sm", 90)
        return "CPU simulator" + ("" if sm == 90 else f" of sm_{sm}")

    @property
    def moved_bytes(self):
        """What the threads read from and write to global memory: as counted, or on a GPU as the stage predicts."""
        of = self.counters or self.predicted
        return of["read_bytes"] + of["written_bytes"] if of else None

    @property
    def absence(self):
        """Why the row has no result, in a word or two. To a reader it is the same whether a run was ended or not begun."""
        if self.verdict == "TIMED OUT" or re.search("would take|took more than the limit", self.message):
            return "too long"
        return "no room" if self.verdict in ("cannot run", "skipped") else "refused" if self.verdict == "refused" else "failed"

    @property
    def key(self):
        """Rows with the same key are runs of the same thing, of which the later holds."""
        return self.device_name, self.label, self.pass_, problem_key(self.problem), self.tune is not None


FIELDS = {field.name.rstrip("_"): field for field in dataclasses.fields(Row)}


def fits(value, kind):
    return type(value) is kind or (kind is float and type(value) is int)


def wrong_in(key, nested):
    """ "" or what is wrong with a nested object, such as a problem."""
    for name, kind in NEEDED.get(key, {}).items():
        if not fits(nested.get(name), kind):
            return f"{key}.{name} is {json.dumps(nested.get(name))[:60]}, no {kind.__name__}"
        if name in (*SIZES, "median_ms") and not nested[name] > 0:
            return f"{key}.{name} is {nested[name]}, not above 0"
    return ""


def make(values):
    """The row of a JSON object; ValueError if it is none."""
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    values = {key: value for key, value in values.items() if value is not None}
    for key, value in values.items():
        if key not in FIELDS or not fits(value, FIELDS[key].type):
            raise ValueError(f"'{key}' is {json.dumps(value)[:60]}" + ("" if key in FIELDS else ", which no row has"))
        if wrong := wrong_in(key, value):
            raise ValueError(wrong)
    if missing := [key for key in ("stage", "variant", "pass", "verdict", "device", "problem") if key not in values]:
        raise ValueError(f"has no {' and no '.join(missing)}")
    for key, known in (("pass", PASSES), ("verdict", VERDICTS)):
        if values[key] not in known:
            raise ValueError(f"'{key}' is '{values[key]}', none of {', '.join(known)}")
    return Row(**{FIELDS[key].name: value for key, value in values.items()})


def read(*paths):
    """The rows of all files, of rows with the same key the latest."""
    found = []
    for path in paths:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
        for number, line in enumerate(lines[:-1] if len(lines) > 1 and not lines[-1] else lines, start=1):
            try:
                found.append(make(json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise Failure(2, f"{path}:{number}: {error}; allowed: rows that compare --save wrote") from None
    return latest(found)


def latest(rows):
    """Of rows with the same key the one with the latest date, or the later one, in the order of first appearance."""
    found = {}
    for row in rows:
        if row.key not in found or row.date >= found[row.key].date:
            found[row.key] = row
    return list(found.values())


def write(path, rows):
    """Under another name first, so that the file holds the old rows or the new ones."""
    part = Path(f"{path}.part")
    part.write_text("".join(json.dumps(dict(row), ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")
    part.replace(path)


def failures(rows):
    """By the rule of `compare`, a run that the time limit ended has failed only if its variant finished no problem in that pass, and so may
    hang; otherwise the problem is long."""
    finished = {row.key[:3] for row in rows if row.is_good}
    return [row for row in rows if row.verdict in FAILED and not (row.verdict == "TIMED OUT" and row.key[:3] in finished)]


def frame(rows):
    """A pandas.DataFrame with a line per row, and the fields of problem, tiles and time as columns of their own."""
    import pandas

    def flat(row):
        plain = {key: value for key, value in row.items() if not isinstance(value, (dict, list))}
        nested = {f"{key}_{name}": value for key in ("predicted", "counters", "sustained") for name, value in row.get(key, {}).items()}
        asked = {name: getattr(row, name) for name in ("label", "is_peer", "is_gpu", "is_good", "is_borrowed", "moved_bytes", "absence")}
        return {**row.device, **plain, **row.problem, **(row.tiles or {}), **(row.time or {}), **nested, **asked, "device": row.device_name}

    return pandas.DataFrame([flat(row) for row in rows])


def grouped(rows, key):
    """{key(row): its rows}, in the order of first appearance."""
    found = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def options(problem):
    """[(name, value)] of every field that is not as usual, apart from sizes, mask and type. The scale as far as programs agree on it."""
    found = {
        name: value for name, value in problem.items() if name not in (*SIZES, "causal", "dtype", "scale") and value != USUAL.get(name)
    }
    if abs(problem.get("scale", 0) * problem["head_dim"] ** 0.5 - 1) > 1e-6 and "scale" in problem:
        found["scale"] = float(f"{problem['scale']:.6g}")
    return sorted(found.items())


def problem_key(problem):
    return (*(problem[key] for key in SIZES), problem["causal"], problem["dtype"], *options(problem))


def describe(p):
    """A problem in words: all in which it differs from others."""
    heads = f"H={p['heads']}" if p["heads"] == p["kv_heads"] else f"H={p['heads']} Hkv={p['kv_heads']}"
    lengths = f"N={p['seq_q']}" if p["seq_q"] == p["seq_k"] else f"Nq={p['seq_q']} Nk={p['seq_k']}"
    more = [f" {value}" if name == "layout" else f" {name}={value}" for name, value in options(p)]
    return f"B={p['batch']} {heads} {lengths} d={p['head_dim']}{' causal' if p['causal'] else ''}{''.join(more)} {p['dtype']}"


def size(amount):
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= 1024


def three_digits(value):
    """With the zeros at its end: 30.0 below 27.8."""
    return f"{value:#.3g}".rstrip(".")


def short_commit(commit):
    return commit[:12] + "-dirty" * commit.endswith("-dirty") or "unknown"


def changed(sources):
    """The kernel files that are no longer what a row's `sources` say."""
    return [path for path, saved in sources.items() if saved and saved != code_hash(ROOT / path)]


TOKEN = re.compile(r'//[^\n]*|/\*.*?(?:\*/|$)|"(?:\\.|[^"\\])*"?|\w+|\S', re.DOTALL | re.ASCII)


@functools.cache
def code_hash(path):
    """A hash of a kernel file's tokens without comments, or None if there is no such file; plan.cpp has the same function."""
    if not path.is_file():
        return None
    hashed, last = 0xCBF29CE484222325, ""
    for token in TOKEN.findall(path.read_text(errors="surrogateescape")):
        if token.startswith(("//", "/*")):
            continue
        words = re.fullmatch(r"\w\w", last[-1:] + token[:1], re.ASCII)
        for byte in f"{' ' if words else ''}{token}".encode(errors="surrogateescape"):
            hashed = (hashed ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        last = token
    return f"{hashed:016x}"


def sources_of(file, found=None):
    """{path: code_hash()} of a stage's kernel file and of those of the stages that it includes, as compare saves it."""
    found = {} if found is None else found
    if file not in found and (ROOT / file).is_file():
        found[file] = code_hash(ROOT / file)
        for included in re.findall(r'#include "([^"]+\.cuh)"', (ROOT / file).read_text()):
            sources_of(included, found)
    return {path: hashed for path, hashed in found.items() if path[0].isdigit() or "__global__" in (ROOT / path).read_text()}


def of_report(report):
    """The row of what a stage program said with --json, and no verdict but a good exit code."""
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit = os.environ.get("FLASH_COMMIT") or subprocess.run(git, capture_output=True, text=True).stdout.strip()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return make({**report, "verdict": "ok", "commit": commit, "date": date, "sources": sources_of(report["kernel"])})


def run(name, main):
    """Ends a script as main(arguments) says."""
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        code, message = failure.args
    except OSError as error:
        code, message = 2, f"{error.filename}: {error.strerror}"
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
