"""Of docs/08_tensor_cores_backward.md: the tiles of the first two steps."""

from .formatting import tabled
from .shapes import shapes
from .tensor_bounds import BACKWARD, STAGE


def keys_of_a_warp(s):
    """In the products of dK and dV. In the last step half of the warps share the keys of a block."""
    return s.bc // (s.warps // 2 if s.variant == BACKWARD[-1] else s.warps)


@tabled("step | d, padded | Br × Bc")
def tiles():
    """Default tile sizes of the first two steps."""
    for number, variant in list(enumerate(BACKWARD, 1))[:-1]:
        widths = {}
        for s in shapes(STAGE, variant, "backward"):
            widths.setdefault(s.width, []).append(f"{s.tiles}, {keys_of_a_warp(s)} keys a warp")
        yield from [[number, width, "; ".join(sizes)] for width, sizes in widths.items()]
