"""Of docs/ladder.md: every step of docs/ladder.json, the gains that were predicted and the one that was measured on one GPU; the steps as
files. The steps of stage 08 stand in chapter 08."""

import json
import re
import subprocess
from pathlib import Path

from rows import ROOT, describe

from .formatting import ms, number, shown, step, table
from .saved import NOTHING_SAVED, fastest, newest, of_today, origin, section
from .tensor_bounds import HOPPER

DEVICE = "nvidia_h200"


def entries(direction):
    """The steps as docs/ladder.json has them. Each changes a step before it."""
    found = json.loads((ROOT / "docs" / "ladder.json").read_text())[direction]
    seen = [entry["over"] for entry in found[:1] if "over" in entry]
    for entry in found:
        if entry["step"] in seen or entry.get("over", seen[0] if seen else None) not in [*seen, None]:
            raise SystemExit(f"docs/ladder.json: {entry['step']} is there twice, or changes no step before it")
        seen.append(entry["step"])
    return found


def name_of(name):
    return f"`{name.split('/')[1]}`"


def steps(direction):
    rows = {row.label: row for row in newest(DEVICE, "compare.jsonl", direction=direction, having="time")}
    every = entries(direction)
    known = [entry["step"] for entry in every]
    every += [{"step": step, "why": "Not in docs/ladder.json yet."} for step in rows if step not in known]
    first = rows.get(known[0])

    def gain(before, row):
        return before["time"]["median_ms"] / row["time"]["median_ms"] if row and before else None

    lines, sentences = [], []
    for count, entry in enumerate(every, 1):
        row = rows.get(entry["step"])
        factors = [entry.get("predicted"), entry.get("bounds"), gain(rows.get(entry.get("over")), row), gain(first, row)]
        lines.append(
            [count, entry["step"].split("/")[0], name_of(entry["step"]), known.index(entry["over"]) + 1 if "over" in entry else "–"]
            + [number(factor and float(factor)) for factor in factors]
            + [ms(row), number(row and row["tflops"])]
        )
        measured = entry.get("why") if row else "Not saved yet."
        if "over" in entry or measured:
            expected = f"*Expected:* {entry['from']} " if "from" in entry else ""
            sentences.append(f"- **{count}, {name_of(entry['step'])}.** {expected}{'*Measured:* ' + measured if measured else ''}".rstrip())
    head = "no. | stage | step | changes | gain, estimate | gain, by least times | gain, measured | in all | ms | TFLOP/s"
    return section("{pass}, {problem}", head, lines, list(rows.values()), "\n".join(sentences)) if rows else NOTHING_SAVED


def tensor_steps(direction, *names):
    """Those of stage 08 without a mask at N = 4,096, for two widths; of stages 06 and 07 the same problems in fp32. Of chapter 08, or the
    named ones."""
    rows = {}
    for row in newest(DEVICE, "large.jsonl", "sweep.jsonl", "tensor_steps.jsonl", direction=direction, having="time"):
        p = row["problem"]
        dtype = "fp16" if row["stage"].startswith("08") else "fp32"
        if of_today(row) and (p["seq_q"], p["causal"], p["dtype"]) == (4096, False, dtype):
            rows[row.label, p["head_dim"]] = row
    lines, sentences, used = [], [], []
    for entry in entries(f"tensor_{direction}"):
        step, over = entry["step"], entry["over"]
        variant = step.split("/")[1]
        if variant not in names if names else variant in HOPPER:
            continue
        line = [name_of(step), name_of(over) + ("" if over.startswith("08") else f" of {over[:2]}")]
        for width in (64, 128):
            row, before = rows.get((step, width)), rows.get((over, width))
            estimate = entry.get("predicted")
            estimate = estimate.get(str(width)) if isinstance(estimate, dict) else estimate
            by_bounds = entry.get("bounds", {}).get(str(width))
            measured = row["tflops"] / before["tflops"] if row and before else None
            line += [*(shown(factor, ".2f") for factor in (estimate, by_bounds, measured)), shown(row and row["tflops"], ".0f")]
            used += [one for one in (row, before) if row and one]
        lines.append(line)
        why = entry.get("why") if any((step, width) in rows for width in (64, 128)) else "not saved yet."
        sentences.append(f"- **{name_of(step)}.** *Expected:* {entry['from']}" + (f" *Measured:* {why}" if why else ""))
    if not lines:
        return NOTHING_SAVED
    head = "step | changes"
    for width in (64, 128):
        head += f" | d = {width}: gain, estimate | by the bounds | measured | TFLOP/s"
    body = f"{table(head, lines)}\n\n" + "\n".join(sentences)
    if not used:
        return body
    title = f"{used[0]['device']['name']}, {direction}, {describe(used[0]['problem'])} and the like for the other d."
    return f"{body}\n\n{title} {origin(used)}"


def beside_peers(direction):
    """The best of the stages, and each of torch's kernels that takes the problem, on the problems that both were timed on."""
    peers = newest(DEVICE, "peers.jsonl", direction=direction, having="time")
    ours = newest(DEVICE, "compare.jsonl", "large.jsonl", "sweep.jsonl", direction=direction, having="time")
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
    return section(f"{direction}, torch {torch}; in brackets how many times as fast the step here is", head, lines, used) or NOTHING_SAVED


# Not counted among what there is to read: views, launches, scores, PTX wrappers and tables of sizes are the same for all kernels, and
# chapters 00 and 01 introduce them.
HARNESS = re.compile(r"common/(?!device/softmax\.cuh)|08_tensor_cores/parts/(launch|launch_hopper|padding)\.cuh")


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


def files():
    """What each step changes of the step before it, and how much there is to read to follow it."""
    rows = {}
    for name in ("forward", "backward", "tensor_forward", "tensor_backward"):
        for entry in entries(name):
            path, before = file_of(entry["step"]), file_of(entry["over"]) if "over" in entry else None
            if path is None or path in rows:  # stage 01 has both passes in one file
                continue
            read = to_read(path, [])
            rows[path] = [f"[`{path}`](../{path})", lines_of(path), changed(before, path) if before else "–", len(read)]
            rows[path] += [sum(map(lines_of, read)), ", ".join(f"`{Path(other).name}`" for other in read[1:]) or "–"]
    return table("step | lines | changed lines | files to read | lines to read | beside it", list(rows.values()))
