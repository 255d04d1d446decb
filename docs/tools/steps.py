"""Every step of the stages, the step that it changes, and the gains over that which were expected, as docs/img/gains.svg shows them.

The estimate was written down before the step was measured. `bounds` is the ratio of what the bounds of the chapters allow. Of stage 08 and fp16 a
pair is for d = 64 and d = 128."""

from typing import NamedTuple

from . import ladder


class Step(NamedTuple):
    estimate: object = None
    bounds: object = None
    over: str = None  # None: the step before it
    name: str = None

    variant = property(lambda step: step.name.split("/")[1])
    stage = property(lambda step: step.name.split("/")[0])


# What chapter 07 allows, in TFLOP/s, at d = 64 and 128: (7.9).
ALLOWED = {
    "07_fa2_backward/two_kernels": (41.9, 41.3),
    "07_fa2_backward/two_halves": (43.1, 43.3),
    "07_fa2_backward/one_kernel": (60.7, 60.9),
}

# Where the steps of a list stand: folders with a ladder, or one step alone.
LADDERS = {
    "forward": ("01_naive", "02_safe_softmax", "03_online_softmax", "04_fa1_forward/tiled", "06_fa2_forward"),
    "backward": ("01_naive", "05_fa1_backward/grouped", "07_fa2_backward"),
    "tensor_forward": ("08_tensor_cores/forward", "08_tensor_cores/hopper_forward"),
    "tensor_backward": ("08_tensor_cores/backward", "08_tensor_cores/hopper_backward"),
}
EXPECTED = {
    "thread_per_row": Step(bounds=1),
    "warp_per_row": Step(bounds=1),
    "one_pass": Step(bounds=1),
    "tiled": Step(bounds=5.45),
    "loop_order": Step(1.5, 1.38),
    "register_tiles": Step(4.5, 1.78),
    "async_copies": Step(1.3, 1),
    "powers_of_2": Step(bounds=1.05),
    "masks_at_edges": Step(bounds=1.02),
    "vector_operands": Step(1.1, 1.05),
    "longest_first": Step(bounds=1),
    "tuned": Step(1.1, 1),
    "grouped": Step(bounds=4.26),
    "two_kernels": Step(10, 1.95),
    "two_halves": Step(bounds=1.03),
    "one_kernel": Step(1.4, 1.41),
    "mma": Step(estimate=1.3, over="06_fa2_forward/tuned"),
    "swizzle": Step(estimate=4.5),
    "pipeline": Step(estimate=1.2),
    "registers": Step(estimate=1.35),
    "addresses": Step(estimate=1.1),
    "fitted": Step(estimate=(1.05, 1.2)),
    "lazy_maximum": Step(estimate=1.03),
    "tma": Step(estimate=(1.03, 1.05), over="08_tensor_cores/fitted"),
    "wgmma": Step(estimate=(1.06, 1.07)),
    "specialized": Step(estimate=(1.3, 1.19)),
    "overlap": Step(estimate=(1.03, 1.13)),
    "lazy": Step(estimate=(1.04, 1.11)),
    "tall": Step(estimate=(1.03, 1.05)),
    "scheduled": Step(estimate=(1.09, 1.04)),
    "seven_products": Step(estimate=5, over="07_fa2_backward/one_kernel"),
    "five_products": Step(estimate=1.4),
    "halves": Step(estimate=(0.9, 1.2)),
    "staggered": Step(estimate=(1.07, 1.38), over="08_tensor_cores/five_products"),
    "warpgroups": Step(estimate=1.4),
    "ring": Step(estimate=(1.17, 1.13)),
    "bulk": Step(estimate=(1.02, 1.0)),
    "lead": Step(estimate=1.06),
    "early": Step(estimate=1.01),
}


def listed(places):
    before = None
    for place in places:
        for variant in ladder.steps(place) or [place.split("/")[1]]:
            step, name = EXPECTED.get(variant, Step()), f"{place.split('/')[0]}/{variant}"
            yield step._replace(over=step.over or before, name=name)
            before = name


STEPS = {direction: list(listed(places)) for direction, places in LADDERS.items()}
STAGE = "08_tensor_cores"
PORTABLE = {pass_: ladder.steps(f"{STAGE}/{pass_}") for pass_ in ("forward", "backward")}  # on every GPU since Ampere
