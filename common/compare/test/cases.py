"""For the tests in Python: a few rows, a folder to work in, what a failure says, and a reader of report.py's pages."""

import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "common" / "compare"))

from made_rows import row

import report
from rows.usage import Failure

NAIVE = row("01_naive", "naive", 8.0, extra_memory_bytes=64 << 20, hbm_read_bytes=31 << 20)
TILED = row("06_fa2_forward", "tiled", 2.0)
UNKNOWN = ("percent_of_peak", "check", "kernel", "tiles", "sources", "extra_memory_bytes")  # of a peer
PEER = {key: value for key, value in row("peer", "flash", 4.0, torch="9.9").items() if key not in UNKNOWN}


def at(n, stage, variant, ms=None, batch=2, **more):
    """A row of a length."""
    return row(stage, variant, ms, sizes={"seq_q": n, "seq_k": n, "batch": batch}, **more)


class Case(unittest.TestCase):
    """In a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    @contextlib.contextmanager
    def fails(self, part, code=2):
        with self.assertRaises(Failure) as caught:
            yield
        self.assertIn(part, str(caught.exception))
        self.assertEqual(caught.exception.code, code)

    def save(self, rows, name="rows.json"):
        path = self.path / name
        path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
        return path


class Page:
    """A page as XML, so that tags that do not match are an error: its text, its attributes, and of each line of a table the cells and their
    data-titles."""

    def __init__(self, html):
        root = ElementTree.fromstring(re.sub(r"<((meta|img|input|wbr)\b[^>]*)>", r"<\1/>", html))
        for style in root.iter("style"):
            style.text = ""
        self.text = "".join(root.itertext())
        self.attributes = [(element.tag, key, value) for element in root.iter() for key, value in element.items()]
        self.lines = [["".join(cell.itertext()) for cell in line] for line in root.iter("tr")]
        self.titles = [[cell.get("data-title") for cell in line] for line in root.iter("tr")]

    def line(self, start):
        """The cells of the last line of a table of rows whose first cell starts so."""
        return [cells for cells in self.lines if cells[0].startswith(start) and len(cells) > 2 and ".cuh" not in cells[0]][-1]


class ReportCase(Case):
    def setUp(self):
        super().setUp()
        self.out = self.path / "out.html"
        matplotlib = mock.patch.dict(sys.modules, matplotlib=None)  # as if it were not installed: plots take seconds
        matplotlib.start()
        self.addCleanup(matplotlib.stop)

    def report(self, *arguments):
        """The page that report.py makes of these files."""
        with contextlib.redirect_stdout(io.StringIO()):
            report.main([*map(str, arguments), "--out", str(self.out)])
        self.html = self.out.read_text(encoding="utf-8")
        return Page(self.html)

    def page(self, rows, *arguments):
        return self.report(self.save(rows), *arguments)

    def says(self, page, *parts):
        for part in parts:
            self.assertIn(part, page.text)
