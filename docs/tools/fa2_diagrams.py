"""Draws the pictures of chapter 06 from the sources of its kernels: who holds what, banks, the order of copies, tiles under a mask."""

import re

from .fa2_shapes import FILES, STEPS, shape_of, source
from .svg import Picture

LAST = list(FILES)[-1]
LANE_Y, LANE_X = 1, 3  # the lane that is shown


def panel(p, x, y, rows, cols, cell, mine, row_mine, title):
    """A warp's part of a matrix: green what the lane holds, orange the rest of the lane's first row."""
    wide, high = cell
    p.rect(x, y, cols * wide, rows * high, "c0")
    for r in range(rows):
        for c in range(cols):
            if (r, c) in mine or r == row_mine:
                p.rect(x + c * wide, y + r * high, wide, high, "c3" if (r, c) in mine else "c2")
    for r in range(4, rows, 4):
        p.line(x, y + r * high, x + cols * wide, y + r * high, "thin")
    p.label(x + cols * wide / 2, y - 10, title, 14, bold=True)


def lanes_06():
    """A warp of the last step for d = 64 and for d = 128."""
    p = Picture(960, 604, "Steps 3 to 6: the rows and columns of S and O that one lane of a warp holds, for d = 64 and, in step 6, d = 128")
    y = 96
    for width in (64, 128):
        s = shape_of(LAST, width)
        p.label(480, y - 46, f"d = {width}: {s.ly} × {s.lx} lanes, {s.warp_rows} rows a warp, {s.br // s.warp_rows} warps a block", 16, bold=True)
        rows = [s.row(LANE_Y, r) for r in range(s.tm)]
        high = 6
        for left, cols, held, name in [
            (30, s.bc, [LANE_X + s.lx * c for c in range(s.tn)], "S, then P"),
            (500, s.width, [s.output_col(LANE_X, c) for c in range(s.td)], "O"),
        ]:
            panel(p, left, y, s.warp_rows, cols, (430 / cols, high), {(r, c) for r in rows for c in held}, rows[0], f"{name}   [{s.warp_rows}, {cols}]")
        below = y + s.warp_rows * high
        p.label(245, below + 20, f"columns x + {s.lx} c: {s.tm} × {s.tn} scores a lane", 13, kind="dim")
        p.label(715, below + 20, f"columns 4x to 4x + 3 of each {4 * s.lx}: {s.tm} × {s.td} outputs a lane", 13, kind="dim")
        y = below + 128
    p.label(480, 568, f"green: what lane (y, x) = ({LANE_Y}, {LANE_X}) holds. Rows 4y to 4y + 3 of each group, the same rows of S and of O.", 13, kind="dim")
    p.label(480, 588, "orange: the rest of its first row, with the lanes of the same y: the maximum of a row is a matter of shuffles.", 13, kind="dim")
    return p


def k_banks():
    """Eight rows of K in shared memory, as they are and padded."""
    source(LAST)  # it has the padding that is drawn
    width, four, pad = shape_of(LAST, 64).width, 5, 4
    p = Picture(1010, 350, "A column of K read by eight lanes: banks without and with four floats more in each row")
    cell = 25
    for left, title, stride in [(50, "rows as they are", width), (555, "rows padded by 4 floats", width + pad)]:
        fours = width // 4
        p.label(left + fours * cell / 2, 30, title, 15, bold=True)
        for q in range(fours):
            if q % 8 == 0:
                p.label(left + (q + 4) * cell, 56, "banks 0 to 31", 12, kind="dim")
                p.line(left + q * cell + 2, 62, left + (q + 8) * cell - 4, 62)
        groups = set()
        for row in range(8):
            p.label(left - 8, 72 + row * cell + 17, f"{row}", 12, "end", "dim")
            shift = row * (stride - width) // 4  # fours by which the row begins later
            for q in range(fours):
                at = (q + shift) % fours
                p.rect(left + at * cell, 70 + row * cell, cell - 2, cell - 2, "c3" if q == four else "c0")
                p.label(left + at * cell + cell / 2 - 1, 70 + row * cell + 16, str(q), 11)
            groups.add((row * stride + 4 * four) % 32)
        text = f"8 lanes meet {4 * len(groups)} of 32 banks: {8 // len(groups)} wavefront{'s' if len(groups) < 8 else ''}"
        p.label(left + fours * cell / 2, 70 + 8 * cell + 24, text, 14)
    p.label(505, 322, f"A cell is a float4; its number is the four columns of K that it holds. Green: what lanes x = 0 to 7 read, columns {4 * four} to {4 * four + 3} of keys 0 to 7 (d = {width}).", 13, kind="dim")
    return p


EVENTS = {
    "cp_async_wait<0>()": "wait",
    "__syncthreads()": "barrier",
    "load_async<Shape, Shape::Bc>(V_smem": "issue V",
    "load_async<Shape, Shape::Bc>(K_smem": "issue K",
    "add_product(S,": "S",
    "raise(": "softmax",
    "store_transposed(": "P out",
    "add_product(O,": "PV",
}


def order_in_loop():
    """The events of the loop over tiles, as they stand in the kernel."""
    text = source("async_copies")
    body = text[text.index("for (int col0 = 0;") : text.index("write_output(O_all")]
    code = re.sub(r"//.*", "", body)
    found = re.findall("|".join(map(re.escape, EVENTS)), code)
    order = [EVENTS[event] for event in found]
    expected = ["wait", "barrier", "issue V", "S", "softmax", "wait", "barrier", "issue K", "P out", "PV"]
    if order != expected:
        raise SystemExit(f"{FILES['async_copies']}: the loop's order is {order}; the picture pipeline_06 and its chapter tell of {expected}")
    return order


def pipeline_06():
    """The order of the loop, and what is on its way meanwhile."""
    p = Picture(960, 300, "Step 4: what a block computes and what it copies, in the order of the code")
    p.label(480, 28, f"One turn of the loop, step {STEPS['async_copies']}", 16, bold=True)
    wide = {"wait": 44, "barrier": 14, "issue V": 58, "issue K": 58, "S": 200, "softmax": 110, "P out": 60, "PV": 200}
    kind = {"wait": "c0", "barrier": "c4", "issue V": "c2", "issue K": "c2", "S": "c1", "softmax": "c1", "P out": "c1", "PV": "c1"}
    text = {"S": "S = Q Kⱼᵀ", "softmax": "softmax", "P out": "P out", "PV": "O += P Vⱼ", "issue V": "issue Vⱼ", "issue K": "issue Kⱼ₊₁"}
    x, y = 84, 96
    start = {}
    p.label(74, y + 30, "threads", 13, "end")
    p.label(74, y + 96, "copies of K", 13, "end")
    p.label(74, y + 136, "copies of V", 13, "end")
    waits = []
    for event in order_in_loop():
        p.rect(x, y, wide[event] - 3, 48, kind[event])
        if event == "wait":
            waits.append(x)
            p.label(x + wide[event] / 2 - 2, y - 10, "wait", 12, kind="dim")
            p.label(x + wide[event] / 2 - 2, y + 29, "Kⱼ" if len(waits) == 1 else "Vⱼ", 13)
        elif event == "barrier":
            p.label(x + 5, y + 66, "1" if len(waits) == 1 else "2", 13, bold=True)
        else:
            p.label(x + wide[event] / 2 - 2, y + 29, text[event], 11 if event.startswith("issue") else 13)
        start[event] = x
        x += wide[event]
    p.rect(84, y + 80, waits[0] + wide["wait"] - 87, 24, "c2")
    p.label(84 + 20, y + 97, "Kⱼ", 12)
    k = start["issue K"]
    p.rect(k, y + 80, x - k, 24, "c2")
    p.label((k + x) / 2, y + 97, "Kⱼ₊₁ in flight, until the wait of the next turn", 12)
    v = start["issue V"]
    p.rect(v, y + 120, waits[1] + wide["wait"] - 3 - v, 24, "c2")
    p.label((v + waits[1]) / 2, y + 137, "Vⱼ in flight", 12)
    p.label(480, 270, "violet: __syncthreads(). Widths are not to scale; each product covers the copy that the next one needs.", 13, kind="dim")
    return p


def masked_tiles():
    """Plain, masked and skipped tiles of a causal problem, and the order in which its blocks start."""
    s = shape_of(LAST, 64)
    n = 6 * s.br + s.bc // 2
    rows, cols = -(-n // s.br), -(-n // s.bc)
    p = Picture(820, 400, "Causal mask: plain, masked and skipped tiles, and the order in which blocks start")
    p.label(410, 28, f"Nq = Nk = {n}, tiles of {s.br} × {s.bc}, causal", 16, bold=True)
    wide, high, left, top = 36, 40, 200, 76
    p.label(left - 60, top - 12, "starts as", 12, kind="dim")
    counts = {"c3": 0, "c2": 0, "c0": 0}
    for i in range(rows):
        row0 = i * s.br
        by_all, by_any = min(row0 + 1, n), min(row0 + s.br, n)
        plain, visited = by_all // s.bc, -(-by_any // s.bc)
        p.label(left - 60, top + i * high + 25, f"no. {rows - i}", 13)
        p.label(left - 12, top + i * high + 25, f"Q{i}", 13, "end")
        for j in range(cols):
            kind = "c3" if j < plain else "c2" if j < visited else "c0"
            counts[kind] += 1
            p.rect(left + j * wide, top + i * high, wide - 2, high - 2, kind)
    for j in range(cols):
        p.label(left + j * wide + wide / 2 - 1, top - 12, f"K{j}", 12, kind="dim")
    bottom = top + rows * high + 26
    p.label(410, bottom, f"green: all pairs visible, no mask ({counts['c3']}). orange: masked pair by pair ({counts['c2']}). grey: not visited ({counts['c0']}).", 13, kind="dim")
    return p


def serpentine():
    """The order of the multiply-adds of one outer product."""
    source(LAST)  # it relies on the order that is drawn
    m = n = shape_of(LAST, 64).tm
    p = Picture(640, 420, "The order of the 64 multiply-adds of one step: down one column, up the next")
    p.label(320, 28, "One step: 64 multiply-adds, 16 numbers", 16, bold=True)
    cell, left, top = 36, 110, 96
    for c in range(n):
        p.rect(left + c * cell, top - 36, cell - 3, 26, "c2")
        p.label(left + c * cell + cell / 2 - 2, top - 18, f"b{c}", 12)
    for r in range(m):
        p.rect(left - 44, top + r * cell, 34, cell - 3, "c1")
        p.label(left - 27, top + r * cell + 22, f"a{r}", 12)
    at = []
    for c in range(n):
        for k in range(m):
            at.append((k if c % 2 == 0 else m - 1 - k, c))
    for number, (r, c) in enumerate(at, 1):
        p.rect(left + c * cell, top + r * cell, cell - 3, cell - 3, "c3" if number <= 9 else "c0")
        p.label(left + c * cell + cell / 2 - 2, top + r * cell + 21, str(number), 12)
    side = left + n * cell + 16
    for line, text in enumerate(["a0 to a7: rows (Q or P)", "b0 to b7: columns (K or V)", "", "1 to 8 share b0,", "8 and 9 share a7,", "9 to 16 share b1, ..."]):
        p.label(side, top + 40 + 20 * line, text, 13, "start", "dim")
    return p


PICTURES = [lanes_06, k_banks, pipeline_06, masked_tiles, serpentine]
