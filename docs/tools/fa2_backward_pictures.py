"""The pictures of docs/07_fa2_backward.md: who owns which sum, who holds what, banks, the order of the loop."""

from .fa2_backward import of_width, stride_of_p, word_of_p
from .shapes import WARP, visited
from .svg import Picture


def owners_07():
    p = Picture(900, 460, "Who owns which sum: columns of tiles for dK and dV, rows of tiles for dQ, under a causal mask")
    s, top, wide, high = of_width(64), 96, 62, 29
    n = 4 * s.bc + s.br // 2
    seen = visited({"seq_q": n, "seq_k": n, "causal": True}, s.br, s.bc)
    rows, cols = len(seen), -(-n // s.bc)
    bottom = top + rows * high
    for left, title, subtitle, columns_own in [
        (66, "dK, dV: a block for each column", "sums over queries, down the column", True),
        (500, "dQ: a block for each row", "sums over keys, along the row", False),
    ]:
        p.label(left + cols * wide / 2, top - 62, title, 15, bold=True)
        p.note(left + cols * wide / 2, top - 43, subtitle)
        owner = (lambda i, j: j) if columns_own else (lambda i, j: i)
        p.grid(left, top, rows, cols, (wide, high), lambda i, j, owner=owner: ["c1", "c4"][owner(i, j) % 2] if j < seen[i] else "c0", 3)
        for i in range(rows):
            y = top + i * high
            p.note(left - 8, y + 18, f"Q{i}", size=12, anchor="end")
            if not columns_own:
                p.arrow(left + 8, y + 13, left + seen[i] * wide - 10, y + 13)
                p.label(left + cols * wide + 8, y + 18, f"no. {rows - i}", 12, "start")
        for j in range(cols):
            x = left + j * wide + wide / 2 - 2
            p.note(x, top - 8, f"K{j}", size=12)
            if columns_own:
                p.arrow(x, top + j * s.bc // s.br * high + 5, x, bottom - 8)
                p.label(x, bottom + 16, f"no. {j + 1}", 12)
    p.note(
        450,
        bottom + 46,
        f"Nq = Nk = {n}, causal, tiles of {s.tiles}. Grey: nobody sees them, not visited.",
        "no.: the order in which blocks start, the longest first. Step 2 has the left picture alone, and adds to dQ from each column.",
    )
    return p


def halves_07():
    """What one thread of each half holds, for d = 64 and d = 128."""
    p = Picture(1000, 710, "What one thread of each half of a block holds: S or dP, dV or dK, and dQ")
    warp, lane, warps, wide, high, y = 1, 13, 4, 250, 192, 96

    def held(x, rows, cols, tile, first_col, kind):
        """The runs of neighbouring columns of each row."""
        for r in range(tile.rows):
            for c in range(0, tile.cols, tile.col_run):
                row, col = warp * rows // warps + tile.row(lane, r), first_col + tile.col(lane, c)
                p.rect(x + col * wide / cols, y + row * high / rows, tile.col_run * wide / cols, high / rows, kind)

    for width in (64, 128):
        s = of_width(width)
        p.label(500, y - 46, f"d = {width}, tiles of {s.tiles}", 16, bold=True)
        for x, rows, cols, name, title, text in [
            (60, s.br, s.bc, "S", "S | dP", "half 0: S, then P. half 1: dP, then dS."),
            (390, s.bc, width, "dK", "dV | dK", "half 0: dV. half 1: dK."),
            (720, s.br, width, "dQ", "dQ", "half 0: left columns. half 1: right ones."),
        ]:
            tile = s.thread[name]
            for n in range(warps):
                p.rect(x, y + n * high / warps, wide, high / warps, "c0")
                p.note(x - 6, y + (n + 0.5) * high / warps + 4, f"warp {n}", size=11, anchor="end")
            held(x, rows, cols, tile, 0, "c3")
            if name == "dQ":
                held(x, rows, cols, tile, width // 2, "c4")
                p.line(x + wide / 2, y, x + wide / 2, y + high, "strong")
            p.label(x + wide / 2, y - 10, f"{title}   [{rows}, {cols}]", bold=True)
            p.note(x + wide / 2, y + high + 18, text, f"{tile.along} × {tile.lanes} lanes, {tile} each", size=12)
        y += high + 122
    p.note(
        500,
        678,
        f"Green: what lane {lane} of warp {warp} of half 0 holds; the same lane of half 1 holds the same places of dP and dK, "
        "and the violet ones of dQ.",
    )
    return p


def banks_07():
    """Left: eight keys read as float4. Right: a warp's first row of scores written to P."""
    s = of_width(128)
    scores = s.thread["S"]
    p = Picture(980, 430, "Banks of shared memory: eight keys read together, and a warp's scores written to P")
    cell = 13

    def strip(left, y, title, words, name):
        """words: for each row those that its lanes ask for."""
        used = [word % 32 for of_row in words for word in of_row]
        p.label(left + 16 * cell, y - 8, title, 13)
        for r in range(len(words)):
            p.note(left - 6, y + r * cell + 11, f"{name} = {r}", size=10, anchor="end")

        def kind(r, bank):
            return "c0" if bank not in [word % 32 for word in words[r]] else "c3" if used.count(bank) == 1 else "c2"

        p.grid(left, y, len(words), 32, (cell, cell), kind, 1)
        worst = max(map(used.count, used))
        p.label(left + 16 * cell, y + len(words) * cell + 18, f"{worst} wavefront{'s' if worst > 1 else ''}", 13, bold=True)

    p.label(70 + 16 * cell, 28, "K(x, 0..3), lanes x = 0 to 7", 15, bold=True)
    for y, stride, title in [(76, s.width, f"rows of {s.width}"), (236, s.width + 4, f"rows of {s.width + 4}: padded by 4")]:
        strip(70, y, title, [[x * stride + word for word in range(4)] for x in range(8)], "x")
    p.label(530 + 16 * cell, 28, f"P(row, x), {scores.along} × {scores.lanes} lanes, each its first row", 15, bold=True)
    for y, run, title in [
        (76, scores.rows, f"{scores.rows} rows of a lane side by side"),
        (186, 1, f"a lane has one row of each {scores.along}"),
        (296, scores.row_run, f"a lane has {scores.row_run} rows of each 8"),
    ]:
        words = list(map(word_of_p(s, run), range(WARP)))
        strip(530, y, title, [words[first : first + scores.lanes] for first in range(0, WARP, scores.lanes)], "y")
    asked = "A column is a bank, 0 to 31. Orange: a bank asked for two or more different words."
    p.note(490, 402, f"{asked} d = {s.width}, Bc = {s.bc}, P in rows of {stride_of_p(s)}.")
    return p


PICTURES = [owners_07, halves_07, banks_07]
