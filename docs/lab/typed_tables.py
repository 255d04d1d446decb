"""Tables of plain arithmetic as they are typed into pages: finds them, and compares their cells with what a function computes.

A function gets the rows of a table, each cell as its number or numbers or else as text, and gives the last cells of each row, as numbers, or as
text where a cell is a word. None stands for a cell that is not checked. A cell may be off by half of its last digit."""

import pathlib
import re
import unittest

# An H200: data sheet and white paper, as in docs/chapters/00_introduction.md.
SMS, SCHEDULERS, WARP, HBM, FP32, BF16 = 132, 4, 32, 4.8e12, 67e12, 989.5e12
CLOCK = FP32 / (SMS * 128 * 2)
SHARED_BYTES, EX2, WGMMA_FLOPS, MMA_FLOPS = 128, 16, 4096, 4096  # per cycle of an SM; MMA_FLOPS also of one m16n8k16

PAGES = pathlib.Path(__file__).resolve().parents[1]
NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\w)")
CHECKS = []  # (page, words of the head, function)


def table(page, words):
    return lambda expected: CHECKS.append((page, words, expected))


def numbers(cell):
    return NUMBER.findall(cell)


def value(cell):
    """The number of a cell, or its numbers, or its text."""
    found = tuple(float(number.replace(",", "")) for number in numbers(cell))
    return found[0] if len(found) == 1 else found or cell


def rows_of(page, words):
    """The cells of all tables of a page with these words in their heads."""
    blocks = re.findall(r"(?:^\|.*\n)+", (PAGES / page).read_text(), re.MULTILINE)
    lines = [line for block in blocks if words in block.split("\n")[0] for line in block.strip().split("\n")[2:]]
    if not lines:
        raise SystemExit(f"docs/{page} has no table of '{words}'")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def agree(cell, expected):
    if expected is None or isinstance(expected, str):
        return expected in (None, cell)
    shown, expected = numbers(cell), expected if isinstance(expected, (list, tuple)) else [expected]
    half = [0.5001 * 10.0 ** -len(number.partition(".")[2]) for number in shown]
    return len(shown) == len(expected) and all(abs(float(n.replace(",", "")) - x) <= h for n, x, h in zip(shown, expected, half))


class Tables(unittest.TestCase):
    def test_every_digit(self):
        for page, words, expected in CHECKS:
            rows = rows_of(page, words)
            found = list(expected([list(map(value, row)) for row in rows]))
            self.assertEqual(len(found), len(rows), f"{page}, table of '{words}'")
            for row, cells in zip(rows, found):
                for cell, one in zip(reversed(row), reversed(list(cells))):
                    with self.subTest(page, row=row, cell=cell):
                        self.assertTrue(agree(cell, one), f"{page}: '{cell}' should be {one}")
