"""Of docs/reference/swizzles.md: banks of plain, padded and swizzled rows."""

from docs.tools.svg import Picture

from .fragments import swizzled_chunk


def word(width, place, row, col):
    """Where the number of a tile lies, in words of 32 bits."""
    chunk = swizzled_chunk(width, row, col // 8) if place == "swizzled" else col // 8
    return (row * (width + (8 if place == "padded" else 0)) + 8 * chunk + col % 8) // 2


COLUMN = 2


def bank_map(p, x, y, width, place, cell=(32, 26), named=False):
    """Chunks of 16 bytes in lines of 128 bytes; those of one column of eight rows are framed. Returns where it ends."""
    at = {}  # (line, group of banks): (row, chunk)
    for row in range(8):
        for chunk in range(width // 8):
            at[divmod(word(width, place, row, 8 * chunk) // 4, 8)] = (row, chunk)
    groups = [group for (_, group), (_, chunk) in at.items() if chunk == COLUMN]
    cost = max(map(groups.count, groups))
    title = {"plain": "as it is", "padded": "padded by 16 bytes", "swizzled": "swizzled"}[place]
    p.label(x + 4 * cell[0], y - 32, f"d = {width}, {title}" if named else title, 18, bold=True)
    for group in range(8):
        p.note(x + (group + 0.5) * cell[0], y - 8, f"{4 * group}")
    for (line, group), (row, chunk) in sorted(at.items()):
        p.box(x + group * cell[0], y + line * cell[1], cell[0] - 2, cell[1] - 2, "hit" if chunk == COLUMN else "c0", f"{row}.{chunk}")
        if chunk == COLUMN:
            p.rect(x + group * cell[0], y + line * cell[1], cell[0] - 2, cell[1] - 2, "strong")
    below = y + (max(line for line, _ in at) + 1) * cell[1]
    p.label(x + 4 * cell[0], below + 22, f"{cost} wavefront{'s' if cost > 1 else ''}", bold=True)
    p.note(x + 4 * cell[0], below + 44, f"{len(set(groups))} of 8 groups of banks")
    return below + 116


def explained(p):
    p.caption(
        "A line is 128 bytes of shared memory, a cell a chunk of 16: row.chunk. Above a column: the first of its four banks. "
        f"Yellow: chunk {COLUMN} of all eight rows, one phase of ldmatrix; below each map, how many groups of banks these hit."
    )
    return p


def swizzle_banks():
    p = Picture(
        560, "Bank maps of a tile of eight rows of 64 numbers: plain, padded, swizzled", "Eight rows of 64 numbers in shared memory"
    )
    below = bank_map(p, 12, 96, 64, "plain")
    bank_map(p, 292, 96, 64, "swizzled")
    bank_map(p, 12, below, 64, "padded")
    p.note(
        292,
        below + 20,
        "Yellow: one column, as",
        "ldmatrix reads it. It takes",
        "a wavefront per chunk",
        "in the same banks.",
        anchor="start",
    )
    return explained(p)


def swizzle_banks_other():
    p, cell = Picture(720, "Bank maps of tiles of eight rows of 96 and of 32 numbers: plain, swizzled"), (42, 26)  # as wide as "7.11"
    y = 62
    for width in (96, 32):
        bank_map(p, 14, y, width, "plain", cell, True)
        y = bank_map(p, 370, y, width, "swizzled", cell, True)
    return explained(p)


PICTURES = [swizzle_banks, swizzle_banks_other]
