"""Of docs/reference/roofline.md: where each step saved in docs/results/nvidia_h200 sits, beside the plot `roofline`."""

from common.compare import h200
from common.compare.rows import size

from .formatting import step
from .profiling import in_words, waits
from .saved import H200, newest, section
from .timed import by_problem

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
    """The unit that is nearest to its peak in the kernel that takes longest, and what this kernel's warps wait for, if that was counted."""
    kernel = max(row["profile"], key=lambda kernel: kernel["time_us"])
    unit = max(UNITS, key=lambda name: kernel.get(name, 0))
    share = kernel["time_us"] / sum(each["time_us"] for each in row["profile"])
    name = f"`{kernel['kernel']}`: " if share < 0.9 else ""
    return [f"{name}{UNITS[unit]}, {kernel.get(unit, 0):.0f} %", in_words(waits(kernel), 2)]


def stages(*steps):
    """The rows of the plot, a table for each pass and problem; of some steps, as STAGE/VARIANT."""
    head = "step | HBM bytes | FLOP/B | roof, TFLOP/s | measured | % of roof | busiest unit | largest waits"

    def line(row):
        rates = [f"{roof(row) / 1e12:.0f}", f"{row['tflops']:.1f}", f"{100 * row['tflops'] * 1e12 / roof(row):.0f}"]
        return [f"{row['stage'].split('_')[0]} {step(row)}", size(hbm_bytes(row)), f"{intensity(row):.1f}", *rates, *busiest(row)]

    def part(rows):
        lines, heads = list(map(line, rows)), head.split(" | ")
        counted = any(cells[-1] for cells in lines)
        return section("{pass}, {problem}", heads if counted else heads[:-1], lines if counted else [cells[:-1] for cells in lines], rows)

    profiled = [row for row in newest(H200, "compare.jsonl", "profile.jsonl", having="profile") if not steps or row.label in steps]
    profiled.sort(key=lambda row: (row["pass"] != "forward", row["kernel"]))
    return "\n\n".join(map(part, by_problem(profiled)))
