"""Of docs/08_hopper_backward.md: registers, shared memory and traffic of the tiles, barriers of the steps."""

from .formatting import tabled
from .hopper_forward import SHARED_BYTES, TENSOR_FLOPS, list_of_steps

FOLDER = "08_tensor_cores/hopper_backward"
STEPS = {
    "warpgroups": (
        "1_warpgroups.cuh",
        "the TMA copies, `wgmma` multiplies; keys are rows of scores, so that only $`dQ`$ needs other warps",
    ),
    "ring": ("2_specialized.cuh", "a producer warp, rings of $`Q`$ and $`dO`$, two tiles of $`dS`$: one barrier in the loop"),
    "bulk": ("3_bulk.cuh", "a warp of its own, the adder, has the TMA add $`dQ`$ to its sum"),
    "ordered": ("4_ordered.cuh", "blocks take turns at $`dQ`$: the same bits in each run; only the adders wait"),
    "persistent": ("5_persistent.cuh", "a persistent kernel: step 2 with keys from a counter; the next ones load while these end"),
    "resident": ("6_resident.cuh", "step 2 with $`V`$ in registers as far as there is room, and $`K`$ where there is more"),
}
# d, queries and keys of a tile
TILES = [(64, 128, 128), (96, 64, 128), (128, 64, 128)]
CONSUMER_REGISTERS, BESIDE = 240, 40  # that a thread may have; that addresses and the moment take, roughly
LEAST_BESIDE = 32  # of those, what step 6 leaves
SHARED_LIMIT, BARRIERS, STAGES = 232448, 256, 2


def steps():
    return list_of_steps(FOLDER, STEPS)


@tabled("d | queries of a tile | keys of a warpgroup | S and dP | dK and dV | together | leaves room for the rest")
def registers():
    """(8B.1)"""
    for d, br, keys in [(64, 128, 64), (96, 64, 64), (128, 64, 64), (128, 128, 64), (128, 64, 128), (256, 64, 64)]:
        scores, gradients = br * keys // 128, d * keys // 128
        live = 2 * scores + 2 * gradients
        fits = "yes" if live + BESIDE <= CONSUMER_REGISTERS else "no"
        yield [d, br, keys, f"2 · {scores}", f"2 · {gradients}", live, fits]


@tabled("d | Br × Bc | K, V | Q, dO | dS | L, D | dQ | barriers | of 232,448 bytes")
def shared(stages_of_kv=1, tiles_of_dq=0):
    """(8B.2)  What a block has in shared memory."""
    for d, br, bc in TILES:
        columns = (d + 63) // 64 * 64
        parts = [
            int(stages_of_kv) * 2 * 2 * bc * columns,
            STAGES * 2 * 2 * br * columns,
            2 * 2 * br * bc,
            STAGES * 2 * 4 * br,
            int(tiles_of_dq) * 4 * br * d,
            BARRIERS,
        ]
        if sum(parts) > SHARED_LIMIT:
            raise SystemExit(f"hopper_backward.shared: {br} x {bc} at d = {d} takes {sum(parts):,} bytes")
        yield [d, f"{br} × {bc}", *(f"{part:,}" if part else "–" for part in parts), f"{sum(parts):,}"]


def clocks_of_products(d, br, bc):
    """Of a pair of tiles, if tensor cores never wait."""
    return 10 * br * bc * d / TENSOR_FLOPS


def through_shared(d, br, bc, in_bulk=False):
    """Bytes of a pair of tiles that pass through shared memory."""
    groups = bc // 64
    scores = 2 * groups * 2 * (64 + br) * d  # S and dP: both operands
    gradients = 2 * groups * 2 * br * d  # dV and dK: the right one
    queries = groups * 2 * bc * (64 + 64)  # dQ: 64 queries and 64 columns for each warpgroup
    comes, stored = 2 * 2 * br * d, 2 * bc * br  # Q and dO; dS
    leaves = 2 * 4 * br * d if in_bulk else 0  # dQ, written and read
    return scores + gradients + queries + comes + stored + leaves


@tabled("d | Br × Bc | dQ leaves | clocks of the products | bytes through shared memory | of 128 a clock")
def traffic():
    """Of a pair of tiles: bytes that pass through shared memory in a clock of the tensor cores."""
    for d, br, bc in [(64, 128, 128), (128, 64, 128)]:
        clocks = clocks_of_products(d, br, bc)
        for how, passes in (("from registers", through_shared(d, br, bc)), ("in bulk", through_shared(d, br, bc, in_bulk=True))):
            yield [d, f"{br} × {bc}", how, f"{clocks:,.0f}", f"{passes:,}", f"{passes / clocks / SHARED_BYTES:.2f}"]


@tabled("d | registers by (8B.1) | room for blocks | of V | of K | registers then | shared memory is busy: step 2 | step 6")
def resident():
    """What step 6 keeps in registers, and what that saves of the traffic of step 2."""
    for d, br, bc in TILES:
        live, blocks = br + d, d // 16
        room = (CONSUMER_REGISTERS - LEAST_BESIDE - live) // 4
        of_v = min(blocks, room)
        of_k = min(blocks, room - of_v)
        before = through_shared(d, br, bc)
        after = before - (of_v + of_k) * 2 * bc * 16
        busy = [f"{passes / clocks_of_products(d, br, bc) / SHARED_BYTES:.2f}" for passes in (before, after)]
        yield [d, live, room, f"{of_v} of {blocks}", f"{of_k} of {blocks}", live + 4 * (of_v + of_k), *busy]


def added():
    """(8B.3)  fp32 additions to dQ at so many TFLOP/s."""
    rate, keys = 550, 128
    return (
        f"At {rate} TFLOP/s and tiles of {keys} keys, {rate / 10 * 1e12 * 4 / keys / 1e12:.1f} TB/s; an H200's L2 adds fp32 numbers at 3.8 TB/s, "
        "however they are sent: from registers or in bulk, to the same lines from all blocks or to different ones (measured by a kernel that does nothing "
        "else, which was not kept)."
    )
