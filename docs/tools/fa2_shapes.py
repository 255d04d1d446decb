"""The compiled kernels of stage 06 as their sources list them: sizes, who holds what, shared memory, instructions."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGE = ROOT / "06_fa2_forward"
FILES = {path.stem.split("_", 1)[1]: f"06_fa2_forward/{path.name}" for path in sorted(STAGE.glob("[0-9]_*.cuh"))}  # variant: file
STEPS = {variant: str(number) for number, variant in enumerate(FILES, 1)}
WARP = 32
LARGEST_CHUNK = 64  # keys whose P lies in shared memory at a time (the last step)

# What this file computes by itself, as the sources have it. Where one of these lines has changed, tables and pictures would be wrong.
SIZES = "static constexpr int WARPS = Br / (ThreadRows * (WARP / LANES)), THREADS = WARPS * WARP;"
VECTOR = [SIZES, "constexpr int PAD = 4;", "STRIDE = Width + PAD, P_STRIDE = Br + PAD;", "SHARED_FLOATS = Width * Br + Bc * (STRIDE + Width + P_STRIDE);"]
RELIED_ON = {
    "register_tiles": [SIZES, "constexpr int PAD = 4;", "STRIDE = Width + PAD, P_STRIDE = Bc + LANES;", "SHARED_FLOATS = (Br + 2 * Bc) * STRIDE + Br * P_STRIDE;"],
    "vector_operands": VECTOR,
    "async_copies": VECTOR,
    "short_softmax": VECTOR,
    "tuned": [
        SIZES.replace("LANES", "Lanes"),
        "constexpr int PAD = 4;",
        "static constexpr int Chunk = Bc < 64 ? Bc : 64;",
        "STRIDE = Width + PAD, P_STRIDE = Br + PAD;",
        "SHARED_FLOATS = Width * Br + Bc * (STRIDE + Width) + Chunk * P_STRIDE;",
    ],
}
THREAD_TILES = [
    "return warp * WARP_ROWS + RowRun * y + r % RowRun + RowRun * (WARP / Lanes) * (r / RowRun);",
    "return ColRun * x + c % ColRun + ColRun * Lanes * (c / ColRun);",
    "const int r = c % 2 == 0 ? n : ROWS - 1 - n;",
]


def relied_on(path, lines):
    text = (ROOT / path).read_text()
    for line in lines:
        if line not in text:
            raise SystemExit(f"{path} no longer has '{line}'; docs/tools/fa2_shapes.py computes with it")
    return text


def source(variant):
    relied_on("06_fa2_forward/thread_tiles.cuh", THREAD_TILES)
    return relied_on(FILES[variant], RELIED_ON.get(variant, []))


@dataclass
class Shape:
    """A thread holds tm x tn of S and tm x td of O; lx lanes share a row."""

    variant: str
    width: int
    br: int
    bc: int
    tm: int
    lx: int
    blocks: int  # on an SM, asked of the compiler
    why: str

    vector = property(lambda s: s.variant != "register_tiles")  # operands by float4, rows and columns of O in runs of four
    short = property(lambda s: s.variant in ("short_softmax", "tuned"))
    ly = property(lambda s: WARP // s.lx)
    tn = property(lambda s: s.bc // s.lx)
    td = property(lambda s: s.width // s.lx)
    warp_rows = property(lambda s: s.tm * s.ly)
    threads = property(lambda s: s.br // s.warp_rows * WARP)
    chunk = property(lambda s: min(s.bc, LARGEST_CHUNK) if s.variant == "tuned" else s.bc)

    def shared_bytes(self, chunk=None):
        """With P of `chunk` keys at a time."""
        if not self.vector:
            return 4 * ((self.br + 2 * self.bc) * (self.width + 4) + self.br * (self.bc + self.lx))
        return 4 * (self.br * self.width + self.bc * (2 * self.width + 4) + (chunk or self.chunk) * (self.br + 4))

    def row(self, y, r):
        """In its warp: the r-th row of the lanes y."""
        run = 4 if self.vector else 1
        return run * y + r % run + run * self.ly * (r // run)

    def output_col(self, x, c):
        run = 4 if self.vector else 1
        return run * x + c % run + run * self.lx * (c // run)


def shapes(variant):
    """In the order of the source: for each width the default first."""
    found = []
    for numbers, why in re.findall(r'compiled<ForwardShape<([\d, ]+)>>\("([^"]*)"\)', source(variant)):
        width, br, bc, *rest = (int(number) for number in numbers.split(","))
        tm, lx, blocks = [*rest, *[1, 8, 1][len(rest) :]]
        found.append(Shape(variant, width, br, bc, tm, lx, blocks, why))
    if not found:
        raise SystemExit(f"{FILES[variant]}: no compiled<ForwardShape<...>>")
    return found


def shape_of(variant, width, tiles=None):
    """The default of a width, or the one with these tiles ({"br", "bc"})."""
    for shape in shapes(variant):
        if shape.width == width and (tiles is None or (shape.br, shape.bc) == (tiles["br"], tiles["bc"])):
            return shape
    raise SystemExit(f"{FILES[variant]}: no kernel of width {width} with tiles {tiles}")


def instructions(shape):
    """(6.8)  What a thread issues for a pair of tiles, at least: {what: instructions}."""
    pairs, outputs = shape.tm * shape.tn, shape.tm * shape.td
    along = (shape.tm + shape.tn) * shape.width + shape.tm * shape.bc  # Q, K, P: nvcc reads four steps along a row at once
    down = shape.td * shape.bc  # V
    copies = 2 * shape.bc * shape.width // 4 // shape.threads  # of 16 bytes
    asynchronous = shape.short or shape.variant == "async_copies"
    return {
        "products": pairs * shape.width + outputs * shape.bc,
        "loads": along // 4 + (down // 4 if shape.vector else down),
        "softmax": (5 if shape.short else 6) * pairs + shape.tm * (5 + 2 * (shape.lx.bit_length() - 1)),
        "O rescaled": outputs,
        "P stored": pairs // 4 if shape.vector else pairs,
        "scale and mask": 0 if shape.short else 4 * pairs,
        "copies": copies if asynchronous else 2 * copies,
    }


def share(shape):
    """(6.8)  Of multiply-adds of the products in all instructions, at most."""
    counts = instructions(shape)
    return counts["products"] / sum(counts.values())
