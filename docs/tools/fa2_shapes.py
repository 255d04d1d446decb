"""The compiled kernels of stage 06, steps 2 and 3, as their sources list them: sizes, who holds what, shared memory."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "loop_order": "06_fa2_forward/1_loop_order.cuh",
    "register_tiles": "06_fa2_forward/2_register_tiles.cuh",
    "warp_tiled": "06_fa2_forward/3_warp_tiled.cuh",
}
WARP = 32
LARGEST_CHUNK = 64  # keys whose P lies in shared memory at a time (step 3)

# What this file computes by itself, as the sources have it. Where one of these lines has changed, tables and pictures would be wrong.
RELIED_ON = {
    "register_tiles": [
        "constexpr int LX = 8, LY = WARP / LX;",
        "static constexpr int STRIDE = Width + PAD, P_STRIDE = Bc + P_PAD;",
        "static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * STRIDE + Br * P_STRIDE;",
        "constexpr int PAD = 4;",
        "constexpr int P_PAD = LX;",
        "return first_row + LY * r;",
        "return x + LX * c;",
    ],
    "warp_tiled": [
        "Chunk = Bc < 64 ? Bc : 64;",
        "static constexpr int P_STRIDE = Br + 4;",
        "static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * Width + Chunk * P_STRIDE;",
        "static constexpr int THREADS = Br / WARP_ROWS * WARP;",
        "return col ^ (4 * (row % 8));",
        "return first_row + 4 * C::LY * q;",
        "return x + C::LX * c;",
        "return 4 * (x + C::LX * g);",
        "const int r = c % 2 == 0 ? n : M - 1 - n;",
    ],
}


def source(variant):
    text = (ROOT / FILES[variant]).read_text()
    for line in RELIED_ON.get(variant, []):
        if line not in text:
            raise SystemExit(f"{FILES[variant]} no longer has '{line}'; docs/tools/fa2_shapes.py computes with it")
    return text


@dataclass
class Shape:
    """Names as in the kernels; td counts columns of O, not fours of them."""

    variant: str
    width: int
    br: int
    bc: int
    tm: int
    lx: int
    blocks: int  # on an SM, asked of the compiler
    why: str

    @property
    def ly(self):
        return WARP // self.lx

    @property
    def tn(self):
        return self.bc // self.lx

    @property
    def td(self):
        return self.width // self.lx

    @property
    def warp_rows(self):
        return self.tm * self.ly

    @property
    def threads(self):
        return self.br // self.warp_rows * WARP

    @property
    def chunk(self):
        return min(self.bc, LARGEST_CHUNK) if self.variant == "warp_tiled" else self.bc

    def shared_bytes(self, chunk=None):
        """With P of `chunk` keys at a time."""
        if self.variant == "register_tiles":
            return 4 * ((self.br + 2 * self.bc) * (self.width + 4) + self.br * (self.bc + self.lx))
        return 4 * ((self.br + 2 * self.bc) * self.width + (chunk or self.chunk) * (self.br + 4))

    def row(self, y, r):
        """In its warp: the r-th row of the lanes y."""
        return y + self.ly * r if self.variant == "register_tiles" else 4 * y + 4 * self.ly * (r // 4) + r % 4

    def output_col(self, x, c):
        return x + self.lx * c if self.variant == "register_tiles" else 4 * (x + self.lx * (c // 4)) + c % 4


def shapes(variant):
    """In the order of the source: for each width the default first."""
    found = []
    for numbers, why in re.findall(r'compiled<Shape<([\d, ]+)>>\("([^"]*)"\)', source(variant)):
        width, br, bc, tm, *rest = (int(number) for number in numbers.split(","))
        lx, blocks = ([*rest, 1])[:2] if variant == "warp_tiled" else (8, 1)
        found.append(Shape(variant, width, br, bc, tm, lx, blocks, why))
    if not found:
        raise SystemExit(f"{FILES[variant]}: no compiled<Shape<...>>")
    return found


def shape_of(variant, width, tiles=None):
    """The default of a width, or the one with these tiles ({"br", "bc"})."""
    for shape in shapes(variant):
        if shape.width == width and (tiles is None or (shape.br, shape.bc) == (tiles["br"], tiles["bc"])):
            return shape
    raise SystemExit(f"{FILES[variant]}: no kernel of width {width} with tiles {tiles}")


def swizzled(row, col):
    """As 3_warp_tiled.cuh has it."""
    return col ^ (4 * (row % 8))


def instructions(shape):
    """(6.8)  What a thread issues for a pair of tiles, at least: {what: instructions}."""
    pairs, outputs = shape.tm * shape.tn, shape.tm * shape.td
    last = shape.variant == "warp_tiled"
    loads = (shape.tm + shape.tn) * shape.width + (shape.tm + shape.td) * shape.bc
    copies = 2 * shape.bc * shape.width // 4 // shape.threads  # of 16 bytes
    return {
        "products": pairs * shape.width + outputs * shape.bc,
        "loads": loads // 4 if last else loads,
        "softmax": 5 * pairs + shape.tm * (5 + 2 * (shape.lx.bit_length() - 1)),
        "O rescaled": outputs,
        "P stored": pairs // 4 if last else pairs,
        "mask": 0 if last else 3 * pairs,
        "copies": copies if last else 2 * copies,
    }


def share(shape):
    """(6.8)  Of multiply-adds of the products in all instructions, at most."""
    counts = instructions(shape)
    return counts["products"] / sum(counts.values())
