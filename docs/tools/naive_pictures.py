"""The picture of docs/01_naive.md, section 2."""

from .svg import Picture

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
        f"shared memory now. A block computes its tile of C: each element it loads is read once from HBM and used {TILE} times.",
        size=13,
    )
    return p


PICTURES = [tiled_product]
