"""Of docs/reference/swizzles.md: banks of plain, padded and swizzled rows."""

from docs.tools.svg import Picture

from .fragments import swizzled_chunk


def word(width, place, row, col):
    """Where the number of a tile lies, in words of 32 bits."""
    chunk = swizzled_chunk(width, row, col // 8) if place == "swizzled" else col // 8
    return (row * (width + (8 if place == "padded" else 0)) + 8 * chunk + col % 8) // 2


CELL, COLUMN = (36, 22), 2  # a cell as wide as "7.11"


def bank_map(p, x, y, width, place):
    """Chunks of 16 bytes in lines of 128 bytes; those of one column of eight rows are framed."""
    at = {}  # (line, group of banks): (row, chunk)
    for row in range(8):
        for chunk in range(width // 8):
            at[divmod(word(width, place, row, 8 * chunk) // 4, 8)] = (row, chunk)
    groups = [group for (_, group), (_, chunk) in at.items() if chunk == COLUMN]
    cost = max(map(groups.count, groups))
    title = {"plain": "as it is", "padded": "rows padded by 16 bytes", "swizzled": "swizzled"}[place]
    p.label(x + 4 * CELL[0], y - 26, f"d = {width}, {title}", bold=True)
    for group in range(8):
        p.note(x + (group + 0.5) * CELL[0], y - 7, f"{4 * group}", size=14)
    for (line, group), (row, chunk) in sorted(at.items()):
        kind = "c0" if chunk != COLUMN else "c3" if groups.count(group) == 1 else "c2"
        p.box(x + group * CELL[0], y + line * CELL[1], CELL[0] - 2, CELL[1] - 2, kind, f"{row}.{chunk}", 14)
        if chunk == COLUMN:
            p.rect(x + group * CELL[0], y + line * CELL[1], CELL[0] - 2, CELL[1] - 2, "strong")
    below = y + (max(line for line, _ in at) + 1) * CELL[1]
    p.label(x + 4 * CELL[0], below + 17, f"{len(set(groups))} of 8 groups of banks: {cost} wavefront{'s' if cost > 1 else ''}", 15)


def swizzle_banks():
    p = Picture(980, 720, "Bank maps of tiles of eight rows: plain, padded, swizzled, for rows of 64, 96 and 32 numbers")
    for x, place in [(22, "plain"), (350, "padded"), (678, "swizzled")]:
        bank_map(p, x, 62, 64, place)
    bank_map(p, 22, 344, 96, "plain")
    bank_map(p, 350, 344, 96, "swizzled")
    bank_map(p, 678, 344, 32, "plain")
    bank_map(p, 678, 426 + 4 * CELL[1], 32, "swizzled")
    p.note(
        490,
        668,
        "A line is 128 bytes of shared memory, a cell a chunk of 16: row.chunk. Above a column: the first of its four banks.",
        f"Framed: chunk {COLUMN} of all eight rows, one phase of ldmatrix; below each map, how many groups of banks these hit.",
        size=15,
    )
    return p


PICTURES = [swizzle_banks]
