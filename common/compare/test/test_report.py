#!/usr/bin/env python3
"""report.py: what the page says of rows, and how."""
import base64
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import unittest
from unittest import mock

from report_rows import COMMIT, CPU, GPU, NAIVE, PEER, SCRIPT, TILED, Case, Page, row

from html_report import page as pages

ROOT = SCRIPT.parents[2]


class Report(Case):
    def test_times_and_gains(self):
        page = self.page([NAIVE, TILED, PEER])
        naive, tiled, peer = page.line("01_naive/naive"), page.line("06_fa2_forward/tiled"), page.line("peer flash")
        titles = page.lines[0]

        def cell(line, title):
            return line[titles.index(title)]

        medians = [cell(line, "median, msmin to max") for line in (naive, tiled, peer)]
        self.assertEqual(medians, ["87.5 to 8.5", "21.5 to 2.5", "43.5 to 4.5"])  # large and small print of a cell
        self.assertEqual(cell(tiled, "bytes movedread + written"), "4 MiB3 MiB + 1 MiB")
        self.assertEqual(cell(tiled, "TFLOP/s"), "4")
        self.assertEqual([cell(line, "gain over the first") for line in (naive, tiled, peer)], ["–", "4 ×", "2 ×"])
        self.assertEqual([cell(line, "over the line before") for line in (naive, tiled, peer)], ["–", "4 ×", "–"])
        self.assertEqual(cell(peer, "% of peak"), "2")  # against the peak that the stages' rows imply, 100 TFLOP/s
        self.assertEqual([cell(line, "extra memory") for line in (naive, tiled, peer)], ["64 MiB", "none", "–"])
        self.assertEqual([cell(tiled, "tiles"), cell(tiled, "max error"), cell(tiled, "verdict")], ["128 × 32", "4.5e-07", "ok"])
        self.assertIn(("td", "style", "--share:25.0%"), page.attributes)  # the bar of 01: 1 of 4 TFLOP/s
        for part in ("4 × as fast: 06_fa2_forward/tiled takes 2 ms, plain attention (01_naive/naive) 8 ms.", "8 × fewer bytes",
                     "2 × the time of 06_fa2_forward/tiled is what the fastest peer takes: idea of flash, 4 ms.", "compute capability 9.0",
                     "torch 9.9", "driver 580.1", "2026-01-02", COMMIT, "matplotlib is not installed", "pip install matplotlib",
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
        for title, expected in (("bytes movedread + written", "4 MiB3 MiB + 1 MiB"), ("gain over the first", "2 ×"), ("sectors", "1,234"), ("barriers", "56"),
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

    def test_a_sweep_has_an_overview(self):
        rows = []
        for n in (256, 512, 1024):
            sizes = {"seq_q": n, "seq_k": n, "batch": 2048 // n}
            rows.append(row("01_naive", "naive", n / 32, sizes=sizes, extra_memory_bytes=n * n))
            rows.append(row("06_fa2_forward", "tiled", n / 128, sizes=sizes))
        rows[-2] = {**rows[-2], "verdict": "skipped", "message": "would not fit"}
        page = self.page(rows + [{**one, "pass": "backward"} for one in rows])
        self.assertEqual(page.lines[0], ["stage/variant", "N=256B=8", "N=512B=4", "N=1,024B=2"])
        self.assertEqual(page.lines[1][1:], ["18", "0.516", "skipped"])
        self.assertEqual(page.lines[2][1:], ["42", "24", "18"])
        self.assertIn("Forward, fp32, causal, H=4 d=64", page.text)
        self.assertIn("B·N is always 2,048", page.text)
        self.assertIn("Of a GPU the large figure is TFLOP/s", page.text)
        self.assertEqual(sum(tag == "details" for tag, *_ in page.attributes), 2)  # of six tables the two of the lesson are open
        rows.append(row("04_fa1_forward", "grows", 1.0, sizes={"seq_q": 512, "seq_k": 512}, extra_memory_bytes=512))
        fixed = [{**one, "problem": {**one["problem"], "batch": 1}} for one in rows]
        self.assertIn("4 × the memory beside inputs and outputs of 01_naive/naive at 2 times the length: 64 KiB at N=256, 256 KiB at N=512; "
                      "06_fa2_forward/tiled needs none there.", self.page(fixed).text)  # fmt: skip

    def test_equal_lines_are_said_once(self):
        sizes = [{"seq_q": n, "seq_k": n} for n in (256, 512, 1024)]
        rows = [row("01_naive", "naive", 8.0, sizes=size) for size in sizes]
        slow = {"verdict": "skipped", "message": "would take about 11 s; the limit is 10 s"}
        ends = {"verdict": "TIMED OUT"}, {"verdict": "TIMED OUT"}, slow
        rows += [{**row("04_fa1_forward", "slow", sizes=size), **end} for size, end in zip(sizes, ends)]
        refused = {"verdict": "refused", "message": "16 bits only"}
        rows += [row("peer", name, sizes=size, **refused) for name in ("flash", "cudnn") for size in sizes]
        page = self.page(rows)
        self.assertIn("Failed: 04_fa1_forward/slow, forward: TIMED OUT (2 problems).", page.text)
        self.assertEqual(page.lines[2][1:], ["too long"] * 3)  # in the overview, whether the limit ended a run or foresaw it
        self.assertIn("Without a result in any column: peer/flash, peer/cudnn (refused).", page.text)
        self.assertEqual(page.text.count("refused: 16 bits only"), 3)  # once in each table
        self.assertIn("refused: 16 bits only", page.line("peer flash, cudnn")[1])
        self.assertIn("TIMED OUT: the time limit ended the run", page.text)
        finished = row("04_fa1_forward", "slow", 8.0, sizes={"seq_q": 128, "seq_k": 128})  # so it does not hang: long problems are long
        self.assertNotIn("Failed:", self.page([*rows, finished]).text)
        for elsewhere in ({"pass": "backward"}, {"device": CPU}):
            self.assertIn("Failed:", self.page([*rows, {**finished, **elsewhere}]).text)

    def test_the_peer_of_the_same_algorithm_beside_the_fastest_one(self):
        self.assertNotIn("the same algorithm", self.page([NAIVE, TILED, PEER]).text)
        text = self.page([NAIVE, TILED, PEER, {**PEER, "variant": "cudnn", "time": {**PEER["time"], "median_ms": 1.0}}]).text
        self.assertIn("0.5 × the time of 06_fa2_forward/tiled is what the fastest peer takes", text)
        self.assertIn("2 × the time of 06_fa2_forward/tiled is what the peer of the same algorithm takes", text)

    def test_of_the_same_run_the_latest_is_shown(self):
        page = self.page([NAIVE, TILED, {**TILED, "date": "2027-01-01T00:00:00Z", "time": {**TILED["time"], "median_ms": 1.0}}])
        self.assertEqual([line[0][:8] for line in page.lines if line[0].startswith("06")], ["06_fa2_f"])
        self.assertIn("8 × as fast", page.text)
        self.assertIn("; 1 older of the same runs is not in the tables", page.text)
        crash = {key: value for key, value in TILED.items() if key not in ("tiles", "time", "tflops", "check")} | {"verdict": "CRASHED"}
        later = {"date": "2027-01-01T00:00:00Z"}
        self.assertNotIn("Failed:", self.page([NAIVE, crash, {**TILED, **later}]).text)  # repaired
        self.assertNotIn("Failed:", self.page([NAIVE, {**TILED, **later}, crash]).text)
        self.assertIn("Failed: 06_fa2_forward/tiled", self.page([NAIVE, TILED, {**crash, **later}]).text)  # broken since
        self.assertNotIn("as fast:", self.page([NAIVE, TILED, {**crash, **later}]).text)
        both = self.page([NAIVE, TILED, {**TILED, "tiles": {"br": 64, "bc": 64}}])
        self.assertEqual(sum(line[0].startswith("06") for line in both.lines), 2)

    def test_a_column_without_figures_is_left_out(self):
        self.assertIn("bytes movedread + written", self.page([NAIVE, TILED]).lines[0])
        bare = [{key: value for key, value in one.items() if not key.startswith("hbm_")} for one in (NAIVE, TILED)]
        self.assertNotIn("bytes movedread + written", self.page(bare).lines[0])

    def test_rows_that_should_not_be_compared_are_told(self):
        other = {**TILED, "commit": "f" * 40 + "-dirty", "device": {**GPU, "driver": "1.0"}}
        text = self.page([NAIVE, other]).text
        for part in ("different commits: 1234567890ab (1 row), ffffffffffff-dirty (1 row)", "(-dirty)", "different drivers: 580.1, 1.0"):
            self.assertIn(part, text)
        text = self.page([NAIVE, row("01_naive", "naive", device=CPU)]).text
        self.assertIn("different devices: Test GPU, CPU simulator", text)
        for other, said in (({**CPU, "simulates_sm": 90}, False), ({**CPU, "simulates_sm": 75}, True)):
            text = self.page([row("01_naive", "naive", device=CPU), row("06_fa2_forward", "tiled", device=other)]).text
            self.assertEqual("different devices: CPU simulator, CPU simulator of sm_75" in text, said)
        self.assertNotIn("These rows", self.page([NAIVE, TILED]).text)

    def test_plots(self):
        """Those of each device, and why there are no others."""

        def select(rows):
            (name,) = {row["device"]["name"] for row in rows}
            return {"memory": name}, {"time": "too few <lengths>"}

        def section(select, matplotlib=sys):
            svg = lambda name, picture: f'<svg><title>N &lt; "M" of {picture}</title></svg>'  # noqa: E731
            with mock.patch.dict(sys.modules, matplotlib=matplotlib), mock.patch.multiple(pages.plot, select=select, svg=svg):
                return Page(pages.plots([NAIVE, TILED, row("01_naive", "naive", device=CPU)]))

        page = section(select)
        images = [base64.b64decode(value.removeprefix("data:image/svg+xml;base64,")).decode() for _, key, value in page.attributes if key == "src"]
        self.assertEqual(len(images), 2)
        for image, name in zip(images, ("Test GPU", "Test CPU")):
            self.assertIn(name, image)
        self.assertIn(("img", "alt", 'Plot: N < "M" of Test GPU. The figures are in the tables.'), page.attributes)
        self.assertIn("no time: too few <lengths>", page.text)
        self.assertIn("plot.py fails: KeyError: 'x'", section(mock.Mock(side_effect=KeyError("x"))).text)
        self.assertIn("matplotlib is not installed", section(select, None).text)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed: no plots")
    def test_plots_of_saved_rows(self):
        shutil.rmtree(self.matplotlib.parent)
        done = self.run_report(ROOT / "docs" / "results" / "cpu" / "compare.json", "--out", self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = Page(self.out.read_text())
        plots = [base64.b64decode(value.split(",")[1]).decode() for _, key, value in page.attributes if key == "src"]
        self.assertTrue(any("warp operations" in plot and "prefers-color-scheme" in plot for plot in plots))
        self.assertIn("What could not be drawn", page.text)
        self.assertNotIn(str(self.path), page.text)

    def test_contrast(self):
        """Text can be read: 4.5 to 1 on whatever it stands, light and dark."""

        def light(colour):
            parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
            parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
            return 0.05 + 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        style = (SCRIPT.parent / "html_report" / "style.css").read_text()
        palettes = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
        palettes = [palette for palette in palettes if palette]
        self.assertEqual(len(palettes), 2)
        grounds = {"text": ("ground", "raised", "bar", "peer-bar", "notice"), "dim": ("ground", "raised"), "link": ("ground",),
                   "bad": ("ground",), "good": ("ground",), "warn": ("ground",)}  # fmt: skip
        for palette in palettes:
            for text, grounds_of_text in grounds.items():
                for ground in grounds_of_text:
                    lights = sorted((light(palette[text]), light(palette[ground])))
                    self.assertGreaterEqual(lights[1] / lights[0], 4.5, (text, ground))

    def test_commands(self):
        odd = row("08_tensor_cores", "mma", 1.0, sizes={"seq_q": 113, "seq_k": 203, "kv_heads": 2, "causal": False, "bias": "alibi"})
        text = self.page([odd, PEER]).text
        self.assertIn(f"git checkout {COMMIT}", text)
        self.assertIn("build/bin/compare --device gpu --batch 2 --heads 4 --kv-heads 2 --seq-q 113 --seq-k 203 --head-dim 64 --no-causal "
                      "--dtype fp32 --bias alibi --save rows_1.json", text)  # fmt: skip
        self.assertIn("build/bin/compare --only peer --batch 2 --heads 4 --seq 256 --head-dim 64 --causal --dtype fp32 --save rows_2.json", text)
        text = self.page([odd], "--command", "build/bin/compare --save rows.json").text
        self.assertIn("build/bin/compare --save rows.json\ncommon/compare/report.py rows.json --out report.html", text)
        self.assertNotIn("--bias alibi", text)

    def test_several_files_share_tables(self):
        files = self.save([PEER], "a.json"), self.save({"rows": [TILED]}, "b.json"), self.save([NAIVE], "c.json")
        done = self.run_report(*files, "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        page = Page(self.out.read_text())
        self.assertEqual([cells[0][:8] for cells in page.lines], ["stage/va", "01_naive", "06_fa2_f", "peer fla"])
        self.assertEqual(page.text.count("any implementation must move"), 1)

    def test_kernel_files(self):
        contents = (ROOT / "01_naive" / "kernel.cuh").read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(contents) + contents).hexdigest()
        outside = os.path.relpath("/etc/hosts", ROOT)
        for sources, state in (({"01_naive/kernel.cuh": blob}, "the same"), ({"01_naive/kernel.cuh": "0" * 40}, "changed"),
                               ({"01_naive/gone.cuh": blob}, "not here"), ({outside: blob}, "not here")):  # fmt: skip
            page = self.page([row("01_naive", "naive", 1.0, sources=sources)])
            self.assertEqual(page.lines[-1], [*sources, *sources.values(), state])
            self.assertEqual("Changed since these rows were made" in page.text, state != "the same")

    def test_saved_results(self):
        """The rows that the project shows make a page."""
        for device in (ROOT / "docs" / "results").iterdir():
            names = ("compare", "tensor", "tensor_cores", "peers", "peers16")
            files = [path for path in (device / f"{name}.json" for name in names) if path.exists()]
            if files:
                done = self.run_report(*files, "--out", self.out)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("08_tensor_cores/", Page(self.out.read_text()).text)


if __name__ == "__main__":
    unittest.main()
