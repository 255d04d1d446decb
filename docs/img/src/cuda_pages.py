"""The pictures of docs/chapters/cuda_from_zero.md that show a grid, its threads, and the banks that a warp asks."""

from docs.tools.svg import Picture

WARP = 32


def threads():
    """From a grid of blocks to a lane and its element."""
    p = Picture(820, 350, "A grid of 4 blocks for 200 elements; one block and its warps; one warp and its lanes")
    elements, size = 200, 64
    left, wide, high = 20, 190, 46
    p.label(left, 26, "the grid", 15, "start", bold=True)
    for block in range(4):
        x, first = left + (wide + 6) * block, size * block
        used = min(size, elements - first)
        p.rect(x, 38, wide, high, "c0")
        p.rect(x, 38, wide * used / size, high, "c1")
        p.label(x + wide / 2 + (wide * used / size / 2 if used < size else 0), 58, f"blockIdx.x = {block}", 13)
        p.label(x + wide / 2 + (wide * used / size / 2 if used < size else 0), 76, f"elements {first} to {first + used - 1}", 13)
    p.note(left + 4 * wide + 18, 104, "56 threads without an element", anchor="end")
    # Each level is drawn wider than its place in the level above; the titles are between the lines that say so.
    chosen, half = left + wide + 6, 300
    p.line(chosen, 84, left, 172, "thin")
    p.line(chosen + wide, 84, left + 2 * half, 172, "thin")
    p.label(chosen + wide / 2, 156, "block 1: 64 threads", 15, bold=True)
    for warp, kind in enumerate(["c1", "c3"]):
        p.box(left + half * warp, 172, half - 6, 40, kind, f"warp {warp}: threads {WARP * warp} to {WARP * warp + WARP - 1}")
    p.line(left + half, 212, left, 276, "thin")
    p.line(left + 2 * half - 6, 212, left + 25 * WARP - 12, 276, "thin")
    p.label(left + 400, 258, "warp 1 of block 1: 32 lanes", 15, bold=True)
    cell = 24.5
    for lane in range(WARP):
        p.box(left + cell * lane, 276, cell, 34, "c2" if lane == 6 else "c3", str(lane), 12)
    p.line(left + 6.5 * cell, 310, left + 6.5 * cell, 320)
    p.label(left, 338, "lane 6: threadIdx.x = 38, element blockIdx.x · blockDim.x + threadIdx.x = 1 · 64 + 38 = 102", 14, "start")
    return p


def grid_2d():
    """Blocks over a matrix whose sides are no multiples of a block's, and one thread of them."""
    p = Picture(900, 378, "A grid of 4 by 7 blocks over a matrix of 50 rows and 100 columns, which ends inside the last blocks")
    rows, cols, y_threads, x_threads = 50, 100, 8, 32
    left, top, wide, high = 150, 44, 5, 5  # pixels per element
    across, down = -(-cols // x_threads), -(-rows // y_threads)
    for by in range(down):
        y = top + by * y_threads * high
        p.note(left - 10, y + 25, f"blockIdx.y = {by}", anchor="end")
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
    p.rect(x, y, wide, high, "c2")
    p.line(x + wide, y + high, x + 14, y + 18)
    p.label(x + 17, y + 24, "thread (5, 2)", 13, "start")
    p.label(left + 8, top + 25, "matrix", 14, "start", bold=True)
    p.note(left + cols * wide + 14, top + 25, "beyond column 99", anchor="start")
    p.note(left + 2.5 * x_threads * wide, top + 54.6 * high, "beyond row 49")
    p.label(
        left + across * x_threads * wide / 2,
        top + down * y_threads * high + 28,
        f"thread (5, 2) of block (2, 1): column {bx} · {x_threads} + {tx} = {col}, row {by} · {y_threads} + {ty} = {row}",
    )
    return p


BANKS = 32


def bank_columns():
    """Where column 0 of 32 rows resides, for four lengths of a row, and how many words that requests per bank."""
    p = Picture(980, 434, "A warp reads column 0 of a tile of 32 rows: rows of 32, 33, 34 and 36 words, and the words requested per bank")
    cell, top, base = 6.5, 66, 382
    for n, length in enumerate((32, 33, 34, 36)):
        left = 64 + 230 * n
        wide = BANKS * cell
        p.label(left + wide / 2, 26, f"rows of {length} words", 16, bold=True)
        for bank in (0, 31):
            p.note(left + (bank + 0.5) * cell, 56, str(bank), size=14)
        p.note(left + wide / 2, 56, "bank", size=14)
        words = [length * lane for lane in range(WARP)]
        lines = (length * WARP) // BANKS
        p.rect(left, top, wide, lines * cell, "c0")
        for row in range(WARP):  # the words that only lengthen a row
            for word in range(length * row + 32, length * row + length):
                p.rect(left + word % BANKS * cell, top + word // BANKS * cell, cell, cell, "bg")
        for word in words:
            p.rect(left + word % BANKS * cell, top + word // BANKS * cell, cell, cell, "c2")
        asked = [sum(word % BANKS == bank for word in words) for bank in range(BANKS)]
        p.line(left, base, left + wide, base)
        for bank, count in enumerate(asked):
            p.rect(left + bank * cell, base - 2 * count, cell, 2 * count, "c2")
        cycles = max(asked)
        p.label(left + wide / 2, base + 24, f"{cycles} cycle{'s' if cycles > 1 else ''}", 16, bold=True)
    for lane in (0, 31):
        p.note(58, top + (lane + 1) * cell + 3, f"lane {lane}", anchor="end")
    p.note(
        490,
        426,
        "Above: lines of 32 words, the 32 words that the lanes read, and gaps for padding. Below: words requested per bank.",
        size=14,
    )
    return p


SECTOR = 8  # words


def sectors():
    """Which sectors of 32 bytes one load of a warp touches; only the first eight are drawn."""
    p, word, gap, left = Picture(820, 346, "The sectors of 32 bytes that one load of a warp touches, for three patterns"), 11.2, 8, 20
    for n, (title, step) in enumerate(
        [
            ("along a row: lane t reads word t", 1),
            ("every second element: lane t reads word 2t", 2),
            ("down a column: each lane reads a different row, here rows 0 to 7 from left to right", SECTOR),
        ]
    ):
        y, count = 30 + 102 * n, WARP * step // SECTOR
        p.label(left, y, title, 15, "start", bold=True)
        for sector in range(min(count, 8)):
            for w in range(SECTOR):
                x, read = left + sector * (SECTOR * word + gap) + w * word, w % step == 0
                p.rect(x, y + 12, word, 30, "c1" if read else "c0")
                if read:
                    p.label(x + word / 2, y + 32, "•", 12)
        if count > 8:
            p.label(left + 8 * (SECTOR * word + gap), y + 32, "…", 18, "start")
        p.note(left, y + 64, f"{count} sectors, {32 * count} bytes moved: {400 / count:g} % of them used", size=15, anchor="start")
    p.note(
        left,
        332,
        "A sector has 8 words. Dots are words that a lane reads; the other words are moved but not read.",
        size=15,
        anchor="start",
    )
    return p


PICTURES = [threads, grid_2d, bank_columns, sectors]
