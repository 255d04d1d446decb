"""Events, sectors and least times in closed form: the tables "Predicted cost" of the chapters. The bytes are predicted by the stages
themselves (predicted.hpp), and saved in their rows."""

from plots import h200

from . import fused_costs
from .constants import constant

TILE = constant("01_naive/kernel.cuh", "TILE")

# How often a stage's softmax kernel reads S.
READS_OF_S = {"01_naive": 2, "02_safe_softmax": 3, "03_online_softmax": 2}


def predicted_events(row):
    """{counter: times}: barriers, two per step of a tiled product; warp operations, ten shuffles per row of a warp's softmax."""
    direction, p = row["pass"], row["problem"]
    if row["stage"] not in READS_OF_S:
        return fused_costs.predicted_events(row["stage"], direction, p, row.get("tiles"), row["variant"])
    tiles = p["batch"] * p["heads"]
    for size in ["seq_q", "seq_k", "head_dim"]:
        tiles *= -(-p[size] // TILE)
    shuffles = 10 * p["batch"] * p["heads"] * p["seq_q"] if row["variant"] == "warp_per_row" and direction == "forward" else 0
    return {"barriers": tiles * (4 if direction == "forward" else 8), "warp_operations": shuffles}


def predicted_sectors(row):
    """(2.9)  Sectors of 32 bytes, where rows start on sector boundaries; None elsewhere. A warp that runs along a row shares each
    sector among eight lanes; a thread per row has a sector to itself for every element of S and P (backward: P, dP and dS)."""
    p = row["problem"]
    if p["seq_k"] % 8 or p["head_dim"] % 8 or p["seq_q"] % TILE or p["bias"] != "none":
        return None
    moved = {name: (t["read_bytes"] // 4, t["written_bytes"] // 4) for name, t in row["predicted"]["tensors"].items()}
    if row["stage"] not in READS_OF_S:
        return fused_costs.predicted_sectors(row["stage"], row["pass"], row["variant"], moved)
    sectors = sum(map(sum, moved.values())) // 8
    if row["variant"] == "warp_per_row":
        return sectors + moved["L"][1] * 7 // 8  # lane 0 writes L alone, a sector for each row
    alone = READS_OF_S[row["stage"]] + 1 if row["pass"] == "forward" else 5
    return sectors + alone * p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"] * 7 // 8


def least_ms(stage, direction, p, variant=None, tiles=None):
    """(1.17)  In fused_costs.py for the fused stages. None: no bound. What stages 01 to 03 need at least on an H200: products at an eighth of the peak, row-wise matrices once over HBM."""
    if stage not in READS_OF_S:
        return fused_costs.least_ms(stage, direction, p, variant, tiles)
    pairs = p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"]
    products, matrices = (2, 2) if direction == "forward" else (4, 3)
    seconds = products * 2 * pairs * p["head_dim"] / (h200.FP32_FLOPS / 8) + matrices * 4 * pairs / h200.HBM_BYTES_PER_SECOND
    return 1e3 * seconds
