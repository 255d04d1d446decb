"""Of docs/reference/swizzles.md: banks of plain, padded and swizzled rows."""

from docs.tools.svg import Picture

from .fragments import swizzled_chunk


def word(width, place, row, col):
    """Where the number of a tile lies, in words of 32 bits."""
    chunk = swizzled_chunk(width, row, col // 8) if place == "swizzled" else col // 8
    return (row * (width + (8 if place == "padded" else 0)) + 8 * chunk + col % 8) // 2


CELL, COLUMN = (42, 26), 2  # a cell as wide as "7.11"


def bank_map(p, x, y, width, place):
    """Chunks of 16 bytes in lines of 128 bytes; those of one column of eight rows are framed. Returns where it ends."""
    at = {}  # (line, group of banks): (row, chunk)
    for row in range(8):
        for chunk in range(width // 8):
            at[divmod(word(width, place, row, 8 * chunk) // 4, 8)] = (row, chunk)
    groups = [group for (_, group), (_, chunk) in at.items() if chunk == COLUMN]
    cost = max(map(groups.count, groups))
    title = {"plain": "as it is", "padded": "rows padded by 16 bytes", "swizzled": "swizzled"}[place]
    p.label(x + 4 * CELL[0], y - 32, f"d = {width}, {title}", 18, bold=True)
    for group in range(8):
        p.note(x + (group + 0.5) * CELL[0], y - 8, f"{4 * group}")
    for (line, group), (row, chunk) in sorted(at.items()):
        p.box(x + group * CELL[0], y + line * CELL[1], CELL[0] - 2, CELL[1] - 2, "hit" if chunk == COLUMN else "c0", f"{row}.{chunk}")
        if chunk == COLUMN:
            p.rect(x + group * CELL[0], y + line * CELL[1], CELL[0] - 2, CELL[1] - 2, "strong")
    below = y + (max(line for line, _ in at) + 1) * CELL[1]
    p.label(x + 4 * CELL[0], below + 20, f"{len(set(groups))} of 8 groups of banks: {cost} wavefront{'s' if cost > 1 else ''}")
    return below + 82


def swizzle_banks():
    p = Picture(720, "Bank maps of tiles of eight rows: plain, padded, swizzled, for rows of 64, 96 and 32 numbers")
    left, right = 14, 370
    bank_map(p, left, 62, 64, "plain")
    below = bank_map(p, right, 62, 64, "swizzled")
    bank_map(p, left, below, 96, "plain")
    below = bank_map(p, right, below, 96, "swizzled")
    bank_map(p, right, bank_map(p, right, below, 32, "plain"), 32, "swizzled")
    bank_map(p, left, below, 64, "padded")
    p.caption(
        "A line is 128 bytes of shared memory, a cell a chunk of 16: row.chunk. Above a column: the first of its four banks. "
        f"Framed: chunk {COLUMN} of all eight rows, one phase of ldmatrix; below each map, how many groups of banks these hit."
    )
    return p


PICTURES = [swizzle_banks]
