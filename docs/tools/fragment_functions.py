"""The index functions of common/attention/fragments.hpp as lab_fragments --json saved their values: pictures cannot show another layout
than the kernels and the simulator have."""

import json
from types import SimpleNamespace

from .saved import RESULTS

LANES = 32


def functions():
    """All functions by name, with the parameters that they have in C++: a lane, a register, which half of it."""
    values = json.loads((RESULTS / "cpu" / "programs" / "lab_fragments.json").read_text())

    def of_lane(name, halves):
        of = values[name]
        registers = len(of) // LANES // halves
        return lambda lane, register=0, which=0: of[(lane * registers + register) * halves + which]

    def chunk(width, row, chunk):
        return values[f"swizzled_chunk {width}"][row % 8 * (width // 8) + chunk]

    found = {name: of_lane(name, 2 if name in ("a_col", "b_row") else 1) for name in values if name[1:5] in ("_row", "_col") or name.startswith("ldmatrix")}
    return SimpleNamespace(**found, swizzled_chunk=chunk, swizzled_col=lambda width, row, col: 8 * chunk(width, row, col // 8) + col % 8)
