"""Of docs/block_matmul.md: what each border asks of a tile, tiles in registers, and banks."""

from plots import h200

from .formatting import tabled
from .shapes import wavefronts


@tabled("border | bandwidth | multiply-adds per number, at least | square tile")
def tile_levels():
    """(B.5)  From the data sheet."""
    for border, bandwidth in [
        ("HBM to shared memory", h200.HBM_BYTES_PER_SECOND),
        ("shared memory to registers", h200.SHARED_BYTES_PER_SECOND),
    ]:
        needed = h200.FP32_FLOPS / 2 / (bandwidth / 4)
        yield [border, f"{bandwidth / 1e12:.1f} TB/s", f"{needed:.1f}", f"{2 * needed:.0f} × {2 * needed:.0f}"]


@tabled("results of a lane | multiply-adds per load | of the peak, at most | registers")
def register_tiles():
    """(R.2)  Shapes of a lane's tile."""
    for a, c in [(1, 1), (2, 2), (4, 4), (8, 4), (8, 8), (16, 8)]:
        per_load = a * c / (a + c)
        yield [f"{a} × {c}", f"{per_load:.2f}", f"{100 * min(1, per_load / 4):.3g} %", a * c + a + c]


@tabled("row length in words | `float`, of 1 at best | `float4`, of 4 at best")
def banks():
    """A column read by the lanes of a warp, row by row."""
    for name, stride in [("64", 64), ("65, padded by 1", 65), ("66, padded by 2", 66), ("68, padded by 4", 68), ("72, padded by 8", 72)]:
        wide = wavefronts(lambda lane, s=stride: lane * s, 4) if stride % 4 == 0 else "not aligned"
        yield [name, wavefronts(lambda lane, s=stride: lane * s, 1), wide]
    yield ["64, swizzled (B.7)", *(wavefronts(lambda lane: lane * 64 + 4 * (0 ^ lane % 8), words) for words in (1, 4))]
