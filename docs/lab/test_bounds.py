#!/usr/bin/env python3
"""The arithmetic behind the tables of tiles and bounds in chapters 04 to 08."""

import math
import pathlib
import random
import struct
import sys
import unittest

from typed_tables import CLOCK, EX2, FP32, MMA_FLOPS, SCHEDULERS, SHARED_BYTES, SMS, WARP, Tables, rows_of, table, value  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from docs.tools.steps import ALLOWED  # noqa: E402


def up(n, multiple):
    return -(-n // multiple) * multiple


@table("chapters/04_fa1_forward.md", "paper, Br × Bc")
def tiles_of_04(rows):
    """(4.6)"""
    for kib, d, *_ in rows:
        paper, width = math.ceil(kib * 256 / (4 * d)), up(d, 32)
        longest = kib * 256 // (4 * (width + 4))
        br, bc = max(min(longest, 256) // 32, 1) * 32, longest // 8 * 8
        yield (min(paper, d), paper), (br, bc), (2 * bc * width + 2 * br * (width + 4)) / 256


@table("chapters/05_fa1_backward.md", "shared memory of a block")
def tiles_of_05(rows):
    """(5.8)"""
    for kib, d, *_ in rows:
        padded = up(d, 32) + 4
        sizes = [(2 * bc, bc) for bc in (64, 48, 32, 16)] + [(32, 8)]
        used = {(br, bc): ((4 * bc + 2 * br) * padded + 2 * br * (bc + 4)) / 256 for br, bc in sizes}
        tiles = next(tiles for tiles in sizes if used[tiles] <= kib)
        yield tiles, used[tiles]


def fp32_sum(terms):
    total = 0.0
    for term in terms:
        total = struct.unpack("f", struct.pack("f", total + term))[0]
    return total


@table("reference/numerics.md", "of the single chain's")
def order_of_sums(rows):
    """The mean error of a hundred sums of random terms."""
    single = None
    for count, (chains, length), *_ in rows:
        source, squares, length = random.Random(int(count)), 0.0, int(length)
        for _ in range(100):
            terms = [struct.unpack("f", struct.pack("f", source.gauss(0, 1)))[0] for _ in range(int(count))]
            parts = [fp32_sum(terms[first : first + length]) for first in range(0, int(count), length)]
            squares += (fp32_sum(parts) - math.fsum(terms)) ** 2
        error = math.sqrt(squares / 100 / count) * 2**24
        single = error if chains == 1 else single
        yield error, error / single, math.sqrt(1 / chains + 1 / length) if chains > 1 else 1


EXPF = 8  # instructions: ex2, and seven around it


def tiles_of_06(step, d):
    """Of the defaults: S and O of a thread, keys of a tile, lanes on a row, threads."""
    if d == 64:
        return (8, 8), (8, 8), 64, 8, 128
    return ((8, 8), (8, 8), 128, 16, 256) if step == 8 else ((4, 4), (4, 16), 32, 8, 128)


def loads_of_06(step, d):
    (sr, sc), (_, oc), bc, *_ = tiles_of_06(step, d)
    return ((sr + sc) * d + sr * bc) / 4 + oc * bc / (1 if step < 6 else 4)


def issued_06(rows):
    """(6.8)"""
    for step, d, *_ in rows:
        step = max(step) if isinstance(step, tuple) else step
        s, o, bc, lanes, threads = tiles_of_06(step, d)
        size = math.prod(s)
        products = size * d + math.prod(o) * bc
        softmax = 5 if step >= 4 else 3 + EXPF
        others = [
            loads_of_06(step, d),
            softmax * size + s[0] * (softmax + 2 * math.log2(lanes)),
            size * (4 if step < 4 else 3 if step == 4 else 0),
            math.prod(o),
            size / (1 if step < 6 else 4),
            2 * bc * d / 4 / threads * (1 if step >= 3 else 2),
        ]
        share = products / (products + sum(others))
        yield products, *others, 100 * share, share * FP32 / 1e12


def tiles_of_07(step, d):
    """Of the defaults: S or dP, dV or dK, and dQ of a thread, rows and keys of a tile."""
    if step == 1:
        return {64: ((4, 8), (4, 8), (2, 8), 64, 128), 128: ((2, 8), (4, 8), (2, 16), 64, 64)}[d]
    return {
        32: ((8, 8), (8, 4), (2, 4), 64, 128),
        64: ((8, 8), (8, 8), (4, 4), 64, 128),
        96: ((4, 8), (4, 12), (2, 12), 64, 64),
        128: ((4, 8), (8, 8), (4, 8), 64, 64),
    }[d]


def issued_07(rows):
    """(7.8)"""
    for step, d, *_ in rows:
        s, kv, q, br, bc = tiles_of_07(step, d)
        both = 2 if step < 3 else 1  # S and dP, and what becomes of them
        of_pair = 2 if step == 1 else 1  # products that a thread computes
        products = of_pair * (both * math.prod(s) * d + math.prod(kv) * br) + math.prod(q) * bc
        others = [
            (of_pair * (both * sum(s) * d + sum(kv) * br) + sum(q) * bc) / 4,
            of_pair * both * (4 * math.prod(s) + 2 * s[0]),
            math.prod(q) * 5 / 4 if step == 3 else 0,
            (2 * br + (2 * bc if step < 3 else 0)) * d / 4 / 256,
        ]
        share = products / (products + sum(others))
        yield products, *others, 100 * share, share * FP32 * (5 / 7 if step < 3 else 1) / 1e12


def clocks_of_product(others):
    """Of a scheduler for a product with so many instructions next to it, between the measured rates a straight line."""
    _, _, one, two, four, _ = map(value, rows_of("chapters/08_tensor_cores.md", "each adds")[0])
    points = [(n, MMA_FLOPS * SCHEDULERS * SMS * CLOCK / (rate * 1e12)) for n, rate in ((0, 636), (1, one), (2, two), (4, four))]
    (n0, c0), (n1, c1) = next((pair for pair in zip(points, points[1:]) if others <= pair[1][0]), points[-2:])
    return c0 + (c1 - c0) * (others - n0) / (n1 - n0)


def needs(step, d, bc):
    """(8.0)  For 128 x 64 scores: products, other instructions per product, and the four times."""
    pairs, times = 128 * bc, 64 / bc
    softmax = (11 if step < 5 else 3 if step < 10 else 2) * pairs / WARP + (128 * d / WARP if step < 10 else 0)
    products, kv, q = 4 * pairs * d / MMA_FLOPS, 4 * bc * d, 256 * d
    warps = 4  # with 32 rows each
    shared = kv * (1 + warps) + q + (warps * kv / 2 if step == 1 else 0) + (4 * pairs if step < 4 else 0)
    if step > 6 and d <= 64:
        shared -= q  # stays in registers
    alone, beside = (clocks_of_product(n) * products * times / SCHEDULERS for n in (0, softmax / products))
    return products * times, softmax / products, alone, beside, 128 * 64 / EX2, shared * times / SHARED_BYTES


def most(products, clocks):
    return products * MMA_FLOPS / clocks * SMS * CLOCK / 1e12


@table("chapters/08_tensor_cores.md", "others per `mma`")
def bounds_of_08(rows):
    for d, steps, *_ in rows:
        for step in steps if isinstance(steps, tuple) else [steps]:
            products, *found = needs(step, d, (48 if step > 6 else 32) if d == 128 else 64)
        yield *found, most(products, max(found[1:]))


class Ladders(unittest.TestCase):
    """What the tables of steps show as predicted is what the typed tables of these chapters derive."""

    def rate(self, formula, *cells):
        """The last cell of a row that a function above computes."""
        return list(globals()[formula]([cells]))[0][-1]

    def agrees(self, name, at, rate):
        self.assertAlmostEqual(ALLOWED[name][at], rate, delta=0.51 if rate > 100 else 0.051, msg=f"{name}, d = {(64, 128)[at]}")

    def test_counts_of_06b(self):
        page = (pathlib.Path(__file__).parents[1] / "chapters/06b_fast_product.md").read_text()
        for step in (2, 6):
            products, *others, share, rate = next(issued_06([(step, 64)]))
            for said in (
                f"{products:,}",
                f"{sum(others):,.0f}" if step == 6 else f"E = {sum(others):.0f}",
                f"{share:.0f}",
                f"{rate:.0f} TFLOP/s",
            ):
                self.assertIn(said, page)
        for said in (896, 840, 256, 64, 32):
            self.assertIn(said, next(issued_06([(2, 64)])))

    def test_backward(self):
        for step, name in enumerate(("two_kernels", "two_halves", "one_kernel"), 1):
            for at, d in enumerate((64, 128)):
                self.agrees(f"07_fa2_backward/{name}", at, self.rate("issued_07", step, d))


def in_units(size):
    return size / 2**20 if size < 2**30 else size / 2**30


def traffic(n, d):
    """(I.1) to (I.5), bytes."""
    bc = math.ceil(227 * 256 / (4 * d))
    return [
        4 * each
        for each in (
            4 * n * d + n,
            4 * n * n + 4 * n * d,
            2 * n * d + math.ceil(n / bc) * (3 * n * d + 4 * n),
            2 * n * d + n + math.ceil(n / 128) * 2 * n * d,
        )
    ]


@table("reference/io_complexity.md", "compulsory (I.1)")
def theory(rows):
    for d, n, *_ in rows:
        found = traffic(n, d)
        yield *map(in_units, found), found[2] / found[1], found[3] / found[1]


if __name__ == "__main__":
    unittest.main()
