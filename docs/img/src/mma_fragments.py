"""The pictures of docs/reference/mma_fragments.md: which lane holds which element, of mma and of ldmatrix."""

from docs.tools.svg import Picture

from . import fragments as F
from .fragments import WARP

KINDS = ["c0", "t", "s", "ds"]  # of registers 0 to 3
SHOWN = 6  # the lane whose cells are framed: g = 1, t = 2
TEXT = 17


def cells(p, x, y, size, places):
    """places: (row, col, rows, cols, lane, register), in elements of a tile that begins at (x, y)."""
    w, h = size
    for row, col, rows, cols, lane, register in places:
        p.rect(x + col * w, y + row * h, cols * w, rows * h, "hit" if lane == SHOWN else KINDS[register])
        p.label(x + (col + cols / 2) * w, y + (row + rows / 2) * h + 5, str(lane), 16, bold=lane == SHOWN)
    for row, col, rows, cols, lane, _ in places:
        if lane == SHOWN:
            p.rect(x + col * w + 1, y + row * h + 1, cols * w - 2, rows * h - 2, "strong")


def ticks(p, x, y, size, rows, cols):
    """Numbers next to rows and columns, which are ranges: with a step of 2, two numbers at a time."""

    def text(first, step):
        return str(first) if step == 1 else f"{first},{first + 1}"

    for r in rows:
        p.note(x - 6, y + (r + rows.step / 2) * size[1] + 6, text(r, rows.step), size=16, anchor="end")
    for c in cols:
        p.note(x + (c + cols.step / 2) * size[0], y - 6, text(c, cols.step), size=16 if size[0] > 25 else 14.5)


def a_places(registers):
    return [(F.a_row(lane, r), F.a_col(lane, r), 1, 2, lane, r) for lane in range(WARP) for r in range(registers)]


def b_places(registers):
    return [(F.b_row(lane, r), F.b_col(lane), 2, 1, lane, r) for lane in range(WARP) for r in range(registers)]


def c_places(first_kind=0):
    """Registers 0, 1 and 2, 3 side by side: pairs 0 and 1."""
    return [(F.c_row(lane, r), F.c_col(lane, r), 1, 2, lane, first_kind + r // 2) for lane in range(WARP) for r in (0, 2)]


def registers_of_a(p, x, y, size, registers, name="a[{}]"):
    """The names of the quadrants: above the ticks and below the tile."""
    for r in range(registers):
        p.label(x + (4 + 8 * (r // 2)) * size[0], y + (-26 if r % 2 == 0 else 16 * size[1] + 20), name.format(r), TEXT, bold=True)


def fragments(depth):
    """A left, B above, C in the corner: a cell of C is its row of A times its column of B."""
    a, b = (22.5, 22), (26, 22)
    left, top, registers = 34, 92, depth // 4
    x, y = max(left + depth * a[0], 200) + 48, top + depth * b[1] + 78
    p = Picture(
        x + 8 * b[0] + 66,
        f"Fragments of mma.m16n8k{depth}: which lane holds which elements of A, B and C",
        f"m16n8k{depth}:  C [16, 8] += A [16, {depth}] B [{depth}, 8]",
    )
    for at_x, at_y, size, rows, cols, places, title, up in [
        (x, top, b, range(0, depth, 2), range(8), b_places(registers // 2), f"B [{depth}, 8], 16-bit", 26),
        (left, y, a, range(16), range(0, depth, 2), a_places(registers), f"A [16, {depth}], 16-bit", 50),
        (x, y, b, range(16), range(0, 8, 2), c_places(), "C [16, 8], fp32", 26),
    ]:
        cells(p, at_x, at_y, size, places)
        ticks(p, at_x, at_y, size, rows, cols)
        p.label(at_x + cols.stop * size[0] / 2, at_y - up, title, bold=True)
    registers_of_a(p, left, y, a, registers)
    right = x + 8 * b[0] + 8
    for r in range(registers // 2):
        p.label(right, top + (8 * r + 4) * b[1] + 6, f"b[{r}]", TEXT, "start", bold=True)
    for pair in range(2):
        p.label(right, y + (8 * pair + 4) * b[1] - 4, f"c[{2 * pair}],", TEXT, "start", bold=True)
        p.label(right, y + (8 * pair + 4) * b[1] + 18, f"c[{2 * pair + 1}]", TEXT, "start", bold=True)
    p.caption(
        f"A cell is two elements; its number is the lane, its shade the register. Yellow: lane {SHOWN}, g = {SHOWN // 4}, t = {SHOWN % 4}. "
        "The left element (A, C) or the upper one (B) comes first: in the lower half of a register of A or B, in the lower register of C."
    )
    return p


def fragments_a_b_c():
    return fragments(16)


def fragments_k8():
    return fragments(8)


def ldmatrix():
    p = Picture(
        720, "ldmatrix: addresses in, registers out, plain and transposed", "in: lane i points to a row of one of four 8 × 8 matrices"
    )
    w, h, x, y = 25, 22, 150, 54
    for m in range(4):
        mx, my = x + (m // 2) * 8 * w, y + (m % 2) * 8 * h
        for row in range(8):
            p.box(mx, my + row * h, 8 * w, h, KINDS[m], f"address: lane {8 * m + row}", 16)
        side, anchor = (x - 10, "end") if m // 2 == 0 else (x + 16 * w + 10, "start")
        p.label(side, my + 4 * h - 4, f"matrix {m}", TEXT, anchor, bold=True)
        p.label(side, my + 4 * h + 18, f"→ r[{m}]", TEXT, anchor)
    w, h, top = 33, 22, y + 16 * h + 76
    plain = [(F.ldmatrix_row(lane), F.ldmatrix_col(lane), 1, 2, lane, 0) for lane in range(WARP)]
    trans = [(F.ldmatrix_trans_row(lane), F.ldmatrix_trans_col(lane), 2, 1, lane, 0) for lane in range(WARP)]
    for x, title, places, text in [
        (54, "out: ldmatrix", plain, ("neighbours in a row:", "A, or B by rows of Bᵀ")),
        (414, "out: ldmatrix.trans", trans, ("neighbours in a column:", "B by its own rows")),
    ]:
        p.label(x + 4 * w, top - 30, title, 18, bold=True)
        cells(p, x, top, (w, h), places)
        ticks(p, x, top, (w, h), range(8), range(8))
        p.note(x + 4 * w, top + 8 * h + 24, *text)
    p.caption(
        "Below: one matrix in shared memory; the number is the lane whose register gets the two elements. "
        f"Yellow: lane {SHOWN}. The four matrices need not be neighbours: any 32 rows do, each at a multiple of 16 bytes."
    )
    return p


def accumulator_to_operand():
    """Two n8 tiles of C and the A operand that they make."""
    w, h = size = (32, 21)
    p = Picture(720, "Two accumulators of S become one A operand of P V", "16 rows of S, keys 16k to 16k + 15: two accumulators")
    y, made = 98, set()
    below = y + 16 * h
    for n, (prime, tile) in enumerate([("", "2k"), ("′", "2k + 1")]):
        x, places = (84, 380)[n], c_places(2 * n)
        made |= {(row, 8 * n + col, lane, register) for row, col, _, _, lane, register in places}
        p.label(x + 4 * w, y - 28, f"fragment {tile} of S, fp32", bold=True)
        cells(p, x, y, size, places)
        ticks(p, x, y, size, range(16), range(0, 8, 2))
        for pair in range(2):
            side, anchor = ((x - 30, "end"), (x + 8 * w + 10, "start"))[n]
            for line in range(2):
                p.label(side, y + (8 * pair + 4) * h - 4 + 22 * line, f"c[{2 * pair + line}]{prime}", TEXT, anchor, bold=True)
        p.arrow(x + 4 * w, below + 10, 320 + 80 * n, below + 62)
    if made != {(row, col, lane, register) for row, col, _, _, lane, register in a_places(4)}:
        raise SystemExit("fragments.hpp: two accumulators are no A operand; the picture accumulator_to_operand and its text say so")
    p.label(360, below + 34, "round")
    x, y = 366 - 8 * w, below + 146
    p.label(360, y - 58, "A [16, 16] of P V: a[0] to a[3], two 16-bit elements in each", 18, bold=True)
    cells(p, x, y, size, a_places(4))
    ticks(p, x, y, size, range(16), range(0, 16, 2))
    for r in range(4):
        prime, pair = "′" if r // 2 else "", 2 * (r % 2)
        at = y + (-30 if r % 2 == 0 else 16 * h + 24)
        p.label(x + (4 + 8 * (r // 2)) * w, at, f"a[{r}] = (c[{pair}]{prime}, c[{pair + 1}]{prime})", TEXT, bold=True)
    p.caption(
        f"A cell is two elements; its number is the lane, its shade a register of A. Yellow: lane {SHOWN}. "
        "Each lane keeps its elements at the same row and key: nothing moves between lanes."
    )
    return p


PICTURES = [fragments_a_b_c, fragments_k8, ldmatrix, accumulator_to_operand]
