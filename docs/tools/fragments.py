"""The index functions of common/attention/fragments.hpp as lab_fragments --json saved their values: pictures and tables cannot show another
layout than the kernels and the simulator have. A lane, a register, and which half of it are their arguments, as in C++."""

from .saved import said
from .shapes import WARP

VALUES = said("cpu", "programs/lab_fragments.json")


def of_lane(name, halves=1):
    values = VALUES[name]
    registers = len(values) // WARP // halves
    return lambda lane, register=0, which=0: values[(lane * registers + register) * halves + which]


a_row, a_col, b_row, b_col = of_lane("a_row"), of_lane("a_col", 2), of_lane("b_row", 2), of_lane("b_col")
c_row, c_col = of_lane("c_row"), of_lane("c_col")
ldmatrix_row, ldmatrix_col = of_lane("ldmatrix_row"), of_lane("ldmatrix_col")
ldmatrix_trans_row, ldmatrix_trans_col = of_lane("ldmatrix_trans_row"), of_lane("ldmatrix_trans_col")


def swizzled_chunk(width, row, chunk):
    return VALUES[f"swizzled_chunk {width}"][row % 8 * (width // 8) + chunk]
