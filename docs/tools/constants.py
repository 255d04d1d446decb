"""Reads constants of kernels, so that tables and pictures cannot show another number than the code has."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def constant(path, name):
    """The value of `constexpr int NAME = value;` in a source file."""
    match = re.search(rf"constexpr int {name} = (\d+);", (ROOT / path).read_text())
    if not match:
        raise SystemExit(f"{path}: no 'constexpr int {name} = ...;'")
    return int(match.group(1))
