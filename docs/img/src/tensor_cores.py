"""Of docs/chapters/08_tensor_cores.md and its backward chapter: what limits each step, a block of B and its row tiles, the lazy maximum, and dQ in the
order of fragments."""

from docs.lab.typed_tables import rows_of, value
from docs.tools.svg import Picture

from .fragments import c_col, c_row, swizzled_chunk

LEFT, SCALE = 200, 0.36  # where cycles begin; points per cycle


def balance_08():
    """The table of (8.0) for d = 64, as bars."""
    rows = [list(map(value, row)) for row in rows_of("chapters/08_tensor_cores.md", "others per `mma`")]
    rows = [row for row in rows if row[0] == 64]
    p = Picture(960, 110 + 92 * len(rows), "Cycles of an SM for 128 × 64 scores at d = 64, unit by unit, in the eight steps")
    p.label(480, 28, "128 × 64 scores, d = 64: cycles that each unit is busy", 16, bold=True)
    y = 62
    for _, step, _, alone, softmax, ex2, shared, _ in rows:
        name = f"step {step:.0f}" if isinstance(step, float) else f"steps {step[0]:.0f}, {step[1]:.0f}"
        p.label(60, y + 40, name, 15, bold=True)
        for n, (unit, cycles) in enumerate((("products", softmax), ("ex2", ex2), ("shared", shared))):
            top = y + 25 * n
            p.note(LEFT - 10, top + 16, unit, size=14, anchor="end")
            p.rect(LEFT, top, SCALE * cycles, 21, "c1" if n == 0 else "c3")
            if n == 0:
                p.rect(LEFT + SCALE * alone, top, SCALE * (cycles - alone), 21, "c2")
                p.label(LEFT + SCALE * alone / 2, top + 15, "products alone", 13)
                if cycles - alone > 300:
                    p.label(LEFT + SCALE * (alone + cycles) / 2, top + 15, "softmax next to them", 13)
            end = alone if cycles < alone < cycles + 100 else cycles  # the line must not cross a number
            p.note(LEFT + SCALE * end + 8, top + 16, f"{cycles:,.0f}", size=14, anchor="start")
        y += 92
    p.line(LEFT + SCALE * 863, 50, LEFT + SCALE * 863, y - 10, "thin")
    p.note(480, y + 14, "The longest bar of a step is its time by (8.0). The line: the products without company.", size=14)
    return p


def row_tiles_08():
    """One block of B for one or two row tiles."""
    p = Picture(960, 330, "A block of B, loaded once from shared memory, serves two products per row tile of the warp")
    for left, tiles in ((60, 1), (510, 2)):
        rows = 16 * tiles
        p.label(left + 175, 30, f"{rows} rows per warp", 16, bold=True)
        p.box(left + 150, 56, 92, 64, "c2", "B", 15)
        p.note(left + 256, 84, "16 × 16 block: 512 bytes,", "one ldmatrix.x4", size=13, anchor="start")
        p.arrow(left + 196, 122, left + 196, 148)
        for i in range(tiles):
            y = 152 + 72 * i
            p.box(left, y, 92, 64, "c1", f"A, tile {i}", 14)
            p.arrow(left + 96, y + 32, left + 146, y + 32)
            for n in range(2):
                p.box(left + 150 + 46 * n, y, 44, 64, "c3", f"C {i}.{n}", 13)  # row tile, column tile
        p.label(left + 175, 152 + 72 * tiles + 24, f"{2 * tiles} products, {512 // (2 * tiles)} bytes of B each", 14)
    return p


def lazy_08():
    """The row 1, 2, 4, 0 in two tiles on the axis of scores."""
    p = Picture(960, 300, "The running row on the axis of scores: exact and lazy maximum")
    first, scale, limit = 150, 76, 8.93

    def x(score):
        return first + scale * score

    p.label(480, 28, "Scores 1, 2 in the first tile; 4, 0 in the second", 16, bold=True)
    for y, name in ((100, "exact"), (210, "lazy")):
        p.label(70, y + 5, name, 15, bold=True)
        p.line(x(-0.6), y, x(10.4), y, "thin")
        if name == "lazy":
            p.rect(x(2), y - 14, x(limit) - x(2), 28, "c0")
            p.note((x(4.4) + x(limit)) / 2, y + 5, "a lane's sum of P at most 2¹⁰: keep m", size=13)
            p.note(x(limit) + 8, y - 1, "beyond: raise m,", "repeat the tile", size=13, anchor="start")
        for tile, scores, kind in ((0, (1, 2), "c1"), (1, (4, 0), "c3")):
            for score in scores:
                p.box(x(score) - 15, y - 14, 30, 28, kind, f"{score}", 14)
                p.note(x(score), y + 34, f"tile {tile}", size=14)
    p.label(x(2), 66, "m = 2", 14)
    p.label(x(4), 66, "m = 4", 14)
    p.arrow(x(2) + 28, 61, x(4) - 28, 61)
    p.note(x(3), 54, "× e⁻²", size=13)
    p.label(x(2), 180, "m = 2 stays", 14)
    p.note(
        480,
        282,
        "Exact: the second tile weighs 1 and e⁻⁴, and the first is rescaled. Lazy: e² and e⁻², nothing is rescaled. o / ℓ is the same.",
        size=14,
    )
    return p


def dq_order_08():
    """A fragment of dQ, and the order of its 128 numbers in the sum in HBM."""
    p = Picture(960, 420, "A 16 × 8 fragment of dQ, and the place of its elements in the sum in HBM")
    cell, left, top = 34, 90, 70
    shown = {0: "c1", 1: "c3", 4: "c2", 31: "c4"}
    p.label(left + 4 * cell, 50, "lanes of a 16 × 8 fragment of dQ", 15, bold=True)
    owner = {}
    for lane in range(32):
        for e in range(4):
            owner[c_row(lane) + 8 * (e // 2), c_col(lane) + e % 2] = lane
    high = 19
    for (row, col), lane in sorted(owner.items()):
        p.box(left + col * cell, top + row * high, cell - 2, high - 2, shown.get(lane, "c0"), f"{lane}", 12)
    for row in (0, 8, 15):
        p.note(left - 8, top + row * high + 14, f"row {row}", size=14, anchor="end")
    x, y = 460, 100
    p.label(x + 225, 70, "sum in HBM, 16 bytes per lane", 15, bold=True)
    for n, lane in enumerate((0, 1, 2, 3, 4)):
        p.box(x + 90 * n, y, 88, 30, shown.get(lane, "c0"), f"lane {lane}", 13)
        p.note(x + 90 * n + 44, y + 50, f"{4 * lane} to {4 * lane + 3}", size=14)
    p.note(x + 225, y + 86, "…", size=18)
    for n, lane in enumerate((30, 31)):
        p.box(x + 90 * n, y + 110, 88, 30, shown.get(lane, "c0"), f"lane {lane}", 13)
        p.note(x + 90 * n + 44, y + 160, f"{4 * lane} to {4 * lane + 3}", size=14)
    p.box(x + 180, y + 110, 178, 30, "c0", "next fragment", 13)
    p.note(x + 269, y + 160, "128 to 255", size=14)
    p.note(x + 225, y + 210, "A warp adds to 512 consecutive bytes, and each lane", "adds its four elements with one instruction.", size=14)
    return p


def addresses_08():
    """Where the chunks lie that one lane points to: one offset, and constants that flip bits or are added."""
    p = Picture(900, 330, "Addresses of one lane's chunks in a swizzled tile of 64 columns: one offset, constants flipped into it or added")
    width, lane_row, left, cell = 64, 5, 110, (90, 40)
    first = 2 * width * lane_row + 16 * swizzled_chunk(width, lane_row, 0)
    p.label(450, 30, f"Chunks that one lane points to, d = {width}", 16, bold=True)
    for i in range(2):
        row, y = lane_row + 16 * i, 58 + 128 * i
        p.note(left - 12, y + 25, f"row {row}", size=14, anchor="end")
        for chunk in range(width // 8):
            place = swizzled_chunk(width, row, chunk)
            x, mine = left + place * cell[0], chunk % 2 == 0
            p.box(x, y, cell[0] - 3, cell[1], "c3" if mine else "c0", f"{row}.{chunk}", 14)
            if mine:
                p.rect(x + 1, y + 1, cell[0] - 5, cell[1] - 2, "strong")
                flip = 2 * width * row + 16 * place - 2048 * i ^ first
                p.label(x + cell[0] / 2, y + 60, f"{first}" + (f" ⊕ {flip}" if flip else ""), 14, bold=not flip and not i)
                if i:
                    p.label(x + cell[0] / 2, y + 78, "+ 2048", 14)
    p.note(
        450,
        290,
        "A cell is a chunk of 16 bytes, row.chunk, at its place in a row of 128 bytes; below, its offset in bytes.",
        "Framed: the lane's chunks in blocks that are 16 columns apart; below, the same in the next 16 rows.",
        size=14,
    )
    return p


def orientation_08():
    """What leaves the scores through registers, and what through shared memory, for both orientations."""
    p, text = Picture(960, 340, "Orientation of the scores: who gets P and dS from registers, and who through shared memory"), 15
    to_dV, to_dK, to_dQ = ("P", "dV = Pᵀ dO"), ("dS", "dK = τ dSᵀ Q"), ("dS", "dQ = τ dS K")
    for left, rows, cols, stays, leaves in [
        (0, "queries", "keys", [to_dQ], [to_dV, to_dK]),
        (480, "keys", "queries", [to_dV, to_dK], [to_dQ]),
    ]:
        p.label(left + 240, 32, f"rows are {rows}, columns {cols}", 17, bold=True)
        p.label(left + 90, 72, f"scores: {cols} →", text)
        p.label(left + 90, 262, f"{rows} ↓", text)
        for warp in range(4):
            p.box(left + 26, 84 + 40 * warp, 128, 37, "c1", f"warp {warp}", text)
        for n, (matrix, product) in enumerate(stays + leaves):
            y = 104 + 56 * n
            p.arrow(left + 160, y + 15, left + 322, y + 15)
            if n < len(stays):
                p.label(left + 238, y + 8, f"{matrix}: registers", text)
            else:
                p.box(left + 168, y - 3, 144, 36, "c4", f"{matrix}: shared memory", 14)
            p.box(left + 326, y - 3, 136, 36, "c3", product, text)
    p.line(480, 50, 480, 274, "thin")
    p.note(
        480,
        300,
        "A product can take accumulators as they are if it sums over their columns:",
        "over keys on the left, over queries on the right. Arrows: what every warp passes on.",
        size=text,
    )
    return p


PICTURES = [balance_08, row_tiles_08, addresses_08, lazy_08, dq_order_08, orientation_08]
