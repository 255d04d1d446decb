"""The pictures of docs/reference/block_matmul.md: levels of tiles, and who holds which row."""

from docs.tools.svg import Picture

from .shapes import ThreadTile

TEXT = 15


def levels_of_tiles():
    """A block of 8 warps, a warp of 4 x 8 lanes, a lane with 8 x 8 results."""
    p, side, top = Picture(880, 370, "A product in three levels of tiles: C in HBM, the tile of a block, the tile of a warp"), 184, 112
    for x, title, part, rows, cols, at, notes in [
        (56, "C in HBM", "a block's tile: 128 × 128", 4, 4, (1, 2), ["128 rows of A, 128 columns", "of B: to shared memory"]),
        (356, "the block's tile", "a warp's part: 32 × 64", 4, 2, (1, 1), ["32 rows, 64 columns:", "8 warps share the tiles"]),
    ]:
        high, wide = side / rows, side / cols
        p.label(x + side / 2, 30, title, 17, bold=True)
        p.note(x + side / 2, 56, part, size=TEXT)
        p.box(x + at[1] * wide, top - 34, wide, 26, "c2", "B", TEXT)
        p.box(x - 34, top + at[0] * high, 26, high, "c1", "A", TEXT)
        p.grid(x, top, rows, cols, (wide, high), lambda i, j, at=at: "c3" if (i, j) == at else "c0")
        p.box(x + at[1] * wide, top + at[0] * high, wide, high, "c3", "C", TEXT)
        p.note(x + side / 2, top + side + 34, *notes, size=TEXT)
    x, tile = 656, ThreadTile(rows=8, cols=8, lanes=8, row_run=1, col_run=1)
    lane = 1 * tile.lanes + 3
    cell, row = side / 64, side / 32
    p.label(x + side / 2, 30, "the warp's part", 17, bold=True)
    p.note(x + side / 2, 56, "a lane's results: 8 × 8", size=TEXT)
    p.rect(x, top, side, side, "c0")
    for k in range(8):
        p.line(x + 8 * k * cell, top, x + 8 * k * cell, top + side, "thin")
        p.line(x, top + 4 * k * row, x + side, top + 4 * k * row, "thin")
        p.rect(x + tile.col(lane, k) * cell, top - 34, cell, 26, "c2")
        p.rect(x - 34, top + tile.row(lane, k) * row, 26, row, "c1")
    for r, c in sorted(tile.places(lane)):
        p.rect(x + c * cell, top + r * row, cell, row, "c3")
    p.note(x + side / 2, top + side + 34, "rows y + 4i, columns x + 8j:", "8 + 8 elements per step", size=TEXT)
    p.arrow(56 + side + 6, top + 1.5 * side / 4, 356 - 44, top + 1.5 * side / 4)
    p.arrow(356 + side + 6, top + 1.5 * side / 4, x - 44, top + 1.5 * side / 4)
    return p


def rows_and_lanes():
    """A thread per row, and a warp of 4 x 8 lanes for 32 rows."""
    p, cell, n, y = Picture(960, 572, "Who holds which row of S: a thread per row, and eight lanes per row"), 12, 32, 92
    side = n * cell
    x = 92
    p.label(x + 8 * cell, 30, "a thread per row (04, 05, step 1 of 06)", 16, bold=True)
    p.note(x + 8 * cell, 54, "lane t holds row t of S, m, ℓ and O", size=TEXT)
    for r in range(n):
        p.rect(x, y + r * cell, 16 * cell, cell - 1, "c3" if r == 5 else "c1")
    for r in range(1, n, 4):
        p.note(x - 8, y + r * cell + 11, f"lane {r}", size=14, anchor="end")
    p.note(x + 8 * cell, y + side + 28, "32 rows; a row's max and sum stay in its thread", size=TEXT)
    p.line(402, 16, 402, 556, "thin")

    tile, x = ThreadTile(rows=8, cols=8, lanes=8, row_run=1, col_run=1), 496  # step 2 of 06, d = 64
    lane = 11
    lane_y, lane_x = divmod(lane, tile.lanes)
    p.label(x + side / 2, 30, f"a warp of {tile.along} × {tile.lanes} lanes for the same {n} rows (step 2 of 06)", 16, bold=True)
    p.note(x + side / 2, 54, f"lane (y, x) holds rows y + {tile.along}i and columns x + {tile.lanes}j", size=TEXT)
    p.rect(x, y, side, side, "c0")
    p.rect(x, y + tile.row(lane, 0) * cell, side, cell, "c2")
    for k in range(1, n):
        kind = "line" if k % tile.lanes == 0 else "thin"
        p.line(x + k * cell, y, x + k * cell, y + side, kind)
        p.line(x, y + k * cell, x + side, y + k * cell, "line" if k % tile.along == 0 else "thin")
    for r, c in sorted(tile.places(lane)):
        if c < n:
            p.box(x + c * cell, y + r * cell, cell, cell, "c3", "•", 12)
    for i in range(tile.rows):
        p.note(x - 8, y + tile.row(lane, i) * cell + 11, f"y + {tile.along * i}" if i else "y", size=14, anchor="end")
    for j in range(n // tile.lanes):
        p.note(x + tile.col(lane, j) * cell + 6, y - 8, f"x + {tile.lanes * j}" if j else "x", size=14)
    p.note(
        x + side / 2,
        y + side + 28,
        f"Dots: elements of lane ({lane_y}, {lane_x}) in the first {n} columns.",
        f"Row y belongs to the {tile.lanes} lanes of the same y, lanes 8y to 8y + 7:",
        "its maximum takes three shuffles.",
        size=TEXT,
    )
    return p


PICTURES = [levels_of_tiles, rows_and_lanes]
