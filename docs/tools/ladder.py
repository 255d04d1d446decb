"""The steps of steps.py in docs/reference/ladder.md, with gains that were predicted and measured, and the steps as files."""

import re
import subprocess

from common.compare.rows import ROOT

from .formatting import ms, number, table
from .saved import H200, newest, section
from .steps import STEPS


def steps(direction):
    rows = {row.label: row for row in newest(H200, "compare.jsonl", direction=direction, having="time")}
    known = {step.name: step for step in STEPS[direction]}
    first, lines = rows[next(iter(known))], []
    for count, name in enumerate([*known, *(name for name in rows if name not in known)], 1):
        (stage, variant), row = name.split("/"), rows.get(name)
        _, over, estimate, bounds = known.get(name, (name, None, None, None))
        gains = [before["time"]["median_ms"] / row["time"]["median_ms"] if row and before else None for before in (rows.get(over), first)]
        factors = [number(factor and float(factor)) for factor in (estimate, bounds, *gains)]
        changes = list(known).index(over) + 1 if over else "–"
        lines.append([count, stage, f"`{variant}`", changes, *factors, ms(row), number(row and row["tflops"])])
    head = "no. | stage | step | over | gain, estimate | gain, by the bounds | gain, measured | in all | ms | TFLOP/s"
    return section("{pass}, {problem}", head, lines, list(rows.values()))


def file_of(step):
    """'06_fa2_forward/tuned': its path, relative to the project; found by the name of its variant."""
    stage, variant = step.split("/")
    for path in sorted((ROOT / stage).rglob("*.cuh")):
        if re.search(rf'(\.name = |_step<shapes[^>]*>\(\s*)"{variant}"', path.read_text()):
            return path.relative_to(ROOT).as_posix()
    return None


def changed(before, after):
    """Added and removed lines, as git counts them."""
    done = subprocess.run(["git", "diff", "--no-index", "--numstat", before, after], cwd=ROOT, capture_output=True, text=True, check=False)
    added, removed, *_ = done.stdout.split()
    return f"+{added} −{removed}"


# Steps that only explain, before the step that is timed.
BETWEEN = {"04_fa1_forward/tiled": ("04_fa1_forward/fused", "04_fa1_forward/key_tiles")}


def files():
    """What each step changes of the step before it."""
    lines, steps = {}, []
    for one in (one for every in STEPS.values() for one in every):
        names = *BETWEEN.get(one.name, ()), one.name
        steps += zip(names, (one.over, *names))
    for name, over in steps:
        path, before = file_of(name), over and file_of(over)
        if path not in lines:  # stage 01 has both passes in one file
            count = len((ROOT / path).read_text().splitlines())
            lines[path] = [f"[`{path}`](../../{path})", count, changed(before, path) if before else "–"]
    return table("step | lines | changed lines", list(lines.values()))
