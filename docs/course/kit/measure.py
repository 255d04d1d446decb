"""Runs a built program on problems, and has its saved results judged by another process."""

import hashlib
import json
import math
from typing import NamedTuple

from kit import Usage, build, sandbox

STEPS = 1 << 22  # of a simulated thread, before it counts as endless
COUNTERS = ("sectors", "bank_conflicts", "barriers")


class Run(NamedTuple):
    done: sandbox.Done
    report: dict  # None: the program did not give one


def run(program, exercise, options, folder, *, order="forward", save=False, check=True):
    folder.mkdir(parents=True)
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
        *options,
    ]
    argv += [] if check else ["--no-check"]
    argv += ["--save", "out"] if save else []
    done = sandbox.run(argv, folder, env=env)
    try:
        report = json.loads(done.out)
    except ValueError:
        report = None
    good = report is not None and (not check or "check" in report) and done.code in (0, 1)
    return Run(done, report if good else None)


def judge(build_folder, exercise, options, folder):
    """Are the results that lie in folder/out right? Asked of a process that never saw the student's code."""
    place = folder / "judge"
    place.mkdir()
    argv = [
        build_folder / "bin" / build.JUDGE,
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
        *options,
    ]
    done = sandbox.run(argv, place, env={"COURSE_SAVED": str(folder / "out"), "FLASH_SIMT_TARGET": str(exercise.target)})
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
    found = {name: counters[name] for name in COUNTERS}
    return found | {"bytes": counters["read_bytes"] + counters["written_bytes"], "extra_memory": report["extra_memory_bytes"]}


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
    draw, problems = Draw(f"{exercise.name}/{seed}"), []
    for n in range(count):
        kv_heads = draw.number(1, 2)
        options = ["--batch", draw.number(1, 2), "--kv-heads", kv_heads, "--heads", kv_heads * draw.number(1, 2)]
        for name in ("seq_q", "seq_k", "head_dim"):
            least, most = limits[name]
            options += ["--" + name.replace("_", "-"), most if n == 0 else draw.number(least, most)]  # one as large as any
        options += ["--bias", draw.one_of(limits["bias"]), "--seed", draw.number(1, 1 << 30)]
        options += ["--causal"] if n % 2 else []
        options += ["--input", "large"] if n == 2 and limits.get("large", True) else []
        problems.append([str(word) for word in options])
    return problems


def share(points, part, whole):
    return math.floor(points * part / whole)
