"""Generated tables of the pages on fragments and swizzles."""

from . import fragment_functions
from .formatting import table

F = fragment_functions.functions()
WIDTHS = [32, 64, 96, 128, 256]


def wavefronts(addresses, size):
    """Of lanes that touch `size` bytes at each address at once: the words in the fullest of 32 banks."""
    banks = [set() for _ in range(32)]
    for address in addresses:
        for word in range(address // 4, address // 4 + size // 4):
            banks[word % 32].add(word)
    return max(len(bank) for bank in banks)


def byte(width, place, row, col):
    if place == "padded":
        return 2 * (row * (width + 8) + col)
    return 2 * (row * width + (F.swizzled_col(width, row, col) if place == "swizzled" else col))


def worst(width, place):
    """Wavefronts of a matrix of ldmatrix, of an accumulator stored as 32-bit words, of a quarter warp that copies eight chunks in a row."""
    chunks = width // 8
    matrix = max(wavefronts([byte(width, place, row, 8 * q) for row in range(8)], 16) for q in range(chunks))
    words = max(wavefronts([byte(width, place, F.c_row(lane, 0), 8 * q + F.c_col(lane, 0)) for lane in range(32)], 4) for q in range(chunks))
    copies = [[byte(width, place, i // chunks, 8 * (i % chunks)) for i in range(first, first + 8)] for first in range(0, 8 * chunks, 8)]
    return matrix, words, max(wavefronts(copy, 16) for copy in copies)


def swizzles():
    rows = []
    for width in WIDTHS:
        for place in ["plain", "padded", "swizzled"]:
            tile = 2 * 64 * (width + 8 * (place == "padded"))
            rows.append([width, place, *worst(width, place), f"{tile:,}"])
    head = ["numbers in a row", "rows", "matrix of `ldmatrix`", "accumulator stored", "copy, 16 bytes a lane", "bytes of 64 rows"]
    return table(head, rows)
