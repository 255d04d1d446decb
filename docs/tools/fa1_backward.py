"""Of docs/05_fa1_backward.md: the tiles that fit, events, sectors and least times, and errors of sums in other orders."""

import math
import random
import struct

from .fa1_forward import GROUP, ONE_ADDRESS, OWN_ROWS, PAD, SCHEDULERS, by_shared_memory
from .formatting import tabled
from .shapes import SHARED_BYTES, WARP, up, visited

MAX_BC, CHUNK = 64, 32  # as in the kernel: test_kernels.py


def shared_bytes(br, bc, width):
    """(5.8)"""
    return 4 * ((4 * bc + 2 * br) * (width + PAD) + 2 * br * (bc + PAD))


def tiles_of(p, sm=90):
    """(5.8)  (Br, Bc)"""
    needed = up(max(p["seq_k"], -(-p["seq_q"] // 2)), 16)
    for bc in range(min(needed, MAX_BC), 0, -16):
        if shared_bytes(2 * bc, bc, up(p["head_dim"], 32)) <= SHARED_BYTES[sm]:
            return 2 * bc, bc
    return 32, 8


@tabled("shared memory of a block | d | Br × Bc | used")
def tiles():
    """(5.8)  For long sequences."""
    for sm, available in SHARED_BYTES.items():
        for d in [32, 64, 96, 128]:
            br, bc = tiles_of({"head_dim": d, "seq_q": 10**6, "seq_k": 10**6}, sm)
            yield [f"sm_{sm}, {available // 1024} KiB", d, f"{br} × {bc}", f"{shared_bytes(br, bc, up(d, 32)) / 1024:.0f} KiB"]


def events(row):
    """Three barriers for each visited pair of tiles."""
    p = row["problem"]
    return {"barriers": 3 * sum(visited(p, *tiles_of(p))) * p["batch"] * p["heads"], "warp_operations": 0}


def sectors(row, moved):
    """Tiles are loaded along rows, a sector for eight elements; a thread that reads its own row of O or dQ 16 bytes at a time has a sector
    for four."""
    return (sum(map(sum, moved.values())) + moved["O"][0] + 2 * moved["dQ"][0]) // 8


def phases():
    """Per phase: loads of a warp (what, how many, clocks of shared memory each), columns and pairs that they serve, and products."""
    return [
        ("A: $`S`$ and $`dP`$", [("rows of $`Q`$, $`dO`$", 2, OWN_ROWS), ("keys, values", 2 * GROUP, ONE_ADDRESS)], 4, WARP * GROUP, 2),
        ("B: $`dQ`$", [("its row of $`dS`$", 1, OWN_ROWS), ("keys", 4 * CHUNK // 4, ONE_ADDRESS)], CHUNK, WARP * 4, 1),
        ("C: $`dV`$", [("a word of $`P`$", 1, 1), ("$`dO`$", CHUNK // 4, ONE_ADDRESS)], CHUNK, WARP, 1),
        ("C: $`dK`$", [("a word of $`dS`$", 1, 1), ("$`Q`$", CHUNK // 4, ONE_ADDRESS)], CHUNK, WARP, 1),
    ]


def clocks_per_column():
    """(5.10)  Of shared memory, for a column and 256 pairs: by phase."""
    return [sum(count * each for _, count, each in loads) / columns * 256 / pairs for _, loads, columns, pairs, _ in phases()]


@tabled("phase | own loads, clocks | broadcasts, clocks | clocks | columns · pairs | per column and 256 pairs | arithmetic")
def clocks():
    """What (5.10) is made of."""
    arithmetic = 0
    for (phase, loads, columns, pairs, products), each in zip(phases(), clocks_per_column()):
        own, shared = (f"{what}: {count} · {clocks} = {count * clocks}" for what, count, clocks in loads)
        total = sum(count * clocks for _, count, clocks in loads)
        adds = products * 256 // WARP / SCHEDULERS
        yield [phase, own, shared, total, f"{columns} · {pairs}", f"{each:g}", f"{adds:g}"]
        arithmetic += adds
    yield ["**together**", "", "", "", "", f"**{sum(clocks_per_column()):g}**", f"**{arithmetic:g}**"]


def least_ms(row):
    """(5.10)"""
    return by_shared_memory(row["problem"], sum(clocks_per_column()), row["problem"]["kv_heads"])


def fp32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def fp32_sum(terms):
    total = 0.0
    for term in terms:
        total = fp32(total + term)
    return total


@tabled("terms | chains × their length | error of the sum, in u | of the single chain's | predicted")
def order_of_sums():
    """Errors of one chain of additions and of two levels, of random terms; the same terms at each call."""
    trials = 100
    for count, chains in [(2048, [1, 16]), (12288, [1, 6, 96])]:
        source = random.Random(count)
        sets = [[fp32(source.gauss(0, 1)) for _ in range(count)] for _ in range(trials)]
        single = None
        for number in chains:
            length, squares = count // number, 0.0
            for terms in sets:
                got = fp32_sum(fp32_sum(terms[first : first + length]) for first in range(0, count, length))
                squares += (got - math.fsum(terms)) ** 2
            error = math.sqrt(squares / trials / count) * 2**24
            single = single or error
            law = math.sqrt(1 / number + 1 / length) if number > 1 else 1
            yield [f"{count:,}", f"{number} × {length:,}", f"{error:.1f}", f"{error / single:.2f}", f"{law:.2f}"]
