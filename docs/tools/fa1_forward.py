"""Of docs/04_fa1_forward.md: the tiles that fit, events, sectors and least times; the tiles of a step, and the two loop orders."""

from plots import h200

from .formatting import table
from .shapes import SHARED_BYTES, up, visible_pairs, visited

WARP_ROWS, MAX_ROWS, GROUP, PAD = 32, 256, 8, 4  # as in the kernel: test_kernels.py


def tiles_of(p, sm=90):
    """(4.6)  (Br, Bc)"""
    longest = SHARED_BYTES[sm] // 4 // (4 * (up(p["head_dim"], 32) + PAD))
    br = max(min(longest, MAX_ROWS) // WARP_ROWS, 1) * WARP_ROWS
    return min(br, up(p["seq_q"], WARP_ROWS)), min(longest // GROUP * GROUP, up(p["seq_k"], GROUP))


def tiles():
    """(4.6)  On three generations of GPUs, for long sequences."""
    rows = []
    for sm, available in SHARED_BYTES.items():
        for d in [32, 64, 96, 128]:
            br, bc = tiles_of({"head_dim": d, "seq_q": 10**6, "seq_k": 10**6}, sm)
            paper, width = -(-available // 4 // (4 * d)), up(d, 32)
            used = 4 * (2 * bc * width + 2 * br * (width + PAD))
            rows.append([f"sm_{sm}, {available // 1024} KiB", d, f"{min(paper, d)} × {paper}", f"{br} × {bc}", f"{used / 1024:.0f} KiB"])
    return table("shared memory of a block | d | paper, Br × Bc | here, Br × Bc | used", rows)


def events(row):
    """Two barriers for each visited pair of tiles."""
    p = row["problem"]
    return {"barriers": 2 * sum(visited(p, *tiles_of(p))) * p["batch"] * p["heads"], "warp_operations": 0}


def sectors(row, moved):
    """Tiles are loaded along rows, a sector for eight elements."""
    return sum(map(sum, moved.values())) // 8


def by_shared_memory(p, clocks_per_pair, blocks):
    """Milliseconds on an H200 of kernels with a thread per row: shared memory of the SM that has most of the blocks, so many of a batch."""
    clocks = visible_pairs(p) * p["heads"] / blocks * clocks_per_pair * up(p["head_dim"], 32) / 256  # of a block
    return 1e3 * -(-p["batch"] * blocks // h200.SMS) * clocks / h200.CLOCK_HZ


def least_ms(row):
    """(4.8)"""
    return by_shared_memory(row["problem"], 9, row["problem"]["heads"])
