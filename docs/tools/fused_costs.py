"""Barriers, sectors and least times of the fused stages: closed formulas of chapters 04 to 07.

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
    """Pairs of a Q tile and a K tile with a visible pair, of one head."""
    return sum(fa2_tiles(p, {"br": br, "bc": bc}))


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


def fa2_tiles(p, tiles):
    """[K tiles that a Q tile visits] of one head."""
    nq, nk = p["seq_q"], p["seq_k"]
    found = []
    for i in range(0, nq, tiles["br"]):
        end = min(i + tiles["br"], nq)
        keys = min(nk, max(0, end + nk - nq)) if p["causal"] else nk
        found.append(-(-keys // tiles["bc"]))
    return found


def fa2_events(p, tiles, variant):
    """Barriers: two for each pair of tiles, and in step 1 two for each tile of Q. Warp operations: a shuffle for each row of a thread and
    each halving of its lanes, per tile for the maximum and once for the sum; a __syncwarp() before P is read, and between chunks of P."""
    visited = fa2_tiles(p, tiles)
    pairs, heads = sum(visited), p["batch"] * p["heads"]
    if variant == "loop_order":
        return {"barriers": 2 * heads * (pairs + len(visited)), "warp_operations": 0}
    shape = shape_of(variant, up(p["head_dim"], 32), tiles)
    shuffles = shape.tm * (shape.lx.bit_length() - 1)
    of_warp = pairs * (shuffles + 2 * (shape.bc // shape.chunk) - 1) + len(visited) * shuffles
    return {"barriers": 2 * heads * pairs, "warp_operations": heads * of_warp * shape.threads // 32}


def fa2_sectors(moved, variant):
    """Of 32 bytes. All move along rows, but Q from step 3 on: a sector for each element. L is written by some lanes of a warp: those of
    step 2 stand on 4 neighbouring rows, those of the steps after it on every fourth row."""
    along = {"Q": 8 if variant in ("loop_order", "register_tiles") else 1, "L": {"loop_order": 8, "register_tiles": 4}.get(variant, 2)}
    return sum(sum(both) // along.get(name, 8) for name, both in moved.items())


def fa2_backward_events(p, tiles, variant):
    """Barriers: four for each pair of tiles and kernel. Warp operations: five shuffles for each row of D."""
    pairs = visits(p, tiles["br"], tiles["bc"])
    kernels = 1 if variant == "one_kernel" else 2
    heads = p["batch"] * p["heads"]
    return {"barriers": 4 * kernels * pairs * heads, "warp_operations": 5 * p["seq_q"] * heads}


def predicted_events(stage, direction, p, tiles, variant):
    """{counter: times}: barriers, in FlashAttention-1 two per visited pair of tiles forward, three backward."""
    if stage == "06_fa2_forward":
        return fa2_events(p, tiles, variant)
    if stage == "07_fa2_backward":
        return fa2_backward_events(p, tiles, variant)
    sizes, barriers = (fa1_tiles(p), 2) if direction == "forward" else (fa1_backward_tiles(p), 3)
    return {"barriers": barriers * visits(p, *sizes) * p["batch"] * p["heads"], "warp_operations": 0}


def predicted_sectors(stage, direction, variant, moved):
    """Of 32 bytes, where rows start on sector boundaries. Tiles are loaded along rows, a sector for eight elements; a thread that
    reads its own row of O or dQ 16 bytes at a time has a sector for four. `moved`: {tensor: (elements read, written)}."""
    if stage == "06_fa2_forward":
        return fa2_sectors(moved, variant)
    elements = sum(map(sum, moved.values()))
    if stage == "07_fa2_backward":  # all along rows, but a lane writes D alone
        return (elements + 7 * moved["D"][1]) // 8
    alone = 0 if direction == "forward" else moved["O"][0] + 2 * moved["dQ"][0]
    return (elements + alone) // 8


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
    if (stage, direction) not in [("04_fa1_forward", "forward"), ("05_fa1_backward", "forward"), ("05_fa1_backward", "backward")]:
        return None
    per_column, blocks = (9, p["heads"]) if direction == "forward" else (22.75, p["kv_heads"])
    clocks = visible_pairs(p) * p["heads"] / blocks * per_column * up(p["head_dim"], 32) / 256  # of a block
    return 1e3 * -(-p["batch"] * blocks // h200.SMS) * clocks / h200.CLOCK_HZ
