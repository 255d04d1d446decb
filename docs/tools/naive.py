"""Of docs/01_naive.md: events, sectors and least times, also of chapters 02 and 03, whose products are the same; the tiled product."""

from plots import h200

TILE = 32  # as in the kernel: test_kernels.py
READS_OF_S = {"01_naive": 2, "02_safe_softmax": 3, "03_online_softmax": 2}  # by a stage's softmax kernel


def events(row):
    """{counter: times}: barriers, two per step of a tiled product; warp operations, ten shuffles per row of a warp's softmax."""
    forward, p = row["pass"] == "forward", row["problem"]
    tiles = p["batch"] * p["heads"]
    for size in ["seq_q", "seq_k", "head_dim"]:
        tiles *= -(-p[size] // TILE)
    shuffles = 10 * p["batch"] * p["heads"] * p["seq_q"] if row["variant"] == "warp_per_row" and forward else 0
    return {"barriers": tiles * (4 if forward else 8), "warp_operations": shuffles}


def sectors(row, moved):
    """(2.9)  A warp that runs along a row shares each sector among eight lanes; a thread per row has a sector to itself for every element
    of S and P (backward: P, dP and dS)."""
    p = row["problem"]
    shared = sum(map(sum, moved.values())) // 8
    if row["variant"] == "warp_per_row":
        return shared + moved["L"][1] * 7 // 8  # lane 0 writes L alone, a sector for each row
    alone = READS_OF_S[row["stage"]] + 1 if row["pass"] == "forward" else 5
    return shared + alone * p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"] * 7 // 8


def least_ms(row):
    """(1.17)  Products at an eighth of the peak, row-wise matrices once over HBM."""
    p = row["problem"]
    pairs = p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"]
    products, matrices = (2, 2) if row["pass"] == "forward" else (4, 3)
    seconds = products * 2 * pairs * p["head_dim"] / (h200.FP32_FLOPS / 8) + matrices * 4 * pairs / h200.HBM_BYTES_PER_SECOND
    return 1e3 * seconds
