"""The pictures of docs/chapters/07_fa2_backward.md: who owns which sum, who holds what, banks, the order of the loop."""

from docs.tools.svg import Picture

from .shapes import BACKWARD, WARP, visited


def stride_of_p(s):
    """Words: rows of P are padded so that the lanes of a column meet other banks."""
    return s.bc + s.thread["S"].lanes // s.thread["S"].row_run


def word_of_p(s, run):
    """The function of a lane that gives its first word in P, if a lane had `run` rows side by side."""
    return lambda t: t // s.thread["S"].lanes * run * stride_of_p(s) + s.thread["S"].col(t, 0)


def place(number):
    return str(number) + {1: "st", 2: "nd", 3: "rd"}.get(number, "th")


def owners_07():
    p = Picture(900, 460, "Ownership of the sums: columns of tiles for dK and dV, rows of tiles for dQ, under a causal mask")
    s, top, wide, high = BACKWARD[64], 96, 62, 29
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
            p.note(left - 8, y + 18, f"Q{i}", size=13, anchor="end")
            if not columns_own:
                p.arrow(left + 8, y + 13, left + seen[i] * wide - 10, y + 13)
                p.label(left + cols * wide + 8, y + 18, place(rows - i), 13, "start")
        for j in range(cols):
            x = left + j * wide + wide / 2 - 2
            p.note(x, top - 8, f"K{j}", size=13)
            if columns_own:
                p.arrow(x, top + j * s.bc // s.br * high + 5, x, bottom - 8)
                p.label(x, bottom + 16, place(j + 1), 13)
    p.note(
        450,
        bottom + 46,
        f"Nq = Nk = {n}, causal, tiles of {s.tiles}. The two colours only separate neighbouring blocks; grey tiles are not visited.",
        "1st, 2nd, ...: the order in which blocks launch, the longest first. One kernel has the left picture alone, and each column adds to dQ.",
    )
    return p


def halves_07():
    """The three products of a block at d = 64, each divided among the warps of a half; and one warp's rows of S, lane by lane."""
    p = Picture(960, 560, "The products of both halves, and what one lane holds of S or dP")
    s, warps, warp, lane, scale, top = BACKWARD[64], 4, 1, 13, 1.6, 88
    for x, rows, cols, title, text in [
        (110, s.br, s.bc, "S | dP", "half 0: S, then P; half 1: dP, then dS"),
        (490, s.bc, s.width, "dV | dK", "half 0: dV; half 1: dK"),
        (760, s.br, s.width, "dQ", "each half has half of the columns"),
    ]:
        wide, band = cols * scale, rows * scale / warps
        p.label(x + wide / 2, top - 50, title, 16, bold=True)
        p.note(x + wide / 2, top - 30, text, size=14)
        p.note(x + wide / 2, top - 10, f"{rows} × {cols}", size=14)
        for n in range(warps):
            p.rect(x, top + n * band, wide, band, "c1" if title == "S | dP" and n == warp else "c0")
            p.note(x - 8, top + (n + 0.5) * band + 5, f"warp {n}", size=14, anchor="end")
        if title == "dQ":
            p.line(x + wide / 2, top, x + wide / 2, top + warps * band, "strong")
            for half in (0, 1):
                p.note(x + wide * (0.25 + half / 2), top + warps * band + 20, f"half {half}", size=14)
    tile, of_warp, cell, high, left, below = s.thread["S"], s.br // warps, 6.2, 9, 76, 366
    p.label(
        480, below - 44, f"Warp {warp}, rows {warp * of_warp} to {(warp + 1) * of_warp - 1} of S (half 0) or dP (half 1)", 16, bold=True
    )
    p.note(
        left + s.bc * cell / 2,
        below - 12,
        f"A warp has {tile.along} × {tile.lanes} lanes; {tile.lanes} take a column each, {tile.cols} times over",
        size=14,
    )
    for first in range(0, of_warp, tile.row_run):
        y = below + first * high
        for col in range(s.bc):
            ours = (first, col) in tile.places(lane)
            p.rect(left + col * cell, y, cell, tile.row_run * high, "c3" if ours else "c0")
        row = warp * of_warp + first
        p.note(left - 8, y + 23, f"{row} to {row + tile.row_run - 1}", size=14, anchor="end")
        start = first // tile.row_run % tile.along * tile.lanes
        p.note(left + s.bc * cell + 8, y + 23, f"{start} to {start + tile.lanes - 1}", size=14, anchor="start")
    for col in range(0, s.bc + 1, tile.lanes):
        p.line(left + col * cell, below - 6, left + col * cell, below + of_warp * high, "strong")
    p.note(left + s.bc * cell + 8, below - 12, "lanes", size=14, anchor="start")
    p.note(left - 8, below - 12, "rows", size=14, anchor="end")
    p.note(
        480,
        below + of_warp * high + 26,
        f"A box is a run of {tile.row_run} neighbouring rows in one column. Filled: the {tile} elements of lane {lane}, in registers.",
        size=14,
    )
    return p


def banks_07():
    """Left: eight keys read as float4. Right: a warp's first row of scores written to P."""
    s = BACKWARD[128]
    scores = s.thread["S"]
    p = Picture(980, 430, "Banks of shared memory: eight keys read together, and a warp's scores written to P")
    cell = 13

    def strip(left, y, title, words, name, who=""):
        """words: for each row those that its lanes ask for."""
        used = [word % 32 for of_row in words for word in of_row]
        p.label(left + 16 * cell, y - 8, title)
        for r in range(len(words)):
            if r in (0, len(words) - 1):
                p.note(left - 6, y + r * cell + 12, f"{name} = {r}", size=14, anchor="end")

        def kind(r, bank):
            return "c0" if bank not in [word % 32 for word in words[r]] else "c3" if used.count(bank) == 1 else "c2"

        p.grid(left, y, len(words), 32, (cell, cell), kind, 1)
        for r in range(len(words)):
            for bank in range(32):
                if kind(r, bank) == "c2":
                    p.label(left + bank * cell + 6, y + r * cell + 10, "×", 12)
        worst = max(map(used.count, used))
        p.label(left + 16 * cell, y + len(words) * cell + 18, f"{who}{worst} wavefront{'s' if worst > 1 else ''}", 14, bold=True)

    p.label(54 + 16 * cell, 28, "K(x, 0..3), lanes x = 0 to 7", 15, bold=True)
    for y, stride, title in [(76, s.width, f"rows of {s.width}"), (236, s.width + 4, f"rows of {s.width + 4}: padded by 4")]:
        strip(54, y, title, [[x * stride + word for word in range(4)] for x in range(8)], "x", "per quarter of a warp: ")
    p.label(548 + 16 * cell, 28, f"P(row, x), {scores.along} × {scores.lanes} lanes, each its first row", 15, bold=True)
    for y, run, title in [(96, 1, "run of 1 row"), (256, scores.row_run, f"run of {scores.row_run} rows")]:
        words = list(map(word_of_p(s, run), range(WARP)))
        strip(548, y, title, [words[first : first + scores.lanes] for first in range(0, WARP, scores.lanes)], "y")
    asked = "A column is a bank, 0 to 31. ×: a bank that is asked for two or more different words."
    p.note(490, 392, asked, f"d = {s.width}, Bc = {s.bc}, P in rows of {stride_of_p(s)} words.", size=14)
    return p


def directions_07():
    """A tile of K as the operand of two products whose inner indices run in different directions."""
    p = Picture(900, 336, "The same tile of K, read along its rows for S and down its columns for dQ")
    rows, cols, cell, top = 8, 16, 22, 84
    for left, title, inner, kind in [
        (80, "S = Q Kᵀ: KMajor", "inner index: columns of K", lambda r, c: "c3" if c < 4 else "c0"),
        (520, "dQ = dS K: MnMajor", "", lambda r, c: "c3" if r == 0 else "c0"),
    ]:
        p.label(left + cols * cell / 2, 30, title, 16, bold=True)
        p.grid(left, top, rows, cols, (cell, cell), kind, gap=2)
        for n in range(rows if inner else cols // 4):
            x, y = (left, top + n * cell) if inner else (left + 4 * n * cell, top)
            p.rect(x, y, 4 * cell - 2, cell - 2, "strong")
        for key in range(rows):
            p.note(left - 10, top + key * cell + 15, f"key {key}", size=14, anchor="end")
        if inner:
            p.note(left + cols * cell / 2, 58, inner, size=14)
            p.arrow(left, 70, left + cols * cell - 4, 70)
        else:
            p.arrow(left + cols * cell + 14, top, left + cols * cell + 14, top + rows * cell - 4)
            p.note(left + cols * cell / 2, 66, "inner index: keys, downwards", size=14)
    below = top + rows * cell + 26
    p.label(80 + cols * cell / 2, below, "one load: four steps of one key", 14)
    p.label(520 + cols * cell / 2, below, "one load: one step of four columns", 14)
    p.note(450, below + 30, "A frame is a float4. Left: eight lanes read eight keys. Right: four lanes read one key.", size=14)
    return p


PICTURES = [owners_07, halves_07, directions_07, banks_07]
