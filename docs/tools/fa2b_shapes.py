"""The compiled kernels of stage 07 as their sources list them: sizes, who holds what, shared memory, instructions."""

import re
from dataclasses import dataclass
from pathlib import Path

from .fa2_shapes import THREAD_TILES, relied_on

ROOT = Path(__file__).resolve().parents[2]
PARTS = "07_fa2_backward/parts.cuh"
FILES = {"two_kernels": "07_fa2_backward/1_two_kernels.cuh", "one_kernel": "07_fa2_backward/2_one_kernel.cuh"}
PRODUCTS = {"two_kernels": 7, "one_kernel": 5}
WARP = 32
HALF = 4 * WARP
THREADS = 2 * HALF

# What this file computes by itself, as parts.cuh has it. Where one of these lines has changed, tables and pictures would be wrong.
RELIED_ON = [
    "constexpr int HALF = 4 * WARP;",
    "THREADS = 2 * HALF;",
    "QueryLanes = Width % 64 == 0 ? 8 : 4;",
    "ScoreRows = Br * ScoreLanes / HALF, KeyRows = Bc * KeyLanes / HALF, QueryRows = Br * QueryLanes / HALF;",
    "SCORE_RUN = ScoreRows < ScoreLanes / 4 ? ScoreRows : ScoreLanes / 4;",
    "using Scores = ThreadTile<ScoreRows, Bc / ScoreLanes, ScoreLanes, 4, SCORE_RUN>;",
    "using KeyGradient = ThreadTile<KeyRows, Width / KeyLanes, KeyLanes, 4, 4, 4>;",
    "using QueryGradient = ThreadTile<QueryRows, Width / 2 / QueryLanes, QueryLanes, 4, 1, 4>;",
    "STRIDE = Width + 4, P_STRIDE = Bc + ScoreLanes / SCORE_RUN;",
    "SHARED_FLOATS = (2 * Bc + 2 * Br) * STRIDE + 2 * Br * P_STRIDE + 2 * Br;",
]


def source(variant):
    relied_on("06_fa2_forward/thread_tiles.cuh", THREAD_TILES)
    relied_on(PARTS, RELIED_ON)
    return (ROOT / FILES[variant]).read_text()


@dataclass
class Shape:
    """lx lanes share a row of S or dP, of which a thread holds tm x tn in runs of `group` rows; kx one of dV or dK, tk x td; qx one of
    half of dQ, tq x tc. Places are those of warp 0 of half 0."""

    width: int
    br: int
    bc: int
    lx: int
    kx: int
    why: str

    rows = property(lambda s: s.br // 4)
    keys = property(lambda s: s.bc // 4)
    ly = property(lambda s: WARP // s.lx)
    tm = property(lambda s: s.rows // s.ly)
    tn = property(lambda s: s.bc // s.lx)
    group = property(lambda s: min(s.tm, s.lx // 4))
    ky = property(lambda s: WARP // s.kx)
    tk = property(lambda s: s.keys // s.ky)
    td = property(lambda s: s.width // s.kx)
    qx = property(lambda s: 8 if s.width % 64 == 0 else 4)
    qy = property(lambda s: WARP // s.qx)
    tq = property(lambda s: s.rows // s.qy)
    tc = property(lambda s: s.width // 2 // s.qx)
    stride = property(lambda s: s.width + 4)
    p_stride = property(lambda s: s.bc + s.lx // s.group)

    def shared_bytes(self):
        return 4 * ((2 * self.bc + 2 * self.br) * self.stride + 2 * self.br * self.p_stride + 2 * self.br)

    def score_row(self, lane, r, group=None):
        group = group or self.group
        return lane // self.lx * group + r % group + self.ly * group * (r // group)

    def score_col(self, lane, c):
        return lane % self.lx + self.lx * c

    def key(self, lane, r):
        return 4 * (lane // self.kx + self.ky * (r // 4)) + r % 4

    def key_col(self, lane, c):
        return 4 * (lane % self.kx + self.kx * (c // 4)) + c % 4

    def query_row(self, lane, r):
        return lane // self.qx + self.qy * r

    def query_col(self, lane, c, half=0):
        return half * self.width // 2 + 4 * (lane % self.qx + self.qx * (c // 4)) + c % 4


def shapes(variant):
    """In the order of the source: for each width the default first."""
    found = []
    for numbers, why in re.findall(r'compiled<BackwardShape<([\d, ]+)>>\("([^"]*)"\)', source(variant)):
        found.append(Shape(*(int(number) for number in numbers.split(",")), why))
    if not found:
        raise SystemExit(f"{FILES[variant]}: no compiled<BackwardShape<...>>")
    return found


def shape_of(variant, width, tiles=None):
    """The default of a width, or the one with these tiles ({"br", "bc"})."""
    for shape in shapes(variant):
        if shape.width == width and (tiles is None or (shape.br, shape.bc) == (tiles["br"], tiles["bc"])):
            return shape
    raise SystemExit(f"{FILES[variant]}: no kernel of width {width} with tiles {tiles}")


def products(s):
    """{product: (its tile in a thread's registers, length of the inner dimension)}: S or dP; dV or dK; dQ."""
    return {"S or dP": (s.tm, s.tn, s.width), "dV or dK": (s.tk, s.td, s.br), "dQ": (s.tq, s.tc, s.bc)}


def instructions(s, variant):
    """(7.8)  What a thread issues for a pair of tiles, at least, the mean of both halves: {what: instructions}."""
    twice = variant == "two_kernels"  # S, dP, and what becomes of them
    scores, gradients, q = s.tm * s.tn, s.tk * s.td, s.tq * s.tc
    both = 2 if twice else 1
    loads = both * (s.tm + s.tn) * s.width // 4 + (s.tk + s.td) * s.br // 4 + s.tq * s.bc // 4 + s.tc * s.bc // 4
    copied = 2 * s.br + (2 * s.bc if twice else 0)  # rows of Q, dO, and of K, V in the second kernel
    return {
        "products": both * scores * s.width + gradients * s.br + q * s.bc,
        "loads": loads,
        "P and dS": both * (9 * scores + 4 * s.tm) // 2,
        "dQ added": 0 if twice else q + q // 4,
        "copies": copied * s.width // 4 // THREADS,
    }


def share(s, variant):
    """(7.8)  Of multiply-adds of the products in all instructions, at most."""
    counts = instructions(s, variant)
    return counts["products"] / sum(counts.values())
