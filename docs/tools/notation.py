"""Of docs/notation.md: the causal mask."""

from .svg import Picture


def causal():
    p = Picture(700, 268, "Causal masks aligned at the bottom right")
    cell, x = 24, 60
    for title, nq, nk in [("Nq = Nk = 5", 5, 5), ("Nq = 3, Nk = 7", 3, 7), ("Nq = 7, Nk = 4", 7, 4)]:
        y = 222 - nq * cell
        p.label(x + nk * cell / 2, 24, title, 15, bold=True)
        p.grid(x, y, nq, nk, (cell, cell), lambda r, c, hidden=nq - nk: "c3" if c <= r - hidden else "c0")
        for r in (0, nq - 1):
            p.note(x - 10, y + r * cell + 17, str(r), size=12, anchor="end")
        for c in (0, nk - 1):
            p.note(x + c * cell + cell / 2, y - 6, str(c), size=12)
        x += nk * cell + 110
    p.note(350, 252, "Rows are queries, columns are keys; green pairs are visible. The last query sees the last key.")
    return p


PICTURES = [causal]
