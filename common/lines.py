#!/usr/bin/env python3
"""Lines of code per room of the project, next to the most that each may have. Exit code 1: a room has outgrown its limit.

What comes in has to pay with lines that go out: shorten the room, or say in the same change why its limit is raised below. Pages, pictures
and saved results are not code.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"\.(cuh?|[ch]pp|h|in|py|sh|cmake|txt|toml|c?js|css|html|json|ya?ml|ipynb)$|^\.ci/run$")
ROOMS = (  # its name, its limit, its paths; a file belongs to the first room that fits
    ("saved results", None, r"docs/results/"),
    ("standalone.cu of the stages", 750, r"\d\d_\w+/standalone"),
    ("kernels of the stages", 17500, r"\d\d_.*\.cuh?$"),
    ("programs, tests, predictions of the stages", 3500, r"\d\d_"),
    ("common: the simulator", 20100, r"common/machine/"),
    ("common: parts of kernels", 939, r"common/parts/"),
    ("common: reference", 2674, r"common/reference/"),
    ("common: attention", 2060, r"common/attention/"),
    ("common: harness", 3669, r"common/harness/"),
    ("common: tests", 1865, r"common/(tests|grid)/"),
    ("common: compare", 2389, r"common/compare/"),
    ("common: binding", 1815, r"common/binding/"),
    ("common: CMake and WebAssembly", 820, r"common/(cmake|wasm)/"),
    ("common: scripts", 738, r"common/"),
    ("docs: course", 3200, r"docs/course/"),
    ("docs: playground", 1590, r"docs/playground/"),
    ("docs: labs", 2200, r"docs/lab/"),
    ("docs: tools", 1000, r"docs/tools/"),
    ("docs: sources of pictures", 4249, r"docs/img/"),
    ("docs: site, tests of pages, scripts", 810, r"docs/"),
    ("root and CI", 335, r""),
)


def room_of(path):
    return next(name for name, _, paths in ROOMS if re.match(paths, path))


def main():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    lines = Counter()
    for path in filter(CODE.search, tracked):
        if (ROOT / path).is_file():
            lines[room_of(path)] += (ROOT / path).read_bytes().count(b"\n")
    outgrown = []
    for name, limit, _ in ROOMS:
        if limit is None:
            continue
        print(f"{name:44}{lines[name]:8,} of {limit:6,}")
        if lines[name] > limit:
            outgrown.append(f"{name} has {lines[name] - limit} lines too many")
    print(f"lines: {'; '.join(outgrown) or 'every room is within its limit'}")
    return 1 if outgrown else 0


if __name__ == "__main__":
    sys.exit(main())
