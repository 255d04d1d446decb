"""Saved rows of `compare`: what a row is, which rows are runs of the same thing, which have failed, and hashes of kernels. A file of rows
is JSON Lines."""

import functools
import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")
USUAL = {"bias": "none", "layout": "bhnd", "input": "normal", "seed": 1}  # what describe() leaves out
PASSES = ("forward", "backward")
FAILED = ("WRONG", "STOPPED", "CRASHED", "TIMED OUT")
VERDICTS = ("ok", "refused", "cannot run", *FAILED)


class Failure(Exception):
    """(exit code, message): ends a program with one line on stderr."""


class Row(dict):
    """The JSON object of one run: one variant, one pass, one problem. row.time is row["time"], or None if the run has none."""

    __getattr__ = dict.get

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
    def device_name(self):
        """Counts of the simulator are the same on every CPU, but not for every GPU that it simulates."""
        if self.is_gpu:
            return self.device["name"] or "unknown device"
        sm = self.device.get("simulates_sm", 90)
        return "CPU simulator" + ("" if sm == 90 else f" of sm_{sm}")

    @property
    def moved_bytes(self):
        """What the threads read from and write to global memory: as counted, or on a GPU as the stage predicts."""
        counts = self.counters or self.predicted
        return counts["read_bytes"] + counts["written_bytes"] if counts else None

    @property
    def tflops(self):
        return self.flops / (self.time["median_ms"] * 1e9) if self.time else None

    @property
    def percent_of_peak(self):
        peak = self.device.get("peak_fp32_tflops" if self.problem["dtype"] == "fp32" else "peak_tensor16_tflops")
        return 100 * self.tflops / peak if self.time and peak else None

    @property
    def key(self):
        """Rows with the same key are runs of the same thing."""
        p, tuned = self.problem, None if self.tune is None else (self.tune.get("br"), self.tune.get("bc"))
        return self.device_name, self.label, self["pass"], (*map(p.get, (*SIZES, "causal", "dtype")), *unusual(p)), tuned


def make(values):
    """The row of a JSON object, without what is null or empty text; ValueError if it is none."""
    try:
        row = Row((key, value) for key, value in values.items() if value not in (None, ""))
        above_0 = [row["problem"][name] for name in SIZES] + ([row.time["median_ms"]] if row.time else [])
        sum(row[name] for name in ("flops", "compulsory_bytes", "extra_memory_bytes") if name in row)  # which only numbers have
        row["stage"], row["variant"], row.key, row.moved_bytes, row.tflops  # programs ask every row for these
        if row["pass"] not in PASSES or row["verdict"] not in VERDICTS or min(above_0) <= 0:
            raise ValueError("its pass, verdict, sizes or time are none")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"no row: {type(error).__name__}: {error}") from None
    return row


def read(*paths):
    """The rows of all files, of rows with the same key the latest."""
    found = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    found.append(make(json.loads(line)))
                except (ValueError, RecursionError) as error:
                    raise Failure(2, f"{path}:{number}: {error}; allowed: rows that compare --save wrote") from None
    return latest(found)


def latest(rows):
    """One row per key, that with the latest date (the last one, if several have it), in the order of first appearance."""
    found = {}
    for row in rows:
        if row.key not in found or (row.date or "") >= (found[row.key].date or ""):
            found[row.key] = row
    return list(found.values())


def line(row):
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def failures(rows):
    """A run that the time limit ended has failed only if its variant finished no problem in that pass, and so may hang; otherwise the
    problem is long."""
    finished = {row.key[:3] for row in rows if row.is_good}
    return [row for row in rows if row.verdict in FAILED and not (row.verdict == "TIMED OUT" and row.key[:3] in finished)]


def grouped(rows, key):
    """{key(row): its rows}, in the order of first appearance."""
    found = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def unusual(problem):
    """[(name, value)] of every field that is not as usual, apart from sizes, mask and type. Numbers as far as programs agree on them."""
    found = [(name, float(f"{value:.6g}") if isinstance(value, float) else value) for name, value in sorted(problem.items())]
    usual = {**USUAL, "scale": float(f"{problem['head_dim'] ** -0.5:.6g}")}
    return [(name, value) for name, value in found if name not in (*SIZES, "causal", "dtype") and value != usual.get(name)]


def describe(p):
    """A problem in words: all in which it differs from others."""
    heads = f"H={p['heads']}" if p["heads"] == p["kv_heads"] else f"H={p['heads']} Hkv={p['kv_heads']}"
    lengths = f"N={p['seq_q']}" if p["seq_q"] == p["seq_k"] else f"Nq={p['seq_q']} Nk={p['seq_k']}"
    options = [f" {value}" if name == "layout" else f" {name}={value}" for name, value in unusual(p)]
    return f"B={p['batch']} {heads} {lengths} d={p['head_dim']}{' causal' if p['causal'] else ''}{''.join(options)} {p['dtype']}"


def bytes_text(amount, digits=3):
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if amount >= 10 ** (digits - 1) else f"{amount:.{digits}g} {unit}"
        amount /= 1024


def three_digits(value):
    """With the zeros at its end: 30.0 below 27.8."""
    return f"{value:#.3g}".rstrip(".")


def changed(sources):
    """The kernel files that are no longer what a row's `sources` say."""
    return [path for path, saved in sources.items() if saved and saved != code_hash(ROOT / path)]


SKIPPED = r"//[^\n]*|/\*.*?(?:\*/|\Z)|^[ \t]*#[ \t]*include\b[^\n]*"
TOKEN = re.compile(rf'{SKIPPED}|("(?:\\.|[^"\\])*"?|\w+|\S)', re.DOTALL | re.ASCII | re.MULTILINE)


@functools.cache
def code_hash(path):
    """A hash of a kernel file's tokens, without comments and #include lines, or None if there is no such file: a row outlives a better
    comment and a file that moved."""
    if not path.is_file():
        return None
    tokens = filter(None, TOKEN.findall(path.read_text(errors="surrogateescape")))
    return hashlib.sha256("\n".join(tokens).encode(errors="surrogateescape")).hexdigest()[:16]


def ladder_order(kernel):
    """A key that sorts kernel files as the ladder has them: 2_swizzle.cuh before 10_lazy_maximum.cuh."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", kernel)]


@functools.cache
def device_code(file):
    """{path: text} of a kernel file and of all .cuh files and tables of shapes that it includes."""
    code, unread = {}, [file]
    while unread:
        path = unread.pop()
        if path not in code and (ROOT / path).is_file():
            code[path] = (ROOT / path).read_text(errors="replace")
            unread += re.findall(r'#include "([^"]+(?:\.cuh|/shapes\.hpp))"', code[path])
    return code


@functools.cache
def sources_of(file):
    """{path: code_hash()} of a kernel file's device code that is a stage's or holds a kernel."""
    code = sorted(device_code(file).items())
    return {path: code_hash(ROOT / path) for path, text in code if path[0].isdigit() or "__global__" in text}


def run_main(name, main):
    """Ends a program as main(arguments) says."""
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        code, message = failure.args
    except OSError as error:
        code, message = 2, f"{error.filename or 'its output'}: {error.strerror}"
    except KeyboardInterrupt:
        code, message = 130, "interrupted"
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
