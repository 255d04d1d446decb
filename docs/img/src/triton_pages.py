"""The pictures of docs/reference/triton.md: which elements a program owns, and loads in flight while a product runs."""

from docs.tools.svg import Picture

from .lanes import Lanes

N, BLOCK = 10, 4  # of the vector
D, BLOCK_M, BLOCK_D, PROGRAM = 8, 2, 4, 1  # of the matrix: row length, tile, program_id(0)
LOAD, DOT = 2.4, 1.0  # time of each
TILES = 5


def triton_tiles():
    """Left a vector in programs, the last one masked; right a tile of pointers."""
    p, cell = Picture(960, 250, "A program owns a block of elements; a tile of pointers is a column of offsets plus a row of offsets"), 42
    left, top = 34, 100
    p.label(left + 6 * cell, 32, f"add: N = {N}, BLOCK = {BLOCK}", 15, bold=True)
    for i in range(BLOCK * -(-N // BLOCK)):
        program, exists = divmod(i, BLOCK)[0], i < N
        p.box(left + i * cell, top, cell - 2, cell - 2, ("c1", "c2", "c3")[program] if exists else "c0", str(i) if exists else "–", 14)
    for program in range(3):
        middle = left + (program * BLOCK + BLOCK / 2) * cell
        p.label(middle, top - 14, f"program {program}", 14)
    p.note(
        left + 6 * cell,
        top + 74,
        "In program 2, i = 8, 9, 10, 11. The mask i < N is true, true,",
        "false, false: the last two load and store nothing.",
    )

    left, top = 660, 76
    p.label(left + 1.6 * cell, 32, f"rows[:, None] * d + cols[None, :], d = {D}", 15, bold=True)
    rows = [PROGRAM * BLOCK_M + r for r in range(BLOCK_M)]
    for c in range(BLOCK_D):
        p.label(left + (c + 0.5) * cell, top + 4, str(c), 14, kind="dim")
    for r, row in enumerate(rows):
        p.label(left - 12, top + 16 + (r + 0.5) * cell + 5, f"row {row}: {row * D} +", 14, "end")
        for c in range(BLOCK_D):
            p.box(left + c * cell, top + 16 + r * cell, cell - 2, cell - 2, "c4", str(row * D + c), 14)
    p.note(
        left + 2.2 * cell,
        top + 138,
        "Eight pointers, one per element of the tile.",
        f"Adding {BLOCK_D} to all of them moves the tile {BLOCK_D} columns.",
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
    it = Lanes("The loop over tiles of K and V, with num_stages = 1 and with num_stages = 3", 0, end, row=30)
    for stages in (1, 3):
        it.y += 8
        it.p.label(24, it.y + 16, f"num_stages = {stages}", 14, "start", bold=True)
        it.y += 30
        loads, dots = schedule(stages)
        for slot in range(stages):
            bars = [(*loads[j], "c1", f"load {j}") for j in range(slot, TILES, stages)]
            it.lane(f"loads to buffer {slot}", bars)
        it.lane("products", [(*dots[j], "c2", f"dot {j}", f"{j}") for j in range(TILES)])
    return it.finish(
        22,
        56,
        "Time goes to the right. A buffer is a K tile and a V tile in shared memory; load 3 reuses the buffer of dot 0,",
        "so it is issued when dot 0 has ended. With three buffers most of each load is hidden behind the products of the previous tiles.",
    )


PICTURES = [triton_tiles, triton_stages]
