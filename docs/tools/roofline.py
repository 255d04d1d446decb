"""Of docs/roofline.md: where each step saved in docs/results/nvidia_h200 sits, beside the plot `roofline`."""

import h200
from rows import size

from .formatting import step
from .saved import NOTHING_SAVED, newest, section
from .timed import by_problem

DEVICE = "nvidia_h200"
UNITS = {"hbm_percent": "HBM", "l1_percent": "L1 and shared memory", "sm_percent": "issuing instructions", "tensor_percent": "tensor cores"}


def hbm_bytes(row):
    """Read and written by all kernels of the pass, as the profiler counts them."""
    return sum(kernel["hbm_read_bytes"] + kernel["hbm_written_bytes"] for kernel in row["profile"])


def intensity(row):
    """FLOP for each byte."""
    return row["flops"] / hbm_bytes(row)


def roof(row):
    """(R.1)  In FLOP/s."""
    peak = h200.FP32_FLOPS if row["problem"]["dtype"] == "fp32" else h200.BF16_FLOPS
    return min(peak, intensity(row) * h200.HBM_BYTES_PER_SECOND)


def busiest(row):
    """The kernel that takes longest, and the unit that is nearest to its peak while it runs."""
    kernel = max(row["profile"], key=lambda kernel: kernel["time_us"])
    unit = max(UNITS, key=lambda name: kernel.get(name, 0))
    share = kernel["time_us"] / sum(each["time_us"] for each in row["profile"])
    percent = kernel.get(unit, 0)
    limit = UNITS[unit] if percent >= 60 else "none near its peak: waiting"
    return [f"`{kernel['kernel']}`, {100 * share:.0f} %", f"{UNITS[unit]}, {percent:.0f} %", limit]


def stages():
    """The rows of the plot, a table for each pass and problem."""
    head = "step | HBM bytes | FLOP/B | roof, TFLOP/s | measured | % of roof | longest kernel | busiest unit in it | what holds it"

    def line(row):
        rates = [f"{roof(row) / 1e12:.0f}", f"{row['tflops']:.1f}", f"{100 * row['tflops'] * 1e12 / roof(row):.0f}"]
        return [f"{row['stage']} {step(row)}", size(hbm_bytes(row)), f"{intensity(row):.1f}", *rates, *busiest(row)]

    profiled = sorted(
        newest(DEVICE, "compare.jsonl", "profile.jsonl", having="profile"), key=lambda row: (row["pass"] != "forward", row["kernel"])
    )
    tables = [section("{pass}, {problem}", head, list(map(line, rows)), rows) for rows in by_problem(profiled)]
    return "\n\n".join(tables) or NOTHING_SAVED
