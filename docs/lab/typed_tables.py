"""Tables of plain arithmetic as they are typed into pages: finds them, and compares their cells with what a function computes."""

import pathlib
import re

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
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def agree(cell, expected):
    if expected is None or isinstance(expected, str):
        return expected in (None, cell)
    shown, expected = numbers(cell), expected if isinstance(expected, (list, tuple)) else [expected]
    half = [0.5001 * 10.0 ** -len(number.partition(".")[2]) for number in shown]
    return len(shown) == len(expected) and all(abs(float(n.replace(",", "")) - x) <= h for n, x, h in zip(shown, expected, half))
