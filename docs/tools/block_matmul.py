"""Of docs/block_matmul.md: what each border asks of a tile, tiles in registers, banks, and three levels of tiles."""

from plots import h200

from .formatting import table
from .shapes import wavefronts
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


def levels_of_tiles():
    """Section 2, with the sizes of section 4: a block of 8 warps, a warp of 4 x 8 lanes, a lane with 8 x 8 results."""
    p, side, top = Picture(838, 356, "A product in three levels of tiles: C in HBM, the tile of a block, the tile of a warp"), 176, 112
    for x, title, part, rows, cols, at, note in [
        (66, "C in HBM", "a block's tile: 128 × 128", 4, 4, (1, 2), ["128 rows of A, 128 columns", "of B: to shared memory"]),
        (346, "the block's tile", "a warp's part: 32 × 64", 4, 2, (1, 1), ["32 rows, 64 columns:", "8 warps share the tiles"]),
    ]:
        p.label(x + side / 2, 26, title, 16, bold=True)
        p.note(x + side / 2, 50, part, size=14)
        height, width = side / rows, side / cols
        p.box(x + at[1] * width, top - 30, width, 22, "c2", "B")
        p.box(x - 30, top + at[0] * height, 22, height, "c1", "A")
        p.grid(x, top, rows, cols, (width, height), lambda i, j, at=at: "c3" if (i, j) == at else "c0")
        p.note(x + side / 2, top + side + 30, *note)
    x, (y0, x0) = 626, (1, 3)
    p.label(x + side / 2, 26, "the warp's part", 16, bold=True)
    p.note(x + side / 2, 50, "a lane's results: 8 × 8", size=14)
    cell, row = side / 64, side / 32
    p.rect(x, top, side, side, "c0")
    for j in range(8):
        p.rect(x + (x0 + 8 * j) * cell, top - 30, cell, 22, "c2")
        p.line(x + 8 * j * cell, top, x + 8 * j * cell, top + side, "thin")
    for i in range(8):
        p.rect(x - 30, top + (y0 + 4 * i) * row, 22, row, "c1")
        p.line(x, top + 4 * i * row, x + side, top + 4 * i * row, "thin")
        for j in range(8):
            p.rect(x + (x0 + 8 * j) * cell, top + (y0 + 4 * i) * row, cell, row, "c3")
    p.note(x + side / 2, top + side + 30, "rows y + 4 i, columns x + 8 j:", "8 + 8 numbers per step, in registers")
    p.arrow(66 + side + 6, top + 1.5 * side / 4, 346 - 36, top + 14)
    p.arrow(346 + side + 6, top + 1.5 * side / 4, 626 - 36, top + 1.5 * side / 4)
    return p


PICTURES = [levels_of_tiles]
