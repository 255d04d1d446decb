"""The pictures of docs/reference/notation.md, layouts.md and jacobians.md."""

from docs.tools.svg import Picture


def causal():
    p, cell, x = Picture(640, "Causal masks aligned at the bottom right: the last query sees the last key"), 25, 34
    for nq, nk in [(5, 5), (3, 7), (7, 4)]:
        y = 238 - nq * cell
        p.label(x + nk * cell / 2, 28, f"Nq = {nq}, Nk = {nk}", 18, bold=True)
        for q in range(nq):
            for k in range(nk):
                p.rect(x + k * cell, y + q * cell, cell, cell, "s" if k <= q + nk - nq else "c0")
        for q in (0, nq - 1):
            p.note(x - 8, y + q * cell + 19, str(q), anchor="end")
        for k in (0, nk - 1):
            p.note(x + (k + 0.5) * cell, y - 7, str(k))
        x += nk * cell + 80
    p.legend(("s", "visible pair"), ("c0", "masked"))
    p.caption("Rows are queries, columns are keys. The last query sees the last key.")
    return p


def layouts():
    """In what order memory has the rows of d elements, for the four layouts."""
    heads, rows = range(2), range(3)
    p, cell, left = Picture(720, "The order of elements in memory for four layouts"), 35, 70
    p.note(8, 26, "H = Hkv = 2 heads, N = 3 rows. A cell is a row of d elements, head.row.", anchor="start")
    strips = [  # with the number of cells from one row of a head to its next row
        ("bhnd", [("Q", h, i) for h in heads for i in rows], 1, "row stride d: a head's rows are adjacent"),
        ("bnhd", [("Q", h, i) for i in rows for h in heads], 2, "row stride H d: a token's heads are adjacent"),
        ("qkv", [(m, h, i) for i in rows for m in "QKV" for h in heads], 6, "row stride 3 H d, from a row of Q to the next"),
        ("kv", [(m, h, i) for i in rows for m in "KV" for h in heads], 4, "row stride 2 Hkv d, from a row of K to the next"),
    ]
    for n, (name, cells, apart, stride) in enumerate(strips):
        y = 46 + 82 * n
        p.label(left - 10, y + 26, name, 18, "end", bold=True)
        for k, (matrix, head, row) in enumerate(cells):
            p.box(left + k * cell, y, cell, cell, matrix.lower(), f"{head}.{row}")
            if (matrix, head) == (cells[0][0], 0):
                p.rect(left + k * cell + 1, y + 1, cell - 2, cell - 2, "strong")
        x = left + cell / 2
        p.arrow(x, y + 48, x + apart * cell, y + 48)
        p.note(x + apart * cell + 8, y + 54, stride, anchor="start")
    p.legend(("q", "Q, or any in bhnd, bnhd"), ("k", "K"), ("v", "V"))
    return p


def jacobians():
    """What is zero and what repeats in the Jacobian of a product, and of a softmax."""
    p = Picture(720, "The Jacobian of C = A B by A has copies of the transpose of B on its diagonal; that of a softmax is diag(p) - p pᵀ")
    side, x0, y0 = 58, 76, 66
    p.label(x0 + 1.5 * side, 28, "C = A B by A", 18, bold=True)
    p.note(x0 + 1.5 * side - 16, 52, "3 blocks, each a copy of Bᵀ")
    for r in range(3):
        for c in range(3):
            p.box(x0 + side * c, y0 + side * r, side, side, "c2" if r == c else "c0", "Bᵀ" if r == c else "0", 18)
        p.note(x0 - 6, y0 + side * (r + 0.5) + 6, f"C row {r}", anchor="end")
        p.note(x0 + side * (r + 0.5), y0 + 3 * side + 22, f"row {r}")
    p.note(x0 + 1.5 * side, y0 + 3 * side + 44, "of A")
    p.line(268, 16, 268, 290, "thin")
    cell, n = 41, 5
    p.label(494, 28, "softmax", 18, bold=True)
    p.note(494, 52, "diag(p) minus one outer product")
    for x, outer in [(280, False), (506, True)]:
        for r in range(n):
            for c in range(n):
                kind, name = ("s", f"{r}{c}") if outer else ("s", f"p{r}") if r == c else ("c0", "0")
                p.box(x + cell * c, y0 + cell * r, cell, cell, kind, name, 16)
    p.label(495.5, y0 + cell * n / 2 + 8, "−", 22)
    p.note(382, y0 + n * cell + 22, "diag(p)")
    p.note(608, y0 + n * cell + 22, "ij: pi · pj")
    p.caption("Row i of C depends only on row i of A. The softmax times a vector: p ∘ dp − p (p · dp), and no matrix.")
    return p


PICTURES = [causal, layouts, jacobians]
