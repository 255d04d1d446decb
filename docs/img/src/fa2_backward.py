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
    p = Picture(720, "Ownership of the sums: columns of tiles for dK and dV, rows of tiles for dQ, under a causal mask")
    s, top, wide, high = BACKWARD[64], 92, 54, 29
    n = 4 * s.bc + s.br // 2
    seen = visited({"seq_q": n, "seq_k": n, "causal": True}, s.br, s.bc)
    rows, cols = len(seen), -(-n // s.bc)
    bottom = top + rows * high
    for left, title, subtitle, columns_own, kind in [
        (40, "dK, dV: a block per column", "sums over queries, down", True, "dk"),
        (392, "dQ: a block per row", "sums over keys, along", False, "dq"),
    ]:
        p.label(left + cols * wide / 2, top - 64, title, 18, bold=True)
        p.note(left + cols * wide / 2, top - 40, subtitle)
        p.grid(left, top, rows, cols, (wide, high), lambda i, j, kind=kind: kind if j < seen[i] else "c0", 3)
        for i in range(rows):
            y = top + i * high
            p.note(left - 8, y + 19, f"Q{i}", anchor="end")
            if not columns_own:
                p.arrow(left + 8, y + 13, left + seen[i] * wide - 10, y + 13)
                p.label(left + cols * wide + 4, y + 19, place(rows - i), anchor="start")
        for j in range(cols):
            x = left + j * wide + wide / 2 - 2
            if columns_own:
                first = j * s.bc // s.br
                for i in range(first, rows):
                    p.rect(x + 2, top + i * high, wide / 2 - 3, high - 3, "dv")
                p.arrow(x, top + first * high + 5, x, bottom - 8)
                p.label(x, bottom + 20, place(j + 1))
            p.note(x, top - 10, f"K{j}")
    p.caption(
        f"Nq = Nk = {n}, causal, tiles of {s.tiles}; only coloured ones are visited. 1st, 2nd, ...: the order in which blocks launch, the longest first. "
        "One kernel has the left picture alone, and each column adds to dQ."
    )
    return p


def halves_07():
    """The three products of a block at d = 64, each divided among the warps of a half; and one warp's rows of S, lane by lane."""
    p = Picture(560, "The products of both halves, and what one lane holds of S or dP", "Half 0 has the left of each, half 1 the right")
    s, warps, warp, lane, scale, top = BACKWARD[64], 4, 1, 13, 1.2, 108
    for x, rows, cols, names in [(74, s.br, s.bc, ["S", "dP"]), (308, s.bc, s.width, ["dV", "dK"]), (466, s.br, s.width, ["dQ", "dQ"])]:
        wide, band, same = cols * scale, rows * scale / warps, names[0] == names[1]
        p.label(x + wide / 2, top - 34, names[0] if same else f"{names[0]} | {names[1]}", 18, bold=True)
        p.note(x + wide / 2, top - 12, f"{rows} × {cols}")
        for n in range(warps):
            for half, name in enumerate(names):
                p.rect(x + half * wide / 2, top + n * band, wide / 2, band, name.lower())
            p.note(x - 8, top + (n + 0.5) * band + 6, f"warp {n}", anchor="end")
        if names[0] == "S":
            p.rect(x, top + warp * band, wide, band, "strong")
        p.line(x + wide / 2, top, x + wide / 2, top + warps * band, "strong")
    tile, of_warp, shown, cell, high, left, below = s.thread["S"], s.br // warps, 2, 11, 12, 90, 354
    p.label(8, below - 62, f"Warp {warp}: its {of_warp} rows of S (half 0) or dP (half 1)", 18, "start", bold=True)
    p.note(8, below - 36, f"the first {shown * tile.lanes} of {s.bc} columns; a box is {tile.row_run} rows of one column", anchor="start")
    p.note(left - 8, below - 8, "rows", anchor="end")
    for first in range(0, of_warp, tile.row_run):
        y = below + first * high
        for col in range(shown * tile.lanes):
            p.rect(left + col * cell, y, cell, tile.row_run * high, "hit" if (first, col) in tile.places(lane) else "s")
        row = warp * of_warp + first
        p.note(left - 8, y + 29, f"{row} to {row + tile.row_run - 1}", anchor="end")
        start = first // tile.row_run % tile.along * tile.lanes
        p.note(left + shown * tile.lanes * cell + 8, y + 18, "lanes", f"{start} to {start + tile.lanes - 1}", anchor="start")
    for col in range(0, shown * tile.lanes + 1, tile.lanes):
        p.line(left + col * cell, below - 6, left + col * cell, below + of_warp * high, "strong")
    p.caption(
        f"A warp has {tile.along} × {tile.lanes} lanes; {tile.lanes} take a column each, {tile.cols} times over. "
        f"Yellow: of the {tile} elements that lane {lane} holds in registers, those in these columns."
    )
    return p


def banks_07():
    """Above: eight keys read as float4. Below: a warp's first row of scores written to P."""
    s = BACKWARD[128]
    scores = s.thread["S"]
    p = Picture(720, "Banks of shared memory: eight keys read together, and a warp's scores written to P")
    cell, left = (18.5, 17), 70

    def strip(y, title, words, name, kind_of, who=""):
        """words: for each row those that its lanes ask for."""
        used = [word % 32 for of_row in words for word in of_row]
        worst = max(map(used.count, used))
        p.label(left, y - 10, title, anchor="start")
        p.label(left + 32 * cell[0], y - 10, f"{who}{worst} wavefront{'s' if worst > 1 else ''}", anchor="end", bold=True)
        for r in range(len(words)):
            if r in (0, len(words) - 1):
                p.note(left - 6, y + r * cell[1] + 14, f"{name} = {r}", anchor="end")

        def kind(r, bank):
            return "c0" if bank not in [word % 32 for word in words[r]] else kind_of if used.count(bank) == 1 else "hit"

        p.grid(left, y, len(words), 32, cell, kind, 1)
        for r in range(len(words)):
            for bank in range(32):
                if kind(r, bank) == "hit":
                    p.label(left + bank * cell[0] + 9, y + r * cell[1] + 13, "×", 16)

    p.label(8, 28, "K(x, 0..3), read by lanes x = 0 to 7", 18, "start", bold=True)
    for y, stride, title in [(66, s.width, f"rows of {s.width}"), (242, s.width + 4, f"rows of {s.width + 4}: padded")]:
        strip(y, title, [[x * stride + word for word in range(4)] for x in range(8)], "x", "k", "quarter of a warp: ")
    p.label(8, 422, f"P(row, x), {scores.along} × {scores.lanes} lanes, each its first row", 18, "start", bold=True)
    for y, run, title in [(460, 1, "run of 1 row"), (568, scores.row_run, f"run of {scores.row_run} rows")]:
        words = list(map(word_of_p(s, run), range(WARP)))
        strip(y, title, [words[first : first + scores.lanes] for first in range(0, WARP, scores.lanes)], "y", "p")
    p.caption(
        "A column is a bank, 0 to 31. ×: a bank that is asked for two or more different words. "
        f"d = {s.width}, Bc = {s.bc}, P in rows of {stride_of_p(s)} words."
    )
    return p


def directions_07():
    """A tile of K as the operand of two products whose inner indices run in different directions."""
    p = Picture(720, "The same tile of K, read along its rows for S and down its columns for dQ")
    rows, cols, cell, top = 8, 12, 22, 88
    for left, title, inner, kind, one in [
        (66, "S = Q Kᵀ: KMajor", "inner index: columns of K", lambda r, c: "hit" if c < 4 else "k", "one key, four steps"),
        (420, "dQ = dS K: MnMajor", "inner index: keys, down", lambda r, c: "hit" if r == 0 else "k", "one step, four columns"),
    ]:
        along, middle = title[0] == "S", left + cols * cell / 2
        p.label(middle, 28, title, 18, bold=True)
        p.note(middle, 56, inner)
        p.grid(left, top, rows, cols, (cell, cell), kind, gap=2)
        for n in range(rows if along else cols // 4):
            x, y = (left, top + n * cell) if along else (left + 4 * n * cell, top)
            p.rect(x, y, 4 * cell - 2, cell - 2, "strong")
        for key in range(rows):
            p.note(left - 8, top + key * cell + 16, f"key {key}", anchor="end")
        if along:
            p.arrow(left, 72, left + cols * cell - 4, 72)
        else:
            p.arrow(left + cols * cell + 10, top, left + cols * cell + 10, top + rows * cell - 4)
        p.label(middle, top + rows * cell + 24, f"a load: {one}")
    p.caption("A frame is a float4, one load. Left: eight lanes read eight keys. Right: lanes read neighbouring columns of one key.")
    return p


PICTURES = [owners_07, halves_07, directions_07, banks_07]
