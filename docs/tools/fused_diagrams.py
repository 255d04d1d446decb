"""Draws the pictures of the fused stages: the two loop orders, the tiles of a step, and who holds which row."""

from .svg import Picture

TR, TC = 4, 5  # tiles in the pictures; any numbers would do


def tile_strip(p, x, y, count, step, wide, high, kind, name):
    """`count` tiles in a row or a column, `step` = (dx, dy) apart, each with its index: Q0, Q1, ..."""
    for n in range(count):
        p.rect(x + n * step[0], y + n * step[1], wide, high, kind)
        p.label(x + n * step[0] + wide / 2, y + n * step[1] + high / 2 + 5, f"{name}{n}", 12)


def loop_order(p, left, title, k_outer):
    """The tiles of S in the order in which they are computed, with what is read for them at the sides."""
    cell, x, y = 48, left + 118, 120
    p.label(left + 232, 26, title, 16, bold=True)
    p.label(left + 232, 48, "one block for all tiles, column after column" if k_outer else "a block for each row of tiles, all at once", 13, kind="dim")
    kept, again = "c3", "c2"  # loaded once; loaded again and again
    for n, name in enumerate(["K", "V"]):
        tile_strip(p, x, y - 50 + 24 * n, TC, (cell, 0), cell - 4, 20, kept if k_outer else again, name)
    tile_strip(p, x - 104, y, TR, (0, cell), 28, cell - 4, again if k_outer else kept, "Q")
    tile_strip(p, x - 72, y, TR, (0, cell), 66, cell - 4, again if k_outer else kept, "O, m, l ")
    for i in range(TR):
        for j in range(TC):
            order = j * TR + i + 1 if k_outer else j + 1
            p.rect(x + j * cell, y + i * cell, cell - 4, cell - 4, "c1" if k_outer else ["c1", "c4"][i % 2])
            p.label(x + j * cell + cell / 2 - 2, y + i * cell + cell / 2 + 3, str(order), 14)
    end = cell - 4
    if k_outer:
        for j in range(TC):
            p.arrow(x + j * cell + end - 7, y + 6, x + j * cell + end - 7, y + TR * cell - 10)
    else:
        for i in range(TR):
            p.arrow(x + 6, y + i * cell + end - 7, x + TC * cell - 10, y + i * cell + end - 7)
    bottom = y + TR * cell + 22
    texts = (
        ["green: loaded once", f"orange: read for each of the Tc = {TC} columns,", "and O, m, l written back each time"]
        if k_outer
        else ["green: loaded once, then in registers;", "O and L written once, at the end", f"orange: read by each of the Tr = {TR} blocks"]
    )
    for n, text in enumerate(texts):
        p.label(left + 232, bottom + 19 * n, text, 13, kind="dim")


def loop_orders():
    p = Picture(940, 402, "The two loop orders: K/V outer (FlashAttention-1) and Q outer (FlashAttention-2)")
    loop_order(p, 0, "FlashAttention-1: K, V outside, Q inside", True)
    p.line(470, 14, 470, 388, "thin")
    loop_order(p, 472, "FlashAttention-2: Q outside, K, V inside", False)
    return p


def attention_tiles():
    """One step of the forward pass, with its shapes."""
    p = Picture(900, 330, "The tiles of one step: shapes and places")
    x, y, br, bc, d = 40, 110, 104, 72, 130

    def box(x, y, w, h, kind, name, shape, where):
        p.rect(x, y, w, h, kind)
        p.label(x + w / 2, y + h / 2 + 1, name, 15, bold=True)
        p.label(x + w / 2, y + h / 2 + 19, shape, 12)
        p.label(x + w / 2, y + h + 18, where, 12, kind="dim")

    box(x, y, d, br, "c1", "Q tile", "Br × d", "")
    p.label(x + d + 20, y + br / 2 + 5, "·", 26)
    box(x + d + 40, y - 14, bc, d, "c3", "K tileᵀ", "d × Bc", "")
    p.label(x + d + bc + 60, y + br / 2 + 5, "=", 22)
    left = x + d + bc + 82
    box(left, y, bc, br, "c2", "S tile", "Br × Bc", "")
    p.arrow(left + bc + 6, y + br / 2, left + bc + 66, y + br / 2)
    p.label(left + bc + 36, y + br / 2 - 12, "exp(S − m)", 12)
    box(left + bc + 72, y, bc, br, "c2", "P tile", "Br × Bc", "")
    p.label(left + 2 * bc + 90, y + br / 2 + 5, "·", 26)
    box(left + 2 * bc + 108, y + (br - bc) / 2, d, bc, "c3", "V tile", "Bc × d", "")
    p.label(left + 2 * bc + d + 128, y + br / 2 + 5, "→", 20)
    box(left + 2 * bc + d + 148, y, d, br, "c4", "O tile", "Br × d", "")
    p.label(450, 30, "S = τ Q Kᵀ,  then O ← O + P V, a tile at a time", 16, bold=True)
    p.label(450, 56, "a row of S, P and O belongs to a query: its m and l go with it", 13, kind="dim")
    p.label(450, 286, "blue: a tile of queries. green: a tile of keys and values. orange: exists on the chip only, and is forgotten after the step.", 13, kind="dim")
    p.label(450, 308, "violet: the result so far, rescaled when the maximum of a row grows.", 13, kind="dim")
    return p


LANES_Y, LANES_X = 4, 8  # a warp of step 2 of 06


def rows_and_lanes():
    """Thread per row, and a warp of 4 x 8 lanes for 32 rows."""
    p = Picture(940, 556, "Who holds which row of S: a thread per row, and eight lanes per row")
    cell, rows, y = 12, 32, 92
    p.label(190, 26, "a thread per row (04, 05, step 1 of 06)", 15, bold=True)
    p.label(190, 48, "lane t holds row t of S, m, l and O", 13, kind="dim")
    x = 110
    for r in range(rows):
        p.rect(x, y + r * cell, 16 * cell, cell - 1, "c3" if r == 5 else "c1" if r % 2 else "c0")
        if r % 4 == 1:
            p.label(x - 8, y + r * cell + 10, f"lane {r}", 11, "end", "dim")
    p.label(x + 8 * cell, y + rows * cell + 20, "32 rows; a row's max and sum stay in its thread", 13, kind="dim")
    p.line(440, 14, 440, 542, "thin")

    p.label(690, 26, f"a warp of {LANES_Y} × {LANES_X} lanes for the same 32 rows (step 2 of 06)", 15, bold=True)
    p.label(690, 48, f"lane (y, x) holds rows y + {LANES_Y} i and columns x + {LANES_X} j", 13, kind="dim")
    x, cols = 520, 32
    lane_y, lane_x = 1, 3  # the lane that is shown
    for r in range(rows):
        for c in range(cols):
            mine_row, mine_col = r % LANES_Y == lane_y, c % LANES_X == lane_x
            p.rect(x + c * cell, y + r * cell, cell - 1, cell - 1, "c3" if mine_row and mine_col else "c2" if mine_row and r == lane_y else "c0")
    for i in range(rows // LANES_Y):
        p.label(x - 8, y + (lane_y + LANES_Y * i) * cell + 10, f"y + {LANES_Y * i}" if i else "y", 11, "end", "dim")
    for j in range(cols // LANES_X):
        p.label(x + (lane_x + LANES_X * j) * cell + 6, y - 8, f"x + {LANES_X * j}" if j else "x", 11, kind="dim")
    p.label(690, y + rows * cell + 20, f"green: the {rows // LANES_Y} × {cols // LANES_X} elements of lane ({lane_y}, {lane_x}) in a tile of {cols} columns.", 13, kind="dim")
    p.label(690, y + rows * cell + 39, f"orange: the rest of its first row is with the {LANES_X} lanes of the same y,", 13, kind="dim")
    p.label(690, y + rows * cell + 58, "lanes 8 y to 8 y + 7: a row's max takes three shuffles.", 13, kind="dim")
    return p


def levels_of_tiles():
    """Block tile, warp tile, thread tile, with what is shared at each level."""
    p = Picture(900, 340, "A product in three levels of tiles")
    y = 84

    def panel(x, title, text, size, cells, highlight):
        p.label(x + size / 2, y - 22, title, 15, bold=True)
        step = size / cells
        for r in range(cells):
            for c in range(cells):
                p.rect(x + c * step, y + r * step, step - 1, step - 1, "c3" if (r, c) in highlight else "c0")
        for n, line in enumerate(text):
            p.label(x + size / 2, y + size + 24 + 19 * n, line, 13, kind="dim")

    panel(40, "C in HBM: a block's tile", ["operands come from HBM", "into shared memory"], 176, 4, {(1, 2)})
    p.arrow(174, y + 66, 346, y + 10)
    panel(350, "the block's tile: a warp's", ["the warps of a block", "share the tiles of A and B"], 176, 2, {(0, 1)})
    p.arrow(532, y + 44, 656, y + 10)
    panel(660, "the warp's tile: a lane's (side by side)", ["operands in registers; each is", "used for a row or column of results"], 176, 8, {(2, 1), (2, 2), (3, 1), (3, 2)})
    return p


PICTURES = [loop_orders, attention_tiles, rows_and_lanes, levels_of_tiles]
