"""Draws the pictures of chapter 07 from the sources of its kernels: who owns which sum, who holds what, banks, the order of the loop."""

import re

from .fa2b_shapes import FILES, shape_of, source
from .svg import Picture

WARP_SHOWN, LANE_SHOWN = 1, 13


def tile_grid(p, left, top, title, subtitle, columns_own):
    """Tiles of S of a causal problem; a block walks along its column or its row."""
    s = shape_of("two_kernels", 64)
    n = 4 * s.bc + s.br // 2
    rows, cols, wide, high = -(-n // s.br), -(-n // s.bc), 62, 29
    p.label(left + cols * wide / 2, top - 62, title, 15, bold=True)
    p.label(left + cols * wide / 2, top - 43, subtitle, 13, kind="dim")
    for i in range(rows):
        last = min((i + 1) * s.br, n) - 1
        for j in range(cols):
            seen = j * s.bc <= last
            kind = "c0" if not seen else ["c1", "c4"][(j if columns_own else i) % 2]
            p.rect(left + j * wide, top + i * high, wide - 3, high - 3, kind)
        p.label(left - 8, top + i * high + 18, f"Q{i}", 12, "end", "dim")
        if not columns_own:
            visited = last // s.bc + 1
            p.arrow(left + 8, top + i * high + 13, left + visited * wide - 10, top + i * high + 13)
            p.label(left + cols * wide + 8, top + i * high + 18, f"no. {rows - i}", 12, "start")
    for j in range(cols):
        p.label(left + j * wide + wide / 2 - 2, top - 8, f"K{j}", 12, kind="dim")
        if columns_own:
            first = j * s.bc // s.br
            p.arrow(left + j * wide + wide / 2 - 2, top + first * high + 5, left + j * wide + wide / 2 - 2, top + rows * high - 8)
            p.label(left + j * wide + wide / 2 - 2, top + rows * high + 16, f"no. {j + 1}", 12)
    return n, s, top + rows * high


def owners_07():
    p = Picture(900, 460, "Who owns which sum: columns of tiles for dK and dV, rows of tiles for dQ, under a causal mask")
    n, s, bottom = tile_grid(p, 66, 96, "dK, dV: a block for each column", "sums over queries, down the column", True)
    tile_grid(p, 500, 96, "dQ: a block for each row", "sums over keys, along the row", False)
    p.label(450, bottom + 46, f"Nq = Nk = {n}, causal, tiles of {s.br} × {s.bc}. Grey: nobody sees them, not visited.", 13, kind="dim")
    p.label(450, bottom + 66, "no.: the order in which blocks start, the longest first. Step 2 has the left picture alone, and adds to dQ from each column.", 13, kind="dim")
    return p


def panel(p, x, y, size, shape, title, below, stripes, cells):
    """A matrix of `shape` in a box of `size`: the rows of four warps, and what threads hold: {kind: {(row, col)}}."""
    (wide, high), (rows, cols) = size, shape
    for warp in range(stripes):
        p.rect(x, y + warp * high / stripes, wide, high / stripes, "c0")
        p.label(x - 6, y + (warp + 0.5) * high / stripes + 4, f"warp {warp}", 11, "end", "dim")
    for kind, held in cells.items():
        for r in sorted({r for r, _ in held}):
            columns = sorted(c for row, c in held if row == r)
            while columns:  # runs of neighbours as one
                run = 1
                while run < len(columns) and columns[run] == columns[0] + run:
                    run += 1
                p.rect(x + columns[0] * wide / cols, y + r * high / rows, run * wide / cols, high / rows, kind)
                columns = columns[run:]
    p.label(x + wide / 2, y - 10, title, 14, bold=True)
    for n, text in enumerate(below):
        p.label(x + wide / 2, y + high + 18 + 17 * n, text, 12, kind="dim")


def halves_07():
    """What one thread of each half holds, for d = 64 and d = 128."""
    p = Picture(1000, 710, "What one thread of each half of a block holds: S or dP, dV or dK, and dQ")
    wide, high, y = 250, 192, 96
    for width in (64, 128):
        s = shape_of("one_kernel", width)
        p.label(500, y - 46, f"d = {width}, tiles of {s.br} × {s.bc}", 16, bold=True)
        first_row, first_key = WARP_SHOWN * s.rows, WARP_SHOWN * s.keys
        scores = {(first_row + s.score_row(LANE_SHOWN, r), s.score_col(LANE_SHOWN, c)) for r in range(s.tm) for c in range(s.tn)}
        gradients = {(first_key + s.key(LANE_SHOWN, r), s.key_col(LANE_SHOWN, c)) for r in range(s.tk) for c in range(s.td)}
        q = [{(first_row + s.query_row(LANE_SHOWN, r), s.query_col(LANE_SHOWN, c, half)) for r in range(s.tq) for c in range(s.tc)} for half in (0, 1)]
        panel(p, 60, y, (wide, high), (s.br, s.bc), f"S | dP   [{s.br}, {s.bc}]", ["half 0: S, then P. half 1: dP, then dS.", f"{s.ly} × {s.lx} lanes, {s.tm} × {s.tn} each"], 4, {"c3": scores})
        panel(p, 390, y, (wide, high), (s.bc, width), f"dV | dK   [{s.bc}, {width}]", ["half 0: dV. half 1: dK.", f"{s.ky} × {s.kx} lanes, {s.tk} × {s.td} each"], 4, {"c3": gradients})
        panel(p, 720, y, (wide, high), (s.br, width), f"dQ   [{s.br}, {width}]", ["half 0: left columns. half 1: right ones.", f"{s.qy} × {s.qx} lanes, {s.tq} × {s.tc} each"], 4, {"c3": q[0], "c4": q[1]})
        p.line(720 + wide / 2, y, 720 + wide / 2, y + high, "strong")
        y += high + 122
    p.label(500, 678, f"Green: what lane {LANE_SHOWN} of warp {WARP_SHOWN} of half 0 holds; the same lane of half 1 holds the same places of dP and dK, and the violet ones of dQ.", 13, kind="dim")
    return p


def banks_07():
    """Left: eight keys read as float4. Right: a warp's first row of scores written to P."""
    s = shape_of("one_kernel", 128)
    p = Picture(980, 430, "Banks of shared memory: eight keys read together, and a warp's scores written to P")
    cell = 13

    def strip(left, y, title, places, rows, name):
        """places: {(row, bank)}."""
        used = [bank for _, bank in places]
        p.label(left + 16 * cell, y - 8, title, 13)
        for r in range(rows):
            p.label(left - 6, y + r * cell + 11, f"{name}{r}", 10, "end", "dim")
            for bank in range(32):
                kind = "c0" if (r, bank) not in places else "c3" if used.count(bank) == 1 else "c2"
                p.rect(left + bank * cell, y + r * cell, cell - 1, cell - 1, kind)
        return max(used.count(bank) for bank in used)

    p.label(70 + 16 * cell, 28, "K(x, 0..3), lanes x = 0 to 7", 15, bold=True)
    p.label(530 + 16 * cell, 28, f"P(row, x), {s.ly} × {s.lx} lanes, each its first row", 15, bold=True)
    for y, stride, title in [(76, s.width, f"rows of {s.width}"), (236, s.stride, f"rows of {s.stride}: padded by 4")]:
        places = {(x, (x * stride + word) % 32) for x in range(8) for word in range(4)}
        worst = strip(70, y, title, places, 8, "x = ")
        p.label(70 + 16 * cell, y + 8 * cell + 18, f"{worst} wavefront{'s' if worst > 1 else ''}", 13, bold=True)
    for y, group, title in [(76, s.tm, f"{s.tm} rows of a lane side by side"), (186, 1, f"a lane has one row of each {s.ly}"), (296, s.group, f"a lane has {s.group} rows of each 8")]:
        places = {(lane // s.lx, (s.score_row(lane, 0, group) * s.p_stride + s.score_col(lane, 0)) % 32) for lane in range(32)}
        worst = strip(530, y, title, places, s.ly, "y = ")
        p.label(530 + 16 * cell, y + s.ly * cell + 18, f"{worst} wavefront{'s' if worst > 1 else ''}", 13, bold=True)
    p.label(490, 402, f"A column is a bank, 0 to 31. Orange: a bank asked for two or more different words. d = {s.width}, Bc = {s.bc}, P in rows of {s.p_stride}.", 13, kind="dim")
    return p


EVENTS = {
    "cp_async_wait<0>()": "wait",
    "__syncthreads()": "barrier",
    "add_product(S_or_dP,": "S | dP",
    "store_P(": "P",
    "store_dS(": "dS",
    "add_product(gradient,": "dV | dK",
    "load_queries<Shape>(": "issue",
    "add_product(dQ,": "dQ",
    "add_atomically(": "add dQ",
}
ORDER = ["wait", "barrier", "S | dP", "P", "barrier", "dS", "barrier", "dV | dK", "barrier", "issue", "dQ", "add dQ"]


def order_in_loop():
    """The events of the loop over tiles, as they stand in the kernel."""
    text = source("one_kernel")
    body = text[text.index("for (int row0 = first_row") : text.index("write_tile(")]
    body = re.sub(r"//.*", "", body)
    found = [EVENTS[event] for event in re.findall("|".join(map(re.escape, EVENTS)), body)]
    if found != ORDER:
        raise SystemExit(f"{FILES['one_kernel']}: the loop's order is {found}; the picture pipeline_07 and its chapter tell of {ORDER}")
    return found


def pipeline_07():
    """The order of the loop, half by half, and what is on its way meanwhile."""
    p = Picture(960, 330, "Step 2: what the halves of a block compute, and what is copied, in the order of the code")
    p.label(480, 28, "One turn of the loop, step 2", 16, bold=True)
    wide = {"wait": 46, "barrier": 16, "S | dP": 180, "P": 62, "dS": 62, "dV | dK": 170, "issue": 60, "dQ": 110, "add dQ": 66}
    halves = {"S | dP": ("S = Q Kᵀ", "dP = dO Vᵀ"), "P": ("P", None), "dS": (None, "dS"), "dV | dK": ("dV += Pᵀ dO", "dK += dSᵀ Q")}
    both = {"issue": "issue", "dQ": "dQ = dS K", "add dQ": "add"}
    x, y, barriers, start = 88, 86, 0, 0
    p.label(78, y + 29, "half 0", 13, "end")
    p.label(78, y + 81, "half 1", 13, "end")
    p.label(78, y + 163, "Q, dO, L, D", 13, "end")
    for event in order_in_loop():
        w = wide[event] - 3
        if event == "barrier":
            barriers += 1
            p.rect(x, y, w, 100, "c4")
            p.label(x + w / 2, y + 119, str(barriers), 13, bold=True)
        elif event == "wait":
            p.rect(x, y, w, 100, "c0")
            p.label(x + w / 2, y + 54, "wait", 12)
        elif event in halves:
            for n, text in enumerate(halves[event]):
                p.rect(x, y + 52 * n, w, 48, "c1" if text else "c0")
                if text:
                    p.label(x + w / 2, y + 52 * n + 29, text, 13)
        else:
            start = x if event == "issue" else start
            p.rect(x, y, w, 100, "c2" if event == "issue" else "c3")
            p.label(x + w / 2, y + 54, both[event], 12)
        x += wide[event]
    p.rect(88, y + 146, wide["wait"] - 3, 26, "c2")
    p.rect(start, y + 146, x - 3 - start, 26, "c2")
    p.label((start + x) / 2, y + 163, "the next tile on its way", 12)
    p.label(480, 290, "violet: __syncthreads(). grey: a half with nothing to do. Widths are not to scale.", 13, kind="dim")
    p.label(480, 310, "K and V are loaded once, before the loop. dQ needs K and dS alone, so the tiles of queries may be overwritten under it.", 13, kind="dim")
    return p


PICTURES = [owners_07, halves_07, banks_07, pipeline_07]
