#!/usr/bin/env python3
"""The pages of the playground, not compiled: what the text links to is there."""

import re
import unittest

import kernels
from kernels import ROOT

BREAKS = {page.name: {broken.id for broken in page.breaks} for page in kernels.pages()}
LINK = re.compile(r"^<!-- playground (\w+)(?: \S*?break=(\w+)\S*| \S+)?: .* -->$", re.MULTILINE)


class Kernels(unittest.TestCase):
    def test_links_of_the_text(self):
        links = {link for path in (ROOT / "docs").rglob("*.md") for link in LINK.findall(path.read_text())}
        self.assertEqual({page for page, _ in links}, set(BREAKS))
        self.assertEqual([], [link for link in links if link[1] and link[1] not in BREAKS[link[0]]])


if __name__ == "__main__":
    unittest.main()
