"""Of docs/00_introduction.md: three tokens in numbers, attention on the roofline, the memory hierarchy."""

import math

from plots import h200
from rows import size

from .formatting import tabled
from .svg import Picture

TOKENS = {"the": [1, 0, 0, 1], "cat": [0, 1, 0, 1], "sat": [0, 0, 1, 1]}  # their embeddings
WEIGHTS = {  # [4, 4]; columns 0 and 1 are head 0's, 2 and 3 head 1's
    "Q": [[1, 1, 1, 0], [2, 0, 0, 1], [0, 2, -1, -1], [0, 0, 0, 0]],
    "K": [[2, 0, 2, 0], [0, 2, 0, 2], [-1, -1, -2, -2], [0, 0, 0, 0]],
    "V": [[1, 0, 0, 1], [0, 1, -1, 0], [1, 1, 2, -1], [0, 0, 1, 1]],
}


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a)]


def projected(name):
    """Rows of Q, K or V of all heads: the embeddings times one weight matrix."""
    return product(list(TOKENS.values()), WEIGHTS[name])


@tabled("token | $`x`$ | $`q`$ of head 0 and 1 | $`k`$ | $`v`$")
def embeddings():
    """Section 1: what each token asks, offers and carries."""
    for at, (token, x) in enumerate(TOKENS.items()):
        halves = ([values[:2], values[2:]] for values in (projected(name)[at] for name in "QKV"))
        yield [f"*{token}*", vector(x), *(" and ".join(map(vector, pair)) for pair in halves)]


def vector(values):
    return f"({', '.join(map(str, values))})"


def head(number):
    """(0.1) of one head: S, P and O, by row."""
    q, k, v = ([row[2 * number : 2 * number + 2] for row in projected(name)] for name in "QKV")
    s = [[x / math.sqrt(2) for x in row] for row in product(q, transposed(k))]
    p = [[math.exp(x) / sum(map(math.exp, row)) for x in row] for row in s]
    return s, p, product(p, v)


@tabled("query | $`S`$: its score of *the*, *cat*, *sat* | $`P`$: the weights | $`O`$: their mean of $`v`$")
def three_tokens(number):
    for token, s, p, o in zip(TOKENS, *head(int(number))):
        yield [f"*{token}*", *(", ".join(f"{x:.2f}" for x in row) for row in (s, p, o))]


@tabled(" | step | FLOPs | bytes | FLOP/B | arithmetic, µs | memory, µs | bound by")
def roofline():
    """Section 4: what bounds each of the three kernels, and a fused one."""
    n, d = 4096, 64
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16", 2, h200.BF16_FLOPS)]:
        steps = [
            ("S = QKᵀ/√d", 2 * n * n * d, width * (2 * n * d + n * n)),
            ("P = softmax(S)", 3 * n * n, 2 * width * n * n),
            ("O = PV", 2 * n * n * d, width * (n * n + 2 * n * d)),
        ]
        fused = ("**fused**", sum(s[1] for s in steps), width * 4 * n * d)
        bound = 0.0
        for name, work, moved in [*steps, fused]:
            if name == fused[0]:
                yield [dtype, "three kernels", "", "", "", "", f"{bound:.1f} in all", ""]
            # The softmax does not run on tensor cores, whatever its numbers' width.
            rate = h200.FP32_FLOPS if "softmax" in name else peak
            compute, memory = work / rate * 1e6, moved / h200.HBM_BYTES_PER_SECOND * 1e6
            bound += max(compute, memory)
            limit = "memory" if memory > compute else "arithmetic"
            yield [dtype, name, f"{work / 1e9:.2f} G", size(moved), f"{work / moved:.1f}", f"{compute:.1f}", f"{memory:.1f}", limit]


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
