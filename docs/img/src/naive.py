"""The pictures of docs/chapters/01_naive.md: the tiled product of section 2, the launches of section 3, the gradients of section 4."""

from docs.tools.svg import Picture

TILE = 32


def indexed(p, x, y, letter, index):
    """A letter with an index below the line."""
    p.label(x - 6, y + 4, letter, 15, bold=True)
    p.label(x + 7, y + 10, index, 12)


def tiled_product():
    """The pair of tiles in shared memory, and the tile of C that it adds to."""
    p, cell, top = Picture(820, 330, "Tile I, J of C is the sum over M of tile I, M of A times tile M, J of B"), 38, 84
    for x, name, marked in [
        (70, "A", lambda r, c: "c2" if (r, c) == (2, 1) else "c1" if r == 2 else "c0"),
        (330, "B", lambda r, c: "c2" if (r, c) == (1, 3) else "c3" if c == 3 else "c0"),
        (590, "C", lambda r, c: "c4" if (r, c) == (2, 3) else "c0"),
    ]:
        p.label(x + 95, 32, name, 16, bold=True)
        p.grid(x, top, 5, 5, (cell, cell), marked)
    middle = cell / 2 - 2
    indexed(p, 70 + 1.5 * cell, top + 2 * cell + middle, "A", "IM")
    indexed(p, 330 + 3.5 * cell, top + cell + middle, "B", "MJ")
    indexed(p, 590 + 3.5 * cell, top + 2 * cell + middle, "C", "IJ")
    for x, row in [(70, 2), (590, 2)]:
        p.label(x - 8, top + (row + 0.5) * cell + 5, "row I", 13, "end")
    p.label(330 - 8, top + 1.5 * cell + 5, "row M", 13, "end")
    for x, column, text in [(70, 1, "column M"), (330, 3, "column J"), (590, 3, "column J")]:
        p.label(x + (column + 0.5) * cell, top - 10, text, 13)
    p.label(290, top + 2.5 * cell - 60, "·", 30)
    p.label(542, top + 2.5 * cell - 60, "=", 26)
    p.note(
        410,
        302,
        f"A cell is a tile of {TILE} × {TILE} elements. M walks along row I of A and down column J of B; the pair with a name is in",
        size=13,
    )
    p.note(
        410,
        321,
        f"shared memory now. A block computes its tile of C: each element it loads is requested once and used {TILE} times.",
        size=13,
    )
    return p


def reads_01():
    """One step of the product loop: which element each lane of a warp reads."""
    p, cell, top, n, y, k = Picture(880, 316, "One step of the product loop: what the lanes of a warp read and add to"), 22, 70, 8, 3, 5
    for x, name, marked in [
        (70, "Q_smem", lambda r, c: "c2" if (r, c) == (y, k) else "c1" if r == y else "c0"),
        (330, "K_smem", lambda r, c: "c3" if c == k else "c0"),
        (660, "S, an element per thread", lambda r, c: "c4" if r == y else "c0"),
    ]:
        p.label(x + n * cell / 2, 28, name, 16, bold=True)
        p.grid(x, top, n, n, (cell, cell), marked)
    for x in (70, 660):
        p.label(x - 8, top + (y + 0.5) * cell + 5, f"row {y}", 14, "end")
    for x in (70, 330):
        p.label(x + (k + 0.5) * cell, top - 8, f"k = {k}", 14)
    for r in range(n):
        p.label(330 + n * cell + 8, top + (r + 0.5) * cell + 5, f"lane {r}", 13, "start")
        p.label(660 + (r + 0.5) * cell - 1, top + (y + 0.5) * cell + 5, str(r), 13)
    p.note(
        440,
        276,
        f"Warp {y}, step k = {k}: all lanes read Q_smem[{y}][{k}], a broadcast. Lane x reads K_smem[x][{k}], down a column,",
        f"and adds the product to its element of row {y} of S. Drawn: {n} of {TILE} rows, columns and lanes.",
        size=14,
    )
    return p


def launches_01():
    """The three launches of the forward pass, and the matrices between them to scale."""
    p = Picture(960, 236, "Three launches forward: each reads whole matrices and writes one")
    p.label(480, 28, p.title, 15, bold=True)
    side, thin, top = 96, 6, 56  # N = 1,024 and d = 64

    def matrix(x, wide, kind, name):
        p.rect(x, top, wide, side, kind)
        p.label(x + wide / 2, top + side + 20, name, bold=True)

    def kernel(x, name, equation):
        p.rect(x, top + 16, 96, 64, "c0")
        p.label(x + 48, top + 43, name)
        p.note(x + 48, top + 65, equation)

    middle = top + side / 2
    for x, name in ((60, "Q"), (88, "K"), (650, "V")):
        matrix(x, thin, "c1", name)
    matrix(280, side, "c2", "S")
    matrix(540, side, "c2", "P")
    matrix(840, thin, "c3", "O")
    for x, name, equation in ((138, "scores", "(1.1)"), (414, "softmax", "(1.2), (1.4)"), (698, "output", "(1.3)")):
        kernel(x, name, equation)
    for first, last in ((98, 136), (236, 278), (378, 412), (512, 538), (660, 696), (796, 838)):
        p.arrow(first, middle, last, middle)
    p.note(
        480,
        top + side + 50,
        "To scale for N = 1,024 and d = 64: S and P take 4 MiB each per head, the four thin matrices 1 MiB together.",
        "The softmax also writes L, a number per row. Colours: inputs blue, intermediate matrices orange, the result green.",
    )
    return p


def gradients_01():
    """The matrices of both passes, with the equation of each step and its second operand."""
    p = Picture(920, 378, "The forward pass from Q, K and V to O, and the backward pass from dO to dV, dP, dS, dQ and dK")
    p.label(460, 30, "Both passes: each arrow is an equation, and the backward pass needs P again", 17, bold=True)
    wide, high, top, bottom = 84, 42, 66, 196
    columns = [116, 330, 548, 796]

    def step(a, b, y, equation, operand):
        """An arrow between two columns, with its equation above and the other operand below."""
        start, end = (columns[a] + wide, columns[b]) if a < b else (columns[a], columns[b] + wide)
        p.arrow(start, y + high / 2, end, y + high / 2)
        p.label((start + end) / 2, y + high / 2 - 8, equation, 15)
        p.note((start + end) / 2, y + high / 2 + 20, operand, size=15)

    for y, pass_, names in [(top, "forward", ["Q, K", "S", "P", "O"]), (bottom, "backward", ["dQ, dK", "dS", "dP", "dO"])]:
        p.label(16, y + 27, pass_, 16, "start", bold=True)
        for x, name in zip(columns, names):
            p.box(x, y, wide, high, "c2" if name in ("S", "P", "dS", "dP") else "c1", name, 17)
    below = bottom + 84
    p.box(columns[2], below, wide, high, "c1", "dV", 17)
    for a, b, y, equation, operand in [
        (0, 1, top, "(1.1)", ""),
        (1, 2, top, "(1.2)", ""),
        (2, 3, top, "(1.3)", "with V"),
        (3, 2, bottom, "(1.11)", "with V"),
        (2, 1, bottom, "(1.12)", "with P"),
        (1, 0, bottom, "(1.13), (1.14)", "with K, with Q"),
    ]:
        step(a, b, y, equation, operand)
    # P is used twice more: for dS, around dP, and for dV.
    turn, lane = top + high + 24, columns[2] + wide + 26
    p.line(columns[2] + 28, top + high, columns[2] + 28, turn)
    p.line(columns[2] + 28, turn, columns[1] + wide / 2, turn)
    p.arrow(columns[1] + wide / 2, turn, columns[1] + wide / 2, bottom)
    p.label((columns[1] + columns[2] + wide) / 2, turn - 8, "P", 15)
    p.line(columns[2] + wide - 28, top + high, columns[2] + wide - 28, turn)
    p.line(columns[2] + wide - 28, turn, lane, turn)
    p.line(lane, turn, lane, below + 12)
    p.arrow(lane, below + 12, columns[2] + wide, below + 12)
    p.label(lane + 10, turn + 5, "P", 15, "start")
    p.line(columns[3] + wide / 2, bottom + high, columns[3] + wide / 2, below + 30)
    p.arrow(columns[3] + wide / 2, below + 30, columns[2] + wide, below + 30)
    p.label((lane + columns[3] + wide / 2) / 2, below + 22, "(1.10)", 15)
    p.note((lane + columns[3] + wide / 2) / 2, below + 50, "with P", size=15)
    p.note(460, 356, "S, P, dP and dS have Nq × Nk elements, the others N × d. P is kept from the forward to the backward pass.", size=15)
    return p


PICTURES = [tiled_product, reads_01, launches_01, gradients_01]
