"""The pictures of docs/chapters/cuda_from_zero.md that show a grid, its threads, and the banks that a warp asks."""

from docs.tools.svg import Picture

WARP, BANKS, SECTOR = 32, 32, 8  # lanes; banks; words of a sector


def threads():
    """From a grid of blocks to a lane and its element."""
    p = Picture(720, "A grid of 4 blocks for 200 elements; one block and its warps; one warp and its lanes")
    elements, size = 200, 64
    left, wide, high = 8, 171, 52
    p.label(left, 26, "the grid", 18, "start", bold=True)
    p.note(left + 4 * wide + 18, 26, "of the last block 56 threads have none", anchor="end")
    for block in range(4):
        x, first = left + (wide + 6) * block, size * block
        used = min(size, elements - first)
        p.rect(x, 38, wide, high, "c0")
        p.rect(x, 38, wide * used / size, high, "c1")
        middle = x + wide / 2 + (wide * used / size / 2 if used < size else 0)
        p.label(middle, 60, f"blockIdx.x = {block}")
        p.label(middle, 81, f"{first} to {first + used - 1}")
    # Each level is drawn wider than its place in the level above; the titles are between the lines that say so.
    chosen, half = left + wide + 6, 290
    p.line(chosen, 90, left, 172, "thin")
    p.line(chosen + wide, 90, left + 2 * half, 172, "thin")
    p.label(chosen + wide / 2, 156, "block 1: 64 threads", 18, bold=True)
    for warp, kind in enumerate(["c1", "c3"]):
        p.box(left + half * warp, 172, half - 6, 42, kind, f"warp {warp}: threads {WARP * warp} to {WARP * warp + WARP - 1}")
    cell = 22
    p.line(left + half, 214, left, 282, "thin")
    p.line(left + 2 * half - 6, 214, left + WARP * cell, 282, "thin")
    p.label(left + 400, 262, "warp 1 of block 1: 32 lanes", 18, bold=True)
    for lane in range(WARP):
        p.box(left + cell * lane, 282, cell, 34, "hit" if lane == 6 else "c3", str(lane), 15)
    p.line(left + 6.5 * cell, 316, left + 6.5 * cell, 328)
    p.label(left, 348, "lane 6: threadIdx.x = 38, element blockIdx.x · blockDim.x + threadIdx.x", anchor="start")
    p.label(left, 370, "= 1 · 64 + 38 = 102", anchor="start")
    return p


def grid_2d():
    """Blocks over a matrix whose sides are no multiples of a block's, and one thread of them."""
    p = Picture(720, "A grid of 4 by 7 blocks over a matrix of 50 rows and 100 columns, which ends inside the last blocks")
    rows, cols, y_threads, x_threads = 50, 100, 8, 32
    left, top, wide, high = 136, 40, 4.5, 5  # pixels per element
    across, down = -(-cols // x_threads), -(-rows // y_threads)
    for by in range(down):
        y = top + by * y_threads * high
        p.note(left - 8, y + 26, f"blockIdx.y = {by}", anchor="end")
        for bx in range(across):
            x = left + bx * x_threads * wide
            p.rect(x, y, x_threads * wide, y_threads * high, "c0")
            inside_x, inside_y = min(x_threads, cols - bx * x_threads), min(y_threads, rows - by * y_threads)
            p.rect(x, y, inside_x * wide, inside_y * high, "c3" if (bx, by) == (2, 1) else "c1")
    for bx in range(across):
        p.note(left + (bx + 0.5) * x_threads * wide, top - 12, f"blockIdx.x = {bx}")
    for b in range(across + 1):
        p.line(left + b * x_threads * wide, top, left + b * x_threads * wide, top + down * y_threads * high)
    bx, by, tx, ty = 2, 1, 5, 2
    col, row = bx * x_threads + tx, by * y_threads + ty
    x, y = left + col * wide, top + row * high
    p.rect(x - 1, y - 1, wide + 2, high + 2, "hit")
    p.label(x + wide + 5, y + 9, "thread (5, 2)", anchor="start")
    p.label(left + 8, top + 26, "matrix", 18, "start", bold=True)
    p.note(left + (cols + x_threads * across) / 2 * wide, top + 3.5 * y_threads * high + 6, "beyond 99")
    p.caption(f"Thread (5, 2) of block (2, 1): column {bx} · {x_threads} + {tx} = {col}, row {by} · {y_threads} + {ty} = {row}.")
    return p


def bank_columns():
    """Where column 0 of 32 rows resides, for four lengths of a row, and how many words that requests per bank."""
    p = Picture(720, "A warp reads column 0 of a tile of 32 rows: rows of 32, 33, 34 and 36 words, and the words requested per bank")
    cell, top, base = 4.8, 66, 320
    for n, length in enumerate((32, 33, 34, 36)):
        left = 14 + 179 * n
        wide = BANKS * cell
        p.label(left + wide / 2, 26, f"rows of {length}", 18, bold=True)
        for bank in (0, 31):
            p.note(left + (bank + 0.5) * cell, 56, str(bank))
        p.note(left + wide / 2, 56, "bank")
        words = [length * lane for lane in range(WARP)]
        lines = (length * WARP) // BANKS
        p.rect(left, top, wide, lines * cell, "c0")
        for row in range(WARP):  # the words that only lengthen a row
            for word in range(length * row + 32, length * row + length):
                p.rect(left + word % BANKS * cell, top + word // BANKS * cell, cell, cell, "bg")
        for word in words:
            p.rect(left + word % BANKS * cell, top + word // BANKS * cell, cell, cell, "hit")
        asked = [sum(word % BANKS == bank for word in words) for bank in range(BANKS)]
        p.line(left, base, left + wide, base)
        for bank, count in enumerate(asked):
            p.rect(left + bank * cell, base - 2 * count, cell, 2 * count, "hit")
        cycles = max(asked)
        p.label(left + wide / 2, base + 24, f"{cycles} cycle{'s' if cycles > 1 else ''}", 18, bold=True)
    p.caption(
        "Above: lines of 32 words of shared memory; yellow the words that lanes 0 to 31 read, from the top; gaps are padding. "
        "Below: words requested per bank."
    )
    return p


def sectors():
    """Which sectors of 32 bytes one load of a warp touches; only the first eight are drawn."""
    p, word, gap, left = Picture(720, "The sectors of 32 bytes that one load of a warp touches, for three patterns"), 9.8, 7, 10
    for n, (title, step) in enumerate(
        [
            ("along a row: lane t reads word t", 1),
            ("every second element: lane t reads word 2t", 2),
            ("down a column: each lane reads another row (0 to 7 are drawn)", SECTOR),
        ]
    ):
        y, count = 26 + 102 * n, WARP * step // SECTOR
        p.label(left, y, title, 18, "start", bold=True)
        for sector in range(min(count, 8)):
            for w in range(SECTOR):
                x = left + sector * (SECTOR * word + gap) + w * word
                p.rect(x, y + 12, word, 30, "hit" if w % step == 0 else "c0")
        if count > 8:
            p.label(left + 8 * (SECTOR * word + gap) - 4, y + 34, "…", 20, "start")
        p.note(left, y + 64, f"{count} sectors, {32 * count} bytes moved: {400 / count:g} % of them used", anchor="start")
    p.legend(("hit", "a word that a lane reads"), ("c0", "moved but not read"))
    return p


PICTURES = [threads, grid_2d, bank_columns, sectors]
