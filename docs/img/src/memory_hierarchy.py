"""Of docs/chapters/00_introduction.md: capacity and bandwidth of the memory hierarchy, from the data sheet of an H200."""

import math

import h200
from tools.svg import Picture


def memory_hierarchy():
    """Bars: capacity grows to the left, bandwidth to the right."""
    levels = [
        ("registers", h200.SMS * h200.REGISTER_KB_PER_SM / 1024, "MB", h200.REGISTER_BYTES_PER_SECOND / 1e12, "c1"),
        ("shared memory, L1", h200.SMS * h200.SHARED_KB_PER_SM / 1024, "MB", h200.SHARED_BYTES_PER_SECOND / 1e12, "c3"),
        ("L2 cache", h200.L2_MB, "MB", None, "c2"),
        ("HBM", h200.HBM_GB, "GB", h200.HBM_BYTES_PER_SECOND / 1e12, "c4"),
    ]
    p = Picture(820, 366, "The memory hierarchy of an H200: capacity and bandwidth of each level, on logarithmic scales")
    p.label(410, 26, f"arithmetic: {h200.FP32_FLOPS / 1e12:.0f} TFLOP/s fp32, {h200.BF16_FLOPS / 1e12:.0f} bf16 (tensor cores)", bold=True)
    p.note(170, 58, "capacity in all (log scale)", size=14)
    p.note(640, 58, "bandwidth (log scale)", size=14)
    for n, (name, amount, unit, speed, kind) in enumerate(levels):
        y = 72 + 68 * n + (14 if n == 3 else 0)
        p.box(300, y, 220, 48, "c0", name, 15)
        length = 45 * math.log10(amount * (1024 if unit == "GB" else 1) / 4)  # longer by 45 for ten times as much
        p.rect(292 - length, y + 8, length, 32, kind)
        p.label(284 - length, y + 29, f"{amount:.0f} {unit}", anchor="end")
        if speed:
            wide = 80 * math.log10(speed / 1.2)
            p.rect(528, y + 8, wide, 32, kind)
            p.label(536 + wide, y + 29, f"{speed:.1f} TB/s" if speed < 100 else f"{speed:.0f} TB/s", anchor="start")
        else:
            p.note(536, y + 29, "several times HBM (not published)", anchor="start")
    border = 72 + 68 * 3 + 3
    p.line(20, border, 800, border)
    p.note(796, border - 8, "on the chip", anchor="end")
    p.note(796, border + 20, "off the chip", anchor="end")
    return p


PICTURES = [memory_hierarchy]
