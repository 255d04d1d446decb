"""The index functions of common/isa/fragments.hpp as lab_fragments --json saved their values: tables cannot tell of another layout
than the kernels and the simulator have. Of a lane, what its first register holds in its lower half."""

from .saved import said
from .shapes import WARP

VALUES = said("cpu", "programs/lab_fragments.json")


def of_lane(name):
    values = VALUES[name]
    return lambda lane: values[lane * len(values) // WARP]


a_row, a_col, b_row, b_col, c_row, c_col = map(of_lane, ("a_row", "a_col", "b_row", "b_col", "c_row", "c_col"))


def swizzled_chunk(width, row, chunk):
    return VALUES[f"swizzled_chunk {width}"][row % 8 * (width // 8) + chunk]
