"""Requested elements, barriers and least times of the fused stages: the closed formulas of chapters 04 to 07.

Tile sizes are computed as the kernels do, from constants that are read from their source.
"""

from plots import h200

from . import fa2b_shapes
from .constants import constant
from .fa2_shapes import FILES as FA2_STEPS
from .fa2_shapes import shape_of, share

SHARED_BYTES = {75: 64 * 1024, 80: 163 * 1024, 90: 227 * 1024}  # dynamic shared memory of a block, at most
FA1 = "04_fa1_forward/kernel.cuh"
FA1_ROWS = "04_fa1_forward/thread_rows.cuh"


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
    rows, warp = (constant(FA1, name) for name in ["MAX_ROWS", "WARP_ROWS"])
    group, pad = (constant(FA1_ROWS, name) for name in ["GROUP", "PAD"])
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


def fa1_forward(p, _):
    nq, nk, d = p["seq_q"], p["seq_k"], p["head_dim"]
    _, rows = visits(p, *fa1_tiles(p))
    counts = {name: (nk * d, 0) for name in ["K", "V"]}
    counts |= {"Q": (rows * d, 0), "O": (rows * d, (nq + rows) * d), "L": (0, nq)}
    counts |= {name: (rows + nq, nq + rows) for name in ["l", "m"]}
    counts["bias"] = (visible_pairs(p) if p["bias"] != "none" else 0, 0)
    return {name: (p["batch"] * p["heads"] * read, p["batch"] * p["heads"] * written) for name, (read, written) in counts.items()}


FA1_BACKWARD = "05_fa1_backward/kernel.cuh"


def fa1_backward_shared(br, bc, width):
    """(5.8)  Floats."""
    pad = constant(FA1_ROWS, "PAD")
    return (4 * bc + 2 * br) * (width + pad) + 2 * br * (bc + pad)


def fa1_backward_tiles(p, sm=90):
    """(5.8)  (Br, Bc)"""
    needed = up(max(p["seq_k"], -(-p["seq_q"] // 2)), 16)
    for bc in range(min(needed, constant(FA1_BACKWARD, "MAX_Bc")), 0, -16):
        if 4 * fa1_backward_shared(2 * bc, bc, up(p["head_dim"], 32)) <= SHARED_BYTES[sm]:
            return 2 * bc, bc
    return 32, 8


def fa1_backward(p, _):
    """(5.9)"""
    nq, nk, d = p["seq_q"], p["seq_k"], p["head_dim"]
    _, rows = visits(p, *fa1_backward_tiles(p))
    counts = {name: (rows * d, 0) for name in ["Q", "O", "dO"]}
    counts |= {"dQ": (rows * d, (nq + rows) * d), "l": (rows, 0), "m": (rows, 0)}
    counts["bias"] = (visible_pairs(p) if p["bias"] != "none" else 0, 0)
    total = {name: (p["batch"] * p["heads"] * read, p["batch"] * p["heads"] * written) for name, (read, written) in counts.items()}
    once = p["batch"] * p["kv_heads"] * nk * d
    return total | {"K": (once, 0), "V": (once, 0), "dK": (0, once), "dV": (0, once)}


def fa2_tiles(p, tiles):
    """[(rows of a Q tile, K tiles that it visits, keys in them)] of one head."""
    nq, nk = p["seq_q"], p["seq_k"]
    found = []
    for i in range(0, nq, tiles["br"]):
        end = min(i + tiles["br"], nq)
        keys = min(nk, max(0, end + nk - nq)) if p["causal"] else nk
        found.append((end - i, -(-keys // tiles["bc"]), min(up(keys, tiles["bc"]), nk)))
    return found


def fa2_forward(p, tiles, variant=None):
    """(6.6)  Tiles were chosen at run time: they are in the saved row."""
    nq, d = p["seq_q"], p["head_dim"]
    visited = fa2_tiles(p, tiles)
    rows = sum(keys for _, _, keys in visited)
    counts = {"Q": (nq * d, 0), "K": (rows * d, 0), "V": (rows * d, 0), "O": (0, nq * d), "L": (0, nq)}
    pairs = visible_pairs(p)
    whole_tiles = variant in ("short_softmax", "tuned")
    if whole_tiles and p["bias"] == "alibi":  # each thread its slope, for each tile
        pairs = sum(count for _, count, _ in visited) * shape_of(variant, up(d, 32), tiles).threads
    elif whole_tiles:  # of all pairs in the tiles, seen or not
        pairs = sum(rows_of_tile * keys for rows_of_tile, _, keys in visited)
    counts["bias"] = (pairs if p["bias"] != "none" else 0, 0)
    return {name: (p["batch"] * p["heads"] * read, p["batch"] * p["heads"] * written) for name, (read, written) in counts.items()}


def fa2_events(p, tiles, variant):
    """Barriers: two for each pair of tiles, and in step 1 two for each tile of Q. Warp operations: a shuffle for each row of a thread and
    each halving of its lanes, per tile for the maximum and once for the sum; a __syncwarp() before P is read, and between chunks of P."""
    visited = fa2_tiles(p, tiles)
    pairs, heads = sum(count for _, count, _ in visited), p["batch"] * p["heads"]
    if variant == "loop_order":
        return {"barriers": 2 * heads * (pairs + len(visited)), "warp_operations": 0}
    shape = shape_of(variant, up(p["head_dim"], 32), tiles)
    shuffles = shape.tm * (shape.lx.bit_length() - 1)
    of_warp = pairs * (shuffles + 2 * (shape.bc // shape.chunk) - 1) + len(visited) * shuffles
    return {"barriers": 2 * heads * pairs, "warp_operations": heads * of_warp * shape.threads // 32}


def fa2_sectors(p, tiles, variant):
    """Of 32 bytes. All move along rows, but Q from step 3 on: a sector for each element. L is written by some lanes of a warp: those of
    step 2 stand on 4 neighbouring rows, those of the steps after it on every fourth row."""
    elements = {name: sum(both) for name, both in fa2_forward(p, tiles, variant).items()}
    along = {"Q": 8 if variant in ("loop_order", "register_tiles") else 1, "L": {"loop_order": 8, "register_tiles": 4}.get(variant, 2)}
    return sum(count // along.get(name, 8) for name, count in elements.items())


def fa2_backward(p, tiles, variant=None):
    """(7.7)  Its sums R and R': rows of Q tiles that the K tiles visit, and keys of K tiles that the Q tiles visit."""
    nq, nk, d = p["seq_q"], p["seq_k"], p["head_dim"]
    pairs, rows = visits(p, tiles["br"], tiles["bc"])
    visited = fa2_tiles(p, tiles)
    keys = sum(keys for _, _, keys in visited)
    bias = 0
    if p["bias"] == "alibi":  # each thread of half 0 its slope, for each tile
        bias = pairs * fa2b_shapes.HALF
    elif p["bias"] != "none":  # of all pairs in the tiles, seen or not
        bias = sum(rows_of_tile * keys_of_row for rows_of_tile, _, keys_of_row in visited)
    counts = {"O": (nq * d, 0), "dO": ((nq + rows) * d, 0), "Q": (rows * d, 0), "L": (rows, 0), "D": (rows, nq)}
    shared = {"K": (nk * d, 0), "V": (nk * d, 0)}
    before = p["heads"] - p["kv_heads"]  # query heads of a group that add to what those before them have left
    gradient = (p["batch"] * before * nk * d, p["batch"] * p["heads"] * nk * d)
    if variant == "one_kernel":
        counts |= {"dQ": (rows * d, (nq + rows) * d), "bias": (bias, 0)}
    else:
        counts |= {"dO": ((2 * nq + rows) * d, 0), "Q": ((nq + rows) * d, 0), "L": (nq + rows, 0), "D": (nq + rows, nq)}
        counts |= {"dQ": (0, nq * d), "bias": (2 * bias, 0)}
    total = {name: (p["batch"] * p["heads"] * read, p["batch"] * p["heads"] * written) for name, (read, written) in counts.items()}
    once = {name: (p["batch"] * p["kv_heads"] * read, p["batch"] * p["kv_heads"] * written) for name, (read, written) in shared.items()}
    if variant != "one_kernel":
        for name in ["K", "V"]:
            once[name] = (once[name][0] + p["batch"] * p["heads"] * keys * d, 0)
    return total | once | {"dK": gradient, "dV": gradient}


def fa2_backward_events(p, tiles, variant):
    """Barriers: four for each pair of tiles and kernel. Warp operations: five shuffles for each row of D."""
    pairs, _ = visits(p, tiles["br"], tiles["bc"])
    kernels = 1 if variant == "one_kernel" else 2
    heads = p["batch"] * p["heads"]
    return {"barriers": 4 * kernels * pairs * heads, "warp_operations": 5 * p["seq_q"] * heads}


FORMULAS = {
    ("04_fa1_forward", "forward"): fa1_forward,
    ("05_fa1_backward", "forward"): fa1_forward,
    ("05_fa1_backward", "backward"): fa1_backward,
    ("06_fa2_forward", "forward"): fa2_forward,
    ("07_fa2_backward", "backward"): fa2_backward,
}
TILES_CHOSEN = [fa2_forward, fa2_backward]  # at run time


def predicted(stage, direction, p, tiles=None, variant=None):
    """{tensor: (read, written)} in elements. `tiles` {"br", "bc"}: of a saved row, where they can be chosen."""
    formula = FORMULAS[stage, direction]
    found = formula(p, tiles, variant) if formula in TILES_CHOSEN else formula(p, tiles)
    return {name: both for name, both in found.items() if any(both)}


def predicted_events(stage, direction, p, tiles=None, variant=None):
    """{counter: times}: barriers, in FlashAttention-1 two per visited pair of tiles forward, three backward."""
    if FORMULAS[stage, direction] is fa2_forward:
        return fa2_events(p, tiles, variant)
    if FORMULAS[stage, direction] is fa2_backward:
        return fa2_backward_events(p, tiles, variant)
    sizes, barriers = (fa1_tiles(p), 2) if direction == "forward" else (fa1_backward_tiles(p), 3)
    pairs, _ = visits(p, *sizes)
    return {"barriers": barriers * pairs * p["batch"] * p["heads"], "warp_operations": 0}


def predicted_sectors(stage, direction, p, tiles=None, variant=None):
    """Of 32 bytes, where rows start on sector boundaries. Tiles are loaded along rows, a sector for eight elements; a thread that
    reads its own row of O or dQ 16 bytes at a time has a sector for four."""
    if FORMULAS[stage, direction] is fa2_forward:
        return fa2_sectors(p, tiles, variant)
    elements = predicted(stage, direction, p, tiles, variant)
    if FORMULAS[stage, direction] is fa2_backward:  # all along rows, but a lane writes D alone
        return (sum(map(sum, elements.values())) + 7 * elements["D"][1]) // 8
    alone = 0 if direction == "forward" else elements["O"][0] + 2 * elements["dQ"][0]
    return (sum(map(sum, elements.values())) + alone) // 8


def fa2_least_ms(p, variant, tiles):
    """(6.7), (6.9)  On an H200 whose SMs share the work evenly: step 1 by shared memory, the others by what they issue."""
    pairs, width = visible_pairs(p) * p["heads"] * p["batch"], up(p["head_dim"], 32)
    if variant == "loop_order":
        return 1e3 * pairs * 9 * width / 256 / (h200.SMS * h200.CLOCK_HZ)
    return 1e3 * 4 * pairs * p["head_dim"] / (share(shape_of(variant, width, tiles)) * h200.FP32_FLOPS)


def fa2_backward_least_ms(p, variant, tiles):
    """(7.9)  On an H200, by what is issued."""
    shape = fa2b_shapes.shape_of(variant, up(p["head_dim"], 32), tiles)
    flops = 2 * fa2b_shapes.PRODUCTS[variant] * visible_pairs(p) * p["heads"] * p["batch"] * p["head_dim"]
    return 1e3 * flops / (fa2b_shapes.share(shape, variant) * h200.FP32_FLOPS)


def least_ms(stage, direction, p, variant=None, tiles=None):
    """(4.8), (5.10)  What thread-per-row kernels need at least on an H200: shared memory of the SM that has most blocks."""
    if (stage, direction) == ("06_fa2_forward", "forward") and variant:
        if variant not in FA2_STEPS:  # a step that is gone
            return None
        return fa2_least_ms(p, variant, tiles)
    if (stage, direction) == ("07_fa2_backward", "backward") and variant:
        return fa2_backward_least_ms(p, variant, tiles)
    if (stage, direction) not in FORMULAS or stage > "05_fa1_backward":
        return None
    per_column, blocks = (9, p["heads"]) if direction == "forward" else (22.75, p["kv_heads"])
    clocks = visible_pairs(p) * p["heads"] / blocks * per_column * up(p["head_dim"], 32) / 256  # of a block
    return 1e3 * -(-p["batch"] * blocks // h200.SMS) * clocks / h200.CLOCK_HZ
