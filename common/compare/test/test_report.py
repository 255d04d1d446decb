#!/usr/bin/env python3
"""report.py: what the page says of rows, and how."""

import unittest

from made_rows import COMMIT, CPU, row
from report_case import NAIVE, PEER, TILED, Case


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
        for part in (
            "4 × as fast as plain attention (01_naive/naive): 8 ms become 2 ms in 06_fa2_forward/tiled.",
            "8 × fewer bytes moved than plain attention (01_naive/naive): 32 MiB become 4 MiB in 06_fa2_forward/tiled.",
            "2 × as fast as the fastest peer, idea of flash: 4 ms there, 2 ms in 06_fa2_forward/tiled.",
            "compute capability 9.0",
            "torch 9.9",
            "driver 580.1",
            "2026-01-02",
            COMMIT,
            "matplotlib is not installed",
            "pip install matplotlib",
            "Forward, B=2 H=4 N=256 d=64 causal fp32",
            "any implementation must move 1 MiB and do 8 GFLOP",
        ):
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
        for title, expected in (
            ("bytes movedread + written", "4 MiB3 MiB + 1 MiB"),
            ("gain over the first", "2 ×"),
            ("sectors", "1,234"),
            ("barriers", "56"),
            ("warp operations", "7"),
            ("bank conflicts", "8"),
        ):
            self.assertEqual(page.line("06")[page.lines[0].index(title)], expected)
        self.assertIn("on Test CPU", page.text)
        self.assertNotIn("TFLOP/s", page.text)
        self.assertNotIn("median", page.text)

    def test_a_forward_pass_of_another_stage_is_no_step(self):
        borrowed = row("07_fa2_backward", "two", 1.0, sources={"07_fa2_backward/two.cuh": "0" * 40, "06_fa2_forward/tiled.cuh": "0" * 40})
        page = self.page([NAIVE, TILED, borrowed])
        self.assertIn("its forward pass is that of 06_fa2_forward", page.line("07")[0])
        self.assertIn("8 ms become 2 ms in 06_fa2_forward/tiled", page.text)
        self.assertIn("Changed since these rows were made: 06_fa2_forward/tiled.cuh, 07_fa2_backward/two.cuh.", page.text)

    def test_what_failed_is_shown_with_its_reason(self):
        rows = [
            NAIVE,
            row("02_safe_softmax", "skipped_one", verdict="skipped", message="would take 35 min"),
            row("03_online_softmax", "wrong_one", 0.5, check={"passed": False, "tensors": {"o": {"max_abs": 0.25}}}),
            {"stage": "04_fa1_forward", "variant": "crashed_one", "pass": "forward", "verdict": "CRASHED", "message": "signal 11"},
            row("06_fa2_forward", "refused_one", verdict="refused", message="d is 80"),
        ]
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
        text = self.page(fixed).text
        self.assertIn("4 × the extra memory for a sequence 2 times as long: 01_naive/naive needs 64 KiB at N=256, 256 KiB at N=512; ", text)
        self.assertIn("; 06_fa2_forward/tiled needs none at that length.", text)

    def test_a_sweep_of_the_simulator_shows_bytes_over_memory(self):
        rows = [row("01_naive", "naive", device=CPU, sizes={"seq_q": n, "seq_k": n}, extra_memory_bytes=n - 256) for n in (256, 512)]
        page = self.page(rows)
        self.assertEqual(page.lines[1][1:], ["4 MiBnone", "4 MiB256 B"])
        self.assertIn("Of the simulator the large figure is the bytes moved", page.text)

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
        self.assertIn("0.5 × as fast as the fastest peer", text)
        self.assertIn("2 × as fast as the peer of the same algorithm", text)

    def test_of_the_same_run_the_latest_is_shown(self):
        page = self.page([NAIVE, TILED, {**TILED, "date": "2027-01-01T00:00:00Z", "time": {**TILED["time"], "median_ms": 1.0}}])
        self.assertEqual([line[0][:8] for line in page.lines if line[0].startswith("06")], ["06_fa2_f"])
        self.assertIn("8 × as fast", page.text)
        self.assertIn("; 1 older of the same runs is not in the tables", page.text)
        both = self.page([NAIVE, TILED, {**TILED, "tiles": {"br": 64, "bc": 64}}])
        self.assertEqual(sum(line[0].startswith("06") for line in both.lines), 2)

    def test_a_column_without_figures_is_left_out(self):
        self.assertIn("bytes movedread + written", self.page([NAIVE, TILED]).lines[0])
        bare = [{key: value for key, value in one.items() if not key.startswith("hbm_")} for one in (NAIVE, TILED)]
        self.assertNotIn("bytes movedread + written", self.page(bare).lines[0])

    def test_why_fa2_reads_more(self):
        def page(first, second, **more):
            fa1 = row("04_fa1_forward", "thread_per_row", device=CPU, hbm_read_bytes=first << 10, hbm_written_bytes=99 << 10)
            before = row("06_fa2_forward", "loop_order", device=CPU, hbm_read_bytes=1 << 30)
            last = row("06_fa2_forward", "warp_tiled", device=CPU, hbm_read_bytes=second << 10, tiles={"br": 64, "bc": 32}, **more)
            return self.page([NAIVE, fa1, before, last]).text

        text = page(585, 768)
        self.assertIn("Why FA-2 reads more than FA-1 here (768 KiB against 585 KiB; written: 1 MiB against 99 KiB)", text)
        self.assertIn("for each tile of queries, here of 64, and takes", text)
        self.assertNotIn("Why FA-2", page(585, 585))
        self.assertIn("Why FA-2", page(585, 700, verdict="WRONG"))  # then the step before it, which reads most
        self.assertNotIn("Why FA-2", self.page([NAIVE, TILED]).text)

    def test_each_figure_can_stand_under_its_title(self):
        """Where a table is too wide, a cell shows its data-title, since the head of its column is gone."""
        sizes = [{"seq_q": n, "seq_k": n, "batch": 2048 // n} for n in (128, 256)]
        rows = [NAIVE, row("06_fa2_forward", "bad", verdict="refused", message="no")]
        page = self.page(rows + [row("04_fa1_forward", "swept", 1.0, sizes=one) for one in sizes])
        self.assertEqual(page.titles[1], [None, "N=128 B=16", "N=256 B=2", "N=256 B=8"])
        self.assertIn([None, None, "verdict"], page.titles)  # a reason in place of figures
        head = next(line for line in page.lines if "tiles" in line)
        titles = next(titles for titles in page.titles if "TFLOP/s" in titles)
        self.assertEqual(len(head), len(titles))
        for shown, title in zip(head[1:], titles[1:]):
            self.assertTrue(shown.startswith(title), (shown, title))


if __name__ == "__main__":
    unittest.main()
