"""The pictures of docs/reference/triton.md: which elements a program owns, and loads in flight while a product runs."""

from docs.tools.svg import Picture

from .lanes import Lanes

N, BLOCK = 10, 4  # of the vector
D, BLOCK_M, BLOCK_D, PROGRAM = 8, 2, 4, 1  # of the matrix: row length, tile, program_id(0)
LOAD, DOT = 2.4, 1.0  # time of each
TILES = 5


def triton_tiles():
    """Above a vector in programs, the last one masked; below a tile of pointers."""
    p, cell = Picture(720, "A program owns a block of elements; a tile of pointers is a column of offsets plus a row of offsets"), 54
    left, top = 30, 66
    p.label(left, 28, f"add: N = {N}, BLOCK = {BLOCK}", 18, "start", bold=True)
    for i in range(BLOCK * -(-N // BLOCK)):
        program, exists = divmod(i, BLOCK)[0], i < N
        p.box(left + i * cell, top, cell - 2, 42, ("c1", "c2", "c3")[program] if exists else "c0", str(i) if exists else "–")
    for program in range(3):
        p.label(left + (program * BLOCK + BLOCK / 2) * cell, top - 12, f"program {program}")
    p.note(
        left,
        top + 68,
        "In program 2, i = 8, 9, 10, 11. The mask i < N is true, true, false, false:",
        "the last two load and store nothing.",
        anchor="start",
    )
    left, top = 160, 238
    p.label(30, 204, f"rows[:, None] * d + cols[None, :], d = {D}", 18, "start", bold=True)
    rows = [PROGRAM * BLOCK_M + r for r in range(BLOCK_M)]
    for c in range(BLOCK_D):
        p.label(left + (c + 0.5) * cell, top, str(c), kind="dim")
    for r, row in enumerate(rows):
        p.label(left - 10, top + 36 + r * 44, f"row {row}: {row * D} +", anchor="end")
        for c in range(BLOCK_D):
            p.box(left + c * cell, top + 10 + r * 44, cell - 2, 42, "c4", str(row * D + c))
    p.note(
        left + 4 * cell + 16,
        top + 36,
        "Eight pointers, one per element of the",
        f"tile. Adding {BLOCK_D} to all of them moves",
        f"the tile {BLOCK_D} columns.",
        anchor="start",
    )
    return p


def schedule(stages):
    """([(first, last) of each load], [... of each product]): loads share one path to memory; that of tile j is issued once product j - stages
    has left its buffer, and with one stage the product waits for it."""
    loads, dots = [], []
    for j in range(TILES):
        issued = dots[j - stages][1] if j >= stages else 0.0
        landed = issued + LOAD
        begin = max(landed, dots[-1][1] if dots else 0.0)
        loads.append((issued, landed))
        dots.append((begin, begin + DOT))
    return loads, dots


def triton_stages():
    end = max(last for _, last in schedule(1)[1])
    it = Lanes("The loop over tiles of K and V, num_stages = 1 and 3", 0, end, left=96)
    for stages in (1, 3):
        it.p.label(8, it.y + 20, f"num_stages = {stages}", 18, "start", bold=True)
        it.y += 30
        loads, dots = schedule(stages)
        for slot in range(stages):
            bars = [(*loads[j], "k", f"load {j}") for j in range(slot, TILES, stages)]
            it.lane(f"buffer {slot}", bars)
        it.lane("products", [(*dots[j], "o", f"dot {j}", f"{j}") for j in range(TILES)])
        it.y += 6
    return it.finish(
        "Time goes to the right. A buffer is a K tile and a V tile in shared memory; load 3 reuses the buffer of dot 0, so it is issued "
        "when dot 0 has ended. With three buffers most of each load is hidden behind the products of the previous tiles."
    )


PICTURES = [triton_tiles, triton_stages]
