"""Requested elements, barriers and least times of the fused stages: the closed formulas of chapters 04 to 07.

Tile sizes are computed as the kernels do, from constants that are read from their source.
"""

from . import h200
from .constants import constant

SHARED_BYTES = {75: 64 * 1024, 80: 163 * 1024, 90: 227 * 1024}  # dynamic shared memory of a block, at most
FA1 = "04_fa1_forward/kernel.cuh"


def up(n, multiple):
    return -(-n // multiple) * multiple


def visible_pairs(p):
    """(N.5)"""
    nq, nk = p["seq_q"], p["seq_k"]
    if not p["causal"]:
        return nq * nk
    n = min(nq, nk)
    return n * nk - n * (n - 1) // 2


def fa1_tiles(p, sm=90):
    """(4.6)  (Br, Bc)"""
    rows, warp, group, pad = (constant(FA1, name) for name in ["MAX_ROWS", "WARP_ROWS", "GROUP", "PAD"])
    longest = SHARED_BYTES[sm] // 4 // (4 * (up(p["head_dim"], 32) + pad))
    br = max(min(longest, rows) // warp, 1) * warp
    return min(br, up(p["seq_q"], warp)), min(longest // group * group, up(p["seq_k"], group))


def visits(p, br, bc):
    """(4.7)  (tile pairs, R): pairs of a Q tile and a K tile with a visible pair, and the rows of their Q tiles, of one head."""
    nq, nk = p["seq_q"], p["seq_k"]
    pairs = rows = 0
    for j in range(0, nk, bc):
        for i in range(0, nq, br):
            end = min(i + br, nq)
            if not p["causal"] or j <= end - 1 + nk - nq:  # the last row of the tile sees most
                pairs, rows = pairs + 1, rows + end - i
    return pairs, rows


def fa1_forward(p):
    nq, nk, d = p["seq_q"], p["seq_k"], p["head_dim"]
    _, rows = visits(p, *fa1_tiles(p))
    counts = {name: (nk * d, 0) for name in ["K", "V"]}
    counts |= {"Q": (rows * d, 0), "O": (rows * d, (nq + rows) * d), "L": (0, nq)}
    counts |= {name: (rows + nq, nq + rows) for name in ["l", "m"]}
    counts["bias"] = (visible_pairs(p) if p["bias"] != "none" else 0, 0)
    return {name: (p["batch"] * p["heads"] * read, p["batch"] * p["heads"] * written) for name, (read, written) in counts.items()}


FORMULAS = {("04_fa1_forward", "forward"): fa1_forward}


def predicted(stage, direction, p):
    """{tensor: (read, written)} in elements."""
    return {name: both for name, both in FORMULAS[stage, direction](p).items() if any(both)}


def predicted_events(stage, direction, p):
    """{counter: times}"""
    pairs, _ = visits(p, *fa1_tiles(p))
    return {"barriers": 2 * pairs * p["batch"] * p["heads"], "warp_operations": 0}


def least_ms(stage, direction, p):
    """(4.8)  What thread-per-row kernels need at least on an H200: shared memory of the SM that has most blocks."""
    if (stage, direction) != ("04_fa1_forward", "forward"):
        return None
    clocks = 9 * up(p["head_dim"], 32) / 256  # of a pair
    return 1e3 * -(-p["batch"] * p["heads"] // h200.SMS) * visible_pairs(p) * clocks / h200.CLOCK_HZ
