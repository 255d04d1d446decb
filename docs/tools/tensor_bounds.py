"""Of docs/08_tensor_cores.md: what a pair of tiles asks of an SM, (8.0), and the measured rates on which that rests. Those of the backward
pass: tensor_cores_backward.py."""

from dataclasses import dataclass

from plots import h200

from . import hopper_backward, hopper_forward
from .formatting import table, tabled
from .saved import said
from .shapes import WARP, shape_of, variants

STAGE = "08_tensor_cores"
VARIANTS = variants(STAGE)
CHAPTERS = {"08H": hopper_forward.STEPS, "08B": hopper_backward.STEPS}
HOPPER = [name for steps in CHAPTERS.values() for name in steps]
BACKWARD = [name for name, v in VARIANTS.items() if "backward" in v["passes"] and name not in HOPPER]
FORWARD = [name for name in VARIANTS if name not in BACKWARD + HOPPER]
MMA_FLOPS = 2 * 16 * 8 * 16  # of one m16n8k16
SCHEDULERS = 4  # of an SM, each with a tensor core
EX2_PER_CLOCK = 16  # of an SM
RATES = said("nvidia_h200", "mma_rates.json")


def clocks_of_product(beside):
    """Clocks of a scheduler for one m16n8k16 and so many fp32 instructions of the same warp; between measured points a straight line.
    At the clock of the data sheet, so that clocks times products give the measured time."""
    points = [(0, RATES["tflops_alone"])] + [(int(n), rate) for n, rate in RATES["beside"][0]["tflops"].items()]
    clocks = [(n, MMA_FLOPS * SCHEDULERS * h200.SMS * h200.CLOCK_HZ / (rate * 1e12)) for n, rate in points]
    (n0, c0), (n1, c1) = next((pair for pair in zip(clocks, clocks[1:]) if beside <= pair[1][0]), clocks[-2:])
    return c0 + (c1 - c0) * (beside - n0) / (n1 - n0)


@dataclass
class Needs:
    """Of a pair of tiles, without a mask. Shared-memory accesses without conflicts."""

    products: float  # m16n8k16
    softmax: float  # instructions of warps, conversions and ex2 left out
    ex2: float
    shared_bytes: float

    beside = property(lambda n: n.softmax / n.products)

    def clocks(self):
        return {
            "products alone": clocks_of_product(0) * self.products / SCHEDULERS,
            "with softmax beside": clocks_of_product(self.beside) * self.products / SCHEDULERS,
            "ex2": self.ex2 / EX2_PER_CLOCK,
            "shared memory": self.shared_bytes / h200.SHARED_BYTES_PER_CLOCK,
        }

    def tflops(self):
        """(8.0)  At most."""
        return self.products * MMA_FLOPS / max(self.clocks().values()) * h200.SMS * h200.CLOCK_HZ / 1e12


# Instructions of a lane for each score. Steps 1 to 3: scale, maximum, minus m, seven of expf beside its ex2, sum. Step 4: maximum, one
# multiply-add, sum. Steps 5, 6: multiply-add, sum. As nvcc makes them for sm_90a; a mask is not among them.
PER_SCORE = {"mma": 11, "swizzle": 11, "pipeline": 11, "registers": 3, "lazy_maximum": 2, "tuned": 2}
EXAMPLE = (128, 64)  # pairs of a tile that tables speak of


def default(variant, width):
    return shape_of(STAGE, variant, "backward" if variant in BACKWARD else "forward", width)


def default_needs(variant, width):
    """(8.0)  Of the default tiles of a forward step, for as many scores as the example has."""
    s = default(variant, width)
    n, times = needs(variant, width, s.br, s.bc, s.br // 16 // s.warps), EXAMPLE[0] * EXAMPLE[1] / (s.br * s.bc)
    return Needs(*(round(value * times) for value in (n.products, n.softmax, n.ex2, n.shared_bytes)))


def needs(variant, width, br=EXAMPLE[0], bc=EXAMPLE[1], rows=2):
    """(8.0)  Of a pair of tiles of a forward step; rows: tiles of 16 rows of a warp."""
    if variant not in PER_SCORE:
        raise SystemExit(f"docs/tools/tensor_bounds.py: how many instructions does a score cost in '{variant}'? PER_SCORE does not have it")
    warps, pairs = br // (16 * rows), br * bc
    k_or_v = 2 * bc * width  # bytes of a tile of K or V
    softmax = PER_SCORE[variant] * pairs // WARP
    if variant not in ("lazy_maximum", "tuned"):
        softmax += br * width // WARP  # O rescaled
    q, p = 2 * br * width, 2 * pairs
    shared = 2 * k_or_v + warps * 2 * k_or_v + q  # copies, K and V, Q
    if variant == "mma":
        shared += warps * k_or_v  # V by halves of words: two loads where one would do, each a whole wavefront
    if variant in ("mma", "swizzle", "pipeline"):
        shared += 2 * p  # P written and read
    if variant == "tuned" and width // 16 * rows * 4 <= 32:
        shared -= q  # stays in registers
    return Needs(4 * pairs * width // MMA_FLOPS, softmax, pairs, shared)


def rates():
    """What an instruction beside a product costs."""
    alone = RATES["tflops_alone"]
    rows = []
    for row in RATES["beside"]:
        most = max(row["tflops"], key=int)
        cost = max(0.0, alone / row["tflops"][most] - 1) / int(most)
        rows.append([f"`{row['instruction']}`", row["what"], *(row["tflops"].get(n, "–") for n in "124"), f"{100 * cost:.0f} %"])
    head = "beside each product |  | one of it, TFLOP/s | two | four | each adds, of a product's time"
    warps = ", ".join(f"{rate} with {n} warps on an SM" for n, rate in RATES["alone_by_warps"].items())
    title = f"{RATES['device']}, TFLOP/s of `m16n8k16` alone: {warps}. With {RATES['warps_per_sm']} warps:"
    return f"{title}\n\n{table(head, rows)}\n\nMeasured on {RATES['date']}."


def rate():
    """The roof of the chapter, as a sentence."""
    alone = RATES["tflops_alone"]
    clocks = [MMA_FLOPS * SCHEDULERS * h200.SMS * mhz * 1e6 / (alone * 1e12) for mhz in RATES["clock_mhz_in_these_kernels"]]
    return (
        f"`mma.sync` with nothing beside it was measured at {alone} TFLOP/s, {100 * alone * 1e12 / h200.BF16_FLOPS:.0f} % of the "
        f"{h200.BF16_FLOPS / 1e12:.0f} of the data sheet: each of the {SCHEDULERS} schedulers of an SM starts an `m16n8k16` every "
        f"{clocks[0]:.1f} to {clocks[1]:.1f} clocks."
    )


def rate_in_tables():
    """The same rate in the clocks that tables count."""
    low, high = RATES["clock_mhz_in_these_kernels"]
    return (
        f"Those are clocks of the {low} to {high} MHz at which the GPU runs under this load. The tables below count clocks of the data sheet, "
        f"{h200.CLOCK_HZ / 1e6:.0f} MHz; in these a product takes {clocks_of_product(0):.1f}."
    )


def power():
    (low, high), watts = RATES["clock_mhz_in_these_kernels"], RATES["watts_in_these_kernels"]
    return (
        f"These kernels draw {watts[0]} to {watts[1]} W, and the GPU lowers its clock from {RATES['clock_mhz_idle']} MHz to somewhere "
        f"between {low} and {high} to stay within its limit."
    )


CLOCKS = [f"clocks: {what}" for what in needs("mma", 64).clocks()]


def forward():
    """(8.0)"""
    rows = []
    for width in (64, 128):
        for step, variant in enumerate(FORWARD, 1):
            n = default_needs(variant, width)
            clocks = n.clocks().values()
            shown = [f"**{value:,.0f}**" if value == max(clocks) else f"{value:,.0f}" for value in clocks]
            rows.append([width, step, default(variant, width).tiles, n.products, f"{n.beside:.2g}", *shown, f"{n.tflops():.0f}"])
    return table(["d", "step", "tiles", "products", "others beside each", *CLOCKS, "TFLOP/s, at most"], rows)


@tabled("d | rows of a warp | clocks of shared memory | clocks of products with their softmax | TFLOP/s, at most")
def rows_of_a_warp():
    """Why 32 rows: shared memory against products."""
    for width in (64, 128):
        for tiles_of_16 in (1, 2):
            n = needs("tuned", width, rows=tiles_of_16)
            clocks = [f"{n.clocks()[what]:,.0f}" for what in ("shared memory", "with softmax beside")]
            yield [width, 16 * tiles_of_16, *clocks, f"{n.tflops():.0f}"]
