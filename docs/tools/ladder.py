"""Of docs/reference/ladder.md and stage 08: the steps of steps.py, the gains that were predicted and the one that was measured; the steps as files."""

import re
import subprocess
from pathlib import Path

from common.compare.rows import ROOT, describe

from .formatting import ms, number, shown, step, table
from .quotes import definition
from .saved import H200, fastest, newest, of_today, origin, section
from .steps import PORTABLE, STEPS, allowed


def steps(direction):
    rows = {row.label: row for row in newest(H200, "compare.jsonl", direction=direction, having="time")}
    known = [step.name for step in STEPS[direction]]
    first, lines = rows[known[0]], []
    for count, name in enumerate([*known, *(name for name in rows if name not in known)], 1):
        (stage, variant), row = name.split("/"), rows.get(name)
        _, over, estimate, bounds = STEPS[direction][count - 1] if name in known else (name, None, None, None)
        gains = [before["time"]["median_ms"] / row["time"]["median_ms"] if row and before else None for before in (rows.get(over), first)]
        factors = [number(factor and float(factor)) for factor in (estimate, bounds, *gains)]
        changes = known.index(over) + 1 if over else "–"
        lines.append([count, stage, f"`{variant}`", changes, *factors, ms(row), number(row and row["tflops"])])
    head = "no. | stage | step | over | gain, estimate | gain, by the bounds | gain, measured | in all | ms | TFLOP/s"
    return section("{pass}, {problem}", head, lines, list(rows.values()))


def rows_of_tensor_steps(direction):
    """{(stage/variant, d): row} of stage 08 without a mask at N = 4,096, for two widths; of stages 06 and 07 the same problems in fp32."""
    rows = {}
    for row in newest(H200, "large.jsonl", "tensor_steps.jsonl", direction=direction, having="time"):
        p = row["problem"]
        dtype = "fp16" if row["stage"].startswith("08") else "fp32"
        if of_today(row) and (p["seq_q"], p["causal"], p["dtype"]) == (4096, False, dtype):
            rows[row.label, p["head_dim"]] = row
    return rows


def tensor_steps(direction, *names):
    """Those of stage 08, expected and measured: the portable ones, or the named ones."""
    rows = rows_of_tensor_steps(direction)
    lines, used = [], []
    for one in STEPS[f"tensor_{direction}"]:
        if one.variant not in (names or PORTABLE[direction]):
            continue
        stage, over = one.over.split("/")
        lines.append([f"`{one.variant}`", f"`{over}`" + ("" if stage == one.stage else f" of {stage[:2]}")])
        for at, width in enumerate((64, 128)):
            row, before = rows.get((one.name, width)), rows.get((one.over, width))
            bound, bound_before = allowed(one.name)[at], allowed(one.over)[at]
            expected = [one.estimate[at] if isinstance(one.estimate, tuple) else one.estimate, bound and bound / bound_before]
            factors = [*expected, row["tflops"] / before["tflops"] if row and before else None]
            lines[-1] += [*(shown(factor, ".2f") for factor in factors), shown(row and row["tflops"], ".0f")]
            used += [row, before] if row and before else []
    head = "step | changes"
    for width in (64, 128):
        head += f" | d = {width}: gain, estimate | by the bounds | measured | TFLOP/s"
    title = f"{used[0].device_name}, {direction}, {describe(used[0]['problem'])} and the like for the other d."
    return f"{table(head, lines)}\n\n{title} {origin(used)}"


def beside_peers(direction):
    """The best of the stages, and each of torch's kernels that takes the problem, on the problems that both were timed on."""
    peers = newest(H200, "peers.jsonl", direction=direction, having="time")
    ours = newest(H200, "compare.jsonl", "large.jsonl", direction=direction, having="time")
    variants = list(dict.fromkeys(row["variant"] for row in peers))
    lines, used = [], []
    for problem in dict.fromkeys(describe(row["problem"]) for row in peers):
        best = fastest(row for row in ours if describe(row["problem"]) == problem)
        if best:
            times = {row["variant"]: row for row in peers if describe(row["problem"]) == problem}
            used += [best, *times.values()]
            ratios = {name: f"{number(row['tflops'])} (×{best['tflops'] / row['tflops']:.2f})" for name, row in times.items()}
            beside = [ratios.get(name, "–") for name in variants]
            lines.append([problem, f"{best['stage']} {step(best)}", number(best["tflops"]), *beside])
    head = ["problem", "best step here", "TFLOP/s", *(f"torch, {name.replace('_', '-')}" for name in variants)]
    torch = ", ".join(sorted({row["torch"] for row in peers if "torch" in row}))
    return section(f"{direction}, torch {torch}; in brackets how many times as fast the step here is", head, lines, used)


# Not counted among what there is to read: views, launches, scores, PTX wrappers and tables of sizes are the same for all kernels, and
# chapters 00 and 01 introduce them.
HARNESS = re.compile(r"common/(?!device/(?:softmax|rows)\.cuh)|08_tensor_cores/parts/(launch|launch_hopper|padding)\.cuh")
# Except for what runs on the GPU in files of host code: types that a kernel, or the types before them, use by name.
ON_THE_GPU = {"Work": "08_tensor_cores/parts/launch_hopper.cuh", "BlockOrder": "08_tensor_cores/parts/launch.cuh"}


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


def to_read(path, seen):
    """The files that a kernel is made of, itself first."""
    if path not in seen and not HARNESS.match(path) and (ROOT / path).exists():
        seen.append(path)
        for name in re.findall(r'^#include "([^"]+\.cuh)"', (ROOT / path).read_text(), re.MULTILINE):
            to_read(name, seen)
    return seen


def lines_of(path):
    return len((ROOT / path).read_text().splitlines())


def types_to_read(files):
    """{file of host code: lines of its types that these files use}."""
    text, found = "\n".join((ROOT / path).read_text() for path in files), {}
    for name, path in ON_THE_GPU.items():
        if re.search(rf"\b{name}(?:<Shape>)? \w+\(|\b{name}<Shape>\(", text):
            lines = definition(path, name)
            found[path], text = len(lines), text + "\n".join(lines)
    return found


# Steps that only explain, before the step that is timed, and the step that each changes.
STEPS_BETWEEN = {"04_fa1_forward/tiled": ("04_fa1_forward/fused", "03_online_softmax/thread_per_row")}

# Side steps, and the step that each changes.
SIDE_STEPS = {
    "06_fa2_forward/decode": "06_fa2_forward/short_softmax",
    "06_fa2_forward/options": "06_fa2_forward/tuned",
    "06_fa2_forward/lorentz": "06_fa2_forward/tuned",
    "06_fa2_forward/centroid": "06_fa2_forward/lorentz",
    "07_fa2_backward/options": "07_fa2_backward/one_kernel",
    "07_fa2_backward/bias_gradient": "07_fa2_backward/options",
    "07_fa2_backward/lorentz": "07_fa2_backward/one_kernel",
    "07_fa2_backward/centroid": "07_fa2_backward/lorentz",
    "08_tensor_cores/decode": "06_fa2_forward/decode",
    "08_tensor_cores/options": "08_tensor_cores/tuned",
    "08_tensor_cores/options_hopper": "08_tensor_cores/scheduled",
    "08_tensor_cores/options_backward": "08_tensor_cores/one_kernel",
    "08_tensor_cores/bias_gradient": "08_tensor_cores/options_backward",
    "08_tensor_cores/relay": "08_tensor_cores/ring",
    "08_tensor_cores/divided": "08_tensor_cores/ordered",
    "08_tensor_cores/lead": "08_tensor_cores/bulk",
    "08_tensor_cores/lean": "08_tensor_cores/lead",
}


def names_of_files(paths):
    """With their folders where two have the same name."""
    names = [Path(path).name for path in paths]
    return [f"`{Path(path).parent.name}/{name}`" if names.count(name) > 1 else f"`{name}`" for path, name in zip(paths, names)]


def files():
    """What each step changes of the step before it, and how much there is to read to follow it."""
    rows = {}
    steps = []
    for one in (one for every in STEPS.values() for one in every):
        between = STEPS_BETWEEN.get(one.name)
        steps += [between, (one.name, between[0])] if between else [(one.name, one.over)]
    for name, over in [*steps, *SIDE_STEPS.items()]:
        path, before = file_of(name), over and file_of(over)
        if path not in rows:  # stage 01 has both passes in one file
            read = {file: lines_of(file) for file in to_read(path, [])}
            read |= types_to_read(read)
            rows[path] = [f"[`{path}`](../../{path})", lines_of(path), changed(before, path) if before else "–", len(read)]
            rows[path] += [sum(read.values()), ", ".join(names_of_files(list(read)[1:])) or "–"]
    return table("step | lines | changed lines | files to read | lines to read | these files", list(rows.values()))
