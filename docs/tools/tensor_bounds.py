"""Stage 08: its steps by chapter, as the folders of the kernels have them, and the default kernel of a step."""

from .shapes import shape_of, variants

STAGE = "08_tensor_cores"
VARIANTS = variants(STAGE)
MMA_FLOPS = 2 * 16 * 8 * 16  # of one m16n8k16


def steps_of(folder):
    return [name for name, variant in VARIANTS.items() if variant["kernel"].split("/")[1] == folder]


FORWARD, BACKWARD = steps_of("forward"), steps_of("backward")
CHAPTERS = {"08H": steps_of("hopper_forward"), "08B": steps_of("hopper_backward")}
HOPPER = [name for steps in CHAPTERS.values() for name in steps]


def default(variant, width):
    return shape_of(STAGE, variant, "backward" if variant in BACKWARD else "forward", width)
