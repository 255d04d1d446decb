"""The pictures of docs/reference/block_matmul.md: levels of tiles, and who holds which row."""

from docs.tools.svg import Picture

from .shapes import ThreadTile


def levels_of_tiles():
    """A block of 8 warps, a warp of 4 x 8 lanes, a lane with 8 x 8 results."""
    p, side, top = Picture(720, "A product in three levels of tiles: C in HBM, the tile of a block, the tile of a warp"), 168, 108
    for x, title, part, rows, cols, at, notes in [
        (42, "C in HBM", "block: 128 × 128", 4, 4, (1, 2), ["128 rows of A and", "128 columns of B:", "to shared memory"]),
        (288, "the block's tile", "warp: 32 × 64", 4, 2, (1, 1), ["32 rows, 64 columns:", "8 warps share", "the tiles"]),
    ]:
        high, wide = side / rows, side / cols
        p.label(x + side / 2, 28, title, 18, bold=True)
        p.note(x + side / 2, 54, part)
        p.box(x + at[1] * wide, top - 34, wide, 26, "ds", "B")
        p.box(x - 34, top + at[0] * high, 26, high, "s", "A")
        p.grid(x, top, rows, cols, (wide, high), lambda i, j, at=at: "hit" if (i, j) == at else "c0")
        p.box(x + at[1] * wide, top + at[0] * high, wide, high, "hit", "C")
        p.note(x + side / 2, top + side + 28, *notes)
    x, tile = 538, ThreadTile(rows=8, cols=8, lanes=8, row_run=1, col_run=1)
    lane = 1 * tile.lanes + 3
    cell, row = side / 64, side / 32
    p.label(x + side / 2, 28, "the warp's part", 18, bold=True)
    p.note(x + side / 2, 54, "lane: 8 × 8 results")
    p.rect(x, top, side, side, "c0")
    for k in range(8):
        p.line(x + 8 * k * cell, top, x + 8 * k * cell, top + side, "thin")
        p.line(x, top + 4 * k * row, x + side, top + 4 * k * row, "thin")
        p.rect(x + tile.col(lane, k) * cell, top - 34, cell, 26, "ds")
        p.rect(x - 34, top + tile.row(lane, k) * row, 26, row, "s")
    for r, c in sorted(tile.places(lane)):
        p.rect(x + c * cell, top + r * row, cell, row, "hit")
    p.note(x + side / 2, top + side + 28, "rows y + 4i, columns", "x + 8j: 8 + 8", "elements per step")
    p.arrow(42 + side + 3, top + 1.5 * side / 4, 288 - 38, top + 1.5 * side / 4)
    p.arrow(288 + side + 3, top + 1.5 * side / 4, x - 38, top + 1.5 * side / 4)
    p.caption("A general product; step 2 of the chapter has 128 × 64.")
    return p


def rows_and_lanes():
    """A thread per row, and a warp of 4 x 8 lanes for 32 rows."""
    p, cell, n, y = Picture(720, "Who holds which row of S: a thread per row, and eight lanes per row"), 12, 32, 96
    side = n * cell
    x = 84
    p.label(x + 70, 28, "a thread per row", 18, bold=True)
    p.note(x + 70, 52, "chapter 04")
    for r in range(n):
        p.rect(x, y + r * cell, 140, cell - 1, "hit" if r == 5 else "s")
    for r in (0, 5, n - 1):
        p.note(x - 8, y + r * cell + 12, f"lane {r}", anchor="end")
    p.note(x + 70, y + side + 26, "lane t: row t of S,", "its m, ℓ and O")
    p.line(244, 16, 244, 546, "thin")

    tile, x = ThreadTile(rows=8, cols=8, lanes=8, row_run=1, col_run=1), 324  # step 2 of 06, d = 64
    lane = 11
    lane_y, lane_x = divmod(lane, tile.lanes)
    p.label(x + side / 2 - 20, 28, f"a warp of {tile.along} × {tile.lanes} lanes", 18, bold=True)
    p.note(x + side / 2 - 20, 52, f"lane (y, x): rows y + {tile.along}i, columns x + {tile.lanes}j (06)")
    p.rect(x, y, side, side, "s")
    for k in range(1, n):
        kind = "line" if k % tile.lanes == 0 else "thin"
        p.line(x + k * cell, y, x + k * cell, y + side, kind)
        p.line(x, y + k * cell, x + side, y + k * cell, "line" if k % tile.along == 0 else "thin")
    for r, c in sorted(tile.places(lane)):
        if c < n:
            p.rect(x + c * cell, y + r * cell, cell, cell, "hit")
    for i in range(tile.rows):
        p.note(x - 8, y + tile.row(lane, i) * cell + 12, f"y + {tile.along * i}" if i else "y", anchor="end")
    for j in range(n // tile.lanes):
        p.note(x + tile.col(lane, j) * cell + 6, y - 8, f"x + {tile.lanes * j}" if j else "x")
    p.note(
        x + side / 2 - 20,
        y + side + 26,
        f"Yellow: lane ({lane_y}, {lane_x}) in the first {n} columns.",
        f"Row y belongs to the {tile.lanes} lanes of the same y:",
        "its maximum takes three shuffles.",
    )
    return p


PICTURES = [levels_of_tiles, rows_and_lanes]
