"""The pictures of docs/06_fa2_forward.md: who holds what, and what a causal mask leaves of the tiles."""

from .shapes import shape_of, visited
from .svg import Picture


def of_width(width):
    return shape_of("06_fa2_forward", "tuned", "forward", width)


def lanes_06():
    """A warp of the last step for d = 64 and for d = 128."""
    p = Picture(960, 604, "Steps 3 to 6: the rows and columns of S and O that one lane of a warp holds, for d = 64 and, in step 6, d = 128")
    lane_y, lane_x, y, high = 1, 3, 96, 6
    for width in (64, 128):
        s = of_width(width)
        scores, outputs = s.thread["S"], s.thread["O"]
        warp_rows, lane = scores.warp_rows, lane_y * scores.lanes + lane_x
        p.label(
            480,
            y - 46,
            f"d = {width}: {scores.along} × {scores.lanes} lanes, {warp_rows} rows per warp, {s.warps} warps per block",
            16,
            bold=True,
        )
        below = y + warp_rows * high
        for left, cols, tile, name, text in [
            (30, s.bc, scores, "S, then P", f"columns x + {scores.lanes} c: {scores} scores per lane"),
            (500, width, outputs, "O", f"columns 4x to 4x + 3 of each {4 * outputs.lanes}: {outputs} outputs per lane"),
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
            p.note(left + 215, below + 22, text, size=14)
        y = below + 128
    p.note(
        480,
        568,
        f"Four rows high, green: what lane (y, x) = ({lane_y}, {lane_x}) holds, rows 4y to 4y + 3 of each group, the same of S and of O.",
        "All across, orange: the rest of its first row. The lanes of the same y hold it, and shuffles find its maximum.",
        size=14,
    )
    return p


def masked_tiles():
    """Plain, masked and skipped tiles of a causal problem, and the order in which its blocks start."""
    s = of_width(64)
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
    y = top + rows * cell[1] + 14
    for x, kind, text in [
        (120, "c3", f"plain, no mask: {plain}"),
        (330, "c2", f"masked pair by pair: {masked}"),
        (570, "c0", f"not visited: {skipped}"),
    ]:
        p.rect(x, y, 16, 16, kind)
        p.note(x + 24, y + 13, text, anchor="start")
    return p


PICTURES = [lanes_06, masked_tiles]
