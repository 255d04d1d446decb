"""Of docs/chapters/08_tensor_cores.md and its backward chapter: what limits each step, a block of B and its row tiles, the lazy maximum, and dQ in the
order of fragments."""

from docs.lab.typed_tables import rows_of, value
from docs.tools.svg import Picture

from .fragments import c_col, c_row, swizzled_chunk

LEFT, SCALE = 110, 0.3  # where cycles begin; points per cycle


def balance_08():
    """The table of (8.0) for d = 64, as bars."""
    rows = [list(map(value, row)) for row in rows_of("chapters/08_tensor_cores.md", "others per `mma`")]
    rows = [row for row in rows if row[0] == 64]
    p = Picture(
        720,
        "Cycles of an SM for 128 × 64 scores at d = 64, unit by unit, in the eight steps",
        "128 × 64 scores, d = 64: cycles that each unit is busy",
    )
    y = 56
    for _, step, _, alone, softmax, ex2, shared, _ in rows:
        p.label(
            8,
            y + 8,
            "step" + ("s " + ", ".join(f"{n:.0f}" for n in step) if isinstance(step, tuple | list) else f" {step:.0f}"),
            18,
            "start",
            bold=True,
        )
        for n, (unit, cycles) in enumerate((("products", softmax), ("ex2", ex2), ("shared", shared))):
            top = y + 16 + 26 * n
            p.note(LEFT - 8, top + 17, unit, anchor="end")
            p.rect(LEFT, top, SCALE * cycles, 22, ("c1", "s", "smem")[n])
            if n == 0:
                p.rect(LEFT + SCALE * alone, top, SCALE * (cycles - alone), 22, "s")
            end = alone if cycles < alone < cycles + 100 else cycles  # the line must not cross a number
            p.note(LEFT + SCALE * end + 8, top + 17, f"{cycles:,.0f}", anchor="start")
        y += 112
    p.line(LEFT + SCALE * 863, 50, LEFT + SCALE * 863, y - 10, "thin")
    p.legend(("c1", "products alone"), ("s", "softmax"), ("smem", "shared memory"))
    p.caption("The longest bar of a step is its ceiling by (8.0). The line: the products without company.")
    return p


def row_tiles_08():
    """One block of B for one or two row tiles."""
    p = Picture(720, "A block of B, loaded once from shared memory, serves two products per row tile of the warp")
    for left, tiles in ((20, 1), (380, 2)):
        rows = 16 * tiles
        p.label(left + 160, 28, f"{rows} rows per warp", 18, bold=True)
        p.box(left + 130, 50, 92, 64, "s", "B", 18)
        p.note(left + 112, 78, "one", "ldmatrix.x4", anchor="end")
        p.note(left + 232, 78, "16 × 16:", "512 bytes", anchor="start")
        p.arrow(left + 176, 116, left + 176, 144)
        for i in range(tiles):
            y = 148 + 72 * i
            p.box(left, y, 88, 64, "t", f"A, tile {i}")
            p.arrow(left + 90, y + 32, left + 128, y + 32)
            for n in range(2):
                p.box(left + 130 + 48 * n, y, 46, 64, "ds", f"C {i}.{n}", 16)  # row tile, column tile
        p.label(left + 160, 148 + 72 * tiles + 22, f"{2 * tiles} mma: {512 // (2 * tiles)} bytes of B each")
    return p


def lazy_08():
    """The row 1, 2, 4, 0 in two tiles on the axis of scores."""
    p = Picture(600, "The running row on the axis of scores: exact and lazy maximum", "Scores 1, 2 in the first tile; 4, 0 in the second")
    first, scale, limit = 100, 50, 8.93

    def x(score):
        return first + scale * score

    for y, name in ((112, "exact"), (226, "lazy")):
        p.label(8, y + 6, name, 18, "start", bold=True)
        p.line(x(-0.6), y, x(9.8), y, "thin")
        if name == "exact":
            p.note(x(9.8), y - 8, "score", anchor="end")
        if name == "lazy":
            p.rect(x(2), y - 15, x(limit) - x(2), 30, "c0")
            p.note((x(4.4) + x(limit)) / 2, y + 6, "keep m")
            p.line(x(limit), y - 22, x(limit), y + 22, "strong")
            p.note(x(9.8), y + 40, "one score alone: m + 6.9", anchor="end")
        for tile, scores, kind in ((0, (1, 2), "s"), (1, (4, 0), "hit")):
            for score in scores:
                p.box(x(score) - 16, y - 15, 32, 30, kind, f"{score}")
                p.note(x(score), y + 36, f"tile {tile}")
    p.label(x(2), 72, "m = 2")
    p.label(x(4), 72, "m = 4")
    p.arrow(x(2) + 30, 67, x(4) - 30, 67)
    p.note(x(3), 56, "× e⁻²")
    p.label(x(2), 196, "m = 2 stays")
    p.caption(
        "Exact: the second tile weighs 1 and e⁻⁴, and the first is rescaled. Lazy: e² and e⁻², nothing is rescaled, and o / ℓ is the same. "
        "Where a lane's sum of P exceeds 2¹⁰, as with a score beyond m + 6.9, m rises and the tile is repeated."
    )
    return p


def dq_order_08():
    """A fragment of dQ, and the order of its 128 numbers in the sum in HBM."""
    p = Picture(720, "A 16 × 8 fragment of dQ, and the place of its elements in the sum in HBM")
    cell, left, top, high = 30, 74, 50, 21
    shown = {0: "c1", 1: "c3", 4: "c2", 31: "c4"}
    p.label(left + 4 * cell, 28, "lanes of a fragment of dQ", 18, bold=True)
    owner = {}
    for lane in range(32):
        for e in range(4):
            owner[c_row(lane) + 8 * (e // 2), c_col(lane) + e % 2] = lane
    for (row, col), lane in sorted(owner.items()):
        p.box(left + col * cell, top + row * high, cell - 2, high - 2, shown.get(lane, "c0"), f"{lane}", 16)
    for row in (0, 8, 15):
        p.note(left - 8, top + row * high + 16, f"row {row}", anchor="end")
    x, y, wide = 352, 76, 70
    p.label(x + 180, 48, "sum in HBM, 16 bytes per lane", 18, bold=True)
    for n, lane in enumerate((0, 1, 2, 3, 4)):
        p.box(x + 72 * n, y, wide, 32, shown.get(lane, "c0"), f"lane {lane}")
        p.note(x + 72 * n + 35, y + 54, f"{4 * lane}–{4 * lane + 3}")
    p.note(x + 180, y + 86, "…", size=18)
    for n, lane in enumerate((30, 31)):
        p.box(x + 82 * n, y + 106, 80, 32, shown.get(lane, "c0"), f"lane {lane}")
        p.note(x + 82 * n + 40, y + 160, f"{4 * lane}–{4 * lane + 3}")
    p.box(x + 164, y + 106, 180, 32, "c0", "next fragment")
    p.note(x + 254, y + 160, "128–255")
    p.note(x + 180, y + 210, "A warp adds to 512 consecutive", "bytes, and each lane adds its four", "elements with one instruction.")
    return p


def addresses_08():
    """Where the chunks lie that one lane points to: one offset, and constants that flip bits or are added."""
    width, lane_row, left, cell = 64, 5, 78, (80, 40)
    p = Picture(
        720,
        "Addresses of one lane's chunks in a swizzled tile of 64 columns: one offset, constants flipped into it or added",
        f"Chunks that one lane points to, d = {width}",
    )
    first = 2 * width * lane_row + 16 * swizzled_chunk(width, lane_row, 0)
    for i in range(2):
        row, y = lane_row + 16 * i, 54 + 110 * i
        p.note(left - 8, y + 26, f"row {row}", anchor="end")
        for chunk in range(width // 8):
            place = swizzled_chunk(width, row, chunk)
            x, mine = left + place * cell[0], chunk % 2 == 0
            p.box(x, y, cell[0] - 3, cell[1], "hit" if mine else "c0", f"{row}.{chunk}")
            if mine:
                p.rect(x + 1, y + 1, cell[0] - 5, cell[1] - 2, "strong")
                flip = 2 * width * row + 16 * place - 2048 * i ^ first
                p.label(x + cell[0] / 2, y + 62, f"{first}" + (f" ⊕ {flip}" if flip else ""), bold=not flip and not i)
                if i:
                    p.label(x + cell[0] / 2, y + 84, "+ 2048")
    p.caption(
        "A cell is a chunk of 16 bytes, row.chunk, at its place in a row of 128 bytes; below, its offset in bytes. "
        "Framed: the lane's chunks in blocks that are 16 columns apart; below, the same in the next 16 rows."
    )
    return p


def orientation_08():
    """What leaves the scores through registers, and what through shared memory, for both orientations."""
    p = Picture(720, "Orientation of the scores: who gets P and dS from registers, and who through shared memory")
    to_dV, to_dK, to_dQ = ("P", "dV = Pᵀ dO"), ("dS", "dK = τ dSᵀ Q"), ("dS", "dQ = τ dS K")
    for top, rows, cols, stays, leaves in [
        (26, "queries", "keys", [to_dQ], [to_dV, to_dK]),
        (272, "keys", "queries", [to_dV, to_dK], [to_dQ]),
    ]:
        p.label(8, top, f"rows are {rows}, columns {cols}", 18, "start", bold=True)
        p.note(104, top + 30, f"scores: {cols} →")
        p.note(8, top + 208, f"{rows} ↓", anchor="start")
        for warp in range(4):
            p.box(8, top + 42 + 38 * warp, 192, 35, "s", f"warp {warp}")
        for n, (matrix, product) in enumerate(stays + leaves):
            y = top + 44 + 52 * n
            p.line(204, y + 20, 252, y + 20)
            p.arrow(472, y + 20, 520, y + 20)
            held = n < len(stays)
            p.box(252, y, 220, 40, "reg" if held else "smem", f"{matrix}: {'registers' if held else 'shared memory'}")
            p.box(522, y, 190, 40, product[:2].lower(), product)
    p.caption(
        "A product can take accumulators as they are if it sums over their columns: over keys above, over queries below. "
        "Arrows: what every warp passes on."
    )
    return p


PICTURES = [balance_08, row_tiles_08, addresses_08, lazy_08, dq_order_08, orientation_08]
