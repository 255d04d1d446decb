"""Of docs/chapters/00_introduction.md: capacity and bandwidth of the memory hierarchy, and the roofline, from the data sheet of an H200."""

import math

from common.compare import h200
from docs.tools.svg import Picture


def memory_hierarchy():
    """Capacities as numbers, bandwidths as bars, to scale."""
    levels = [
        ("registers", h200.SMS * h200.REGISTER_KB_PER_SM / 1024, "MiB", h200.REGISTER_BYTES_PER_SECOND / 1e12, "c1"),
        ("shared memory", h200.SMS * h200.SHARED_KB_PER_SM / 1024, "MiB", h200.SHARED_BYTES_PER_SECOND / 1e12, "c3"),
        ("L2 cache", h200.L2_MB, "MiB", None, "c2"),
        ("HBM", h200.HBM_GB, "GB", h200.HBM_BYTES_PER_SECOND / 1e12, "c4"),
    ]
    p = Picture(820, 366, "The memory hierarchy of an H200: capacity and bandwidth of each level")
    p.label(410, 26, f"arithmetic: {h200.FP32_FLOPS / 1e12:.0f} TFLOP/s fp32, {h200.BF16_FLOPS / 1e12:.0f} bf16 (tensor cores)", bold=True)
    p.note(284, 58, "capacity in all", size=14, anchor="end")
    p.note(528, 58, "bandwidth", size=14, anchor="start")
    for n, (name, amount, unit, speed, kind) in enumerate(levels):
        y = 72 + 68 * n + (14 if n == 3 else 0)
        p.box(300, y, 220, 48, "c0", name, 15)
        p.label(284, y + 30, f"{amount:.0f} {unit}", 18, anchor="end")
        if speed:
            wide = speed / 2
            p.rect(528, y + 8, wide, 32, kind)
            p.label(536 + wide, y + 29, f"{speed:.3g} TB/s", anchor="start")
        else:
            p.note(536, y + 29, "several times HBM (not published)", anchor="start")
    border = 72 + 68 * 3 + 3
    p.line(20, border, 800, border)
    p.note(796, border - 8, "on the chip", anchor="end")
    p.note(796, border + 20, "off the chip", anchor="end")
    return p


def roofline_00():
    """The roofs of (0.6), and under them the kernels of section 4: d = 64, N = 4096."""
    p, text = Picture(820, 440, "The roofline of an H200 in fp32 and bf16, with the three kernels of attention and the fused one"), 15
    left, right, top, bottom, (first, last), (low, high) = 70, 790, 50, 372, (-3, 12), (-1, 11)  # powers of 2
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
    p.note(left, 30, "TFLOP/s, at most", size=text, anchor="start")
    p.note((left + right) / 2, bottom + 46, "FLOPs per byte that crosses the border to HBM (both axes logarithmic)", size=text)
    speed = h200.HBM_BYTES_PER_SECOND / 1e12
    p.line(x(2**first), y(2**first * speed), x(h200.BF16_FLOPS / 1e12 / speed), y(h200.BF16_FLOPS / 1e12), "strong")
    p.label(x(2.6), y(26), f"HBM, {speed} TB/s", text, "end")
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
                dx, dy, anchor = 0, 26, "start"
            p.label(x(intensity) + dx, y(reached) + dy, f"{step}, {name}", text, anchor)
        steps = [(2 * n * n, 2 * n * n, h200.FP32_FLOPS)] + 2 * [(product, 2 * n * d + n * n, 1e12 * peak)]
        seconds = sum(max(flops / rate, width * elements / h200.HBM_BYTES_PER_SECOND) for flops, elements, rate in steps)
        intensity, reached = fused / (width * (4 * n * n + 4 * n * d)), fused / seconds / 1e12
        p.polygon([(x(intensity) + 8 * a, y(reached) + 8 * b) for a, b in ((-1, 0), (0, -1), (1, 0), (0, 1))], kind)
        dx, dy, anchor = (10, 31, "start") if name == "fp32" else (-12, -4, "end")  # clear of the roofs and the ridge
        p.label(x(intensity) + dx, y(reached) + dy, f"all three, {name}", text, anchor)
    p.note(right, 30, "square: one kernel; diamond: three, one after another", size=text, anchor="end")
    return p


def dataflow():
    """What crosses the border of the chip: S and P, or neither."""
    p, border, text = (
        Picture(880, 350, "Dataflow of attention: three kernels write S and P to HBM and read them again, a fused kernel keeps them"),
        204,
        16,
    )
    p.label(220, 32, "naive: three kernels", 17, bold=True)
    for x, name in [(12, "S = τ Q Kᵀ"), (155, "P = softmax(S)"), (298, "O = P V")]:
        p.box(x, 74, 130, 48, "c3", name, text)
    for x, wide, high, name in [(12, 56, 34, "Q, K"), (98, 104, 62, "S"), (240, 104, 62, "P"), (352, 34, 34, "V"), (394, 34, 34, "O")]:
        p.box(x, 240, wide, high, "c4" if name in ("S", "P") else "c1", name, text)
    for x in (40, 178, 322, 369):
        p.arrow(x, 240, x, 124)
    for x in (122, 264, 411):
        p.arrow(x, 122, x, 238)
    p.note(221, 328, "S and P: N × N each, written and read", size=text)
    p.line(442, 20, 442, 334, "thin")
    p.label(664, 32, "fused: one kernel", 17, bold=True)
    p.rect(486, 62, 330, 100, "c3")
    p.label(651, 88, "for each tile of K, V:", text)
    p.label(651, 114, "S tile, P tile, O += P V", text, bold=True)
    p.note(651, 142, "in registers and shared memory", size=text)
    for x, name in [(510, "Q"), (590, "K"), (670, "V"), (748, "O")]:
        p.box(x, 240, 52, 34, "c1", name, text)
        p.arrow(x + 26, *((162, x + 26, 238) if name == "O" else (240, x + 26, 164)))
    p.note(651, 328, "N × d each", size=text)
    for left, right in ((8, 430), (456, 872)):
        p.line(left, border, right, border, "thin")
    p.note(872, border - 10, "chip", size=text, anchor="end")
    p.note(872, border + 22, "HBM", size=text, anchor="end")
    return p


PICTURES = [memory_hierarchy, roofline_00, dataflow]
