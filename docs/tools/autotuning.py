"""Of docs/autotuning.md: what tile sizes trade, how far measurements of them can be trusted, and how many kernels they are."""

import math
from statistics import NormalDist

from plots import h200

from .formatting import tabled, tiles_text
from .saved import newest, of_each_gpu, origin
from .shapes import shapes, variants

STAGES = ["06_fa2_forward", "07_fa2_backward", "08_tensor_cores"]
EXAMPLE = {"batch": 4, "heads": 32, "n": 4096}


@tabled(
    "d | Br × Bc | threads | shared memory | blocks that shared memory allows on an SM | times K and V are read | turns of the loop | blocks | waves | full"
)
def trade(stage, variant):
    """Of each choice of a forward step what it costs and what it saves, on a problem with many blocks."""
    for width in (64, 128):
        for s in (s for s in shapes(stage, variant, "forward") if s.width == width):
            on_sm = min(h200.SHARED_KB_PER_SM * 1024 // (s.shared_bytes + 1024), 2048 // s.threads)
            reads, turns = (math.ceil(EXAMPLE["n"] / size) for size in (s.br, s.bc))
            blocks = EXAMPLE["batch"] * EXAMPLE["heads"] * reads
            waves = blocks / (on_sm * h200.SMS)
            full = f"{100 * waves / math.ceil(waves):.0f} %"
            yield [width, s.tiles, s.threads, s.kib, on_sm, reads, turns, f"{blocks:,}", f"{waves:.1f}", full]


@of_each_gpu
def spread(device):
    """How much repetitions differ, and how much choices do."""
    rows = [row for row in newest(device, "tuned.jsonl", having="tune") if row["tune"]]  # nothing: refused
    timed = [[c for c in row["tune"]["choices"] if "time" in c] for row in rows]
    widest = max((c["time"]["max_ms"] - c["time"]["min_ms"]) / c["time"]["median_ms"] for choices in timed for c in choices)
    nearest = min(
        sorted(c["time"]["median_ms"] for c in choices)[1] / min(c["time"]["median_ms"] for c in choices) - 1 for choices in timed
    )
    chosen = sum(min(cs, key=lambda c: c["time"]["median_ms"]) is cs[0] for cs in timed)
    return (
        f"{rows[0]['device']['name']}, {len(rows)} searches over stages 06 to 08: repetitions of one choice differ by {100 * widest:.1f} % at most, the two "
        f"fastest choices of a search by {100 * nearest:.1f} % at least. The default was the fastest in {chosen} of {len(rows)}. {origin(rows)}"
    )


@tabled("choices | the best looks faster than it is, by σ")
def luck():
    """The mean of the smallest of k measurements of equally fast choices, in standard deviations of one."""
    normal, steps = NormalDist(), 4000
    for k in (2, 4, 8, 16, 64, 256):
        quantiles = (1 - (1 - (i + 0.5) / steps) ** (1 / k) for i in range(steps))  # of the smallest of k
        yield [k, f"{-sum(map(normal.inv_cdf, quantiles)) / steps:.2f}"]


@tabled("stage | steps | tile sizes compiled | fewest of a step | most")
def kernels():
    """How many tile sizes are compiled, over all steps of a stage."""
    for stage in STAGES:
        own = [v for v in variants(stage).values() if v["kernel"].startswith(stage)]
        sizes = [shapes(stage, v["name"], "backward" if "backward" in v["passes"] else "forward") for v in own]
        yield [f"`{stage}`", len(own), sum(map(len, sizes)), min(map(len, sizes)), max(map(len, sizes))]


@tabled("pass | d | first that fits the shared memory of an H200 | of an A100 | of a T4")
def smaller():
    """The defaults of large problems that do not fit an A100 or a T4, and what is left."""
    for stage, variant, direction in [("08_tensor_cores", "tuned", "forward"), ("08_tensor_cores", "staggered", "backward")]:
        for width in (64, 128, 256):
            of_width = [s for s in shapes(stage, variant, direction) if s.width == width]
            first = {
                sm: next((tiles_text({"br": s.br, "bc": s.bc}) for s in of_width if f"sm_{sm}" in s.fits), "none") for sm in (90, 80, 75)
            }
            yield [direction, width, *first.values()]
