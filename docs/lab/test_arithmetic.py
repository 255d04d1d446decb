#!/usr/bin/env python3
"""The arithmetic behind the other tables that are typed into pages."""

import math
import unittest
from statistics import NormalDist

from typed_tables import BF16, CLOCK, EX2, FP32, HBM, MMA_FLOPS, PAGES, SHARED_BYTES, SMS, WARP, WGMMA_FLOPS, table
from worked_examples import product

TOKENS = [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]]
WEIGHTS = [  # of Q, K, V; columns 0 and 1 are head 0's, the table's
    [[1, 1, 1, 0], [2, 0, 0, 1], [0, 2, -1, -1], [0, 0, 0, 0]],
    [[2, 0, 2, 0], [0, 2, 0, 2], [-1, -1, -2, -2], [0, 0, 0, 0]],
    [[1, 0, 0, 1], [0, 1, -1, 0], [1, 1, 2, -1], [0, 0, 1, 1]],
]


HEAD = [[row[:2] for row in product(TOKENS, weights)] for weights in WEIGHTS]


@table("chapters/00_introduction.md", "of head 0")
def embeddings(rows):
    yield from zip(TOKENS, *HEAD)


@table("chapters/00_introduction.md", "score of *the*")
def three_tokens(rows):
    q, k, v = HEAD
    for s in product(q, list(zip(*k))):
        s = [x / math.sqrt(2) for x in s]
        p = [math.exp(x) / sum(map(math.exp, s)) for x in s]
        yield s, p, product([p], v)[0]


def unfused_and_fused(width, peak, n=4096, d=64):
    """Per kernel: time of arithmetic, of exponentials and of bytes, and the longer of the first and the last; and the sum of three kernels."""
    flops = 4 * n * n * d
    exponentials = n * n / (SMS * EX2 * CLOCK)
    kernels = [
        (flops / 2 / peak, 0.0, width * (2 * n * d + n * n) / HBM),
        (2 * n * n / FP32, exponentials, 2 * width * n * n / HBM),  # not on tensor cores
        (flops / peak, exponentials, 4 * width * n * d / HBM),
    ]
    product, softmax, fused = ([1e6 * t for t in (*times, max(times[0], times[2]))] for times in kernels)
    return product, softmax, [2 * product[-1] + softmax[-1]], fused


@table("chapters/00_introduction.md", "arithmetic | exp")
def roofline(rows):
    for gain, *how in ((1.4, 4, FP32), (6.5, 2, BF16)):
        *_, (unfused,), fused = unfused_and_fused(*how)
        assert round(unfused / fused[-1], 1) == gain, "the gain by fusing"
    return unfused_and_fused(2, BF16)


@table("chapters/06b_fast_product.md", "multiply-adds per load")
def register_tiles(rows):
    for (a, c), *_ in rows:
        yield a * c / (a + c), 100 * min(1, a * c / (a + c) / 4), a * c + a + c


def fullest_bank(words):
    banks = [word % 32 for word in set(words)]
    return max(map(banks.count, banks))


@table("reference/decode.md", "µs to read them")
def decode_bounds(rows):
    for n, *_ in rows:
        moved = 2 * 8 * n * 128 * 2
        yield moved / 2**20, 1e6 * moved / HBM, 1e6 * 4 * 32 * n * 128 / BF16


@table("reference/dropout.md", "instructions more for each score")
def dropout(rows):
    for d, rounds, *_ in rows:
        more = 0 if rounds == "nothing" else rounds * 4 / {7: 16, 10: 4}[rounds] + 2  # a call of so many rounds serves so many scores
        yield more, (2 + more) * MMA_FLOPS / (4 * WARP * d), None


@table("reference/jacobians.md", "compute again, ps")
def recompute(rows):
    for dtype, d, *_ in rows:
        width, peak = (4, FP32) if dtype == "fp32" else (2, BF16)
        again, moved = 2 * d / peak * 1e12, 2 * width / HBM * 1e12
        yield again, moved, "compute again" if again < moved else "keep"


@table("reference/swizzles.md", "copy, 16 bytes per lane")
def swizzles(rows):
    def wavefronts(width, place):
        pad, wide, chunks = 8 if place == "padded" else 0, width % 64 == 0, width // 8

        def of_chunks(at):
            def word(row, chunk):
                swizzled = chunk ^ (row % 8 if wide else row // 2 % 4)  # (W.2)
                return (row * (width + pad) + 8 * (swizzled if place == "swizzled" else chunk)) // 2

            return fullest_bank(word(row, q) + n for row, q in at for n in range(4))

        matrix = max(of_chunks([(row, q) for row in range(8)]) for q in range(chunks))
        return matrix, max(of_chunks([divmod(i, chunks) for i in range(first, first + 8)]) for first in range(0, 8 * chunks, 8))

    for widths, place, *_ in rows:
        (found,) = {wavefronts(int(width), place) for width in (widths if isinstance(widths, tuple) else [widths])}
        yield found


@table("howto/autotuning.md", "the best looks faster")
def best_of(rows):
    steps = 4000
    for k, _ in rows:
        quantiles = (1 - (1 - (i + 0.5) / steps) ** (1 / k) for i in range(steps))  # of the smallest of k
        yield [-sum(map(NormalDist().inv_cdf, quantiles)) / steps]


@table("chapters/08h_instruments.md", "exponentials, of these")
def forward_budget(rows):
    for d, (br, bc), *_ in rows:
        clocks = 4 * br * bc * d / WGMMA_FLOPS
        yield clocks, br * bc / EX2 / clocks, (64 + 2048 / bc + 4096 / br) / SHARED_BYTES, 4096 / br


@table("chapters/08h_instruments.md", "the producer waits for")
def ring(rows):
    for tile, *_ in rows:
        stage, phase = int(tile) % 2, int(tile) // 2
        yield stage, phase, f"empty{stage}, phase {phase - 1}", (phase - 1) % 2, f"full{stage}, phase {phase}", phase % 2


@table("chapters/08_hopper_forward.md", "registers at launch")
def forward_registers(rows):
    for d, (_, bc), threads, given, (producer, consumer), *_ in rows:
        groups, live = threads / 128 - 1, (bc / 2, bc / 4, d / 2)
        used = producer + groups * consumer
        assert used <= (groups + 1) * given, "more registers than the block was launched with"
        yield 65536 // threads // 8 * 8, None, (producer, groups, consumer, used), (*live, sum(live))


@table("chapters/08_hopper_forward.md", "what it orders")
def lines_to_leave_out(rows):
    lines = list(enumerate((PAGES.parent / "08_tensor_cores/standalone_hopper.cu").read_text().split("\n"), 1))
    waits = ("wgmma.fence", "wait_group", "mbarrier.arrive.shared", "fence.mbarrier_init", "__syncthreads()", "(s.empty", "wait(s.full")
    for text in waits:
        yield [number for number, line in lines if text in line], None, None, None


@table("chapters/08_hopper_backward.md", "leaves room for the rest")
def backward_registers(rows):
    for d, br, keys, *_ in rows:
        scores, gradients = br * keys / 128, d * keys / 128
        live = 2 * (scores + gradients)
        yield (2, scores), (2, gradients), live, "yes" if live + 32 <= 240 else "no"


@table("chapters/08_hopper_backward.md", "left of 232,448 bytes")
def backward_shared(rows):
    for d, (br, bc), *_ in rows:
        columns = (d + 63) // 64 * 64
        parts = [4 * bc * columns, 8 * br * columns, 4 * br * bc, 16 * br]
        left = 232448 - sum(parts)
        assert 8 * br * d + 256 <= left, "no room for step 3's two tiles of dQ and its barriers"
        yield *parts, sum(parts), left


@table("chapters/08_tensor_cores.md", "weights of the second tile")
def lazy_maximum(rows):
    """The row 1, 2, 4, 0 in two tiles, whose values are unit vectors: with the maximum of all scores, and with that of the first tile."""
    for _, m, *_ in rows:
        o = [math.exp(s - m) for s in (1, 2, 4, 0)]
        yield m, o[2:], sum(o), o, [x / sum(o) for x in o], m + math.log(sum(o))


@table("chapters/08_tensor_cores_backward.md", "bytes for S, dP")
def operand_bytes(rows):
    for at, (_, _, br, owned, *_) in enumerate(rows):
        right, left = 16 * 256 / owned, 4096 / br
        average = right + left * (2 / 3 if at % 3 == 1 else 1 / 2)  # S and dP are two of dq_kernel's three products, or two of four
        yield right + left, right, average, average / 216


@table("reference/notation.md", "16 bits, tensor cores")
def peaks(rows):
    sheet = 1.83 * SMS * WGMMA_FLOPS / 1e3  # by its own clock, to three digits
    assert abs(sheet / (BF16 / 1e12) - 1) < 1e-3
    yield (BF16 / 1e12, 1.83), FP32 / 1e12, None
    yield round(1.98 * SMS * WGMMA_FLOPS / 1e3, -1), 1.98 * SMS * 256 / 1e3, None
    yield WGMMA_FLOPS, 256, None


if __name__ == "__main__":
    unittest.main("typed_tables")
