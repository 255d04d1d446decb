"""Requested elements per tensor, in closed form: the tables "Predicted cost" of the chapters, equation (1.6) above all.

predicted(stage, pass, problem) gives {tensor: (read, written)} in elements. `problem` is the "problem" object of a saved result.
"""

from plots import h200

from . import fused_costs
from .constants import constant
from .fused_costs import visible_pairs

TILE = constant("01_naive/kernel.cuh", "TILE")

# How often a stage's softmax kernel reads S.
READS_OF_S = {"01_naive": 2, "02_safe_softmax": 3, "03_online_softmax": 2}


def product(counts, rows, depth, cols, a, b):
    """(1.6)  [rows, depth] x [depth, cols] in tiles: what it reads of tensors a and b."""
    counts[a][0] += rows * depth * -(-cols // TILE)
    counts[b][0] += depth * cols * -(-rows // TILE)


def known(stage, direction):
    """Is there a formula?"""
    return stage in READS_OF_S or (stage, direction) in fused_costs.FORMULAS


def predicted(stage, direction, p, tiles=None, variant=None):
    if (stage, direction) in fused_costs.FORMULAS:
        return fused_costs.predicted(stage, direction, p, tiles, variant)
    nq, nk, d = p["seq_q"], p["seq_k"], p["head_dim"]
    counts = {name: [0, 0] for name in ["Q", "K", "V", "bias", "S", "P", "O", "L", "dO", "dP", "dS", "dQ", "dK", "dV"]}
    if direction == "forward":
        product(counts, nq, d, nk, "Q", "K")
        product(counts, nq, nk, d, "P", "V")
        counts["bias"][0] += visible_pairs(p) if p["bias"] != "none" else 0
        counts["S"][0] += READS_OF_S[stage] * nq * nk
        for name, elements in [("S", nq * nk), ("P", nq * nk), ("L", nq), ("O", nq * d)]:
            counts[name][1] += elements
    else:
        product(counts, nk, nq, d, "P", "dO")  # dV
        product(counts, nq, d, nk, "dO", "V")  # dP
        product(counts, nq, nk, d, "dS", "K")  # dQ
        product(counts, nk, nq, d, "dS", "Q")  # dK
        counts["P"][0] += 2 * nq * nk
        counts["dP"][0] += 2 * nq * nk
        for name, elements in [("dP", nq * nk), ("dS", nq * nk), ("dQ", nq * d)]:
            counts[name][1] += elements
    scale = p["batch"] * p["heads"]
    total = {name: (read * scale, written * scale) for name, (read, written) in counts.items()}
    if direction == "backward":  # one result per key/value head
        elements = p["batch"] * p["kv_heads"] * nk * d
        total["dK"] = total["dV"] = (0, elements)
    return {name: both for name, both in total.items() if any(both)}


def predicted_events(stage, variant, direction, p, tiles=None):
    """{counter: times}: barriers, two per step of a tiled product; warp operations, ten shuffles per row of a warp's softmax."""
    if (stage, direction) in fused_costs.FORMULAS:
        return fused_costs.predicted_events(stage, direction, p, tiles, variant)
    tiles = p["batch"] * p["heads"]
    for size in ["seq_q", "seq_k", "head_dim"]:
        tiles *= -(-p[size] // TILE)
    shuffles = 10 * p["batch"] * p["heads"] * p["seq_q"] if variant == "warp_per_row" and direction == "forward" else 0
    return {"barriers": tiles * (4 if direction == "forward" else 8), "warp_operations": shuffles}


def predicted_sectors(stage, variant, direction, p, tiles=None):
    """(2.9)  Sectors of 32 bytes, where rows start on sector boundaries; None elsewhere. A warp that runs along a row shares each
    sector among eight lanes; a thread per row has a sector to itself for every element of S and P (backward: P, dP and dS)."""
    nq, nk, d = p["seq_q"], p["seq_k"], p["head_dim"]
    if nk % 8 or d % 8 or nq % TILE or p["bias"] != "none":
        return None
    if (stage, direction) in fused_costs.FORMULAS:
        return fused_costs.predicted_sectors(stage, direction, p, tiles, variant)
    elements = {name: sum(both) for name, both in predicted(stage, direction, p).items()}
    sectors = sum(elements.values()) // 8
    scores = p["batch"] * p["heads"] * nq * nk
    if variant == "warp_per_row":
        return sectors + elements["L"] * 7 // 8  # lane 0 writes L alone, a sector for each row
    alone = READS_OF_S[stage] + 1 if direction == "forward" else 5
    return sectors + alone * scores * 7 // 8


def least_ms(stage, direction, p, variant=None, tiles=None):
    """(1.17)  In fused_costs.py for the fused stages. None: no bound. What stages 01 to 03 need at least on an H200: products at an eighth of the peak, row-wise matrices once over HBM."""
    if stage not in READS_OF_S:
        return fused_costs.least_ms(stage, direction, p, variant, tiles)
    pairs = p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"]
    products, matrices = (2, 2) if direction == "forward" else (4, 3)
    seconds = products * 2 * pairs * p["head_dim"] / (h200.FP32_FLOPS / 8) + matrices * 4 * pairs / h200.HBM_BYTES_PER_SECOND
    return 1e3 * seconds
