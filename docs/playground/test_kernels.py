#!/usr/bin/env python3
"""The pages of the playground without compiling any: each shows the mistake that it runs, and what the text links to is there."""

import re
import unittest

import kernels
from kernels import ROOT

BREAKS = {page.name: {broken.id: broken for broken in page.breaks} for page in kernels.pages()}
LINK = re.compile(r"^<!-- playground (\w+)(?: \S*?break=(\w+)\S*| \S+)?: .* -->$", re.MULTILINE)


class Kernels(unittest.TestCase):
    def test_a_page_shows_what_it_runs(self):
        for broken in (broken for breaks in BREAKS.values() for broken in breaks.values()):
            lines, compiled = (ROOT / broken.file).read_text().split("\n"), kernels.of_kernel(broken.file, broken.text)[0].split("\n")
            for at, gone, come in reversed(broken.changes()):
                lines[at : at + gone] = come
            self.assertEqual("\n".join(lines), broken.text, broken.id)
            self.assertEqual(len(compiled), len(lines) + 3, broken.id)  # with two #line and an end

    def test_problems_are_those_of_mistakes(self):
        self.assertEqual([], [name for page, own in kernels.TABLES["problems"].items() for name in own if name not in BREAKS[page]])

    def test_links_of_the_text(self):
        links = {link for path in (ROOT / "docs").rglob("*.md") for link in LINK.findall(path.read_text())}
        self.assertEqual({page for page, _ in links}, set(BREAKS))
        self.assertEqual([], [link for link in links if link[1] and link[1] not in BREAKS[link[0]]])


if __name__ == "__main__":
    unittest.main()
