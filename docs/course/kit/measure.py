"""Runs a built program on problems, and has its saved results judged by another process."""

import hashlib
import json
import math
import random
import re
import struct
from typing import NamedTuple

from kit import Fault, Usage, build, sandbox

STEPS = 1 << 22  # of a simulated thread, before it counts as endless
COUNTERS = ("sectors", "bank_conflicts", "barriers")


class Run(NamedTuple):
    done: sandbox.Done
    report: dict  # None: the program did not give one


def run(program, exercise, options, folder, *, order="forward", save=False, check=True, trusted=False):
    folder.mkdir(parents=True)
    given = with_window(options, folder)
    env = {"FLASH_SIMT_ORDER": order, "FLASH_SIMT_STEPS": str(STEPS), "FLASH_SIMT_TARGET": str(exercise.target), "FLASH_SIMT_THREADS": "2"}
    argv = [
        program,
        "--device",
        "cpu",
        "--variant",
        exercise.variant,
        "--dtype",
        exercise.dtype,
        "--pass",
        exercise.passes,
        "--json",
        *given,
    ]
    argv += [] if check else ["--no-check"]
    argv += ["--save", "out"] if save else []
    done = sandbox.run(argv, folder, env=env, read=(program, *window_of(given)), keep=["out"] if save else [], trusted=trusted)
    return Run(done, well_formed(done.out, check) if done.code in (0, 1) else None)


def well_formed(text, checked):
    """The report, or None. It may be forged, so that it need not even be one."""
    try:
        report = json.loads(text)
        counts(report)
        return report if isinstance(report.get("threads", {}), dict) and (not checked or "check" in report) else None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def with_window(options, folder):
    """What a program of a stage understands: of `--window W` a folder of inputs, whose bias is -inf for all but the last W keys that a causal mask
    would leave to a query, and the keys after them."""
    if "--window" not in options:
        return options
    given = dict(zip(options, options[1:]))
    size = {name: int(given.get(f"--{name}", 1)) for name in ("batch", "heads", "head-dim")}
    kv_heads = int(given.get("--kv-heads", size["heads"]))
    rows, keys = (int(given.get(f"--seq-{of}", given.get("--seq"))) for of in "qk")
    random_numbers = random.Random(" ".join(options))
    place = (folder / "window").resolve()
    place.mkdir()
    for name, heads, length in (("q", size["heads"], rows), ("k", kv_heads, keys), ("v", kv_heads, keys), ("do", size["heads"], rows)):
        shape = (size["batch"], heads, length, size["head-dim"])
        write_npy(place / f"{name}.npy", shape, (random_numbers.gauss(0, 1) for _ in range(math.prod(shape))))
    first = keys - rows - int(given["--window"])  # of a query i the keys up to i + first are masked
    write_npy(place / "bias.npy", (1, 1, rows, keys), (0.0 if j > i + first else -math.inf for i in range(rows) for j in range(keys)))
    kept = re.sub(r" --(window|seed) \S+", "", " ".join(options)).split()
    return [*kept, "--load", str(place)]


def window_of(options):
    """The folder of inputs among the options of with_window()."""
    return options[-1:] if "--load" in options else []


def write_npy(path, shape, values):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{math.prod(shape)}f", *values))


def judge(build_folder, exercise, options, folder):
    """Are the results that lie in folder/out right? Asked of a process that never saw the student's code."""
    if not (folder / "out").is_dir():
        return False
    place = folder / "judge"
    place.mkdir()
    program, given = build.unchanged(build_folder / "bin" / build.JUDGE), with_window(options, place)
    argv = [
        program,
        "--device",
        "cpu",
        "--variant",
        "saved",
        "--no-watch",
        "--json",
        "--dtype",
        exercise.dtype,
        "--pass",
        exercise.passes,
        *given,
    ]
    env = {"COURSE_SAVED": str(folder / "out"), "FLASH_SIMT_TARGET": str(exercise.target)}
    done = sandbox.run(argv, place, env=env, read=(program, folder / "out", *window_of(given)))
    if done.code not in (0, 1):
        raise Fault(f"{build.JUDGE} ended with {done.code}: {done.err.strip() or 'no message'}")
    return done.code == 0


def fingerprint(folder):
    """Of the saved results, to the last bit."""
    digest = hashlib.sha256()
    for file in sorted((folder / "out").glob("*.npy")):
        if file.is_file() and not file.is_symlink():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def counts(report):
    counters = report["counters"]
    found = {name: int(counters[name]) for name in COUNTERS}
    return found | {"bytes": int(counters["read_bytes"] + counters["written_bytes"]), "extra_memory": int(report["extra_memory_bytes"])}


def windowed(case, window):
    """The options of a problem with a window, which comes in place of a bias, and with inputs that are drawn outside the program."""
    return re.sub(r" --(input|bias|scale) \S+", "", case) + f" --window {window}"


class Draw:
    """Numbers that follow from a text alone, on every machine."""

    def __init__(self, seed):
        self.seed, self.count = seed, 0

    def number(self, least, most):
        self.count += 1
        digest = hashlib.sha256(f"{self.seed}/{self.count}".encode()).digest()
        return least + int.from_bytes(digest[:8], "big") % (most - least + 1)

    def one_of(self, values):
        return values[self.number(0, len(values) - 1)]


# In the problem with this index one size is long; the others are short, to save time. It finds code that is right for short rows only.
LONG = {1: ("seq_k", 257, 640), 3: ("seq_q", 257, 640), 4: ("head_dim", 65, 128)}


def draw_problems(exercise, seed, count):
    """Problems that the student has not seen: lengths, heads, head dimension, mask, bias and numbers."""
    limits = {
        "seq_q": [1, 90],
        "seq_k": [1, 90],
        "head_dim": [1, 40],
        "bias": ["none", "none", "vector", "matrix", "alibi"],
    } | exercise.draw
    unknown = set(limits) - {"seq_q", "seq_k", "head_dim", "bias", "large"}
    if unknown:
        raise Usage(f"{exercise.name}: [draw] has {sorted(unknown)}")
    draw, problems, window = Draw(f"{exercise.name}/{seed}"), [], exercise.changes.get("window", 0)
    for n in range(count):
        long, *long_limits = LONG.get(n, ("",))
        if long == "head_dim" and long in exercise.draw:
            long = ""
        most_heads = 1 if long else 2
        kv_heads = draw.number(1, most_heads)
        options = ["--batch", draw.number(1, most_heads), "--kv-heads", kv_heads, "--heads", kv_heads * draw.number(1, 2)]
        for name in ("seq_q", "seq_k", "head_dim"):
            least, most = limits[name]
            if name == long:
                least, most = long_limits
            elif long and name != "head_dim":
                most = min(most, max(least, 20))
            options += ["--" + name.replace("_", "-"), most if n == 0 else draw.number(least, most)]  # one as large as any
        options += ["--bias", draw.one_of(limits["bias"]), "--seed", draw.number(1, 1 << 30)]
        options += ["--causal"] if n % 2 else []
        options += ["--input", "large"] if n == 2 and limits.get("large", True) else []
        if long == "seq_k":  # a few keys outweigh each of the others by far, but not all of them together
            options += ["--input", "identity", "--scale", draw.number(10, 14)]
        if window:
            options = windowed(" ".join(map(str, options)), window).split()
        problems.append([str(word) for word in options])
    return problems


def share(points, part, whole):
    return math.floor(points * part / whole)
