#!/usr/bin/env python3
"""The arithmetic behind the other tables that are typed into pages."""

import math
import unittest
from statistics import NormalDist

from typed_tables import BF16, CLOCK, EX2, FP32, HBM, MMA_FLOPS, SHARED_BYTES, SMS, WARP, WGMMA_FLOPS, table
from worked_examples import product

TOKENS = [[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]]
WEIGHTS = [  # of Q, K, V; columns 0 and 1 are head 0's
    [[1, 1, 1, 0], [2, 0, 0, 1], [0, 2, -1, -1], [0, 0, 0, 0]],
    [[2, 0, 2, 0], [0, 2, 0, 2], [-1, -1, -2, -2], [0, 0, 0, 0]],
    [[1, 0, 0, 1], [0, 1, -1, 0], [1, 1, 2, -1], [0, 0, 1, 1]],
]


@table("chapters/00_introduction.md", "of head 0 and 1")
def embeddings(rows):
    yield from zip(TOKENS, *(product(TOKENS, weights) for weights in WEIGHTS))


@table("chapters/00_introduction.md", "its score of *the*")
def three_tokens(rows):
    q, k, v = ([row[:2] for row in product(TOKENS, weights)] for weights in WEIGHTS)  # of head 0
    for s in product(q, list(zip(*k))):
        s = [x / math.sqrt(2) for x in s]
        p = [math.exp(x) / sum(map(math.exp, s)) for x in s]
        yield s, p, product([p], v)[0]


@table("chapters/00_introduction.md", "arithmetic, µs")
def roofline(rows):
    n, d, bound = 4096, 64, 0
    for dtype, step, *_ in rows:
        width, peak = (4, FP32) if dtype == "fp32" else (2, BF16)
        if step == "three kernels":
            yield (bound,)
            continue
        products = 2 if "fused" in step else 1
        if "softmax" in step:  # not on tensor cores
            work, moved, peak = 2 * n * n, 2 * width * n * n, FP32
        else:
            work, moved = products * 2 * n * n * d, width * (4 * n * d if products == 2 else 2 * n * d + n * n)
        exponentials = 0.0 if "PV" in step else 1e6 * n * n / (SMS * EX2 * CLOCK)
        compute, memory = 1e6 * work / peak, 1e6 * moved / HBM
        least, limit = (memory, "memory") if memory > compute else (compute, "arithmetic")
        yield work / 1e9, moved / 2**20, work / moved, compute, exponentials, memory, limit, least
        bound = 0 if products == 2 else bound + least * (2 if "PV" in step else 1)


@table("chapters/00_introduction.md", "share of time if unfused")
def training(rows):
    width, d = 4096, 128
    for n, *_ in rows:
        weights, attention = 24 * width**2, 2 * n * width
        slower = BF16 / (d / 4 * HBM)
        of_time = slower * attention / (weights + slower * attention)
        yield 100 * attention / (weights + attention), 100 * of_time, 2 * 32 * n * n / 2**30


@table("reference/block_matmul.md", "multiply-adds per number, at least")
def tile_levels(rows):
    for bandwidth in (HBM, SMS * SHARED_BYTES * CLOCK):
        least = FP32 / 2 / (bandwidth / 4)
        yield bandwidth / 1e12, least, (2 * least, 2 * least)


@table("reference/block_matmul.md", "multiply-adds per load")
def register_tiles(rows):
    for (a, c), *_ in rows:
        yield a * c / (a + c), 100 * min(1, a * c / (a + c) / 4), a * c + a + c


def fullest_bank(words):
    banks = [word % 32 for word in set(words)]
    return max(map(banks.count, banks))


def wavefronts(first, words):
    """Of a warp that reads so many words per lane: 32 / words lanes are served together."""
    groups = range(0, WARP, WARP // words)
    return sum(fullest_bank(first(t) + w for t in range(at, at + WARP // words) for w in range(words)) for at in groups)


@table("reference/block_matmul.md", "row length in words")
def matmul_banks(rows):
    for length, *_ in rows[:-1]:
        stride = int(length[0] if isinstance(length, tuple) else length)
        yield [wavefronts(lambda t, s=stride: t * s, w) if stride % w == 0 else "not aligned" for w in (1, 4)]
    yield [wavefronts(lambda t: t * 64 + 4 * (t % 8), w) for w in (1, 4)]


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


@table("reference/swizzles.md", "accumulator stored")
def swizzles(rows):
    for width, place, *_ in rows:
        width, pad, wide = int(width), 8 * (place == "padded"), width % 64 == 0

        def word(row, chunk, column=0, width=width, pad=pad, place=place, wide=wide):
            swizzled = chunk ^ (row % 8 if wide else row // 2 % 4)  # (W.2)
            return (row * (width + pad) + 8 * (swizzled if place == "swizzled" else chunk) + column) // 2

        chunks = width // 8
        of_chunks = lambda at: fullest_bank(word(row, q) + n for row, q in at for n in range(4))  # noqa: E731
        matrix = max(of_chunks([(row, q) for row in range(8)]) for q in range(chunks))
        stored = max(fullest_bank(word(t // 4, q, t % 4 * 2) for t in range(WARP)) for q in range(chunks))
        copied = max(of_chunks([divmod(i, chunks) for i in range(first, first + 8)]) for first in range(0, 8 * chunks, 8))
        yield matrix, stored, copied, 2 * 64 * (width + pad)


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


@table("logbook/08_hopper.md", "bytes spilled")
def wide_forward(rows):
    for d, (br, bc), stages, *_ in rows:
        columns = (d + 63) // 64 * 64  # of whole panels
        traffic = (64 + 2048 / bc + 4096 / br * columns / d) / SHARED_BYTES
        yield bc / 2 + bc / 4 + d / 2, None, None, 2 * columns * (br + 2 * stages * bc), traffic


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
        assert 8 * br * d + 256 <= left, "no room for step 4's two tiles of dQ and its barriers"
        yield *parts, sum(parts), left


def through_shared(d, br, bc, in_bulk=False):
    """Bytes of a pair of tiles: S and dP, dV and dK, dQ, the copies, dS, dQ again."""
    return bc // 64 * (4 * (64 + br) * d + 4 * br * d + 256 * bc) + 4 * br * d + 2 * bc * br + (8 * br * d if in_bulk else 0)


def products_08b(d, br, bc):
    return 10 * br * bc * d / WGMMA_FLOPS


@table("chapters/08_hopper_backward.md", "bytes through shared memory")
def backward_traffic(rows):
    for d, (br, bc), leaves, *_ in rows:
        moved = through_shared(d, br, bc, leaves == "in bulk")
        yield products_08b(d, br, bc), moved, moved / products_08b(d, br, bc) / SHARED_BYTES


@table("chapters/08_hopper_backward.md", "P, dS handed on")
def backward_relay(rows):
    for d, *_ in rows:
        columns, at_once = (d + 63) // 64 * 64, 64 if d % 128 else 128  # of dQ
        of_dq = columns // at_once * 4 * (64 + at_once) * 32
        moved = [2 * d // 16 * 128 * 32, 2 * 4 * d * 32, of_dq, 3 * 64 * 64 * 2, 4 * 64 * columns]
        cycles = 2 * 64 * 64 * (4 * d + columns) / WGMMA_FLOPS
        yield *moved, cycles, sum(moved) / cycles / SHARED_BYTES


@table("chapters/08_tensor_cores.md", "weights of the second tile")
def lazy_maximum(rows):
    """The row 1, 2, 4, 0 in two tiles, whose values are unit vectors: with the maximum of all scores, and with that of the first tile."""
    for _, m, *_ in rows:
        o = [math.exp(s - m) for s in (1, 2, 4, 0)]
        yield m, o[2:], sum(o), o, [x / sum(o) for x in o], m + math.log(sum(o))


@table("chapters/08_tensor_cores_backward.md", "bytes for S, dP")
def operand_bytes(rows):
    for at, (_, _, _, br, owned, *_) in enumerate(rows):
        right, left = 16 * 256 / owned, 4096 / br
        average = right + left * (2 / 3 if at % 3 == 1 else 1 / 2)  # S and dP are two of dq_kernel's three products, or two of four
        yield right + left, right, average, average / 216


@table("chapters/08_tensor_cores_backward.md", "others per `mma`")
def bounds_of_the_backward_pass(rows):
    for d, (br, bc), products, *_ in rows:
        yield 10 * br * bc * d / MMA_FLOPS, 3 * br * bc / WARP / products, None, None, br * bc / EX2, None, None


@table("reference/notation.md", "16 bits, tensor cores")
def peaks(rows):
    sheet = 1.83 * SMS * WGMMA_FLOPS / 1e3  # by its own clock, to three digits
    assert abs(sheet / (BF16 / 1e12) - 1) < 1e-3
    yield (BF16 / 1e12, 1.83), FP32 / 1e12, None
    yield round(1.98 * SMS * WGMMA_FLOPS / 1e3, -1), 1.98 * SMS * 256 / 1e3, None
    yield WGMMA_FLOPS, 256, None


if __name__ == "__main__":
    unittest.main("typed_tables")
