"""Of docs/mma_fragments.md: which lane holds which element, of mma and of ldmatrix."""

from . import fragments as F
from .shapes import WARP
from .svg import Picture

KINDS = ["c1", "c2", "c3", "c4"]  # of registers 0 to 3
SHOWN = 6  # the lane whose cells are framed: g = 1, t = 2


def cells(p, x, y, size, places):
    """places: (row, col, rows, cols, lane, register), in elements of a tile that begins at (x, y)."""
    w, h = size
    for row, col, rows, cols, lane, register in places:
        p.rect(x + col * w, y + row * h, cols * w, rows * h, KINDS[register])
        p.label(x + (col + cols / 2) * w, y + (row + rows / 2) * h + 4, str(lane), 11, bold=lane == SHOWN)
    for row, col, rows, cols, lane, _ in places:
        if lane == SHOWN:
            p.rect(x + col * w + 1, y + row * h + 1, cols * w - 2, rows * h - 2, "strong")


def ticks(p, x, y, size, rows, cols, step_row=1, step_col=1):
    def text(first, step):
        return str(first) if step == 1 else f"{first}, {first + 1}"

    for r in range(0, rows, step_row):
        p.note(x - 6, y + (r + step_row / 2) * size[1] + 4, text(r, step_row), size=10, anchor="end")
    for c in range(0, cols, step_col):
        p.note(x + (c + step_col / 2) * size[0], y - 5, text(c, step_col), size=10)


def a_places(registers):
    return [(F.a_row(lane, r), F.a_col(lane, r), 1, 2, lane, r) for lane in range(WARP) for r in range(registers)]


def b_places(registers):
    return [(F.b_row(lane, r), F.b_col(lane), 2, 1, lane, r) for lane in range(WARP) for r in range(registers)]


def c_places(first_kind=0):
    """Registers 0, 1 and 2, 3 side by side: pairs 0 and 1."""
    return [(F.c_row(lane, r), F.c_col(lane, r), 1, 2, lane, first_kind + r // 2) for lane in range(WARP) for r in (0, 2)]


def legend(p, x, y, names, step):
    for n, name in enumerate(names):
        p.rect(x + step * n, y - 11, 16, 14, KINDS[n])
        p.label(x + step * n + 22, y + 1, name, 12, "start")


def fragments(depth):
    """A left, B above, C in the corner: a cell of C is its row of A times its column of B."""
    a, b = (23, 18), (34, 18)
    left, top, registers = 60, 84, depth // 4
    x, y = left + depth * a[0] + 56, top + depth * b[1] + 44
    p = Picture(x + 8 * b[0] + 40, y + 16 * b[1] + 84, f"Fragments of mma.m16n8k{depth}: which lane holds which elements of A, B and C")
    middle = p.width / 2
    p.label(middle, 30, f"m16n8k{depth}:  C [16, 8] += A [16, {depth}] B [{depth}, 8]", 16, bold=True)
    for at_x, at_y, size, shape, steps, places, title in [
        (x, top, b, (depth, 8), (2, 1), b_places(registers // 2), f"B   [{depth}, 8], 16-bit"),
        (left, y, a, (16, depth), (1, 2), a_places(registers), f"A   [16, {depth}], 16-bit"),
        (x, y, b, (16, 8), (1, 2), c_places(), "C   [16, 8], fp32"),
    ]:
        cells(p, at_x, at_y, size, places)
        ticks(p, at_x, at_y, size, *shape, *steps)
        p.label(at_x + shape[1] * size[0] / 2, at_y - 22, title, bold=True)
    # What colours mean, in the empty corner.
    pairs = ["c[0], c[1]", "c[2], c[3]"]
    for n, (name, of_name, step) in enumerate([("A", registers, 62), ("B", registers // 2, 62), ("C", 0, 92)]):
        p.label(left - 30, top + 8 + 26 * n, f"{name}:", 13, "start", bold=True)
        legend(p, left, top + 8 + 26 * n, [f"{name.lower()}[{r}]" for r in range(of_name)] or pairs, step)
    order = (
        [
            "The left number (A, C) or the upper one (B) comes first:",
            "in the lower half of a register of A or B, in the lower register of C.",
        ]
        if depth == 16
        else ["The left number (A, C) or the upper", "one (B) comes first, as in m16n8k16."]
    )
    what = f"A cell is two elements; its number is the lane. Framed: lane {SHOWN}, g = {SHOWN // 4}, t = {SHOWN % 4}."
    p.note(middle, y + 16 * b[1] + 30, what, *order)
    return p


def fragments_a_b_c():
    return fragments(16)


def fragments_k8():
    return fragments(8)


def ldmatrix():
    p = Picture(960, 620, "ldmatrix: addresses in, registers out, plain and transposed")
    w, h, x, y = 19, 19, 92, 98
    p.label(x + 8 * w, 32, "in: lane i points to a row", 15, bold=True)
    p.note(x + 8 * w, 52, "x4: four matrices of 8 × 8, here a tile [16, 16]", size=12)
    for m in range(4):
        mx, my = x + (m // 2) * 8 * w, y + (m % 2) * 8 * h
        for row in range(8):
            p.box(mx, my + row * h, 8 * w, h, KINDS[m], f"16 bytes, from lane {8 * m + row}", 10)
        side, anchor = (x - 10, "end") if m // 2 == 0 else (x + 16 * w + 10, "start")
        p.label(side, my + 4 * h - 4, f"matrix {m}", 12, anchor, bold=True)
        p.label(side, my + 4 * h + 13, f"→ r[{m}]", 12, anchor)
    p.note(x + 8 * w, y + 16 * h + 30, "Matrices need not be neighbours: any 32 rows do,", "each at a multiple of 16 bytes.")
    w, h, x = 28, 22, 640
    plain = [(F.ldmatrix_row(lane), F.ldmatrix_col(lane), 1, 2, lane, 0) for lane in range(WARP)]
    trans = [(F.ldmatrix_trans_row(lane), F.ldmatrix_trans_col(lane), 2, 1, lane, 0) for lane in range(WARP)]
    for top, title, places, text in [
        (98, "out: ldmatrix", plain, "neighbours of a row: A, or B by rows of Bᵀ"),
        (378, "out: ldmatrix.trans", trans, "neighbours of a column: B by its own rows"),
    ]:
        p.label(x + 4 * w, top - 40, title, 15, bold=True)
        cells(p, x, top, (w, h), places)
        ticks(p, x, top, (w, h), 8, 8)
        p.note(x + 4 * w, top + 8 * h + 20, text, size=12)
        p.note(x - 34, top + 4 * h, "row", size=11, anchor="end")
    p.note(
        250,
        540,
        "Right: one matrix in shared memory; the number is the lane",
        f"whose register gets the two elements. Framed: lane {SHOWN}.",
    )
    return p


def accumulator_to_operand():
    """Two n8 tiles of C and the A operand that they make."""
    w, h = size = (34, 17)
    p = Picture(860, 830, "Two accumulators of S become one A operand of P V")
    p.label(430, 30, "16 rows of S, keys 16i to 16i + 15: two accumulators", 15, bold=True)
    x, y = 120, 84
    below = y + 16 * h
    made = set()
    for n, (prime, tile) in enumerate([("", "2i"), ("′", "2i + 1")]):
        at, places = x + n * (8 * w + 44), c_places(2 * n)
        made |= {(row, 8 * n + col, lane, register) for row, col, _, _, lane, register in places}
        p.label(at + 4 * w, y - 22, f"n8 tile {tile}:  c[0..3]{prime}, fp32", 13)
        cells(p, at, y, size, places)
        ticks(p, at, y, size, 16, 8, step_col=2)
        p.arrow(at + 4 * w, below + 10, 340 + 180 * n, below + 62)
    if made != {(row, col, lane, register) for row, col, _, _, lane, register in a_places(4)}:
        raise SystemExit("fragments.hpp: two accumulators are no A operand; the picture accumulator_to_operand and its text say so")
    p.label(430, below + 34, "round", 13)
    x, y = 430 - 8 * w, below + 104
    p.label(430, y - 24, "A [16, 16] of P V:  a[0..3], two 16-bit numbers in each", 15, bold=True)
    cells(p, x, y, size, a_places(4))
    ticks(p, x, y, size, 16, 16, step_col=2)
    legend(p, 80, y + 16 * h + 29, ["a[0] = (c[0], c[1])", "a[1] = (c[2], c[3])", "a[2] = (c[0]′, c[1]′)", "a[3] = (c[2]′, c[3]′)"], 186)
    p.note(430, y + 16 * h + 58, "The same colour and the same lane at the same row and key: nothing moves between lanes.")
    return p


PICTURES = [fragments_a_b_c, fragments_k8, ldmatrix, accumulator_to_operand]
