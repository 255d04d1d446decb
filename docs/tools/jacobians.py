"""Of docs/jacobians.md: is an element of P better kept or computed again? Two Jacobians."""

from plots import h200

from .formatting import table
from .svg import Picture


def recompute():
    """2d FLOPs to compute its score again, against w bytes out and in."""
    rows = []
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16, tensor cores", 2, h200.BF16_FLOPS)]:
        for d in [64, 128]:
            again, moved = 2 * d / peak * 1e12, 2 * width / h200.HBM_BYTES_PER_SECOND * 1e12
            rows.append([dtype, d, f"{again:.2f}", f"{moved:.2f}", "compute again" if again < moved else "keep"])
    return table(" | d | compute again, ps | write and read, ps | faster", rows)


def jacobians():
    """Sections 2 and 3: what is zero, what repeats."""
    p = Picture(
        820, 336, "The Jacobian of C = A B by A has copies of the transpose of B on its diagonal; that of a softmax is diag(p) - p p^T"
    )
    p.label(170, 26, "C = A B by A", 16, bold=True)
    p.note(170, 48, "3 rows: 3 blocks, each a copy of Bᵀ")
    side, x0, y0 = 70, 66, 74
    for r in range(3):
        for c in range(3):
            p.box(x0 + side * c, y0 + side * r, side, side, "c1" if r == c else "c0", "Bᵀ" if r == c else "0", 16)
        p.note(x0 - 8, y0 + side * (r + 0.5) + 5, f"C row {r}", size=12, anchor="end")
        p.note(x0 + side * (r + 0.5), y0 + 3 * side + 20, f"A row {r}", size=12)
    p.note(170, 326, "Row i of C depends on row i of A alone.")
    p.line(330, 14, 330, 322, "thin")
    p.label(580, 26, "a softmax", 16, bold=True)
    p.note(580, 48, "diag(p) minus one outer product")
    cell, n = 42, 5
    for x, kind in [(356, "diagonal"), (600, "outer")]:
        for r in range(n):
            for c in range(n):
                on = kind == "outer" or r == c
                p.box(x + cell * c, y0 + cell * r, cell, cell, ("c3" if kind == "outer" else "c2") if on else "c0", "", 12)
                if on:
                    p.label(x + cell * (c + 0.5), y0 + cell * (r + 0.5) + 5, f"p{r}" if kind == "diagonal" else f"p{r}p{c}", 12)
    p.label(583, y0 + cell * n / 2 + 8, "−", 24)
    p.note(580, 326, "Times a vector: p ∘ dp − p (p · dp), and no matrix.")
    return p


PICTURES = [jacobians]
