#!/usr/bin/env python3
"""report.py: the figures of its tables, what failed or is stale, where rows come from, and text that is no HTML."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from unittest import mock

try:
    import jinja2  # noqa: F401
except ImportError:
    print("skipped: Jinja2 is not installed")
    sys.exit(77)

from test_rows import row

import report
from rows import ROOT, Failure, code_hash

CPU = {"kind": "cpu", "name": "A CPU"}
KERNEL = "01_naive/kernel.cuh"


class Reader(HTMLParser):
    """The tables as lists of cells, the text as a whole."""

    def __init__(self, text):
        super().__init__()
        self.text, self.lines, self.open, self.scripts = "", [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        if tag == "tr":
            self.lines.append([])
        if tag in ("th", "td"):
            self.lines[-1].append("")
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:  # img and meta have no end
            pass

    def handle_data(self, data):
        self.text += data if "style" not in self.open else ""
        if {"th", "td"} & set(self.open):
            self.lines[-1][-1] += data.strip() + " " if "small" not in self.open else ""


class Report(unittest.TestCase):
    def page(self, *objects, plots=([], []), arguments=()):
        with tempfile.TemporaryDirectory() as name, mock.patch.object(report, "plots", plots if callable(plots) else lambda rows: plots):
            rows, out = pathlib.Path(name) / "rows.jsonl", pathlib.Path(name) / "out.html"
            rows.write_text("".join(json.dumps(one) + "\n" for one in objects))
            with contextlib.redirect_stdout(io.StringIO()):
                report.main([str(rows), "--out", str(out), *arguments])
            self.html = out.read_text(encoding="utf-8")
        return Reader(self.html)

    def line(self, page, name):
        (cells,) = [line for line in page.lines if line[0].strip() == name]
        return [cell.strip() for cell in cells[1:]]

    def test_the_figures_are_those_of_the_rows(self):
        refused = row("peer", "cudnn", verdict="refused", message="16-bit types only")
        tiled = row("06_fa2_forward", "tiled", 2.0, tiles={"br": 64, "bc": 32}, predicted={"read_bytes": 1 << 20, "written_bytes": 1 << 19})
        tiled["check"] = {"passed": True, "tensors": {"o": {"max_abs": 4.5e-7}, "lse": {"max_abs": 1.0}}}
        page = self.page(refused, tiled, row("01_naive", "naive", 8.0), row("peer", "flash", 1.0, torch="9.9"))
        names = [line[0].strip() for line in page.lines]
        self.assertEqual(names, ["stage/variant", "01_naive/naive", "06_fa2_forward/tiled", "peer/cudnn", "peer/flash"])
        heads = ["median, ms", "TFLOP/s", "gain", "bytes moved", "max error", "tiles", "verdict"]
        self.assertEqual([head.strip() for head in page.lines[0][1:]], heads)
        self.assertEqual(self.line(page, "06_fa2_forward/tiled"), ["2.00", "4.00", "4.00×", "1.5 MiB", "4.5e-07", "64,32", "ok"])
        self.assertEqual(self.line(page, "peer/cudnn"), ["–"] * 6 + ["refused"])
        self.assertIn("16-bit types only", page.text)
        self.assertIn("--share: 12.5%", self.html)  # 1 TFLOP/s of 8

    def test_problems_passes_and_devices_have_tables_of_their_own(self):
        on_cpu = row(device=CPU, counters={"sectors": 1234567, "read_bytes": 1, "written_bytes": 2})
        page = self.page(row(ms=1.0), row(ms=1.0, sizes={"causal": False}), row(ms=1.0, **{"pass": "backward"}), on_cpu)
        self.assertEqual(self.html.count("<table>"), 4)
        self.assertIn("1,234,567", page.text)

    def test_what_failed_or_is_stale_is_named_first(self):
        fresh = row("01_naive", "fresh", 1.0, sources={KERNEL: code_hash(ROOT / KERNEL)})
        stale = row("01_naive", "stale", 1.0, sources={KERNEL: "0"})
        page = self.page(fresh, stale, row("01_naive", "wrong", verdict="WRONG"))
        notices = page.text[: page.text.index("Tables")]
        self.assertRegex(notices, "Failed:\\s*01_naive/wrong, forward, B=2 H=4 N=256 d=64 causal fp32: WRONG")
        self.assertRegex(notices, f"Changed since these rows were saved:\\s*{KERNEL}")
        verdicts = {name: self.line(page, f"01_naive/{name}")[-1].split() for name in ("fresh", "stale", "wrong")}
        self.assertEqual(verdicts, {"fresh": ["ok"], "stale": ["ok", ",", "stale"], "wrong": ["WRONG"]})
        self.assertNotIn("Changed since", self.page(fresh).text)

    def test_where_rows_come_from(self):
        device = {"kind": "gpu", "name": "B GPU", "cuda": "13.0", "driver": "580.1"}
        page = self.page(row(device=device, commit="1" * 40 + "-dirty", torch="9.9"), arguments=["--command", "compare --save <x>"])
        for text in ("B GPU", "13.0", "580.1", "9.9", "2026-01-02", "1" * 12 + "-dirty (1 rows)", "compare --save <x>"):
            self.assertIn(text, page.text)

    def test_text_is_not_read_as_html(self):
        page = self.page(
            row(idea="<script>alert(1)</script>", device={"kind": "gpu", "name": "<script>"}), arguments=["--title", "<script>"]
        )
        self.assertEqual(page.scripts, 0)
        self.assertIn("<script>alert(1)</script>", page.text)

    def test_plots_are_in_the_page_or_the_reason_why_not(self):
        at = [row(ms=n / 256, sizes={"seq_q": n, "seq_k": n, "causal": False}, flops=8e9) for n in (256, 512, 1024)]
        page = self.page(*at, plots=report.plots)
        self.assertTrue("data:image/svg+xml" in self.html or "A GPU: " in page.text)

    def test_what_cannot_be_done_is_one_line(self):
        with self.assertRaises(Failure) as caught:
            self.page({"stage": "01"})
        self.assertEqual(caught.exception.args[0], 2)
        with mock.patch.dict(sys.modules, jinja2=None), self.assertRaises(Failure) as caught:
            self.page(row())
        self.assertEqual(caught.exception.args[0], 3)
        self.assertIn("Jinja2 cannot be imported", caught.exception.args[1])


if __name__ == "__main__":
    unittest.main()
