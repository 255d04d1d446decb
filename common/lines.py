#!/usr/bin/env python3
"""Lines of code per room of the project, next to the most that each may have. Exit code 1: a room has outgrown its limit, or a
standalone.cu, or what it adds to the one before, or what a reader of the last steps of stage 08 finds included.

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
    ("standalone.cu of the stages", 2200, r"\d\d_\w+/standalone"),
    ("kernels of the stages", 16750, r"\d\d_.*(\.cuh?|shapes\.hpp)$"),
    ("programs, tests, predictions of the stages", 3500, r"\d\d_"),
    ("common: the simulator", 22050, r"common/machine/"),
    ("common: parts of kernels", 1037, r"common/parts/"),
    ("common: reference", 2412, r"common/reference/"),
    ("common: attention", 2160, r"common/attention/"),
    ("common: harness", 3000, r"common/harness/"),
    ("common: tests", 1530, r"common/(tests|grid)/"),
    ("common: compare", 1890, r"common/compare/"),
    ("common: binding", 2455, r"common/binding/"),
    ("common: CMake and WebAssembly", 640, r"common/(cmake|wasm)/"),
    ("common: scripts", 765, r"common/"),
    ("docs: course", 3330, r"docs/course/"),
    ("docs: playground", 1335, r"docs/playground/"),
    ("docs: labs", 2200, r"docs/lab/"),
    ("docs: tools", 1000, r"docs/tools/"),
    ("docs: sources of pictures", 4249, r"docs/img/"),
    ("docs: site, tests of pages, scripts", 810, r"docs/"),
    ("root and CI", 345, r""),
)
STANDALONE = (  # lines that the second standalone.cu may add to the first: a reader sees the idea in their diff
    ("01_naive", "02_safe_softmax", 40),
    ("02_safe_softmax", "03_online_softmax", 40),
    ("03_online_softmax", "04_fa1_forward", 90),
    ("04_fa1_forward", "06_fa2_forward", 90),
    ("06_fa2_forward", "08_tensor_cores", 120),
    ("05_fa1_backward", "07_fa2_backward", 150),
)

LAST_STEPS = ("forward/10_lazy_maximum", "backward/4_staggered", "hopper_forward/7_scheduled", "hopper_backward/4_lead")  # of stage 08
MOST_INCLUDED = 2000  # lines of such a step and of all that it includes but the machine


def room_of(path):
    return next(name for name, _, paths in ROOMS if re.match(paths, path))


def outgrown_standalone():
    for before, stage, most in STANDALONE:
        diff = ["git", "diff", "--no-index", "--numstat", f"{before}/standalone.cu", f"{stage}/standalone.cu"]
        added = int(subprocess.run(diff, cwd=ROOT, capture_output=True, text=True).stdout.split()[0])
        if added > most:
            yield f"{stage}/standalone.cu adds {added} lines, {most} at most"
    for path in ROOT.glob("0*/standalone*.cu"):
        if path.read_bytes().count(b"\n") > (240 if path.name == "standalone.cu" else 304):
            yield f"{path.relative_to(ROOT)} is too long"


def included(path, found):
    """Adds the file and those that it includes to `found`, {path: text}, but for the machine's."""
    if path not in found and not path.startswith("common/machine/"):
        found[path] = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r'#include "(.+)"', found[path]):
            included(name, found)
    return found


def outgrown_steps():
    for step in LAST_STEPS:
        lines = sum(text.count("\n") for text in included(f"08_tensor_cores/{step}.cuh", {}).values())
        print(f"{step + ' and what it includes':44}{lines:8,} of {MOST_INCLUDED:6,}")
        if lines > MOST_INCLUDED:
            yield f"{step} includes {lines - MOST_INCLUDED} lines too many"


def main():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    lines = Counter()
    for path in filter(CODE.search, tracked):
        if (ROOT / path).is_file():
            lines[room_of(path)] += (ROOT / path).read_bytes().count(b"\n")
    outgrown = [*outgrown_standalone(), *outgrown_steps()]
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
