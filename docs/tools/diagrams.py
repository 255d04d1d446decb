"""Draws docs/img/*.svg from the constants of the kernels. docs/generate.py writes them.

Sizes that the code fixes (TILE, WARP) are read from the kernel files, so a picture cannot show another number than the code has.
"""

from math import exp

from plots import h200

from . import fa2_diagrams, fa2b_diagrams, fused_diagrams, tensor_diagrams, tensor_timelines
from .constants import constant
from .svg import Picture


def grid(p, x, y, rows, cols, cell, kind=lambda r, c: "c0"):
    for r in range(rows):
        for c in range(cols):
            p.rect(x + c * cell, y + r * cell, cell, cell, kind(r, c))


def memory_hierarchy():
    levels = [
        ("registers", f"{h200.SMS * h200.REGISTER_KB_PER_SM / 1024:.0f} MB", f"{h200.REGISTER_BYTES_PER_SECOND / 1e12:.0f} TB/s", "c1"),
        ("shared memory, L1", f"{h200.SMS * h200.SHARED_KB_PER_SM / 1024:.0f} MB", f"{h200.SHARED_BYTES_PER_SECOND / 1e12:.1f} TB/s", "c3"),
        ("L2 cache", f"{h200.L2_MB} MB", "", "c2"),
        ("HBM", f"{h200.HBM_GB} GB", f"{h200.HBM_BYTES_PER_SECOND / 1e12:.1f} TB/s", "c4"),
    ]
    p = Picture(760, 330, "The memory hierarchy of an H200")
    top, height, center, slope = 36, 64, 380, 0.72
    p.label(center, 22, f"arithmetic: {h200.FP32_FLOPS / 1e12:.0f} TFLOP/s fp32, {h200.BF16_FLOPS / 1e12:.0f} bf16 (tensor cores)", 14, bold=True)
    for n, (name, size, speed, kind) in enumerate(levels):
        y = top + n * (height + 6)
        upper, lower = 80 + slope * (y - top), 80 + slope * (y - top + height)
        p.polygon([(center - upper, y), (center + upper, y), (center + lower, y + height), (center - lower, y + height)], kind)
        p.label(center, y + 27, name, 15 if len(name) < 12 else 14, bold=True)
        p.label(center, y + 48, size, 14)
        if speed:
            p.label(center + lower + 14, y + 38, speed, 14, "start")
    border = top + 3 * (height + 6) - 3
    p.line(20, border, 740, border, "thin")
    p.label(24, border - 10, "on the chip", 13, "start", "dim")
    p.label(24, border + 20, "off the chip", 13, "start", "dim")
    return p


def dataflow():
    p = Picture(860, 330, "Dataflow of attention: naive and fused")

    def hbm(x, y, w, name, big=False):
        p.rect(x, y, w, 56 if big else 30, "c4" if big else "c1", 4)
        p.label(x + w / 2, y + (33 if big else 20), name, 14, bold=big)

    # Naive: three kernels; S and P go down to HBM and come up again.
    p.label(220, 26, "naive: three kernels", 15, bold=True)
    p.label(430, 58, "chip", 13, "end", "dim")
    p.label(430, 318, "HBM", 13, "end", "dim")
    p.line(10, 196, 430, 196, "thin")
    for n, name in enumerate(["S = τ Q Kᵀ", "P = softmax(S)", "O = P V"]):
        p.rect(24 + n * 134, 80, 114, 44, "c3", 6)
        p.label(81 + n * 134, 107, name, 14)
    hbm(20, 240, 56, "Q, K")
    hbm(96, 226, 76, "S", True)
    hbm(230, 226, 76, "P", True)
    hbm(316, 240, 40, "V")
    hbm(370, 240, 40, "O")
    p.arrow(48, 238, 60, 126)
    p.arrow(104, 126, 124, 224)
    p.arrow(150, 224, 184, 126)
    p.arrow(232, 126, 256, 224)
    p.arrow(282, 224, 316, 126)
    p.arrow(338, 238, 344, 126)
    p.arrow(372, 126, 388, 238)
    p.label(201, 302, "N × N each: written and read", 13, kind="dim")
    # Fused: one kernel.
    p.line(444, 14, 444, 318, "thin")
    p.label(650, 26, "fused: one kernel", 15, bold=True)
    p.line(458, 196, 850, 196, "thin")
    p.rect(490, 62, 320, 96, "c3", 6)
    p.label(650, 86, "for each tile of K, V:", 14)
    p.label(650, 110, "S tile, P tile, O += P V", 14, bold=True)
    p.label(650, 138, "registers and shared memory", 13, kind="dim")
    for x, name in [(520, "Q"), (590, "K"), (660, "V")]:
        hbm(x, 240, 50, name)
        p.arrow(x + 25, 238, x + 25, 160)
    hbm(740, 240, 50, "O")
    p.arrow(765, 160, 765, 238)
    p.label(650, 302, "N × d each", 13, kind="dim")
    return p


def tiled_product():
    tile = constant("01_naive/kernel.cuh", "TILE")
    p = Picture(820, 340, "A tile of C is a sum of products of tiles of A and B")
    cell, n = 34, 5
    row, col = 2, 3

    def matrix(x, y, name, kind):
        for r in range(n):
            for c in range(n):
                p.rect(x + c * cell, y + r * cell, cell, cell, kind(r, c))
        p.label(x + n * cell / 2, y - 12, name, 16, bold=True)

    y = 70
    matrix(40, y, "A", lambda r, c: "c2" if r == row and c == 1 else "c1" if r == row else "c0")
    matrix(300, y, "B", lambda r, c: "c2" if c == col and r == 1 else "c3" if c == col else "c0")
    matrix(560, y, "C", lambda r, c: "c4" if (r, c) == (row, col) else "c0")
    p.label(255, y + 92, "·", 30)
    p.label(515, y + 92, "=", 26)
    p.label(40 + n * cell / 2, y + n * cell + 24, "tile row I", 14, kind="dim")
    p.label(300 + n * cell / 2, y + n * cell + 24, "tile column J", 14, kind="dim")
    p.label(560 + n * cell / 2, y + n * cell + 24, "one thread block", 14, kind="dim")
    p.label(410, y + n * cell + 62, f"A cell is a tile of {tile} × {tile} elements. Orange: the pair in shared memory now, 2 · {tile} · {tile + 1} · 4 = {2 * tile * (tile + 1) * 4} bytes.", 14)
    p.label(410, y + n * cell + 84, f"Each of their elements is read once from HBM and {tile} times from shared memory.", 14)
    return p


def butterfly():
    warp = constant("common/device/warp.cuh", "WARP")
    lanes = 8
    p = Picture(760, 330, "Reduction of a warp by xor shuffles")
    left, step_x, top, gap = 150, 78, 60, 74
    distances = [4, 2, 1]
    for lane in range(lanes):
        p.label(left + lane * step_x, 30, f"lane {lane}", 13, kind="dim")
    held = [{lane} for lane in range(lanes)]
    for level in range(len(distances) + 1):
        y = top + level * gap
        for lane in range(lanes):
            size = len(held[lane])
            p.rect(left + lane * step_x - 28, y - 14, 56, 28, f"c{[0, 1, 3, 4][level]}", 6)
            text = str(lane) if size == 1 else "+".join(map(str, sorted(held[lane]))) if size == 2 else "all" if size == lanes else ",".join(map(str, sorted(held[lane])))
            p.label(left + lane * step_x, y + 5, text, 13 if size < 4 else 11 if size == 4 else 13)
        if level == len(distances):
            break
        s = distances[level]
        p.label(24, y + gap / 2 + 5, f"xor {s}", 14, "start", bold=True)
        for lane in range(lanes):
            x = left + lane * step_x
            p.arrow(x, y + 15, x, y + gap - 16)
            target = left + (lane ^ s) * step_x
            p.line(x, y + 15, target + (5 if target < x else -5), y + gap - 17, "line")
        held = [held[lane] | held[lane ^ s] for lane in range(lanes)]
    steps = warp.bit_length() - 1
    p.label(left + 3.5 * step_x, top + 3 * gap + 38, f"A warp has {warp} lanes and needs {steps} steps: xor {', '.join(str(warp >> k) for k in range(1, steps + 1))}.", 13, kind="dim")
    return p


def merge():
    a, b = [0.6, 1.7, 1.1], [2.6, 1.9, 0.9, 2.2]
    p = Picture(820, 282, "Merging the statistics of two sets of scores")
    height, width, base = 130, 30, 210

    def bars(x, scores, m, kind):
        for n, s in enumerate(scores):
            h = height * exp(s - m)
            p.rect(x + n * (width + 6), base - h, width, h, kind)
            p.label(x + n * (width + 6) + width / 2, base + 18, f"{s:g}", 12, kind="dim")
        p.line(x - 8, base, x + len(scores) * (width + 6) + 2, base, "line")

    ma, mb = max(a), max(b)
    m = max(ma, mb)
    la, lb = sum(exp(s - ma) for s in a), sum(exp(s - mb) for s in b)
    p.label(100, 30, "set a", 15, bold=True)
    p.label(100, 52, f"m = {ma:g},  l = {la:.2f}", 14)
    bars(46, a, ma, "c1")
    p.label(200, 150, "⊕", 24)
    p.label(320, 30, "set b", 15, bold=True)
    p.label(320, 52, f"m = {mb:g},  l = {lb:.2f}", 14)
    bars(248, b, mb, "c3")
    p.label(430, 150, "=", 24)
    p.label(630, 30, "union", 15, bold=True)
    p.label(630, 52, f"m = {m:g},  l = {la:.2f} · e^({ma:g} − {m:g}) + {lb:.2f} = {la * exp(ma - m) + lb:.2f}", 14)
    bars(494, a, m, "c1")
    bars(494 + 3 * (width + 6), b, m, "c3")
    p.line(30, base - height, 790, base - height, "thin")
    p.label(24, base - height + 4, "1", 12, "end", "dim")
    p.label(410, 262, "Bars: e^(s − m) of each score s. The bars of set a shrink together, by one factor, so their sum does too.", 13, kind="dim")
    return p


def layouts():
    heads, n = 2, 3
    p = Picture(900, 344, "The order of elements in memory for four layouts")
    cell, left = 40, 130
    p.label(left, 26, f"one batch, H = Hkv = {heads} heads, N = {n} rows; a cell is one row of d elements: head.row", 13, "start", "dim")

    def strip(y, name, cells):
        p.label(left - 14, y + 25, name, 15, "end", bold=True)
        for k, (text, kind) in enumerate(cells):
            p.rect(left + k * cell, y, cell, cell, kind)
            p.label(left + k * cell + cell / 2, y + 25, text, 12)

    color = ["c1", "c3"]
    strip(44, "bhnd", [(f"{h}.{i}", color[h]) for h in range(heads) for i in range(n)])
    strip(118, "bnhd", [(f"{h}.{i}", color[h]) for i in range(n) for h in range(heads)])
    strip(192, "qkv", [(f"{t}{h}.{i}", "c0" if t != "Q" else color[h]) for i in range(n) for t in "QKV" for h in range(heads)])
    strip(266, "kv", [(f"{t}{h}.{i}", "c0" if t != "K" else color[h]) for i in range(n) for t in "KV" for h in range(heads)])

    def span(y, first, cells, text):
        x1, x2 = left + first * cell + cell / 2, left + (first + cells) * cell + cell / 2
        p.arrow(x1, y, x2, y)
        p.label(x1, y + 15, text, 12, "start", "dim")

    span(92, 0, 1, "row stride d")
    span(166, 0, heads, "row stride H d")
    span(240, 0, 3 * heads, "row stride 3 H d, from one row of Q to the next")
    span(314, 0, 2 * heads, "row stride 2 Hkv d, from one row of K to the next")
    p.label(left + 6 * cell + 20, 69, "a head's rows are adjacent", 13, "start", "dim")
    p.label(left + 6 * cell + 20, 143, "a token's heads are adjacent", 13, "start", "dim")
    return p


def causal():
    p = Picture(700, 268, "Causal masks aligned at the bottom right")
    cell = 24
    x = 60
    for title, nq, nk in [("Nq = Nk = 5", 5, 5), ("Nq = 3, Nk = 7", 3, 7), ("Nq = 7, Nk = 4", 7, 4)]:
        y = 222 - nq * cell
        p.label(x + nk * cell / 2, 24, title, 15, bold=True)
        grid(p, x, y, nq, nk, cell, lambda r, c, nq=nq, nk=nk: "c3" if c <= r + nk - nq else "c0")
        p.label(x - 10, y + 17, "0", 12, "end", "dim")
        p.label(x - 10, y + (nq - 1) * cell + 17, str(nq - 1), 12, "end", "dim")
        for c in (0, nk - 1):
            p.label(x + c * cell + cell / 2, y - 6, str(c), 12, kind="dim")
        x += nk * cell + 110
    p.label(350, 252, "Rows are queries, columns are keys; green pairs are visible. The last query sees the last key.", 13, kind="dim")
    return p


PICTURES = [memory_hierarchy, dataflow, tiled_product, butterfly, merge, layouts, causal]


def files():
    """{path relative to the project: contents} of all pictures."""
    return {f"docs/img/{draw.__name__}.svg": draw().text() for draw in PICTURES + fused_diagrams.PICTURES + fa2_diagrams.PICTURES + fa2b_diagrams.PICTURES + tensor_diagrams.PICTURES + tensor_timelines.PICTURES}

