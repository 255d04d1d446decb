#!/usr/bin/env python3
"""Who includes whom. The table of common/README.md lists the folders of common/ from the ground floor up, each with those that it includes,
and none above it: so there is no circle. Tests include what they like of common/, and nothing else includes tests. A stage includes common/
and earlier stages; of common/ its kernels include parts/ and machine/, not what only runs or compiles on one side. Python of docs/ uses
common/, and common/ knows nothing of the Python in docs/."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = dict(re.findall(r"^\| \[`(\w+)/`\].*\|([^|]*)\|$", (ROOT / "common" / "README.md").read_text(), re.MULTILINE))
FLOORS = list(TABLE)
TESTS = len(FLOORS)  # the floor above
SOURCES = (".cpp", ".cu", ".cuh", ".hpp", ".in")


def floor(path):
    """Of a file by its path in the project: the folders of common/ as the page has them, then their tests, the stages, docs/lab."""
    top, second = path.split("/")[:2]
    if top == "docs":
        return 200
    if top != "common":
        return 100 + int(top[:2])
    return TESTS if re.search(r"/test/|/test_|_test\.", path) else FLOORS.index(second)


def arrows():
    """(file, what it includes) of the project's sources."""
    folders = [ROOT / "common", ROOT / "docs" / "lab", *ROOT.glob("[0-9][0-9]_*")]
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.suffix in SOURCES]
    for file in files:
        for included in re.findall(r'^#include "((?:common|docs|\d\d_\w+)/[^"]+)"', file.read_text(), re.MULTILINE):
            yield file.relative_to(ROOT).as_posix(), included


class Floors(unittest.TestCase):
    def test_python_of_common_imports_none_of_docs(self):
        for file in (ROOT / "common").rglob("*.py"):
            self.assertNotRegex(file.read_text(), r"(?m)^\s*(from|import) docs\b|sys\.path\..*docs", str(file))

    def test_no_arrow_leads_up(self):
        self.assertEqual([f"{file} includes {included}" for file, included in arrows() if floor(included) > floor(file)], [])

    def test_the_page_says_who_includes_whom(self):
        found = {folder.name: set() for folder in (ROOT / "common").iterdir() if folder.is_dir() and folder.name != "__pycache__"}
        for file, included in arrows():
            if floor(file) < TESTS and floor(included) != floor(file):
                found[FLOORS[floor(file)]].add(included.split("/")[1])
        self.assertEqual(found, {name: set(re.findall(r"\w+", cell)) for name, cell in TABLE.items()})

    def test_kernels_see_neither_side_of_the_machine(self):
        kernels = [(file, included) for file, included in arrows() if file.endswith(".cuh") and file[0].isdigit()]
        self.assertEqual([pair for pair in kernels if re.match(r"common/(?!parts/|machine/[^/]+$|machine/isa/)", pair[1])], [])


if __name__ == "__main__":
    unittest.main()
