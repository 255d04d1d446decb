#!/usr/bin/env python3
"""report.py: what the page says of rows, of failures and of hostile text; that it needs nothing but itself. No figure here is a measurement."""
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "report.py"
ROOT = SCRIPT.parents[2]
VOID = {"meta", "img", "wbr"}
HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=\"y\">'&amp; \ud800\x00"
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
    """Tags that do not match are an error; keeps text, attributes, and the cells of each line."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.lines, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, key, value) for key, value in attributes]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")

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


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.out = self.path / "out.html"
        # matplotlib takes seconds to import, and plots have a test of their own: here it is not installed.
        (self.path / "none" / "matplotlib").mkdir(parents=True)
        (self.path / "none" / "sitecustomize.py").write_text(
            "import importlib.util as u\nfind = u.find_spec\nu.find_spec = lambda name, *p: None if name == 'matplotlib' else find(name, *p)\n")

    def run_report(self, *arguments, script=SCRIPT):
        environment = {**os.environ, "PYTHONPATH": str(self.path / "none"), "PYTHONDONTWRITEBYTECODE": "1"}
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

    def test_times_and_gains(self):
        page = self.page([NAIVE, TILED, PEER])
        naive, tiled, peer = page.line("01_naive/naive"), page.line("06_fa2_forward/tiled"), page.line("peer flash")
        titles = page.lines[0]

        def cell(line, title):
            return line[titles.index(title)]

        self.assertEqual([cell(line, "median, ms") for line in (naive, tiled, peer)], ["8", "2", "4"])
        self.assertEqual(cell(tiled, "min to max, ms"), "1.5 to 2.5")
        self.assertEqual(cell(tiled, "TFLOP/s"), "4")
        self.assertEqual([cell(line, "gain over the first") for line in (naive, tiled, peer)], ["–", "4 ×", "2 ×"])
        self.assertEqual([cell(line, "over the line before") for line in (naive, tiled, peer)], ["–", "4 ×", "–"])
        self.assertEqual(cell(peer, "% of peak"), "2")  # against the peak that the stages' rows imply, 100 TFLOP/s
        self.assertEqual([cell(line, "extra memory") for line in (naive, tiled, peer)], ["64 MiB", "none", "–"])
        self.assertEqual([cell(tiled, "tiles"), cell(tiled, "max error"), cell(tiled, "verdict")], ["128 × 32", "4.5e-07", "ok"])
        self.assertIn(("td", "style", "--share:25.0%"), page.attributes)  # the bar of 01: 1 of 4 TFLOP/s
        for part in ("4 × as fast: 06_fa2_forward/tiled takes 2 ms, plain attention (01_naive/naive) 8 ms.", "8 × fewer bytes",
                     "2 × the time of 06_fa2_forward/tiled is what the fastest peer takes: idea of flash, 4 ms.", "compute capability 9.0",
                     "torch 9.9", "driver 580.1", "2026-01-02", COMMIT, "matplotlib is not installed",
                     "Forward, B=2 H=4 N=256 d=64 causal fp32", "any implementation must move 1 MiB and do 8 GFLOP"):  # fmt: skip
            self.assertIn(part, page.text)
        self.assertNotIn("Until the launch", page.text)

    def test_what_an_unsynchronised_timer_reads(self):
        timed = row("06_fa2_forward", "tiled", 2.0)
        timed["time"]["enqueue_ms"] = 0.0125
        page = self.page([NAIVE, timed])
        column = page.lines[0].index("until the launch returned, ms")
        self.assertEqual([page.line("01")[column], page.line("06")[column]], ["–", "0.0125"])

    def test_counts_are_no_times(self):
        page = self.page([row("01_naive", "naive", device=CPU, hbm_read_bytes=7 << 20), row("06_fa2_forward", "tiled", device=CPU)])
        self.assertIn("exact counts; they are not times", page.text)
        for title, expected in (("bytes moved", "4 MiB"), ("gain over the first", "2 ×"), ("sectors", "1,234"), ("barriers", "56"),
                                ("warp operations", "7"), ("bank conflicts", "8")):  # fmt: skip
            self.assertEqual(page.line("06")[page.lines[0].index(title)], expected)
        self.assertIn("on Test CPU", page.text)
        self.assertNotIn("TFLOP/s", page.text)
        self.assertNotIn("median", page.text)

    def test_a_forward_pass_of_another_stage_is_no_step(self):
        borrowed = row("07_fa2_backward", "two", 1.0, sources={"07_fa2_backward/two.cuh": "0" * 40, "06_fa2_forward/tiled.cuh": "0" * 40})
        page = self.page([NAIVE, TILED, borrowed])
        self.assertIn("its forward pass is that of 06_fa2_forward", page.line("07")[0])
        self.assertIn("4 × as fast: 06_fa2_forward/tiled", page.text)
        self.assertIn("Changed since these rows were made: 06_fa2_forward/tiled.cuh, 07_fa2_backward/two.cuh.", page.text)

    def test_what_failed_is_shown_with_its_reason(self):
        rows = [NAIVE, row("02_safe_softmax", "skipped_one", verdict="skipped", message="would take 35 min"),
                row("03_online_softmax", "wrong_one", 0.5, check={"passed": False, "tensors": {"o": {"max_abs": 0.25}}}),
                {"stage": "04_fa1_forward", "variant": "crashed_one", "pass": "forward", "verdict": "CRASHED", "message": "signal 11"},
                row("06_fa2_forward", "refused_one", verdict="refused", message="d is 80")]  # fmt: skip
        page = self.page(rows)
        self.assertIn("skipped: would take 35 min", page.line("02")[1])
        self.assertIn("WRONG: no reason given (max error 0.25)", page.line("03")[1])
        self.assertIn("CRASHED: signal 11", page.line("04")[1])  # the only problem of its file is its own
        self.assertIn("refused: d is 80", page.line("06")[1])
        self.assertIn("Failed: 03_online_softmax/wrong_one, forward: WRONG; 04_fa1_forward/crashed_one, forward: CRASHED.", page.text)
        self.assertNotIn("as fast:", page.text)  # a wrong result is not the fastest one
        two_problems = [NAIVE, row("01_naive", "naive", 9.0, sizes={"seq_q": 512, "seq_k": 512}), rows[3]]
        page = self.page(two_problems)
        self.assertIn("Runs that ended before they named their problem", page.text)
        self.assertIn("CRASHED: signal 11", page.line("04")[2])

    def test_nothing_in_a_row_becomes_markup(self):
        hostile = row(HOSTILE, HOSTILE, 3.0, idea=HOSTILE, sources={HOSTILE: HOSTILE, "../../../etc/passwd": "0"}, commit=HOSTILE, date=HOSTILE)
        hostile["problem"].update(dtype=HOSTILE, bias=HOSTILE, layout=HOSTILE, input=HOSTILE)
        hostile["device"] = {"kind": "gpu", "name": HOSTILE, "sm": 90, "cuda": HOSTILE, "driver": HOSTILE}
        bad = {**hostile, "verdict": HOSTILE, "message": HOSTILE}
        numbers = row("06_fa2_forward", "odd", 3.0, tflops=HOSTILE, flops=10**400, extra_memory_bytes=[1], tiles=HOSTILE, counters=HOSTILE)
        page = self.page([hostile, bad, {**PEER, "torch": HOSTILE}, numbers], "--title", HOSTILE[:-2], "--command", HOSTILE[:-2])
        self.assertFalse({tag for tag, _, _ in page.attributes} - {"html", "meta", "nav", "a", "ul", "section", "div", "th", "td", "table",
                         "caption", "p", "span", "small", "h3", "dl", "details", "pre", "tr"})  # fmt: skip
        self.assertFalse([key for _, key, _ in page.attributes if key.startswith("on")])
        self.assertNotIn("<script", self.html)
        self.assertIn("</td></table><script>alert(1)</script>", page.text)
        self.assertNotIn("\x00", self.html)
        self.assertNotIn("root:", page.text)

    def test_the_page_is_alone(self):
        page = self.page([NAIVE, TILED, PEER])
        for _, key, value in page.attributes:
            if key in ("src", "href", "style", "action", "srcset"):
                self.assertTrue(value.startswith(("#", "data:", "--share:")), (key, value))
        targets = {value for _, key, value in page.attributes if key == "id"}
        for tag, key, value in page.attributes:
            if key == "href" or key == "aria-labelledby":
                self.assertIn(value.lstrip("#"), targets)
        style = self.html.split("<style>")[1].split("</style>")[0]
        for word in ("url(", "@import", "http"):
            self.assertNotIn(word, style)
        self.assertNotIn("://", self.html)
        self.assertIn(("meta", "content", "default-src 'none'; img-src data:; style-src 'unsafe-inline'"), page.attributes)
        self.assertNotIn(str(self.path), self.html)

    def test_a_sweep_has_an_overview(self):
        rows = []
        for n in (256, 512, 1024):
            sizes = {"seq_q": n, "seq_k": n, "batch": 2048 // n}
            rows += [row("01_naive", "naive", n / 32, sizes=sizes, extra_memory_bytes=n * n), row("06_fa2_forward", "tiled", n / 128, sizes=sizes)]
        rows[-2] = {**rows[-2], "verdict": "skipped", "message": "would not fit"}
        page = self.page(rows + [{**one, "pass": "backward"} for one in rows])
        self.assertEqual(page.lines[0], ["stage/variant", "N=256B=8", "N=512B=4", "N=1,024B=2"])
        self.assertEqual(page.lines[1][1:], ["18", "0.516", "skipped"])
        self.assertEqual(page.lines[2][1:], ["42", "24", "18"])
        self.assertIn("Forward, fp32, causal, H=4 d=64", page.text)
        self.assertIn("B·N is always 2,048", page.text)
        self.assertEqual(sum(tag == "details" for tag, *_ in page.attributes), 2)  # of six tables the two of the lesson are open
        fixed = [{**one, "problem": {**one["problem"], "batch": 1}} for one in rows]
        self.assertIn("4 × the memory beside inputs and outputs of 01_naive/naive at 2 times the length: 64 KiB at N=256, 256 KiB at N=512; "
                      "06_fa2_forward/tiled needs none there.", self.page(fixed).text)  # fmt: skip

    def test_rows_that_should_not_be_compared_are_told(self):
        other = {**TILED, "commit": "f" * 40 + "-dirty", "device": {**GPU, "driver": "1.0"}}
        text = self.page([NAIVE, other]).text
        for part in ("different commits: 1234567890ab (1 row), ffffffffffff-dirty (1 row)", "(-dirty)", "different drivers: 580.1, 1.0"):
            self.assertIn(part, text)
        text = self.page([NAIVE, row("01_naive", "naive", device=CPU)]).text
        self.assertIn("different devices: Test GPU, CPU simulator", text)
        self.assertNotIn("These rows", self.page([NAIVE, TILED]).text)

    def test_commands(self):
        odd = row("08_tensor_cores", "mma", 1.0, sizes={"seq_q": 113, "seq_k": 203, "kv_heads": 2, "causal": False, "bias": "alibi"})
        text = self.page([odd, PEER]).text
        self.assertIn(f"git checkout {COMMIT}", text)
        self.assertIn("build/bin/compare --device gpu --batch 2 --heads 4 --kv-heads 2 --seq-q 113 --seq-k 203 --head-dim 64 --no-causal "
                      "--dtype fp32 --bias alibi --save rows_1.json", text)  # fmt: skip
        self.assertIn("common/compare/peers.py --batch 2 --heads 4 --seq 256 --head-dim 64 --causal --dtype fp32 --save rows_2.json", text)
        text = self.page([odd], "--command", "build/bin/compare --save rows.json").text
        self.assertIn("build/bin/compare --save rows.json\ncommon/compare/report.py rows.json --out report.html", text)
        self.assertNotIn("--bias alibi", text)

    def test_several_files_share_tables(self):
        done = self.run_report(self.save([NAIVE], "a.json"), self.save({"rows": [PEER]}, "b.json"), "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(Page(self.out.read_text()).text.count("Forward, B=2 H=4 N=256 d=64 causal fp32"), 2)  # heading and caption

    def test_bad_input_is_one_line_and_harms_nothing(self):
        good = self.save([NAIVE], "good.json")
        self.out.write_text("the old page")
        bad = {"": "damaged", "[": "damaged", "[]": "no rows", "{}": "no list", "[1]": "row 1: is no object", "[" * 100000: "damaged",
               json.dumps([{**NAIVE, "pass": "both"}]): "pass is", json.dumps([NAIVE, {**NAIVE, "stage": 7}]): "row 2: stage is 7",
               json.dumps([{**NAIVE, "problem": problem(heads="x")}]): 'problem.heads is "x"', "[NaN]": "NaN",
               json.dumps([{**NAIVE, "problem": problem(causal=1)}]): "problem.causal",
               json.dumps([{"stage": "s", "variant": "v", "pass": "forward"}]): "no verdict"}  # fmt: skip
        for contents, part in bad.items():
            self.refused(part, self.save(contents, "bad.json"), "--out", self.out)
        (self.path / "bad.json").write_bytes(b"\xff\xfe[")
        self.refused("damaged", self.path / "bad.json", "--out", self.out)
        self.refused("cannot be read", self.path / "missing.json", "--out", self.out)
        self.refused("cannot be read", self.path, "--out", self.out)
        self.refused("required", good)
        self.refused("required", "--out", self.out)
        self.refused("unrecognized", good, "--out", self.out, "--colour")
        self.refused("cannot be written", good, "--out", self.path / "no" / "out.html")
        self.refused("is no file", good, "--out", self.path)
        self.refused("holds the rows", good, "--out", good)
        self.assertEqual(self.out.read_text(), "the old page")
        self.assertEqual(json.loads(good.read_text()), [NAIVE])
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["bad.json", "good.json", "none", "out.html"])

    def test_the_page_replaces_the_old_one_and_keeps_its_mode(self):
        self.out.write_text("the old page")
        self.out.chmod(0o640)
        self.page([NAIVE])
        self.assertEqual(self.out.stat().st_mode & 0o777, 0o640)
        link = self.path / "link.html"
        link.symlink_to(self.out)
        self.assertEqual(self.run_report(self.save([NAIVE, TILED]), "--out", link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertIn("06_fa2_forward", self.out.read_text())

    def test_saved_results(self):
        """The rows that the project shows make a page."""
        for device in (ROOT / "docs" / "results").iterdir():
            files = [path for name in ("compare", "tensor", "tensor_cores", "peers", "peers16") for path in [device / f"{name}.json"] if path.exists()]
            if files:
                done = self.run_report(*files, "--out", self.out)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("08_tensor_cores/", Page(self.out.read_text()).text)


if __name__ == "__main__":
    unittest.main()
