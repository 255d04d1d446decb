#!/usr/bin/env python3
"""Lines of code per room of the project, of each standalone.cu and what it adds to the one before, and of what a reader of the last steps of
stage 08 finds included, next to the most that each may have. Exit code 1: one has more.

What comes in has to pay with lines that go out: shorten the room, or say in the same change why its limit is raised below. Pages, pictures
and saved results are not code.
A room's limit is round, to 10 below 1,000 and to 50 above, with about 3 % of air in the larger rooms and 1 to 3 % in others.
"""

import difflib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile(r"\.(cuh?|[ch]pp|h|in|py|sh|cmake|txt|toml|c?js|css|html|json|ya?ml)$|^\.ci/run$")
ROOMS = (  # its name, its limit, its paths; a file belongs to the first room that fits
    ("saved results", None, r"docs/results/"),
    ("standalone.cu of the stages", 2250, r"\d\d_\w+/standalone"),
    ("kernels of the stages", 16650, r"\d\d_.*(\.cuh?|shapes\.hpp)$"),
    ("programs, tests, predictions of the stages", 3600, r"\d\d_"),
    ("common: the simulator", 22100, r"common/machine/"),
    ("common: parts of kernels", 1000, r"common/parts/"),
    ("common: reference", 2500, r"common/reference/"),
    ("common: attention", 2100, r"common/attention/"),
    ("common: harness", 3000, r"common/harness/"),
    ("common: tests", 1550, r"common/(tests|grid)/"),
    ("common: compare", 1850, r"common/compare/"),
    ("common: binding", 2700, r"common/binding/"),
    ("common: CMake and WebAssembly", 620, r"common/(cmake|wasm)/"),
    ("common: scripts", 700, r"common/"),
    ("docs: course", 3300, r"docs/course/"),
    ("docs: playground", 1250, r"docs/playground/"),
    ("docs: labs", 2250, r"docs/lab/"),
    ("docs: tools", 1050, r"docs/tools/"),
    ("docs: sources of pictures", 4350, r"docs/img/"),
    ("docs: site, tests of pages, scripts", 810, r"docs/"),
    ("root and CI", 360, r""),
)
STANDALONE = (  # lines that the second standalone.cu may add to the first: a reader sees the idea in their diff
    ("01_naive", "02_safe_softmax", 40),
    ("02_safe_softmax", "03_online_softmax", 40),
    ("03_online_softmax", "04_fa1_forward", 90),
    ("04_fa1_forward", "06_fa2_forward", 90),
    ("06_fa2_forward", "08_tensor_cores", 120),
    ("05_fa1_backward", "07_fa2_backward", 150),
)

MOST_INCLUDED = 2000  # lines of the last step of a ladder and of all that it includes but the machine


def lines_of(path):
    return (ROOT / path).read_text(encoding="utf-8").splitlines() if (ROOT / path).is_file() else []


def included(path, found):
    """Adds the file and those that it includes to a set, but for the machine's."""
    if path not in found and not path.startswith("common/machine/"):
        found.add(path)
        for name in re.findall(r'#include "(.+)"', "\n".join(lines_of(path))):
            included(name, found)
    return found


def sizes():
    """(what, its lines, the most that it may have)"""
    for before, stage, most in STANDALONE:
        both = (lines_of(f"{folder}/standalone.cu") for folder in (before, stage))
        yield f"{stage}/standalone.cu adds", sum(line.startswith("+ ") for line in difflib.ndiff(*both)), most
    for path in sorted(ROOT.glob("0*/standalone*.cu")):
        yield str(path.relative_to(ROOT)), len(lines_of(path)), 240 if path.name == "standalone.cu" else 304
    steps = sorted(ROOT.glob("08_tensor_cores/*/[0-9]*.cuh"), key=lambda step: int(step.stem.split("_")[0]))
    for ladder, last in {step.parent.name: step for step in steps}.items():
        found = included(last.relative_to(ROOT).as_posix(), set())
        yield f"{ladder}/{last.stem} and what it includes", sum(len(lines_of(path)) for path in found), MOST_INCLUDED
    lines, listed = Counter(), ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    for path in filter(CODE.search, subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")):
        lines[next(name for name, _, paths in ROOMS if re.match(paths, path))] += len(lines_of(path))
    yield from ((name, lines[name], limit) for name, limit, _ in ROOMS if limit)


def main():
    if sys.argv[1:] in (["--help"], ["-h"]):
        return print(__doc__.strip())
    if sys.argv[1:]:
        print(f"lines: unknown argument '{' '.join(sys.argv[1:])}'; allowed: --help", file=sys.stderr)
        return 2
    outgrown = []
    for what, lines, most in sizes():
        print(f"{what:52}{lines:8,} of {most:6,}")
        outgrown += [f"{what}: {lines - most} lines too many"] if lines > most else []
    print(f"lines: {'; '.join(outgrown) or 'every room is within its limit'}")
    return bool(outgrown)


if __name__ == "__main__":
    sys.exit(main())
