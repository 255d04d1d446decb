"""Of docs/08_tensor_cores_backward.md: what products cost in shared memory, the bounds of the last step, and where the sum of dQ lies."""

from plots import h200

from .formatting import table, tabled
from .fragments import VALUES
from .shapes import WARP, shapes
from .tensor_bounds import BACKWARD, CLOCKS, MMA_FLOPS, SCHEDULERS, STAGE, Needs, clocks_of_product, default


def keys_of_a_warp(s):
    """In the products of dK and dV. In the last step half of the warps share the keys of a block."""
    return s.bc // (s.warps // 2 if s.variant == BACKWARD[-1] else s.warps)


def bytes_beside_a_product():
    """That shared memory delivers while an SM does one m16n8k16."""
    return h200.SHARED_BYTES_PER_CLOCK * clocks_of_product(0) / SCHEDULERS


def operand_bytes():
    """What the products of a warp with its own keys read of shared memory, each."""
    lines, room = [], bytes_beside_a_product()
    for width in (64, 128):
        for number, variant in enumerate(BACKWARD, 1):
            s = default(variant, width)
            keys = keys_of_a_warp(s)
            right, left = 16 * 256 / keys, 4096 / s.br
            mean = right + left / 2
            cells = [f"{right + left:.0f}", f"{right:.0f}", f"{mean:.0f}", f"{mean / room:.2f}"]
            lines.append([width, number, s.tiles, keys, *cells])
    head = f"d | step | Br × Bc | keys of a warp | bytes for S, dP | bytes for dV, dK | on average | of {room:.0f}"
    return table(head, lines)


def room():
    """The same limit, as a sentence."""
    clocks = clocks_of_product(0) / SCHEDULERS
    return (
        f"By the measured rate an SM finishes a product every {clocks:.2f} clocks. In that time its shared memory delivers "
        f"{h200.SHARED_BYTES_PER_CLOCK} · {clocks:.2f} = {bytes_beside_a_product():.0f} bytes."
    )


def needs(s):
    """(8.0)  Of a pair of tiles of the last step."""
    query_tiles, column_tiles = s.br // 16, s.width // 16
    # (rows, columns) of warps that share dQ, as WarpGrid in parts/prepare.cuh deals them out.
    grids = [(r, c) for r in range(1, query_tiles + 1) for c in range(1, column_tiles + 1) if query_tiles % r == column_tiles % c == 0]
    grids = [(r, c) for r, c in grids if r * c <= s.warps]
    query_warps, column_warps = min(grids, key=lambda grid: (-grid[0] * grid[1], grid[1] * s.br + grid[0] * s.width))
    tile_q, tile_k, pairs = 2 * s.br * s.width, 2 * s.bc * s.width, s.br * s.bc
    shared = 4 * (s.warps // 2) * tile_q  # Q for S and dK, dO for dP and dV, by each warp of a half
    shared += 2 * tile_k  # K and V, each warp its rows
    shared += 3 * 2 * pairs  # P written and read, dS written
    shared += column_warps * 2 * pairs + query_warps * tile_k  # dS and K for dQ
    shared += 2 * tile_q  # copies
    return Needs(10 * pairs * s.width // MMA_FLOPS, 3 * pairs // WARP, pairs, shared)


def bounds():
    """(8.0)  Of the default tiles of the last step."""
    rows = []
    for s in (default(BACKWARD[-1], width) for width in (64, 128)):
        n = needs(s)
        clocks = [f"{value:,.0f}" for value in n.clocks().values()]
        rows.append([s.width, s.tiles, f"{n.products:,}", f"{n.beside:.2g}", *clocks, f"{n.tflops():.0f}"])
    return table(["d", "Br × Bc", "products", "others beside each", *CLOCKS, "TFLOP/s, at most"], rows)


@tabled("fragment | lane | its (row, column) of dQ | place in the sum")
def places():
    """Where four lanes add their part of the first two fragments of a row of the sum of dQ."""
    rows, cols = VALUES["c_row"], VALUES["c_col"]
    each = len(rows) // WARP
    for fragment, lane in [(0, 0), (0, 1), (0, 4), (0, 31), (1, 0)]:
        held = ", ".join(f"({rows[lane * each + e]}, {cols[lane * each + e] + 8 * fragment})" for e in range(each))
        first = each * (fragment * WARP + lane)
        yield [fragment, lane, held, f"{first} to {first + each - 1}"]


@tabled("step | d, padded | Br × Bc")
def tiles():
    """Default tile sizes of the first two steps."""
    for number, variant in list(enumerate(BACKWARD, 1))[:-1]:
        widths = {}
        for s in shapes(STAGE, variant, "backward"):
            widths.setdefault(s.width, []).append(f"{s.tiles}, {keys_of_a_warp(s)} keys a warp")
        yield from [[number, width, "; ".join(sizes)] for width, sizes in widths.items()]
