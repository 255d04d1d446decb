"""Of stage 08: the events of its portable steps, and their precision."""

from rows import describe

from .formatting import step, tiles_text
from .saved import newest, section
from .steps import PORTABLE, STAGE

MMA_FLOPS = 2 * 16 * 8 * 16  # of one m16n8k16


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
    """Largest errors of the last steps, beside those of the last fp32 stages on the same problem."""
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
            line += [f"{entry['max_abs']:.1e}", f"{entry['rel_l2']:.1e}", f"{entry['max_abs'] / entry['tolerance']:.2f}"]
        lines.append(line)
    head = [""] + [f"{dtype}: {what}" for dtype in dtypes for what in ("largest error", "relative, L2 norm", "of what is allowed")]
    sixteen = next(row for row in used if row["problem"]["dtype"] == "fp16")
    return section(f"{describe(sixteen['problem'])}, the same numbers in fp32 and bf16, on the simulator", head, lines, used)
