"""Of docs/chapters/00_introduction.md: capacity and bandwidth of the memory hierarchy, and the roofline, from the data sheet of an H200."""

import math

from common.compare import h200
from docs.tools.svg import Picture


def memory_hierarchy():
    """Capacities as numbers, bandwidths as bars, to scale."""
    levels = [
        ("registers", h200.SMS * h200.REGISTER_KB_PER_SM / 1024, "MiB", h200.REGISTER_BYTES_PER_SECOND / 1e12, "reg"),
        ("shared memory", h200.SMS * h200.SHARED_KB_PER_SM / 1024, "MiB", h200.SHARED_BYTES_PER_SECOND / 1e12, "smem"),
        ("L2 cache", h200.L2_MB, "MB", None, "l2"),
        ("HBM", h200.HBM_GB, "GB", h200.HBM_BYTES_PER_SECOND / 1e12, "hbm"),
    ]
    p = Picture(
        640,
        "The memory hierarchy of an H200: capacity and bandwidth of each level",
        f"{h200.FP32_FLOPS / 1e12:.0f} TFLOP/s in fp32, {h200.BF16_FLOPS / 1e12:.0f} in bf16 (tensor cores)",
    )
    p.note(110, 66, "capacity", size=18, anchor="end")
    p.note(308, 66, "bandwidth", size=18, anchor="start")
    for n, (name, amount, unit, speed, kind) in enumerate(levels):
        y = 80 + 66 * n + (20 if n == 3 else 0)
        p.box(124, y, 172, 48, kind, name, 18)
        p.label(110, y + 30, f"{amount:.0f} {unit}", 19, anchor="end")
        if speed:
            wide = speed / 1.8
            p.rect(308, y + 8, wide, 32, kind)
            p.label(316 + wide, y + 31, f"{speed:.3g} TB/s", 18, "start")
        else:
            p.note(308, y + 30, "several × HBM, not published", size=18, anchor="start")
    border = 80 + 66 * 3 + 1
    p.line(12, border, 628, border)
    p.note(628, border - 8, "on the chip", size=18, anchor="end")
    p.note(628, border + 22, "off the chip", size=18, anchor="end")
    return p


def roofline_00():
    """The roofs of (0.6), and under them the kernels of section 4: d = 64, N = 4096."""
    p, text = Picture(720, "The roofline of an H200 in fp32 and bf16, with the three kernels of attention and the fused one"), 17
    left, right, top, bottom, (first, last), (low, high) = 64, 690, 76, 420, (-3, 12), (-1, 11)  # powers of 2
    d, n = 64, 4096

    def x(intensity):
        return left + (math.log2(intensity) - first) / (last - first) * (right - left)

    def y(tflops):
        return bottom - (math.log2(tflops) - low) / (high - low) * (bottom - top)

    for power in range(first, last + 1, 3):
        p.line(x(2**power), top, x(2**power), bottom, "thin")
        p.note(x(2**power), bottom + 20, f"{2**power:,}" if power >= 0 else f"1/{2**-power}", size=text)
    for power in range(low + 1, high + 1, 2):
        p.line(left, y(2**power), right, y(2**power), "thin")
        p.note(left - 8, y(2**power) + 5, f"{2**power:,}", size=text, anchor="end")
    p.note(8, 26, "TFLOP/s, at most", size=text, anchor="start")
    p.note((left + right) / 2, bottom + 46, "FLOPs per byte that crosses the border to HBM", size=text)
    speed = h200.HBM_BYTES_PER_SECOND / 1e12
    p.line(x(2**first), y(2**first * speed), x(h200.BF16_FLOPS / 1e12 / speed), y(h200.BF16_FLOPS / 1e12), "strong")
    p.label(x(2), y(17), f"HBM, {speed} TB/s", text, "end")
    for name, peak, width, kind in (("fp32", h200.FP32_FLOPS / 1e12, 4, "c2"), ("bf16", h200.BF16_FLOPS / 1e12, 2, "c1")):
        p.line(x(peak / speed), y(peak), right, y(peak), "strong")
        p.label(right, y(peak) - 10, f"{name}, {peak:.0f} TFLOP/s", text, "end")
        p.line(x(peak / speed), y(peak), x(peak / speed), bottom, "line")
        p.label(x(peak / speed) + 6, bottom - 10, f"ridge {peak / speed:.0f}", text, "start")
        product, fused = 2 * n * n * d, 4 * n * n * d
        for step, flops, elements in (
            ("softmax", 2 * n * n, 2 * n * n),
            ("product", product, 2 * n * d + n * n),
            ("fused", fused, 4 * n * d),
        ):
            intensity = flops / (width * elements)
            reached = min(peak, intensity * speed)
            p.rect(x(intensity) - 6, y(reached) - 6, 12, 12, kind)
            dx, dy, anchor = {"softmax": (12, 12, "start"), "product": (-12, -8, "end"), "fused": (0, 26, "middle")}[step]
            if reached == peak and step == "product":
                dx, dy, anchor = -8, 26, "start"
            p.label(x(intensity) + dx, y(reached) + dy, f"{step}, {name}", text, anchor)
        steps = [(2 * n * n, 2 * n * n, h200.FP32_FLOPS)] + 2 * [(product, 2 * n * d + n * n, 1e12 * peak)]
        seconds = sum(max(flops / rate, width * elements / h200.HBM_BYTES_PER_SECOND) for flops, elements, rate in steps)
        intensity, reached = fused / (width * (4 * n * n + 4 * n * d)), fused / seconds / 1e12
        p.polygon([(x(intensity) + 8 * a, y(reached) + 8 * b) for a, b in ((-1, 0), (0, -1), (1, 0), (0, 1))], kind)
        dx, dy, anchor = (12, 44, "start") if name == "fp32" else (-12, -4, "end")  # clear of the roofs and the ridge
        p.label(x(intensity) + dx, y(reached) + dy, f"all three, {name}", text, anchor)
    p.note(right, 26, "square: one kernel; diamond: all three", size=text, anchor="end")
    return p


def dataflow():
    """What crosses the border of the chip: S and P, or neither."""
    p = Picture(720, "Dataflow of attention: three kernels write S and P to HBM and read them again, a fused kernel keeps them")

    def level(top, border, bottom):
        p.rect(8, top, 704, border - top, "reg")
        p.rect(8, border, 704, bottom - border, "hbm")
        p.label(18, border - 12, "chip", anchor="start")
        p.label(18, border + 24, "HBM", anchor="start")

    p.label(12, 26, "naive: three kernels", 18, "start", bold=True)
    level(38, 138, 232)
    for x, name in [(66, "S = τ Q Kᵀ"), (284, "P = softmax(S)"), (508, "O = P V")]:
        p.box(x, 50, 150, 44, "c0", name)
    for x, wide, name in [(76, 40, "Q"), (122, 40, "K"), (196, 112, "S"), (402, 112, "P"), (560, 40, "V"), (624, 40, "O")]:
        p.box(x, 170, wide, 48 if wide > 40 else 36, name.lower(), name)
    for x in (96, 142, 298, 512, 580):
        p.arrow(x, 170, x, 96)
    for x in (206, 412, 644):
        p.arrow(x, 94, x, 168)
    p.note(712, 26, "S and P: N × N, written and read", anchor="end")
    p.label(12, 270, "fused: one kernel", 18, "start", bold=True)
    p.note(712, 270, "N × d each", anchor="end")
    level(282, 400, 478)
    p.rect(110, 292, 570, 72, "c0")
    p.label(130, 334, "for each tile of K, V:", anchor="start")
    for x, name in [(316, "S tile"), (430, "P tile"), (544, "O += P V")]:
        p.box(x, 304, 104 if x < 500 else 116, 44, name[0].lower(), name)
    for x, name in [(130, "Q"), (290, "K"), (430, "V"), (590, "O")]:
        p.box(x, 430, 60, 36, name.lower(), name)
        p.arrow(x + 30, *((364, x + 30, 428) if name == "O" else (430, x + 30, 366)))
    return p


PICTURES = [memory_hierarchy, roofline_00, dataflow]
