"""Of docs/jacobians.md: is an element of P better kept or computed again?"""

from plots import h200

from .formatting import tabled


@tabled(" | d | compute again, ps | write and read, ps | faster")
def recompute():
    """2d FLOPs to compute its score again, against w bytes out and in."""
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16, tensor cores", 2, h200.BF16_FLOPS)]:
        for d in [64, 128]:
            again, moved = 2 * d / peak * 1e12, 2 * width / h200.HBM_BYTES_PER_SECOND * 1e12
            yield [dtype, d, f"{again:.2f}", f"{moved:.2f}", "compute again" if again < moved else "keep"]
