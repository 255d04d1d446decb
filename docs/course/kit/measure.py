"""Runs a built program on problems: what it reports, what it prints, which problems `grade` draws."""

import hashlib
import json
import random
import re
from typing import NamedTuple

from . import sandbox
from .exercise import ROOT

INPUTS = ROOT / "docs" / "course" / "exercises" / "inputs"  # of problems that no option makes
SECONDS = 30  # of processor time: the largest problem takes 6 on a fast machine, and the simulator ends endless loops before
STEPS = 1 << 22  # of a simulated thread, before it counts as endless


class Run(NamedTuple):
    done: sandbox.Done
    report: dict  # None: the program did not give one
    printed: str  # by the kernel


def run(program, exercise, options, folder, *, order="forward", save=False, boxed=False):
    folder.mkdir(parents=True)
    options = [str(INPUTS / word) if before == "--load" else word for before, word in zip(["", *options], options)]
    env = {"FLASH_SIMT_ORDER": order, "FLASH_SIMT_STEPS": str(STEPS), "FLASH_SIMT_TARGET": str(exercise.target), "FLASH_SIMT_THREADS": "2"}
    env |= dict(word.split("=") for word in options if word.startswith("FLASH_"))
    argv = [program, "--device", "cpu", "--variant", exercise.variant, "--dtype", exercise.dtype, "--pass", exercise.pass_, "--json"]
    argv += [*(word for word in options if not word.startswith("FLASH_")), *(["--save", "out"] if save else [])]
    done = sandbox.run(argv, folder, sandbox.Limits(seconds=SECONDS), env=env, boxed=boxed)
    printed, report = parted(done.out)
    return Run(done, report if done.code in (0, 1) else None, printed)


def parted(out):
    """(what a kernel printed, the report that follows it, or None)"""
    start = max((found.start() for found in re.finditer(r'\{\s*"stage":', out)), default=len(out))
    try:
        report = json.loads(out[start:])
    except ValueError:
        return out[:start], None
    return out[:start], report if "check" in report else None


def counts(report):
    counters = report["counters"]
    found = {name: int(counters[name]) for name in ("sectors", "bank_conflicts", "barriers")}
    found |= {"bytes": int(counters["read_bytes"] + counters["written_bytes"])}
    return found | {"tensors": counters["tensors"]}


def fingerprint(folder):
    """Of the saved results, to the last bit."""
    digest = hashlib.sha256()
    for file in sorted((folder / "out").glob("*.npy")):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


DRAWN = 6  # problems, and one with scores too large for exp
# In the problem with this index one size is long; the others are short, to save time. It finds code that is right for short rows only.
LONG = {1: ("seq_k", 257, 640), 3: ("seq_q", 257, 640), 4: ("head_dim", 65, 128)}


def draw_problems(exercise, seed):
    """Problems that the student has not seen: lengths, heads, head dimension, mask and numbers."""
    limits = {"seq_q": [1, 90], "seq_k": [1, 90], "head_dim": [1, 40]} | exercise.draw
    draw, problems = random.Random(f"{exercise.name}/{seed}"), []
    for n in range(DRAWN):
        long, *long_limits = LONG.get(n, ("",))
        if long == "head_dim" and long in exercise.draw:
            long = ""
        most_heads = 1 if long else 2
        kv_heads = draw.randint(1, most_heads)
        options = ["--batch", draw.randint(1, most_heads), "--kv-heads", kv_heads, "--heads", kv_heads * draw.randint(1, 2)]
        for name in ("seq_q", "seq_k", "head_dim"):
            least, most = limits[name]
            if name == long:
                least, most = long_limits
            elif long and name != "head_dim":
                most = min(most, max(least, 20))
            options += ["--" + name.replace("_", "-"), most if n == 0 else draw.randint(least, most)]  # one as large as any
        options += ["--seed", draw.randint(1, 1 << 30)]
        if n % 2:
            options += ["--causal"]
        if n == 2 and limits.get("large", True):
            options += ["--input", "large"]
        if long == "seq_k":  # a few keys outweigh each of the others by far, but not all of them together
            options += ["--input", "identity", "--scale", draw.randint(10, 14)]
        problems.append([str(word) for word in options])
    if limits.get("large", True):  # all scores alike, and exp of each of them infinite
        rows, keys, width = (draw.randint(*limits[name]) for name in ("seq_q", "seq_k", "head_dim"))
        scale = draw.randint(150, 300) / width
        problems.append(f"--heads 1 --seq-q {rows} --seq-k {keys} --head-dim {width} --input ramp --scale {scale:g}".split())
    return problems
