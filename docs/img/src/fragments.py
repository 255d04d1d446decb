"""The index functions of common/isa/fragments.hpp as lab_fragments --json saved their values: pictures cannot show
another layout than the kernels and the simulator have. Of a lane, what its first register holds in its lower half."""

import json

from tools.saved import RESULTS

VALUES = json.loads((RESULTS / "cpu" / "lab_fragments.json").read_text())


def of_lane(name):
    values = VALUES[name]
    return lambda lane: values[lane * len(values) // 32]


a_row, a_col, b_row, b_col, c_row, c_col = map(of_lane, ("a_row", "a_col", "b_row", "b_col", "c_row", "c_col"))


def swizzled_chunk(width, row, chunk):
    return VALUES[f"swizzled_chunk {width}"][row % 8 * (width // 8) + chunk]
