"""For the tests of report.py: rows, a parser of pages, and a folder to work in. No figure here is a measurement."""
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "report.py"
sys.path.insert(0, str(SCRIPT.parent))

from rows.files import REPORT  # noqa: E402, F401

VOID = {"meta", "img", "input", "wbr"}
COMMIT = "1234567890abcdef1234567890abcdef12345678"
GPU = {"kind": "gpu", "name": "Test GPU", "sm": 90, "cuda": "13.0", "driver": "580.1"}
CPU = {"kind": "cpu", "name": "Test CPU", "sm": 0, "cuda": "", "driver": ""}


def problem(**sizes):
    p = {"batch": 2, "heads": 4, "kv_heads": 4, "seq_q": 256, "seq_k": 256, "head_dim": 64, "scale": 0.125, "causal": True, "bias": "none",
         "dtype": "fp32", "layout": "bhnd", "input": "normal", "seed": 1}  # fmt: skip
    return {**p, **sizes}


def row(stage, variant, ms=None, device=GPU, sizes=None, **more):
    """A row as `compare --save` writes it: with a time on a GPU, with counts on the CPU."""
    made = {"stage": stage, "variant": variant, "pass": "forward", "idea": f"idea of {variant}", "kernel": f"{stage}/{variant}.cuh",
            "device": device, "problem": problem(**(sizes or {})), "flops": 8e9, "compulsory_bytes": 1 << 20, "extra_memory_bytes": 0,
            "tiles": {"br": 128, "bc": 32}, "hbm_read_bytes": 3 << 20, "hbm_written_bytes": 1 << 20, "verdict": "ok",
            "check": {"passed": True, "tensors": {"o": {"max_abs": 4.5e-7, "tolerance": 1e-6}}},
            "commit": COMMIT, "date": "2026-01-02T03:04:05Z", "sources": {}}  # fmt: skip
    if device is CPU:
        made["counters"] = {"sectors": 1234, "barriers": 56, "warp_operations": 7, "bank_conflicts": 8}
    elif ms is not None:
        made["time"] = {"median_ms": ms, "min_ms": ms - 0.5, "max_ms": ms + 0.5, "iterations": 3, "cold_l2": True}
        made.update(tflops=8 / ms, percent_of_peak=8 / ms)
    return {**made, **more}


NAIVE = row("01_naive", "naive", 8.0, extra_memory_bytes=64 << 20, hbm_read_bytes=31 << 20)
TILED = row("06_fa2_forward", "tiled", 2.0)
PEER = {key: value for key, value in row("peer", "flash", 4.0, torch="9.9").items()
        if key not in ("percent_of_peak", "check", "kernel", "tiles", "sources", "extra_memory_bytes")}  # fmt: skip


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
        # Plots have a test of their own and take seconds: here matplotlib is not installed.
        matplotlib = self.path / "modules" / "matplotlib"
        matplotlib.mkdir(parents=True)
        self.matplotlib = matplotlib / "__init__.py"
        self.matplotlib.write_text("raise ImportError('not here')\n")

    def run_report(self, *arguments, script=SCRIPT):
        environment = {**os.environ, "PYTHONPATH": str(self.path / "modules"), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, script, *map(str, arguments)], capture_output=True, text=True, env=environment)

    def save(self, rows, name="rows.json"):
        path = self.path / name
        path.write_text(rows if isinstance(rows, str) else json.dumps(rows))
        return path

    def page(self, rows, *arguments):
        done = self.run_report(self.save(rows), "--out", self.out, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.html = self.out.read_text(encoding="utf-8")
        return Page(self.html)

    def refused(self, part, *arguments):
        done = self.run_report(*arguments)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
        self.assertTrue(done.stderr.startswith("report: "), done.stderr)
        self.assertIn(part, done.stderr)
