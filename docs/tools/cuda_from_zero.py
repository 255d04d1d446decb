"""Pictures of docs/cuda_from_zero.md: a grid and its threads, the sectors of a load, the banks of a tile."""

from .svg import Picture

LANES, SECTOR_WORDS = 32, 8
N, THREADS = 200, 64  # of docs/lab/hello.cpp


def threads():
    """Section 3: a grid of blocks, a block of warps, a warp of lanes."""
    p = Picture(820, 344, f"A grid of {-(-N // THREADS)} blocks for {N} elements; one block and its warps; one warp and its lanes")
    blocks = -(-N // THREADS)
    p.label(20, 26, "the grid", 15, "start", bold=True)
    wide, part = 190, (N % THREADS) / THREADS
    for b in range(blocks):
        x, used = 20 + b * (wide + 6), THREADS if b < blocks - 1 else N % THREADS
        p.rect(x, 38, wide, 46, "c0")
        p.rect(x, 38, wide * (part if b == blocks - 1 else 1), 46, "c1")
        p.label(x + wide / 2, 58, f"blockIdx.x = {b}", 13)
        p.label(x + wide / 2, 76, f"elements {b * THREADS} to {b * THREADS + used - 1}", 12)
    p.note(800, 104, f"{blocks * THREADS - N} threads without an element", size=12, anchor="end")
    p.label(20, 134, "block 1: threads 0 to 63", 15, "start", bold=True)
    p.line(216, 84, 20, 146, "thin")
    p.line(406, 84, 620, 146, "thin")
    for w in range(THREADS // LANES):
        p.box(20 + 300 * w, 146, 294, 40, "c3" if w else "c1", f"warp {w}: threads {LANES * w} to {LANES * w + LANES - 1}")
    p.label(20, 236, "warp 1 of block 1: 32 lanes", 15, "start", bold=True)
    p.line(320, 186, 20, 248, "thin")
    p.line(614, 186, 804, 248, "thin")
    for lane in range(LANES):
        x = 20 + 24.5 * lane
        p.rect(x, 248, 24.5, 34, "c2" if lane == 6 else "c3")
        p.label(x + 12.25, 270, str(lane), 12)
    p.line(20 + 24.5 * 6.5, 282, 20 + 24.5 * 6.5, 298)
    p.label(20, 316, f"lane 6: threadIdx.x = {LANES + 6}, element blockIdx.x · blockDim.x + threadIdx.x = 1 · 64 + 38 = 102", 14, "start")
    p.note(20, 336, "A warp issues one instruction for all of its lanes.", size=13, anchor="start")
    return p


def sectors():
    """Section 6: which sectors of 32 bytes one load of a warp touches."""
    p = Picture(820, 330, "The sectors of 32 bytes that one load of a warp touches, for three patterns")
    word = 11
    for row, (title, step, shown, count) in enumerate(
        [
            ("along a row: lane t reads word t", 1, 4, 4),
            ("every second element: lane t reads word 2t", 2, 8, 8),
            ("down a column: each lane reads in a row of its own", 8, 8, 32),
        ]
    ):
        y = 30 + 98 * row
        p.label(20, y, title, 14, "start", bold=True)
        for s in range(shown):
            x = 20 + s * (SECTOR_WORDS * word + 8)
            for w in range(SECTOR_WORDS):
                wanted = (s * SECTOR_WORDS + w) % step == 0
                p.rect(x + w * word, y + 12, word, 30, "c1" if wanted else "c0")
                if wanted:
                    p.label(x + (w + 0.5) * word, y + 32, "•", 12)
        p.note(20, y + 62, f"{count} sectors, {32 * count} bytes moved: {400 / count:g} % of them wanted", anchor="start")
        if shown < count:
            p.label(20 + shown * (SECTOR_WORDS * word + 8) + 4, y + 32, "…", 18, "start")
    p.rect(20, 308, word, 14, "c1")
    p.label(20 + 0.5 * word, 319, "•", 12)
    p.note(38, 320, "a word that a lane wants", anchor="start")
    p.rect(240, 308, word, 14, "c0")
    p.note(258, 320, "a word that only comes along", anchor="start")
    p.note(800, 320, "8 words are a sector", anchor="end")
    return p


def bank_columns():
    """Section 7: a column of a tile with rows of 32 and of 33 words, drawn for its first rows."""
    p = Picture(820, 400, "The banks of one column of a tile: rows of 32 words put it into one bank, rows of 33 words into different banks")
    cell, rows = 21, 6
    for n, stride in enumerate([32, 33]):
        x0, y0 = 116, 62 + 180 * n
        verdict = "every row lies in bank 0, and 32 lanes queue" if stride == 32 else "row t lies in bank t, and 32 lanes read at once"
        p.label(20, y0 - 32, f"rows of {stride} words: word 0 of {verdict}", 14, "start", bold=True)
        for bank in [0, 7, 15, 23, 31]:
            p.note(x0 + cell * (bank + 0.5), y0 - 8, str(bank), size=12)
        p.note(x0 - 10, y0 - 8, "bank", size=12, anchor="end")
        for r in range(rows):
            p.note(x0 - 10, y0 + cell * r + 15, f"line {r}", size=12, anchor="end")
            for bank in range(LANES):
                address = LANES * r + bank
                t, first = divmod(address, stride)
                if stride == 33 and first == 32:
                    p.rect(x0 + cell * bank, y0 + cell * r, cell, cell, "thin")
                    p.label(x0 + cell * (bank + 0.5), y0 + cell * r + 15, "×", 12, kind="dim")
                else:
                    p.rect(x0 + cell * bank, y0 + cell * r, cell, cell, "c2" if first == 0 else "c0")
                    if first == 0:
                        p.label(x0 + cell * (bank + 0.5), y0 + cell * r + 15, f"t{t}", 12)
    p.note(
        20,
        382,
        "A line is 32 words, one for each bank. × is the unused word at the end of a row: it shifts every row by one bank.",
        anchor="start",
    )
    return p


PICTURES = [threads, sectors, bank_columns]
