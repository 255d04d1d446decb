"""Of docs/block_matmul.md: what each border asks of a tile, tiles in registers, banks, and the levels of tiles."""

from plots import h200

from .formatting import table
from .shapes import ThreadTile, wavefronts
from .svg import Picture


def tile_levels():
    """(B.5)  From the data sheet."""
    rows = []
    for border, bandwidth in [
        ("HBM to shared memory", h200.HBM_BYTES_PER_SECOND),
        ("shared memory to registers", h200.SHARED_BYTES_PER_SECOND),
    ]:
        needed = h200.FP32_FLOPS / 2 / (bandwidth / 4)
        rows.append([border, f"{bandwidth / 1e12:.1f} TB/s", f"{needed:.1f}", f"{2 * needed:.0f} × {2 * needed:.0f}"])
    return table("border | bandwidth | multiply-adds per number, at least | square tile", rows)


def register_tiles():
    """(R.2)  Shapes of a lane's tile."""
    rows = []
    for a, c in [(1, 1), (2, 2), (4, 4), (8, 4), (8, 8), (16, 8)]:
        per_load = a * c / (a + c)
        rows.append([f"{a} × {c}", f"{per_load:.2f}", f"{100 * min(1, per_load / 4):.3g} %", a * c + a + c])
    return table("results of a lane | multiply-adds per load | of the peak, at most | registers", rows)


def banks():
    """A column read by the lanes of a warp, row by row."""
    rows = []
    for name, stride in [("64", 64), ("65, padded by 1", 65), ("66, padded by 2", 66), ("68, padded by 4", 68), ("72, padded by 8", 72)]:
        wide = wavefronts(lambda lane, s=stride: lane * s, 4) if stride % 4 == 0 else "not aligned"
        rows.append([name, wavefronts(lambda lane, s=stride: lane * s, 1), wide])
    rows.append(["64, swizzled (B.7)", *(wavefronts(lambda lane: lane * 64 + 4 * (0 ^ lane % 8), words) for words in (1, 4))])
    return table("row length in words | `float`, of 1 at best | `float4`, of 4 at best", rows)


def rows_and_lanes():
    """Thread per row, and a warp of 4 x 8 lanes for 32 rows."""
    p = Picture(940, 556, "Who holds which row of S: a thread per row, and eight lanes per row")
    cell, n, y = 12, 32, 92
    p.label(190, 26, "a thread per row (04, 05, step 1 of 06)", 15, bold=True)
    p.note(190, 48, "lane t holds row t of S, m, l and O")
    p.grid(110, y, n, 1, (16 * cell, cell), lambda r, c: "c3" if r == 5 else "c1" if r % 2 else "c0", 1)
    for r in range(1, n, 4):
        p.note(102, y + r * cell + 10, f"lane {r}", size=11, anchor="end")
    p.note(206, y + n * cell + 20, "32 rows; a row's max and sum stay in its thread")
    p.line(440, 14, 440, 542, "thin")

    tile = ThreadTile(rows=8, cols=4, lanes=8, row_run=1, col_run=1)  # step 2 of 06
    shown = 11
    lane_y, lane_x = shown // tile.lanes, shown % tile.lanes
    held, x = tile.places(shown), 520
    p.label(690, 26, f"a warp of {tile.along} × {tile.lanes} lanes for the same {n} rows (step 2 of 06)", 15, bold=True)
    p.note(690, 48, f"lane (y, x) holds rows y + {tile.along} i and columns x + {tile.lanes} j")
    p.grid(x, y, n, n, (cell, cell), lambda r, c: "c3" if (r, c) in held else "c2" if r == tile.row(shown, 0) else "c0", 1)
    for i in range(tile.rows):
        p.note(x - 8, y + tile.row(shown, i) * cell + 10, f"y + {tile.along * i}" if i else "y", size=11, anchor="end")
    for j in range(tile.cols):
        p.note(x + tile.col(shown, j) * cell + 6, y - 8, f"x + {tile.lanes * j}" if j else "x", size=11)
    p.note(
        690,
        y + n * cell + 20,
        f"green: the {tile} elements of lane ({lane_y}, {lane_x}) in a tile of {n} columns.",
        f"orange: the rest of its first row is with the {tile.lanes} lanes of the same y,",
        "lanes 8 y to 8 y + 7: a row's max takes three shuffles.",
    )
    return p


PICTURES = [rows_and_lanes]
