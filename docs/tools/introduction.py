"""Of docs/00_introduction.md: attention on the roofline, the memory hierarchy, and where data flows."""

from plots import h200
from rows.text import size

from .formatting import table
from .svg import Picture


def roofline():
    """Section 4: what bounds each of the three kernels, and a fused one."""
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
    return table(" | step | FLOPs | bytes | FLOP/B | arithmetic, µs | memory, µs | bound by", rows)


def memory_hierarchy():
    levels = [
        ("registers", f"{h200.SMS * h200.REGISTER_KB_PER_SM / 1024:.0f} MB", f"{h200.REGISTER_BYTES_PER_SECOND / 1e12:.0f} TB/s", "c1"),
        ("shared memory, L1", f"{h200.SMS * h200.SHARED_KB_PER_SM / 1024:.0f} MB", f"{h200.SHARED_BYTES_PER_SECOND / 1e12:.1f} TB/s", "c3"),
        ("L2 cache", f"{h200.L2_MB} MB", "", "c2"),
        ("HBM", f"{h200.HBM_GB} GB", f"{h200.HBM_BYTES_PER_SECOND / 1e12:.1f} TB/s", "c4"),
    ]
    p = Picture(760, 330, "The memory hierarchy of an H200")
    top, height, center, slope = 36, 64, 380, 0.72
    p.label(
        center, 22, f"arithmetic: {h200.FP32_FLOPS / 1e12:.0f} TFLOP/s fp32, {h200.BF16_FLOPS / 1e12:.0f} bf16 (tensor cores)", bold=True
    )
    for n, (name, amount, speed, kind) in enumerate(levels):
        y = top + n * (height + 6)
        upper, lower = 80 + slope * (y - top), 80 + slope * (y - top + height)
        p.polygon([(center - upper, y), (center + upper, y), (center + lower, y + height), (center - lower, y + height)], kind)
        p.label(center, y + 27, name, 15 if len(name) < 12 else 14, bold=True)
        p.label(center, y + 48, amount)
        p.label(center + lower + 14, y + 38, speed, anchor="start")
    border = top + 3 * (height + 6) - 3
    p.line(20, border, 740, border, "thin")
    p.note(24, border - 10, "on the chip", anchor="start")
    p.note(24, border + 20, "off the chip", anchor="start")
    return p


PICTURES = [memory_hierarchy]
