"""Of docs/decode.md: what one query row costs, and what splitting its keys adds."""

import math

from plots import h200

from .formatting import tabled

HEADS, KV_HEADS, D, BYTES = 32, 8, 128, 2  # of an example: grouped heads in 16 bits


def cache_bytes(n):
    """Of K and V of one sequence."""
    return 2 * KV_HEADS * n * D * BYTES


@tabled("$`N_k`$ | K and V | µs to read them | µs of products")
def bounds():
    """(K.1)  The least time of one query row per head, by bytes and by products."""
    for n in (1024, 8192, 32768, 131072):
        flops = 4 * HEADS * n * D
        by_bytes, by_flops = cache_bytes(n) / h200.HBM_BYTES_PER_SECOND, flops / h200.BF16_FLOPS
        yield [f"{n:,}", f"{cache_bytes(n) / 2**20:,.0f} MiB", f"{1e6 * by_bytes:.2f}", f"{1e6 * by_flops:.3f}"]


@tabled("B | $`N_k`$ | blocks without splitting | of 132 SMs | parts | keys of a part | bytes added")
def parts():
    """(K.3)  Parts that give each SM a block, and what they add."""
    for batch in (1, 4, 16, 64):
        blocks = batch * KV_HEADS
        for n in (8192, 131072):
            wanted = min(math.ceil(h200.SMS / blocks), n // 256)
            added = 8 * wanted * batch * HEADS * (D + 1) / (batch * cache_bytes(n)) if wanted > 1 else 0
            yield [batch, f"{n:,}", blocks, f"{100 * min(1, blocks / h200.SMS):.0f} %", wanted, f"{n // wanted:,}", f"{100 * added:.1f} %"]
