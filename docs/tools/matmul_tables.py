"""Generated tables of the page on block matrix multiplication."""

from plots import h200

from .formatting import table


def tile_levels():
    """(B.5)  What each border asks of a tile, from the data sheet."""
    multiply_adds = h200.FP32_FLOPS / 2
    rows = []
    for border, bandwidth in [("HBM to shared memory", h200.HBM_BYTES_PER_SECOND), ("shared memory to registers", h200.SHARED_BYTES_PER_SECOND)]:
        needed = multiply_adds / (bandwidth / 4)
        rows.append([border, f"{bandwidth / 1e12:.1f} TB/s", f"{needed:.1f}", f"{2 * needed:.0f} × {2 * needed:.0f}"])
    return table(["border", "bandwidth", "multiply-adds per number, at least", "square tile"], rows)


def register_tiles():
    """(R.2)  Shapes of a lane's tile."""
    rows = []
    for a, c in [(1, 1), (2, 2), (4, 4), (8, 4), (8, 8), (16, 8)]:
        per_load = a * c / (a + c)
        rows.append([f"{a} × {c}", f"{per_load:.2f}", f"{100 * min(1, per_load / 4):.3g} %", a * c + a + c])
    return table(["results of a lane", "multiply-adds per load", "of the peak, at most", "registers"], rows)


def wavefronts(words_of_lane, words):
    """Of one warp-wide access of `words` words a lane: lanes are served in groups of 32 / words; each group takes as many
    wavefronts as its fullest bank has different words."""
    total = 0
    group = 32 // words
    for first in range(0, 32, group):
        banks = [set() for _ in range(32)]
        for lane in range(first, first + group):
            start = words_of_lane(lane)
            for word in range(start, start + words):
                banks[word % 32].add(word)
        total += max(len(bank) for bank in banks)
    return total


def wavefront_table():
    rows = []
    for name, stride in [("64", 64), ("65, padded by 1", 65), ("66, padded by 2", 66), ("68, padded by 4", 68), ("72, padded by 8", 72)]:
        scalar = wavefronts(lambda lane, s=stride: lane * s, 1)
        wide = wavefronts(lambda lane, s=stride: lane * s, 4) if stride % 4 == 0 else "not aligned"
        rows.append([name, scalar, wide])
    swizzled = wavefronts(lambda lane: lane * 64 + 4 * (0 ^ lane % 8), 4)
    rows.append(["64, swizzled (B.7)", wavefronts(lambda lane: lane * 64 + 4 * (0 ^ lane % 8), 1), swizzled])
    return table(["row length in words", "`float`, of 1 at best", "`float4`, of 4 at best"], rows)
