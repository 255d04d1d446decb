"""The pictures of docs/chapters/01_naive.md: the tiled product of section 2, the launches of section 3, the gradients of section 4."""

from docs.tools.svg import Picture

TILE = 32


def tiled_product():
    """The pair of tiles in shared memory, and the tile of C that it adds to."""
    p, cell, top = Picture(720, "Tile I, J of C is the sum over M of tile I, M of A times tile M, J of B"), 32, 78
    lefts = (64, 306, 548)
    for x, name, marked in zip(
        lefts,
        "ABC",
        [
            lambda r, c: "hit" if (r, c) == (2, 1) else "t" if r == 2 else "c0",
            lambda r, c: "hit" if (r, c) == (1, 3) else "s" if c == 3 else "c0",
            lambda r, c: "ds" if (r, c) == (2, 3) else "c0",
        ],
    ):
        p.label(x + 2.5 * cell, 28, name, 19, bold=True)
        p.grid(x, top, 5, 5, (cell, cell), marked)
    for x, row, name in zip(lefts, (2, 1, 2), "IMI"):
        p.label(x - 6, top + (row + 0.5) * cell + 6, f"row {name}", anchor="end")
    for x, column, name in zip(lefts, (1, 3, 3), "MJJ"):
        p.label(x + (column + 0.5) * cell, top - 10, f"column {name}")
    for x, sign in ((265, "·"), (507, "=")):
        p.label(x, top + 4 * cell, sign, 28)
    p.caption(
        f"A cell is a tile of {TILE} × {TILE} elements. M walks along row I of A and down column J of B; the yellow pair is in "
        f"shared memory now. A block computes its tile of C: each element it loads is requested once and used {TILE} times."
    )
    return p


def reads_01():
    """One step of the product loop: which element each lane of a warp reads."""
    p, cell, top, n, y, k = Picture(720, "One step of the product loop: what the lanes of a warp read and add to"), 20, 66, 8, 3, 5
    lefts = (60, 258, 542)
    for x, name, marked in zip(
        lefts,
        ("Q_smem", "K_smem", "S"),
        [
            lambda r, c: "hit" if (r, c) == (y, k) else "q" if r == y else "c0",
            lambda r, c: "k" if c == k else "c0",
            lambda r, c: "s" if r == y else "c0",
        ],
    ):
        p.label(x + n * cell / 2, 26, name, 18, bold=True)
        p.grid(x, top, n, n, (cell, cell), marked)
    for x in (60, 542):
        p.label(x - 6, top + (y + 0.5) * cell + 6, f"row {y}", anchor="end")
    for x in (60, 258):
        p.label(x + (k + 0.5) * cell, top - 8, f"k = {k}")
    for r in range(n):
        p.label(258 + n * cell + 6, top + (r + 0.5) * cell + 6, f"lane {r}", 16, "start")
        p.label(542 + (r + 0.5) * cell, top + (y + 0.5) * cell + 6, str(r), 16)
    p.caption(
        f"Warp {y}, step k = {k}: all lanes read Q_smem[{y}][{k}], a broadcast. Lane x reads K_smem[x][{k}], down a column, "
        f"and adds the product to its element of row {y} of S. Drawn: {n} of {TILE} rows, columns and lanes."
    )
    return p


def launches_01():
    """The three launches of the forward pass, and the matrices between them to scale."""
    p = Picture(
        720, "Three launches forward: each reads whole matrices and writes one", "Three launches: each reads whole matrices and writes one"
    )
    side, thin, top = 80, 5, 52  # N = 1,024 and d = 64
    middle = top + side / 2
    for x, wide, name in ((24, thin, "Q"), (52, thin, "K"), (186, side, "S"), (402, side, "P"), (506, thin, "V"), (680, thin, "O")):
        p.rect(x, top, wide, side, name.lower())
        p.label(x + wide / 2, top + side + 22, name, bold=True)
    for x, room, name, equation in ((82, 84, "scores", "(1.1)"), (290, 94, "softmax", "(1.2)"), (527, 138, "output", "(1.3)")):
        p.rect(x, top + 8, room, 64, "c0")
        p.label(x + room / 2, top + 34, name)
        p.note(x + room / 2, top + 58, equation, size=16)
    for first, last in ((59, 81), (167, 185), (267, 289), (385, 401), (513, 526), (666, 678)):
        p.arrow(first, middle, last, middle)
    p.caption("To scale for N = 1,024 and d = 64: S and P take 4 MiB each per head, the four thin matrices 1 MiB together.")
    return p


def gradients_01():
    """The matrices of both passes, with the equation of each step and its second operand."""
    p = Picture(
        720,
        "The forward pass from Q, K and V to O, and the backward pass from dO to dV, dP, dS, dQ and dK",
        "Each arrow is an equation; the backward pass needs P again",
    )
    wide, high, top, bottom = 62, 40, 84, 200
    columns = [52, 252, 436, 630]

    def step(a, b, y, equation, operand=""):
        """An arrow between two columns, with its equation above and the other operand below."""
        start, end = (columns[a] + wide, columns[b]) if a < b else (columns[a], columns[b] + wide)
        p.arrow(start, y + high / 2, end, y + high / 2)
        p.label((start + end) / 2, y + high / 2 - 8, equation)
        p.note((start + end) / 2, y + high / 2 + 21, operand)

    for y, pass_, pair, names in [(top, "forward", "QK", "SPO"), (bottom, "backward", ["dQ", "dK"], ["dS", "dP", "dO"])]:
        p.label(8, y - 12, pass_, 18, "start", bold=True)
        for n, name in enumerate(pair):
            p.box(columns[0] - 14 + n * 38, y, 38, high, name.lower(), name)
        for x, name in zip(columns[1:], names):
            p.box(x, y, wide, high, name.lower(), name)
    below = bottom + 84
    p.box(columns[2], below, wide, high, "dv", "dV")
    step(0, 1, top, "(1.1)")
    step(1, 2, top, "(1.2)")
    step(2, 3, top, "(1.3)", "with V")
    step(3, 2, bottom, "(1.11)", "with V")
    step(2, 1, bottom, "(1.12)", "with P")
    step(1, 0, bottom, "(1.13, 1.14)", "with K, Q")
    # P is used twice more: for dS, around dP, and for dV.
    turn, lane = top + high + 26, columns[2] + wide + 22
    p.line(columns[2] + 20, top + high, columns[2] + 20, turn)
    p.line(columns[2] + 20, turn, columns[1] + wide / 2, turn)
    p.arrow(columns[1] + wide / 2, turn, columns[1] + wide / 2, bottom)
    p.label((columns[1] + columns[2] + wide) / 2, turn - 7, "P")
    p.line(columns[2] + wide - 20, top + high, columns[2] + wide - 20, turn)
    p.line(columns[2] + wide - 20, turn, lane, turn)
    p.line(lane, turn, lane, below + 12)
    p.arrow(lane, below + 12, columns[2] + wide, below + 12)
    p.label(lane + 10, turn + 6, "P", anchor="start")
    p.line(columns[3] + wide / 2, bottom + high, columns[3] + wide / 2, below + 30)
    p.arrow(columns[3] + wide / 2, below + 30, columns[2] + wide, below + 30)
    p.label((lane + columns[3] + wide / 2) / 2, below + 22, "(1.10)")
    p.note((lane + columns[3] + wide / 2) / 2, below + 51, "with P")
    p.caption("S, P, dP and dS have Nq × Nk elements, the others N\u00a0×\u00a0d. P is kept from the forward to the backward pass.")
    return p


PICTURES = [tiled_product, reads_01, launches_01, gradients_01]
