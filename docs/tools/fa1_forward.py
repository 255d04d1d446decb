"""Of docs/04_fa1_forward.md: two tiles by hand, the tiles that fit, events, sectors and least times."""

import math

from plots import h200

from .formatting import table, tabled
from .shapes import SHARED_BYTES, up, visible_pairs, visited

WARP_ROWS, MAX_ROWS, GROUP, PAD = 32, 256, 8, 4  # as in the kernel: test_kernels.py


def tiles_of(p, sm=90):
    """(4.6)  (Br, Bc)"""
    longest = SHARED_BYTES[sm] // 4 // (4 * (up(p["head_dim"], 32) + PAD))
    br = max(min(longest, MAX_ROWS) // WARP_ROWS, 1) * WARP_ROWS
    return min(br, up(p["seq_q"], WARP_ROWS)), min(longest // GROUP * GROUP, up(p["seq_k"], GROUP))


@tabled("shared memory of a block | d | paper, Br × Bc | here, Br × Bc | used")
def tiles():
    """(4.6)  On three generations of GPUs, for long sequences."""
    for sm, available in SHARED_BYTES.items():
        for d in [32, 64, 96, 128]:
            br, bc = tiles_of({"head_dim": d, "seq_q": 10**6, "seq_k": 10**6}, sm)
            paper, width = -(-available // 4 // (4 * d)), up(d, 32)
            used = 4 * (2 * bc * width + 2 * br * (width + PAD))
            yield [f"sm_{sm}, {available // 1024} KiB", d, f"{min(paper, d)} × {paper}", f"{br} × {bc}", f"{used / 1024:.0f} KiB"]


def events(row):
    """Two barriers for each visited pair of tiles."""
    p = row["problem"]
    return {"barriers": 2 * sum(visited(p, *tiles_of(p))) * p["batch"] * p["heads"], "warp_operations": 0}


def sectors(row, moved):
    """Tiles are loaded along rows, a sector for eight elements."""
    return sum(map(sum, moved.values())) // 8


# Two queries and four keys with d = 4, in tiles of Br = Bc = 2. The values are unit vectors: a row of O is then a row of P.
Q, K = [[2, 0, 0, 0], [0, 2, 0, 0]], [[1, 3, 0, 0], [2, 0, 0, 0], [4, 1, 0, 0], [0, 2, 0, 0]]
V = [[float(j == c) for c in range(4)] for j in range(4)]


def scores(i):
    """(4.1)"""
    return [sum(q * k for q, k in zip(Q[i], key)) / math.sqrt(4) for key in K]


def merged_tiles(i, size=2):
    """(4.2) to (4.4) for the row of a query, tile by tile: what it is then, m, l and O; and each number, by its name on the page."""
    m, l, o, rows = -math.inf, 0.0, [0.0] * 4, scores(i)
    for first in range(0, 4, size):
        s = rows[first : first + size]
        tile_m = max(s)
        p = [math.exp(x - tile_m) for x in s]
        tile_l, pv = sum(p), [sum(weight * V[first + j][c] for j, weight in enumerate(p)) for c in range(4)]
        new_m = max(m, tile_m)
        old, new = math.exp(m - new_m), math.exp(tile_m - new_m)
        new_l = old * l + new * tile_l
        o = [(l * old * a + new * b) / new_l for a, b in zip(o, pv)]
        m, l = new_m, new_l
        numbers = {
            "$`S`$ (4.1)": s,
            "$`\\tilde m`$ (4.2)": tile_m,
            "$`\\tilde P`$": p,
            "$`\\tilde\\ell`$": tile_l,
            "$`\\tilde P V_j`$": pv,
            "$`m_{\\text{new}}`$ (4.3)": m,
            "factor of the sums so far, $`e^{m - m_{\\text{new}}}`$": old,
            "factor of the tile, $`e^{\\tilde m - m_{\\text{new}}}`$": new,
            "$`\\ell_{\\text{new}}`$": l,
            "$`o = \\ell_{\\text{new}}\\, O_{\\text{new}}`$ (3.6)": [l * x for x in o],
            "$`O_{\\text{new}}`$ (4.4)": o,
        }
        yield m, l, o, numbers


def digits(value):
    return ", ".join(map(digits, value)) if isinstance(value, list) else f"{value:.3f}".rstrip("0").rstrip(".")


def by_hand(query):
    """One row through two tiles, each line an equation."""
    tiles = [numbers for *_, numbers in merged_tiles(int(query))]
    lines = [[name, *(digits(numbers[name]) for numbers in tiles)] for name in tiles[0]]
    return table(f"query {query} | tile 0: keys 0, 1 | tile 1: keys 2, 3", lines)


@tabled("$`s`$ | $`m'`$ | $`e^{m - m'}`$ | $`e^{s - m'}`$ | $`\\ell'`$ | $`\\sum e^{s - m'}`$ of all so far")
def online():
    """Chapter 03: the scores of query 0, one after the other, by (3.2)."""
    m, l, seen = -math.inf, 0.0, []
    for s in scores(0):
        new_m = max(m, s)
        old, new = math.exp(m - new_m), math.exp(s - new_m)
        l, m = l * old + new, new_m
        seen.append(s)
        yield [digits(s), digits(m), digits(old), digits(new), digits(l), digits(sum(map(math.exp, seen)) / math.exp(m))]


@tabled(" | all scores | softmax, so $`O`$ | $`\\ln \\sum e^S`$ | $`m + \\ln \\ell`$ (4.5)")
def at_once():
    """The same rows by (0.1), which sees all keys: the check."""
    for i in range(len(Q)):
        s, (m, l, o, _) = scores(i), list(merged_tiles(i))[-1]
        total = sum(math.exp(x) for x in s)
        whole = [math.exp(x) / total for x in s]
        if max(abs(a - b) for a, b in zip(whole, o)) > 1e-12 or abs(m + math.log(l) - math.log(total)) > 1e-12:
            raise SystemExit("fa1_forward: merged tiles and the softmax of the whole row differ")
        yield [f"query {i}", digits(s), digits(whole), digits(math.log(total)), digits(m + math.log(l))]


# Clocks of an SM's shared memory for a float4 load of a warp: own rows take a wavefront for each eight lanes; one address for all lanes two
# in all (docs/roofline.md, section 2).
OWN_ROWS, ONE_ADDRESS, SCHEDULERS = 4, 2, 4


def clocks():
    """What (4.8) is made of: a warp, four columns, GROUP keys."""
    adds, lines = 4 * GROUP, []
    for product, operand, count, each in [
        ("$`q \\cdot k`$, `dot_products()`", "its own row of $`Q`$", 1, OWN_ROWS),
        ("", "the keys", GROUP, ONE_ADDRESS),
        ("$`\\tilde P V`$, `accumulate()`", "the values", GROUP, ONE_ADDRESS),
    ]:
        lines.append([product, operand, count, each, count * each, *((adds, adds // SCHEDULERS) if product else ("", ""))])
    memory = sum(line[4] for line in lines)
    if memory != 4 * CLOCKS_PER_COLUMN:
        raise SystemExit("fa1_forward.clocks: the table and (4.8) differ")
    lines.append(["**together**", "", "", "", f"**{memory}**", "", f"**{2 * adds // SCHEDULERS}**"])
    head = "product | a warp loads | `float4` loads | clocks each | clocks of shared memory | multiply-adds | clocks of arithmetic"
    return table(head, lines)


CLOCKS_PER_COLUMN = 9  # (4.8), of a column and 256 pairs


def by_shared_memory(p, clocks_per_pair, blocks):
    """Milliseconds on an H200 of kernels with a thread per row: shared memory of the SM that has most of the blocks, so many of a batch."""
    clocks = visible_pairs(p) * p["heads"] / blocks * clocks_per_pair * up(p["head_dim"], 32) / 256  # of a block
    return 1e3 * -(-p["batch"] * blocks // h200.SMS) * clocks / h200.CLOCK_HZ


def least_ms(row):
    """(4.8)"""
    return by_shared_memory(row["problem"], CLOCKS_PER_COLUMN, row["problem"]["heads"])
