"""The index functions of common/machine/isa/fragments.hpp as lab_fragments --json saved their values: pictures cannot show
another layout than the kernels and the simulator have. Of a register, what it holds in its lower half."""

import json

from docs.tools.saved import RESULTS

VALUES = json.loads((RESULTS / "cpu" / "lab_fragments.json").read_text())
WARP = 32


def of_lane(name, halves=1):
    """halves: the values of a register; 2 where its two elements differ."""
    values = VALUES[name]
    registers = len(values) // WARP // halves
    return lambda lane, register=0: values[(lane * registers + register) * halves]


a_row, a_col = of_lane("a_row"), of_lane("a_col", 2)
b_row, b_col = of_lane("b_row", 2), of_lane("b_col")
c_row, c_col = of_lane("c_row"), of_lane("c_col")
ldmatrix_row, ldmatrix_col = of_lane("ldmatrix_row"), of_lane("ldmatrix_col", 2)
ldmatrix_trans_row, ldmatrix_trans_col = of_lane("ldmatrix_trans_row", 2), of_lane("ldmatrix_trans_col")


def swizzled_chunk(width, row, chunk):
    return VALUES[f"swizzled_chunk {width}"][row % 8 * (width // 8) + chunk]
