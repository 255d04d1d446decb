"""For the tests of report.py: a few rows, a parser of pages, and a folder to work in."""

import contextlib
import html.parser
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "common" / "compare"))

from made_rows import row

import report
from rows.usage import Failure

VOID = {"meta", "img", "input", "wbr"}
NAIVE = row("01_naive", "naive", 8.0, extra_memory_bytes=64 << 20, hbm_read_bytes=31 << 20)
TILED = row("06_fa2_forward", "tiled", 2.0)
UNKNOWN = ("percent_of_peak", "check", "kernel", "tiles", "sources", "extra_memory_bytes")  # of a peer
PEER = {key: value for key, value in row("peer", "flash", 4.0, torch="9.9").items() if key not in UNKNOWN}


class Page(html.parser.HTMLParser):
    """Tags that do not match are an error; keeps text, attributes, and of each line the cells and their data-titles."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.lines, self.titles, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, key, value) for key, value in attributes]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
            self.titles.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")
            self.titles[-1].append(dict(attributes).get("data-title"))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words.append(data)
        if "tr" in self.open and self.lines[-1]:
            self.lines[-1][-1] += data

    @property
    def text(self):
        return "".join(self.words)

    def line(self, start):
        """The cells of the last line of a table of rows whose first cell starts so."""
        return [cells for cells in self.lines if cells[0].startswith(start) and len(cells) > 2 and ".cuh" not in cells[0]][-1]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.out = self.path / "out.html"
        matplotlib = mock.patch.dict(sys.modules, matplotlib=None)  # as if it were not installed: plots take seconds
        matplotlib.start()
        self.addCleanup(matplotlib.stop)

    def save(self, rows, name="rows.json"):
        path = self.path / name
        path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
        return path

    def report(self, *arguments):
        """The page that report.py makes of these files."""
        with contextlib.redirect_stdout(io.StringIO()):
            report.main([*map(str, arguments), "--out", str(self.out)])
        self.html = self.out.read_text(encoding="utf-8")
        return Page(self.html)

    def page(self, rows, *arguments):
        return self.report(self.save(rows), *arguments)

    def refused(self, part, *arguments):
        with self.assertRaises(Failure) as caught:
            report.main([*map(str, arguments)])
        self.assertEqual(caught.exception.code, 2)
        self.assertIn(part, str(caught.exception))
