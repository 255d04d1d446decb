"""Stage 08: its steps by chapter, and the default kernels of a step."""

from . import hopper_backward, hopper_forward
from .shapes import shape_of, variants

STAGE = "08_tensor_cores"
VARIANTS = variants(STAGE)
CHAPTERS = {"08H": hopper_forward.STEPS, "08B": hopper_backward.STEPS}
HOPPER = [name for steps in CHAPTERS.values() for name in steps]
BACKWARD = [name for name, v in VARIANTS.items() if "backward" in v["passes"] and name not in HOPPER]
FORWARD = [name for name in VARIANTS if name not in BACKWARD + HOPPER]
MMA_FLOPS = 2 * 16 * 8 * 16  # of one m16n8k16


def default(variant, width):
    return shape_of(STAGE, variant, "backward" if variant in BACKWARD else "forward", width)
