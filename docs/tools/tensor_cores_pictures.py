"""The pictures of docs/08_tensor_cores.md: who does what when in the loops, in the order in which the kernels have it."""

from .quotes import has_order
from .svg import Picture

# The loop from step 3 on in the order of its code: (call, width in the picture, kind, text).
TURN = [
    ("cp_async_wait_all(", 22, "c0", ""),
    ("__syncthreads(", 12, "c4", ""),
    ("load_tile(", 26, "c2", ""),
    ("add_product(S,", 120, "c1", "S = Q Kᵀ"),
    ("raise(", 34, "c0", "max"),
    ("exponentiate(", 70, "c1", "P"),
    ("add_product(O,", 120, "c1", "O += P V"),
]


def pipeline_08():
    """Two stages of K and V: while tile j is computed, the next one is in flight."""
    has_order("08_tensor_cores/forward/6_tuned.cuh", "for (int j = Tc - 1", "write_output(", [call for call, *_ in TURN])
    p = Picture(960, 330, "Double buffering: what a block computes and what it copies, in the order of the code")
    p.label(480, 28, "Two turns of the loop, from step 3 on", 16, bold=True)
    x, y, turns = 118, 96, []
    for below, name in [(30, "threads"), (96, "stage 0: K, V"), (136, "stage 1: K, V")]:
        p.label(108, y + below, name, 13, "end")
    for tile in ["j", "j−1"]:
        turns.append(x)
        p.note(x + 200, y - 12, f"tile {tile}")
        for _, wide, kind, text in TURN:
            inset = 12 if text == "max" else 0
            p.box(x, y + inset, wide - 3, 48 - 2 * inset, kind, text, 11 if inset else 13)
            x += wide
        x += 4
    first, second = turns
    wait, issued = TURN[0][1] - 3, TURN[0][1] + TURN[1][1]
    for below, left, right, kind, text in [
        (80, first, second - 4, "c3", "tile j: read"),
        (80, second + issued, x, "c2", "tile j−2 in flight"),
        (120, first + issued, second + wait, "c2", "tile j−1 in flight"),
        (120, second + issued, x, "c3", "tile j−1: read"),
    ]:
        p.box(left, y + below, right - left, 24, kind, text, 12)
    p.note(
        480, 282,
        "violet: __syncthreads(), the only one of a tile. grey: wait for copies; max: steps 3 and 4 in each tile, steps 5 and 6 if they have to.",
        "orange: issued, in flight. Steps 5 and 6 visit tiles from the last to the first, 3 and 4 from the first to the last. "
        "Widths are not to scale.",
    )  # fmt: skip
    return p


BACKWARD_TURN = [
    "cp_async_wait_all(", "__syncthreads(", "load_tile(", "sum_dQ(", "add_product(S,", "exponentiate(", "multiply_by_blocks(",
    "add_product(gradient,", "sum_dQ(", "__syncthreads(",
]  # fmt: skip


def halves_08():
    """The backward loop: half 0 one tile ahead of half 1."""
    has_order("08_tensor_cores/backward/3_staggered.cuh", "for (int step = 0;", "gradient.each(", BACKWARD_TURN)
    p = Picture(960, 360, "The backward pass: two halves of a block, one tile of queries apart")
    p.label(480, 28, "Three steps of the loop: half 0 is one tile of queries ahead", 16, bold=True)
    x, top, gap, column = 96, 70, 12, 274
    for y, name, size in [(top + 30, "half 0", 14), (top + 98, "half 1", 14), (227, "Q, dO", 13), (263, "P, dS", 13)]:
        p.label(80, y, name, size, "end")
    kind = {"S": "c1", "P": "c3", "dV": "c1", "dQ": "c2", "dP": "c1", "dS": "c3", "dK": "c1"}
    tiles = ["i−2", "i−1", "i", "i+1", "i+2", "i+3"]
    for turn in range(3):
        oldest, before, now, following = tiles[turn : turn + 4]
        left = x + turn * (column + gap)
        p.rect(left - gap + 2, top - 6, gap - 5, 122, "c4")
        half_0 = [("S", 76, now), ("P", 56, now), ("dV", 76, now), ("dQ", 66, oldest)]
        half_1 = [("dQ", 66, oldest), ("dP", 76, before), ("dS", 56, before), ("dK", 76, before)]
        for y, events in [(top, half_0), (top + 68, half_1)]:
            at = left
            for event, wide, tile in events:
                p.rect(at, y, wide - 3, 46, kind[event])
                p.label(at + wide / 2 - 2, y + 20, event)
                p.note(at + wide / 2 - 2, y + 37, tile, size=11)
                at += wide
        p.box(left, 206, column - 3, 24, "c2", f"tile {following} in flight", 12)
        p.box(left, 242, column - 3, 24, "c3", f"P of {now} in; {before}: P to dS; dS of {oldest} read", 11)
    p.note(
        480, 302, "violet: the one __syncthreads() of a step. blue: products of a half; green: exponentials and dS; orange: dQ, by all warps.",
        "While one half is busy with green, the other one has products. Three tiles of Q, dO and of P or dS lie in shared memory.",
    )  # fmt: skip
    return p


PICTURES = [pipeline_08, halves_08]
