"""The pictures of docs/reference/notation.md, layouts.md and jacobians.md."""

from docs.tools.svg import Picture


def causal():
    p, cell, x, text = Picture(720, 286, "Causal masks aligned at the bottom right: the last query sees the last key"), 25, 62, 15
    for nq, nk in [(5, 5), (3, 7), (7, 4)]:
        y = 232 - nq * cell
        p.label(x + nk * cell / 2, 28, f"Nq = {nq}, Nk = {nk}", 17, bold=True)
        for q in range(nq):
            for k in range(nk):
                visible = k <= q + nk - nq
                p.box(x + k * cell, y + q * cell, cell, cell, "c3" if visible else "c0", "•" if visible else "", text)
        for q in (0, nq - 1):
            p.note(x - 10, y + q * cell + 18, str(q), size=text, anchor="end")
        for k in (0, nk - 1):
            p.note(x + (k + 0.5) * cell, y - 7, str(k), size=text)
        x += nk * cell + 112
    p.note(360, 266, "Rows are queries, columns are keys; a dot is a visible pair. The last query sees the last key.", size=text)
    return p


def layouts():
    """In what order memory has the rows of d elements, for the four layouts."""
    heads, rows = range(2), range(3)
    p, cell, left, text = Picture(900, 356, "The order of elements in memory for four layouts"), 42, 72, 15
    p.note(
        left, 28, "One batch, H = Hkv = 2 heads, N = 3 rows. A cell is one row of d elements, named head.row.", size=text, anchor="start"
    )
    strips = [  # with the number of cells from one row of a head to its next row
        ("bhnd", [(h, f"{h}.{i}") for h in heads for i in rows], 1, "row stride d: a head's rows are adjacent"),
        ("bnhd", [(h, f"{h}.{i}") for i in rows for h in heads], 2, "row stride H d: a token's heads are adjacent"),
        (
            "qkv",
            [(h if m == "Q" else None, f"{m}{h}.{i}") for i in rows for m in "QKV" for h in heads],
            6,
            "row stride 3 H d, from one row of Q to the next",
        ),
        (
            "kv",
            [(h if m == "K" else None, f"{m}{h}.{i}") for i in rows for m in "KV" for h in heads],
            4,
            "row stride 2 Hkv d, from one row of K to the next",
        ),
    ]
    for n, (name, cells, apart, stride) in enumerate(strips):
        y = 44 + 78 * n
        p.label(left - 12, y + 26, name, 17, "end", bold=True)
        for k, (head, row) in enumerate(cells):
            p.box(left + k * cell, y, cell, cell - 4, "c0" if head is None else ("c1", "c3")[head], row, text)
        x = left + cell / 2
        p.arrow(x, y + 47, x + apart * cell, y + 47)
        p.note(x + apart * cell + 8, y + 52, stride, size=text, anchor="start")
    return p


def jacobians():
    """What is zero and what repeats in the Jacobian of a product, and of a softmax."""
    p = Picture(
        864, 344, "The Jacobian of C = A B by A has copies of the transpose of B on its diagonal; that of a softmax is diag(p) - p pᵀ"
    )
    side, x0, y0, text = 70, 84, 72, 15
    p.label(x0 + 1.5 * side, 28, "C = A B by A", 17, bold=True)
    p.note(x0 + 1.5 * side, 52, "3 rows: 3 blocks, each a copy of Bᵀ", size=text)
    for r in range(3):
        for c in range(3):
            p.box(x0 + side * c, y0 + side * r, side, side, "c1" if r == c else "c0", "Bᵀ" if r == c else "0", 17)
        p.note(x0 - 8, y0 + side * (r + 0.5) + 5, f"C row {r}", size=text, anchor="end")
        p.note(x0 + side * (r + 0.5), y0 + 3 * side + 22, f"A row {r}", size=text)
    p.note(x0 + 1.5 * side, 328, "Row i of C depends only on row i of A.", size=text)
    p.line(352, 16, 352, 330, "thin")
    cell, n = 43, 5
    p.label(609, 28, "softmax", 17, bold=True)
    p.note(609, 52, "diag(p) minus one outer product", size=text)
    for x, outer in [(372, False), (630, True)]:
        for r in range(n):
            for c in range(n):
                kind, name = ("c3", f"p{r}p{c}") if outer else ("c2", f"p{r}") if r == c else ("c0", "0")
                p.box(x + cell * c, y0 + cell * r, cell, cell, kind, name, 14)
    p.label(609, y0 + cell * n / 2 + 8, "−", 24)
    p.note(609, 328, "Times a vector: p ∘ dp − p (p · dp), and no matrix.", size=text)
    return p


PICTURES = [causal, layouts, jacobians]
