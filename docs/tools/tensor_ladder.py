"""The steps of stage 08 with the gains that were predicted and the one measured: docs/ladder.json, (8.9), and tensor_cores.json."""

import json

from plots.h200 import FP32_FLOPS
from rows.text import describe

from .fa2_shapes import shape_of, share
from .formatting import table
from .saved import ROOT, gpus, newest_rows, of_this_step, origin
from .tensor_shapes import FORWARD, default_needs

LENGTH = 4096


def most(step, width):
    """TFLOP/s that the chapters' bounds allow, or None."""
    stage, variant = step.split("/")
    if stage == "06_fa2_forward":
        return share(shape_of(variant, width)) * FP32_FLOPS / 1e12
    return default_needs(variant, width).tflops() if variant in FORWARD else None


def times_of(device, direction):
    """{(step, d): row} without a mask; of stages 06 and 07 the same problems in fp32."""
    found = {}
    for files, dtype in [(("large.json", "sweep.json"), "fp32"), (("tensor_cores.json",), "fp16")]:
        for row in newest_rows(device, *files):
            p = row["problem"]
            if "time" in row and of_this_step(row) and (row["pass"], p["dtype"], p["seq_q"], p["causal"]) == (direction, dtype, LENGTH, False):
                found[f"{row['stage']}/{row['variant']}", p["head_dim"]] = row
    return found


def factor(value):
    return "–" if value is None else f"{value:.2f}"


def steps_08(direction):
    entries = json.loads((ROOT / "docs" / "ladder.json").read_text())[f"tensor_{direction}"]
    device = gpus()[0]
    rows = times_of(device, direction)
    lines, sentences, used = [], [], []
    for entry in entries:
        step, over = entry["step"], entry["over"]
        line = [f"`{step.split('/')[1]}`", f"`{over.split('/')[1]}`" + ("" if over.startswith("08") else f" of {over[:2]}")]
        for width in (64, 128):
            row, before = rows.get((step, width)), rows.get((over, width))
            bounds = most(over, width), most(step, width)
            estimate = entry.get("predicted")
            estimate = estimate.get(str(width)) if isinstance(estimate, dict) else estimate
            line += [factor(estimate), factor(None if None in bounds else bounds[1] / bounds[0])]
            line += [factor(row["tflops"] / before["tflops"] if row and before else None), f"{row['tflops']:.0f}" if row else "–"]
            used += [one for one in (row, before) if row and one]
        lines.append(line)
        measured = entry.get("why", "") if any((step, width) in rows for width in (64, 128)) else "not saved yet."
        sentences.append(f"- **`{step.split('/')[1]}`.** *Expected:* {entry['from']}" + (f" *Measured:* {measured}" if measured else ""))
    head = ["step", "changes"]
    for width in (64, 128):
        head += [f"d = {width}: gain, estimate", "by the bounds", "measured", "TFLOP/s"]
    body = f"{table(head, lines)}\n\n" + "\n".join(sentences)
    return f"{body}\n\n{used[0]['device']['name']}, {direction}, {describe(used[0]['problem'])} and the like for the other d. {origin(used)}" if used else body
