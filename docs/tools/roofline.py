"""The roofline: of attention as counted in the introduction, and where each step saved in docs/results/nvidia_h200 sits, beside the plot
`roofline`."""

from plots import h200
from plots.roofline import hbm_bytes, intensity, profiled
from rows.text import describe, size

from . import plot_files
from .formatting import table
from .saved import origin

DEVICE = "nvidia_h200"


def introduction():
    """Section 4 of the introduction."""
    n, d = 4096, 64
    rows = []
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16", 2, h200.BF16_FLOPS)]:
        steps = [
            ("S = QKᵀ/√d", 2 * n * n * d, width * (2 * n * d + n * n)),
            ("P = softmax(S)", 3 * n * n, 2 * width * n * n),
            ("O = PV", 2 * n * n * d, width * (n * n + 2 * n * d)),
        ]
        fused = ("**fused**", sum(s[1] for s in steps), width * 4 * n * d)
        bound = 0.0
        for name, work, moved in steps + [fused]:
            # The softmax does not run on tensor cores, whatever its numbers' width.
            rate = h200.FP32_FLOPS if "softmax" in name else peak
            compute, memory = work / rate * 1e6, moved / h200.HBM_BYTES_PER_SECOND * 1e6
            if name != fused[0]:
                bound += max(compute, memory)
            limit = "memory" if memory > compute else "arithmetic"
            rows.append([dtype, name, f"{work / 1e9:.2f} G", size(moved), f"{work / moved:.1f}", f"{compute:.1f}", f"{memory:.1f}", limit])
        rows.insert(-1, [dtype, "three kernels", "", "", "", "", f"{bound:.1f} in all", ""])
    return table(["", "step", "FLOPs", "bytes", "FLOP/B", "arithmetic, µs", "memory, µs", "bound by"], rows)


def roof(row):
    """(R.1)  In FLOP/s."""
    peak = h200.FP32_FLOPS if row["problem"]["dtype"] == "fp32" else h200.BF16_FLOPS
    return min(peak, intensity(row) * h200.HBM_BYTES_PER_SECOND)


UNITS = {"hbm_percent": "HBM", "l1_percent": "L1 and shared memory", "sm_percent": "issuing instructions", "tensor_percent": "tensor cores"}


def busiest(row):
    """The kernel that takes longest, and the unit that is nearest to its peak while it runs."""
    kernel = max(row["profile"], key=lambda kernel: kernel["time_us"])
    unit = max(UNITS, key=lambda name: kernel.get(name, 0))
    share = kernel["time_us"] / sum(each["time_us"] for each in row["profile"])
    percent = kernel.get(unit, 0)
    limit = UNITS[unit] if percent >= 60 else "none near its peak: waiting"
    return [f"`{kernel['kernel']}`, {100 * share:.0f} %", f"{UNITS[unit]}, {percent:.0f} %", limit]


def stages_table():
    """The rows of the plot `roofline`."""
    rows = profiled(plot_files.rows(DEVICE))
    if not rows:
        return "*No profile saved yet.*"
    lines = [
        [describe(row["problem"]), row["pass"], row["stage"], f"`{row['variant']}`", size(hbm_bytes(row)), f"{intensity(row):.1f}"]
        + [f"{roof(row) / 1e12:.0f}", f"{row['tflops']:.1f}", f"{100 * row['tflops'] * 1e12 / roof(row):.0f}"]
        + busiest(row)
        for row in rows
    ]
    head = ["problem", "pass", "stage", "variant", "HBM bytes", "FLOP/B", "roof, TFLOP/s", "measured", "% of roof", "longest kernel", "busiest unit in it", "what holds it"]
    return f"{rows[0]['device']['name']}:\n\n{table(head, lines)}\n\n{origin(rows)}"
