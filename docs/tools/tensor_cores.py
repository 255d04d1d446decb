"""Of stage 08: the gains, the events and the profiles of its portable steps, and their precision."""

import re

from common.compare.rows import ROOT, describe

from .formatting import shown, step, tiles_text
from .ladder import file_of, rows_of_tensor_steps
from .profiling import SMALL_KERNEL
from .saved import H200, newest, section
from .steps import PORTABLE, STAGE, STEPS, allowed

MMA_FLOPS = 2 * 16 * 8 * 16  # of one m16n8k16


def idea_of(path, variant):
    """What the step's file says is new in it."""
    return re.search(rf'"{variant}",\s*"([^"]*)"', (ROOT / path).read_text())[1]


def gains(direction):
    """The ladder that opens a chapter: the last fp32 step and each portable one, what the chapter's formulas predict, and what was measured."""
    rows = rows_of_tensor_steps(direction)
    steps = [one for one in STEPS[f"tensor_{direction}"] if one.variant in PORTABLE[direction]]
    stage = steps[0].over.split("/")[0]
    lines, used, before = [], [], {}
    for count, name in enumerate([steps[0].over, *(one.name for one in steps)]):
        path, variant = file_of(name), name.split("/")[1]
        cells = [f"{count or stage[:2]} [`{variant}`](../../{path})", idea_of(path, variant) if count else "in fp32, to compare"]
        for at, width in enumerate((64, 128)):
            row = rows.get((name, width))
            gain = f" (× {row['tflops'] / before[width]['tflops']:.2f})" if row and width in before else ""
            cells += [shown(allowed(name)[at], ".0f"), shown(row and row["tflops"], ".0f") + gain]
            if row:
                before[width] = row
                used.append(row)
        lines.append(cells)
    head = "step | what is new | d = 64: predicted | measured | d = 128: predicted | measured"
    heads = {row["problem"]["head_dim"]: row["problem"]["heads"] for row in used}
    p = used[-1]["problem"]
    title = f"{p['dtype']}, N = {p['seq_q']}, B = {p['batch']}, H = {heads[64]} for d = 64 and {heads[128]} for d = 128, TFLOP/s"
    return section(f"{{pass}}, {title}; ×: over the row above", head, lines, used)


def waits(direction):
    """Of the portable steps' profiles: how busy tensor cores and issue slots are, and what a warp waits for most between two instructions."""
    rows = newest(H200, "profile.jsonl", stage=STAGE, direction=direction, having="profile")
    rows = [row for row in rows if row["variant"] in PORTABLE[direction]]
    lines = []
    for row in rows:
        whole = sum(kernel["time_us"] for kernel in row["profile"])
        kernels = [kernel for kernel in row["profile"] if kernel["time_us"] > SMALL_KERNEL * whole]
        for kernel in kernels:
            stalls = {key.removeprefix("stall_"): cycles or 0 for key, cycles in kernel.items() if key.startswith("stall_")}
            name = step(row) + (f", `{kernel['kernel']}`" if len(kernels) > 1 else "")
            busy = [shown(kernel[f"{unit}_percent"], ".0f") for unit in ("tensor", "issue")]
            longest = sorted((reason for reason in stalls if reason != "selected"), key=stalls.get, reverse=True)[:2]
            reasons = ", ".join(f"*{reason.replace('_', ' ')}* {stalls[reason]:.1f}" for reason in longest)
            lines.append([name, *busy, f"{sum(stalls.values()):.1f}", reasons])
    head = "step | tensor pipe, % | issue slots, % | cycles per instruction of a warp | of these, the longest waits"
    return section("{problem}", head, lines, rows)


def counts(direction):
    """Bank conflicts and other events of the steps of a pass, on one problem without a mask."""
    used = [row for row in newest("cpu", "tensor_io.jsonl", direction=direction) if row["variant"] in PORTABLE[direction]]
    lines = [
        [step(row), tiles_text(row["tiles"])]
        + [f"{2 * row['counters']['tensor_core_products'] // MMA_FLOPS:,}"]
        + [f"{row['counters'][name]:,}" for name in ("bank_conflicts", "barriers", "warp_operations", "atomics")]
        for row in used
    ]
    head = "step | tiles | `m16n8k16` | bank conflicts | barriers | warp operations | atomic additions"
    return section("{problem}, on the simulator", head, lines, used)


def precision():
    """Errors of the last steps, and of the last fp32 stages on the same problem."""
    of_pass = {
        "forward": [("06_fa2_forward", "tuned"), (STAGE, PORTABLE["forward"][-1])],
        "backward": [("07_fa2_backward", "one_kernel"), (STAGE, PORTABLE["backward"][-1])],
    }
    used = [row for row in newest("cpu", "compare.jsonl", "tensor.jsonl") if (row["stage"], row["variant"]) in of_pass[row["pass"]]]
    found = {}  # the forward pass of a backward step is checked too
    for row in used:
        for name, entry in row["check"]["tensors"].items():
            if row["pass"] == "forward" or name not in ("o", "lse"):
                found[name, row["problem"]["dtype"]] = entry
    lines, dtypes = [], ("fp32", "fp16", "bf16")
    for name, title in {"o": "O", "lse": "L", "dq": "dQ", "dk": "dK", "dv": "dV"}.items():
        line = [title]
        for entry in (found[name, dtype] for dtype in dtypes):
            line.append(f"{entry['rel_l2']:.1e}")
        lines.append(line)
    sixteen = next(row for row in used if row["problem"]["dtype"] == "fp16")
    title = f"Relative errors in the L2 norm, {describe(sixteen['problem'])}, the same numbers in fp32 and bf16, on the simulator"
    return section(title, ["", *dtypes], lines, used)
