"""Draws fragments, ldmatrix and swizzles from the index functions of common/attention/fragments.hpp."""

from . import fragment_functions
from .svg import Picture

F = fragment_functions.functions()
LANES = range(fragment_functions.LANES)
KINDS = ["c1", "c2", "c3", "c4"]  # of registers 0 to 3
SHOWN = 6  # the lane whose cells are framed: g = 1, t = 2


def cells(p, x, y, size, places, kinds):
    """places: (row, col, rows, cols, lane, kind) of what a register holds, in elements of a tile that begins at (x, y)."""
    w, h = size
    for row, col, rows, cols, lane, kind in places:
        p.rect(x + col * w, y + row * h, cols * w, rows * h, kinds[kind])
        p.label(x + (col + cols / 2) * w, y + (row + rows / 2) * h + 4, str(lane), 11, bold=lane == SHOWN)
    for row, col, rows, cols, lane, _ in places:
        if lane == SHOWN:
            p.rect(x + col * w + 1, y + row * h + 1, cols * w - 2, rows * h - 2, "strong")


def ticks(p, x, y, size, rows, cols, step_row=1, step_col=1):
    w, h = size
    for r in range(0, rows, step_row):
        p.label(x - 6, y + (r + step_row / 2) * h + 4, str(r) if step_row == 1 else f"{r}, {r + 1}", 10, "end", "dim")
    for c in range(0, cols, step_col):
        p.label(x + (c + step_col / 2) * w, y - 5, str(c) if step_col == 1 else f"{c}, {c + 1}", 10, kind="dim")


def a_places(registers):
    return [(F.a_row(lane, r), F.a_col(lane, r), 1, 2, lane, r) for lane in LANES for r in range(registers)]


def b_places(registers):
    return [(F.b_row(lane, r), F.b_col(lane), 2, 1, lane, r) for lane in LANES for r in range(registers)]


def c_places(first_col=0):
    """Registers 0, 1 and 2, 3 side by side; the kind is that of the pair."""
    return [(F.c_row(lane, r), first_col + F.c_col(lane, r), 1, 2, lane, r // 2) for lane in LANES for r in (0, 2)]


def legend(p, x, y, names, kinds):
    for n, name in enumerate(names):
        p.rect(x + 62 * n, y - 11, 16, 14, kinds[n])
        p.label(x + 62 * n + 22, y + 1, name, 12, "start")


def fragments(depth):
    """A left, B above, C in the corner: a cell of C is its row of A times its column of B."""
    a, b, c = (23, 18), (34, 18), (34, 18)
    left, top = 60, 84
    width_a, high_b = depth * a[0], depth * b[1]
    x, y = left + width_a + 56, top + high_b + 44
    p = Picture(x + 8 * b[0] + 40, y + 16 * c[1] + 84, f"Fragments of mma.m16n8k{depth}: which lane holds which elements of A, B and C")
    middle = p.width / 2
    p.label(middle, 30, f"m16n8k{depth}:  C [16, 8] += A [16, {depth}] B [{depth}, 8]", 16, bold=True)
    registers = depth // 4
    cells(p, x, top, b, b_places(registers // 2), KINDS)
    ticks(p, x, top, b, depth, 8, step_row=2)
    cells(p, left, y, a, a_places(registers), KINDS)
    ticks(p, left, y, a, 16, depth, step_col=2)
    cells(p, x, y, c, c_places(), KINDS)
    ticks(p, x, y, c, 16, 8, step_col=2)
    p.label(x + 4 * b[0], top - 22, f"B   [{depth}, 8], 16-bit", 14, bold=True)
    p.label(left + width_a / 2, y - 22, f"A   [16, {depth}], 16-bit", 14, bold=True)
    p.label(x + 4 * c[0], y - 22, "C   [16, 8], fp32", 14, bold=True)
    # What colours mean, in the empty corner.
    corner = top + 8
    for n, (name, count) in enumerate([("A", registers), ("B", registers // 2)]):
        p.label(left - 30, corner + 26 * n, f"{name}:", 13, "start", bold=True)
        legend(p, left, corner + 26 * n, [f"{name.lower()}[{r}]" for r in range(count)], KINDS)
    p.label(left - 30, corner + 52, "C:", 13, "start", bold=True)
    for n in range(2):
        p.rect(left + 92 * n, corner + 41, 16, 14, KINDS[n])
        p.label(left + 92 * n + 22, corner + 53, f"c[{2 * n}], c[{2 * n + 1}]", 12, "start")
    below = y + 16 * c[1]
    p.label(middle, below + 32, f"A cell is two elements; its number is the lane. Framed: lane {SHOWN}, g = {SHOWN // 4}, t = {SHOWN % 4}.", 13, kind="dim")
    p.label(middle, below + 52, "The left number (A, C) or the upper one (B) comes first:" if depth == 16 else "The left number (A, C) or the upper", 13, kind="dim")
    p.label(middle, below + 70, "in the lower half of a register of A or B, in the lower register of C." if depth == 16 else "one (B) comes first, as in m16n8k16.", 13, kind="dim")
    return p


def fragments_a_b_c():
    return fragments(16)


def fragments_k8():
    return fragments(8)


def ldmatrix():
    p = Picture(960, 620, "ldmatrix: addresses in, registers out, plain and transposed")
    w, h = 19, 19
    x, y = 92, 98
    p.label(x + 8 * w, 32, "in: lane i points to a row", 15, bold=True)
    p.label(x + 8 * w, 52, "x4: four matrices of 8 × 8, here a tile [16, 16]", 12, kind="dim")
    for m in range(4):
        mx, my = x + (m // 2) * 8 * w, y + (m % 2) * 8 * h
        for row in range(8):
            p.rect(mx, my + row * h, 8 * w, h, KINDS[m])
            p.label(mx + 4 * w, my + row * h + 14, f"16 bytes, from lane {8 * m + row}", 10)
        side = x - 10 if m // 2 == 0 else x + 16 * w + 10
        p.label(side, my + 4 * h - 4, f"matrix {m}", 12, "end" if m // 2 == 0 else "start", bold=True)
        p.label(side, my + 4 * h + 13, f"→ r[{m}]", 12, "end" if m // 2 == 0 else "start")
    p.label(x + 8 * w, y + 16 * h + 30, "Matrices need not be neighbours: any 32 rows do,", 13, kind="dim")
    p.label(x + 8 * w, y + 16 * h + 48, "each at a multiple of 16 bytes.", 13, kind="dim")
    w, h = 28, 22
    x = 640
    plain = [(F.ldmatrix_row(lane), F.ldmatrix_col(lane, 0), 1, 2, lane, 0) for lane in LANES]
    trans = [(F.ldmatrix_trans_row(lane, 0), F.ldmatrix_trans_col(lane), 2, 1, lane, 0) for lane in LANES]
    for top, title, places, text in [
        (98, "out: ldmatrix", plain, "neighbours of a row: A, or B by rows of Bᵀ"),
        (378, "out: ldmatrix.trans", trans, "neighbours of a column: B by its own rows"),
    ]:
        p.label(x + 4 * w, top - 40, title, 15, bold=True)
        cells(p, x, top, (w, h), places, KINDS)
        ticks(p, x, top, (w, h), 8, 8)
        p.label(x + 4 * w, top + 8 * h + 20, text, 12, kind="dim")
    p.label(x - 34, 98 + 4 * h, "row", 11, "end", "dim")
    p.label(x - 34, 378 + 4 * h, "row", 11, "end", "dim")
    p.label(250, 540, "Right: one matrix in shared memory; the number is the lane", 13, kind="dim")
    p.label(250, 558, f"whose register gets the two elements. Framed: lane {SHOWN}.", 13, kind="dim")
    return p


def accumulator_to_operand():
    """Two n8 tiles of C and the A operand that they make."""
    size = (34, 17)
    w, h = size
    p = Picture(860, 830, "Two accumulators of S become one A operand of P V")
    p.label(430, 30, "16 rows of S, keys 16i to 16i + 15: two accumulators", 15, bold=True)
    x, y = 120, 84
    left = c_places()
    right = [(row, col, rows, cols, lane, kind + 2) for row, col, rows, cols, lane, kind in c_places()]
    for n, places in enumerate([left, right]):
        at = x + n * (8 * w + 44)
        p.label(at + 4 * w, y - 22, f"n8 tile 2i{' + 1' if n else ''}:  c[0..3]{'′' if n else ''}, fp32", 13)
        cells(p, at, y, size, places, KINDS)
        ticks(p, at, y, size, 16, 8, step_col=2)
    made = {(row, col, lane): kind for row, col, _, _, lane, kind in left} | {(row, col + 8, lane): kind for row, col, _, _, lane, kind in right}
    wanted = {(row, col, lane): kind for row, col, _, _, lane, kind in a_places(4)}
    if made != wanted:
        raise SystemExit("fragments.hpp: two accumulators are no A operand; the picture accumulator_to_operand and its text say so")
    below = y + 16 * h
    for n, middle in enumerate([x + 4 * w, x + 8 * w + 44 + 4 * w]):
        p.arrow(middle, below + 10, 430 + (-90 if n == 0 else 90), below + 62)
    p.label(430, below + 34, "round", 13)
    names = ["a[0] = (c[0], c[1])", "a[1] = (c[2], c[3])", "a[2] = (c[0]′, c[1]′)", "a[3] = (c[2]′, c[3]′)"]
    x, y = 430 - 8 * w, below + 104
    p.label(430, y - 24, "A [16, 16] of P V:  a[0..3], two 16-bit numbers in each", 15, bold=True)
    cells(p, x, y, size, a_places(4), KINDS)
    ticks(p, x, y, size, 16, 16, step_col=2)
    for n, name in enumerate(names):
        at = 80 + 186 * n
        p.rect(at, y + 16 * h + 18, 16, 14, KINDS[n])
        p.label(at + 22, y + 16 * h + 30, name, 13, "start")
    p.label(430, y + 16 * h + 58, "The same colour and the same lane at the same row and key: nothing moves between lanes.", 13, kind="dim")
    return p


def swizzle_banks():
    """Chunks of 16 bytes in lines of 128 bytes; the chunks of one column of eight rows, before and after."""
    p = Picture(1000, 720, "Bank maps of tiles of eight rows: plain, padded, swizzled, for rows of 64, 96 and 32 numbers")
    cell, column = (34, 22), 2

    def tile(x, y, width, place):
        stride = width // 8 + (place == "padded")
        at = {}  # (line, group of banks): (row, chunk)
        for row in range(8):
            for chunk in range(width // 8):
                index = row * stride + (F.swizzled_chunk(width, row, chunk) if place == "swizzled" else chunk)
                at[index // 8, index % 8] = (row, chunk)
        groups = [group for (_, group), (_, chunk) in at.items() if chunk == column]
        cost = max(groups.count(g) for g in groups)
        title = {"plain": "as it is", "padded": "rows padded by 16 bytes", "swizzled": "swizzled"}[place]
        p.label(x + 4 * cell[0], y - 26, f"d = {width}, {title}", 14, bold=True)
        for group in range(8):
            p.label(x + (group + 0.5) * cell[0], y - 7, f"{4 * group}-{4 * group + 3}", 10, kind="dim")
        lines = max(line for line, _ in at) + 1
        for line in range(lines):
            for group in range(8):
                if (line, group) not in at:
                    continue
                row, chunk = at[line, group]
                kind = "c0" if chunk != column else "c3" if groups.count(group) == 1 else "c2"
                p.rect(x + group * cell[0], y + line * cell[1], cell[0] - 2, cell[1] - 2, kind)
                p.label(x + (group + 0.5) * cell[0] - 1, y + line * cell[1] + 15, f"{row}.{chunk}", 10)
        text = f"{len(set(groups))} of 8 groups of banks: {cost} wavefront{'s' if cost > 1 else ''}"
        p.label(x + 4 * cell[0], y + lines * cell[1] + 17, text, 13)

    x = [36, 364, 692]
    for n, place in enumerate(["plain", "padded", "swizzled"]):
        tile(x[n], 62, 64, place)
    tile(x[0], 344, 96, "plain")
    tile(x[1], 344, 96, "swizzled")
    tile(x[2], 344, 32, "plain")
    tile(x[2], 344 + 4 * cell[1] + 82, 32, "swizzled")
    p.label(500, 668, "A line is 128 bytes of shared memory, a cell a chunk of 16: row.chunk. Above the tile: its four banks.", 13, kind="dim")
    p.label(500, 688, f"Coloured: chunk {column} of all eight rows, one phase of ldmatrix. Orange chunks share banks with others, green ones do not.", 13, kind="dim")
    return p


PICTURES = [fragments_a_b_c, fragments_k8, ldmatrix, accumulator_to_operand, swizzle_banks]
