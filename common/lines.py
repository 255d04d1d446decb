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
    ("kernels of the stages", 17500, r"\d\d_.*(\.cuh?|/(shapes|registry)\.[ch]pp)$"),
    ("programs, tests, predictions of the stages", 3500, r"\d\d_"),
    ("common: the simulator", 20100, r"common/(machine|simt|isa)/"),
    ("common: parts of kernels", 2201, r"common/(parts|device)/"),
    ("common: reference", 2637, r"common/(attention/)?reference/"),
    ("common: attention", 2406, r"common/(attention|base)/"),
    ("common: harness", 5662, r"common/harness/"),
    ("common: tests", 1878, r"common/(tests|grid|testing|mutation)/"),
    ("common: compare", 4770, r"common/compare/"),
    ("common: binding", 1780, r"common/binding/"),
    ("common: CMake and WebAssembly", 892, r"common/(cmake|wasm)/"),
    ("common: scripts", 1043, r"common/"),
    ("docs: course", 4425, r"docs/course/"),
    ("docs: playground", 3035, r"docs/playground/"),
    ("docs: labs", 2200, r"docs/lab/"),
    ("docs: tools", 2476, r"docs/tools/"),
    ("docs: sources of pictures", 4249, r"docs/img/"),
    ("docs: site, tests of pages, scripts", 1765, r"docs/"),
    ("root and CI", 330, r""),
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
