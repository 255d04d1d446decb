"""The pictures of docs/06_fa2_forward.md: who holds what, banks, the order of copies, tiles under a mask, the order of multiply-adds."""

from .fa2_forward import LAST, of_width
from .shapes import visited
from .svg import Picture


def lanes_06():
    """A warp of the last step for d = 64 and for d = 128."""
    p = Picture(960, 604, "Steps 3 to 6: the rows and columns of S and O that one lane of a warp holds, for d = 64 and, in step 6, d = 128")
    lane_y, lane_x, y, high = 1, 3, 96, 6
    for width in (64, 128):
        s = of_width(LAST, width)
        scores, outputs = s.thread["S"], s.thread["O"]
        warp_rows, lane = scores.warp_rows, lane_y * scores.lanes + lane_x
        p.label(
            480,
            y - 46,
            f"d = {width}: {scores.along} × {scores.lanes} lanes, {warp_rows} rows a warp, {s.warps} warps a block",
            16,
            bold=True,
        )
        below = y + warp_rows * high
        for left, cols, tile, name, text in [
            (30, s.bc, scores, "S, then P", f"columns x + {scores.lanes} c: {scores} scores a lane"),
            (500, width, outputs, "O", f"columns 4x to 4x + 3 of each {4 * outputs.lanes}: {outputs} outputs a lane"),
        ]:
            held = tile.places(lane)
            p.rect(left, y, 430, warp_rows * high, "c0")
            for row in range(warp_rows):
                for col in range(cols):
                    if (row, col) in held or row == tile.row(lane, 0):
                        p.rect(left + col * 430 / cols, y + row * high, 430 / cols, high, "c3" if (row, col) in held else "c2")
            for row in range(4, warp_rows, 4):
                p.line(left, y + row * high, left + 430, y + row * high, "thin")
            p.label(left + 215, y - 10, f"{name}   [{warp_rows}, {cols}]", bold=True)
            p.note(left + 215, below + 20, text)
        y = below + 128
    p.note(
        480,
        568,
        f"green: what lane (y, x) = ({lane_y}, {lane_x}) holds. Rows 4y to 4y + 3 of each group, the same rows of S and of O.",
        "orange: the rest of its first row, with the lanes of the same y: the maximum of a row is a matter of shuffles.",
    )
    return p


def k_banks():
    """Eight rows of K in shared memory, as they are and padded."""
    width, four, pad, cell = 64, 5, 4, 25
    p = Picture(1010, 350, "A column of K read by eight lanes: banks without and with four floats more in each row")
    for left, title, stride in [(50, "rows as they are", width), (555, "rows padded by 4 floats", width + pad)]:
        fours = width // 4
        p.label(left + fours * cell / 2, 30, title, 15, bold=True)
        for q in range(0, fours, 8):
            p.note(left + (q + 4) * cell, 56, "banks 0 to 31", size=12)
            p.line(left + q * cell + 2, 62, left + (q + 8) * cell - 4, 62)
        for row in range(8):
            p.note(left - 8, 89 + row * cell, f"{row}", size=12, anchor="end")
            for q in range(fours):
                at = (q + row * (stride - width) // 4) % fours
                p.rect(left + at * cell, 70 + row * cell, cell - 2, cell - 2, "c3" if q == four else "c0")
                p.label(left + at * cell + cell / 2 - 1, 86 + row * cell, str(q), 11)
        groups = len({(row * stride + 4 * four) % 32 for row in range(8)})
        p.label(left + fours * cell / 2, 294, f"8 lanes meet {4 * groups} of 32 banks: {8 // groups} wavefront{'s' if groups < 8 else ''}")
    p.note(
        505,
        322,
        "A cell is a float4; its number is the four columns of K that it holds. "
        f"Green: what lanes x = 0 to 7 read, columns {4 * four} to {4 * four + 3} of keys 0 to 7 (d = {width}).",
    )
    return p


def masked_tiles():
    """Plain, masked and skipped tiles of a causal problem, and the order in which its blocks start."""
    s = of_width(LAST, 64)
    n = 6 * s.br + s.bc // 2
    p = Picture(820, 400, "Causal mask: plain, masked and skipped tiles, and the order in which blocks start")
    p.label(410, 28, f"Nq = Nk = {n}, tiles of {s.tiles}, causal", 16, bold=True)
    cell, left, top = (36, 40), 200, 76
    seen = visited({"seq_q": n, "seq_k": n, "causal": True}, s.br, s.bc)
    rows, cols = len(seen), -(-n // s.bc)
    kinds = {(i, j): "c3" if (j + 1) * s.bc <= i * s.br + 1 else "c2" if j < seen[i] else "c0" for i in range(rows) for j in range(cols)}
    p.grid(left, top, rows, cols, cell, lambda i, j: kinds[i, j], 2)
    p.note(left - 60, top - 12, "starts as", size=12)
    for i in range(rows):
        p.label(left - 60, top + i * cell[1] + 25, f"no. {rows - i}", 13)
        p.label(left - 12, top + i * cell[1] + 25, f"Q{i}", 13, "end")
    for j in range(cols):
        p.note(left + j * cell[0] + 17, top - 12, f"K{j}", size=12)
    plain, masked, skipped = (list(kinds.values()).count(kind) for kind in ("c3", "c2", "c0"))
    text = f"green: all pairs visible, no mask ({plain}). orange: masked pair by pair ({masked}). grey: not visited ({skipped})."
    p.note(410, top + rows * cell[1] + 26, text)
    return p


PICTURES = [lanes_06, k_banks, masked_tiles]
