"""The compiled kernels of stage 08, as its program lists them, and what a pair of tiles asks of an SM: (8.9)."""

import json
from dataclasses import dataclass

from plots import h200

from .saved import RESULTS, ROOT

STAGE = ROOT / "08_tensor_cores"
VARIANTS = {v["name"]: v for v in json.loads((RESULTS / "cpu" / "programs" / "08_tensor_cores.json").read_text())["variants"]}
FILES = {name: v["kernel"].split("/", 1)[1] for name, v in VARIANTS.items()}  # in STAGE, in the order of the steps
BACKWARD = [name for name, v in VARIANTS.items() if "backward" in v["passes"]]
FORWARD = [name for name in VARIANTS if name not in BACKWARD]
WARP = 32
MMA_FLOPS = 2 * 16 * 8 * 16  # of one m16n8k16
SCHEDULERS = 4  # of an SM, each with a tensor core
EX2_PER_CLOCK = 16  # of an SM
SHARED_BYTES_PER_CLOCK = h200.SHARED_BYTES_PER_CLOCK


@dataclass
class Shape:
    """Names as in the kernels; `rows` of forward steps: tiles of 16 rows of a warp."""

    width: int
    br: int
    bc: int
    threads: int
    shared_bytes: int
    why: str

    @property
    def warps(self):
        return self.threads // WARP

    @property
    def rows(self):
        return self.br // 16 // self.warps


def shapes(variant):
    """For each width the default of large problems first."""
    direction = "backward" if variant in BACKWARD else "forward"
    of_pass = [tiles for tiles in VARIANTS[variant]["tiles"] if tiles["pass"] == direction]
    return [Shape(width, **choice) for tiles in of_pass for width in tiles["head_dims"] for choice in tiles["choices"]]


def measured_rates():
    return json.loads((RESULTS / "nvidia_h200" / "mma_rates.json").read_text())


def clocks_of_product(beside):
    """Clocks of a scheduler for one m16n8k16 and so many fp32 instructions of the same warp; between measured points a straight line.
    At the clock of the data sheet, so that clocks times products give the measured time."""
    rates = measured_rates()
    points = [(0, rates["tflops_alone"])] + [(int(n), rate) for n, rate in rates["beside"][0]["tflops"].items()]
    clocks = [(n, MMA_FLOPS * SCHEDULERS * h200.SMS * h200.CLOCK_HZ / (rate * 1e12)) for n, rate in points]
    for (n0, c0), (n1, c1) in zip(clocks, clocks[1:]):
        if beside <= n1 or n1 == clocks[-1][0]:
            return c0 + (c1 - c0) * (beside - n0) / (n1 - n0)
    raise AssertionError


@dataclass
class Needs:
    """Of a pair of tiles, without a mask. Shared-memory accesses without conflicts."""

    products: int  # m16n8k16
    softmax: int  # instructions of warps, conversions and ex2 left out
    ex2: int
    shared_bytes: int

    def beside(self):
        return self.softmax / self.products

    def product_clocks(self):
        """Of an SM, products and softmax together."""
        return clocks_of_product(self.beside()) * self.products / SCHEDULERS

    def clocks(self):
        return {
            "products alone": clocks_of_product(0) * self.products / SCHEDULERS,
            "with softmax beside": self.product_clocks(),
            "ex2": self.ex2 / EX2_PER_CLOCK,
            "shared memory": self.shared_bytes / SHARED_BYTES_PER_CLOCK,
        }

    def tflops(self):
        """(8.9)  At most."""
        slowest = max(self.clocks().values())
        return self.products * MMA_FLOPS / slowest * h200.SMS * h200.CLOCK_HZ / 1e12


# Instructions of a lane for each score. Steps 1 to 3: scale, maximum, minus m, seven of expf beside its ex2, sum. Step 4: maximum, one
# multiply-add, sum. Steps 5, 6: multiply-add, sum. As nvcc makes them for sm_90a; a mask is not among them.
PER_SCORE = {"mma": 11, "swizzle": 11, "pipeline": 11, "registers": 3, "lazy_maximum": 2, "tuned": 2}
LAZY = ("lazy_maximum", "tuned")
EXAMPLE = (128, 64)  # pairs of a tile that tables speak of


def default(variant, width):
    """(Br, Bc, rows) of the first kernel of that width."""
    found = next(s for s in shapes(variant) if s.width == width)
    return found.br, found.bc, found.rows


def default_needs(variant, width):
    """(8.9)  Of the default tiles of a forward step, for as many scores as the example has."""
    br, bc, rows = default(variant, width)
    n, times = needs(variant, width, br, bc, rows), EXAMPLE[0] * EXAMPLE[1] / (br * bc)
    return Needs(*(round(value * times) for value in (n.products, n.softmax, n.ex2, n.shared_bytes)))


def needs(variant, width, br=EXAMPLE[0], bc=EXAMPLE[1], rows=2):
    """(8.9)  Of a pair of tiles of a forward step."""
    warps, pairs = br // (16 * rows), br * bc
    k_or_v = 2 * bc * width  # bytes of a tile of K or V
    products = 4 * pairs * width // MMA_FLOPS
    softmax = PER_SCORE[variant] * pairs // WARP
    if variant not in LAZY:
        softmax += br * width // WARP  # O rescaled
    copies, q, p = 2 * k_or_v, 2 * br * width, 2 * pairs
    if variant == "mma":
        # K and P by words. V by halves of words: two loads where one would do, each a whole wavefront.
        shared = copies + warps * (k_or_v + 2 * k_or_v) + q + 2 * p
    else:
        shared = copies + warps * 2 * k_or_v + q
        if variant in ("swizzle", "pipeline"):
            shared += 2 * p  # P written and read
        if variant == "tuned" and width // 16 * rows * 4 <= 32:
            shared -= q  # stays in registers
    return Needs(products, softmax, pairs, shared)


def warp_grid(warps, br, width):
    """(rows, columns) of warps that share dQ, as WarpGrid in parts/prepare.cuh deals them out."""
    grids = [(r, c) for r in range(1, br // 16 + 1) for c in range(1, width // 16 + 1) if br // 16 % r == 0 and width // 16 % c == 0 and r * c <= warps]
    return min(grids, key=lambda grid: (-grid[0] * grid[1], grid[1] * br + grid[0] * width))


def backward_needs(shape):
    """(8.9)  Of a pair of tiles of the last step."""
    width, br, bc, warps = shape.width, shape.br, shape.bc, shape.warps
    query_warps, column_warps = warp_grid(warps, br, width)
    tile_q, tile_k, pairs = 2 * br * width, 2 * bc * width, br * bc
    shared = 4 * (warps // 2) * tile_q  # Q for S and dK, dO for dP and dV, by each warp of a half
    shared += 2 * tile_k  # K and V, each warp its rows
    shared += 3 * 2 * pairs  # P written and read, dS written
    shared += column_warps * 2 * pairs + query_warps * tile_k  # dS and K for dQ
    shared += 2 * tile_q  # copies
    return Needs(10 * pairs * width // MMA_FLOPS, 3 * pairs // WARP, pairs, shared)
