"""Every step of the stages, the step that it changes, and the gains over that which were expected, as docs/img/gains.svg shows them.

The estimate was written down before the step was measured. `bounds` is the ratio of what the bounds of the chapters allow. Of stage 08 and fp16 a
pair is for d = 64 and d = 128."""

from pathlib import Path
from typing import NamedTuple

from . import ladder


class Step(NamedTuple):
    name: str
    over: str = None
    estimate: object = None
    bounds: object = None

    variant = property(lambda step: step.name.split("/")[1])
    stage = property(lambda step: step.name.split("/")[0])


# What chapter 07 allows, in TFLOP/s, at d = 64 and 128: (7.9).
ALLOWED = {
    "07_fa2_backward/two_kernels": (41.9, 41.3),
    "07_fa2_backward/two_halves": (43.1, 43.3),
    "07_fa2_backward/one_kernel": (60.7, 60.9),
}

STEPS = {
    "forward": [
        Step("01_naive/naive"),
        Step("02_safe_softmax/thread_per_row", "01_naive/naive", None, 1),
        Step("02_safe_softmax/warp_per_row", "02_safe_softmax/thread_per_row", None, 1),
        Step("03_online_softmax/one_pass", "02_safe_softmax/warp_per_row", None, 1),
        Step("04_fa1_forward/tiled", "03_online_softmax/one_pass", None, 5.45),
        Step("06_fa2_forward/loop_order", "04_fa1_forward/tiled", 1.5, 1.38),
        Step("06_fa2_forward/register_tiles", "06_fa2_forward/loop_order", 4.5, 1.78),
        Step("06_fa2_forward/async_copies", "06_fa2_forward/register_tiles", 1.3, 1),
        Step("06_fa2_forward/powers_of_2", "06_fa2_forward/async_copies", None, 1.05),
        Step("06_fa2_forward/masks_at_edges", "06_fa2_forward/powers_of_2", None, 1.02),
        Step("06_fa2_forward/vector_operands", "06_fa2_forward/masks_at_edges", 1.1, 1.05),
        Step("06_fa2_forward/longest_first", "06_fa2_forward/vector_operands", None, 1),
        Step("06_fa2_forward/tuned", "06_fa2_forward/longest_first", 1.1, 1),
    ],
    "backward": [
        Step("01_naive/naive"),
        Step("05_fa1_backward/grouped", "01_naive/naive", None, 4.26),
        Step("07_fa2_backward/two_kernels", "05_fa1_backward/grouped", 10, 1.95),
        Step("07_fa2_backward/two_halves", "07_fa2_backward/two_kernels", None, 1.03),
        Step("07_fa2_backward/one_kernel", "07_fa2_backward/two_halves", 1.4, 1.41),
    ],
    "tensor_forward": [
        Step("08_tensor_cores/mma", "06_fa2_forward/tuned", 1.3),
        Step("08_tensor_cores/swizzle", "08_tensor_cores/mma", 4.5),
        Step("08_tensor_cores/pipeline", "08_tensor_cores/swizzle", 1.2),
        Step("08_tensor_cores/registers", "08_tensor_cores/pipeline", 1.35),
        Step("08_tensor_cores/powers", "08_tensor_cores/registers"),
        Step("08_tensor_cores/addresses", "08_tensor_cores/powers", 1.1),
        Step("08_tensor_cores/fitted", "08_tensor_cores/addresses", (1.05, 1.2)),
        Step("08_tensor_cores/block_order", "08_tensor_cores/fitted"),
        Step("08_tensor_cores/key_order", "08_tensor_cores/block_order"),
        Step("08_tensor_cores/lazy_maximum", "08_tensor_cores/key_order", 1.03),
        Step("08_tensor_cores/tma", "08_tensor_cores/fitted", (1.03, 1.05)),
        Step("08_tensor_cores/wgmma", "08_tensor_cores/tma", (1.06, 1.07)),
        Step("08_tensor_cores/specialized", "08_tensor_cores/wgmma", (1.3, 1.19)),
        Step("08_tensor_cores/overlap", "08_tensor_cores/specialized", (1.03, 1.13)),
        Step("08_tensor_cores/lazy", "08_tensor_cores/overlap", (1.04, 1.11)),
        Step("08_tensor_cores/tall", "08_tensor_cores/lazy", (1.03, 1.05)),
        Step("08_tensor_cores/scheduled", "08_tensor_cores/tall", (1.09, 1.04)),
    ],
    "tensor_backward": [
        Step("08_tensor_cores/seven_products", "07_fa2_backward/one_kernel", 5),
        Step("08_tensor_cores/five_products", "08_tensor_cores/seven_products", 1.4),
        Step("08_tensor_cores/halves", "08_tensor_cores/five_products", (0.9, 1.2)),
        Step("08_tensor_cores/staggered", "08_tensor_cores/five_products", (1.07, 1.38)),
        Step("08_tensor_cores/warpgroups", "08_tensor_cores/staggered", 1.4),
        Step("08_tensor_cores/ring", "08_tensor_cores/warpgroups", (1.17, 1.13)),
        Step("08_tensor_cores/bulk", "08_tensor_cores/ring", (1.02, 1.0)),
        Step("08_tensor_cores/lead", "08_tensor_cores/bulk", 1.06),
        Step("08_tensor_cores/early", "08_tensor_cores/lead", 1.01),
    ],
}
STAGE = "08_tensor_cores"
PORTABLE = {pass_: ladder.steps(f"{STAGE}/{pass_}") for pass_ in ("forward", "backward")}  # on every GPU since Ampere


def problems():
    """Steps that STEPS lacks: of a ladder it has all of them, or the last one alone."""
    known = {step.name for listed in STEPS.values() for step in listed}
    for folder in {str(Path(variant.file).parent): None for variant in ladder.variants().values()}:
        names = [f"{folder.partition('/')[0]}/{name}" for name in ladder.steps(folder)]
        missing = [name for name in names if name not in known]
        if missing not in ([], names[:-1]) and not folder.endswith("/more"):
            yield f"docs/tools/steps.py: STEPS lacks {', '.join(missing) if names[0] in known else names[-1]}"
