#!/usr/bin/env python3
"""report.py: what the page says of rows, and how."""

import unittest

from cases import NAIVE, PEER, TILED, ReportCase, at
from made_rows import COMMIT, CPU, row


class Report(ReportCase):
    def test_times_and_gains(self):
        page = self.page([NAIVE, TILED, PEER])
        self.assertEqual(
            [" | ".join(line[1:]) for line in page.lines],  # large and small print of a cell stand together
            [
                "tiles | median, msmin to max | TFLOP/s | % of peak | gain over the first | over the line before | bytes movedread + written"
                " | extra memory | max error | verdict",
                "128 × 32 | 87.5 to 8.5 | 1 | 1 | – | – | 32 MiB31 MiB + 1 MiB | 64 MiB | 4.5e-07 | ok",
                "128 × 32 | 21.5 to 2.5 | 4 | 4 | 4 × | 4 × | 4 MiB3 MiB + 1 MiB | none | 4.5e-07 | ok",
                "– | 43.5 to 4.5 | 2 | 2 | 2 × | – | 4 MiB3 MiB + 1 MiB | – | – | ok",  # its peak is what the stages' rows imply
            ],
        )
        self.assertEqual([line[0] for line in page.lines[2:]], ["06_fa2_forward/tiledidea of tiled", "peer flashidea of flash"])
        self.assertIn(("td", "style", "--share:25.0%"), page.attributes)  # the bar of 01: 1 of 4 TFLOP/s
        self.says(
            page,
            "4 × as fast as plain attention (01_naive/naive): 8 ms become 2 ms in 06_fa2_forward/tiled.",
            "8 × fewer bytes moved than plain attention (01_naive/naive): 32 MiB become 4 MiB in 06_fa2_forward/tiled.",
            "2 × as fast as the fastest peer, idea of flash: 4 ms there, 2 ms in 06_fa2_forward/tiled.",
            f"Test GPU, compute capability 9.0, CUDA 13.0, driver 580.1Peerstorch 9.9Date2026-01-02Commit{COMMIT} (3 rows)",
            "matplotlib is not installed. python3 -m pip install matplotlib installs it",
            "Forward, B=2 H=4 N=256 d=64 causal fp32\nTest GPU; cold L2; any implementation must move 1 MiB and do 8 GFLOP;",
        )
        self.assertNotIn("Until the launch", page.text)

    def test_what_an_unsynchronised_timer_reads(self):
        page = self.page([NAIVE, row("06_fa2_forward", "tiled", time={**TILED["time"], "enqueue_ms": 0.0125})])
        column = page.lines[0].index("until the launch returned, ms")
        self.assertEqual([page.line("01")[column], page.line("06")[column]], ["–", "0.0125"])

    def test_counts_are_no_times(self):
        page = self.page([row("01_naive", "naive", device=CPU, hbm_read_bytes=7 << 20), row("06_fa2_forward", "tiled", device=CPU)])
        self.assertEqual(
            [" | ".join(line[2:-2]) for line in page.lines[::2]],
            [
                "bytes movedread + written | gain over the first | over the line before | extra memory"
                " | sectors | barriers | warp operations | bank conflicts",
                "4 MiB3 MiB + 1 MiB | 2 × | 2 × | none | 1,234 | 56 | 7 | 8",
            ],
        )
        self.says(page, "exact counts; they are not times", "on Test CPU")
        for part in ("TFLOP/s", "median"):
            self.assertNotIn(part, page.text)

    def test_a_forward_pass_of_another_stage_is_no_step(self):
        borrowed = row("07_fa2_backward", "two", 1.0, sources={"07_fa2_backward/two.cuh": "0" * 40, "06_fa2_forward/tiled.cuh": "0" * 40})
        page = self.page([NAIVE, TILED, borrowed])
        self.assertIn("its forward pass is that of 06_fa2_forward", page.line("07")[0])
        changed = "Changed since these rows were made: 06_fa2_forward/tiled.cuh, 07_fa2_backward/two.cuh."
        self.says(page, "8 ms become 2 ms in 06_fa2_forward/tiled", changed)

    def test_what_failed_is_shown_with_its_reason(self):
        rows = [
            NAIVE,
            row("02_safe_softmax", "skipped_one", verdict="skipped", message="would take 35 min"),
            row("03_online_softmax", "wrong_one", 0.5, check={"passed": False, "tensors": {"o": {"max_abs": 0.25}}}),
            {"stage": "04_fa1_forward", "variant": "crashed_one", "pass": "forward", "verdict": "CRASHED", "message": "signal 11"},
            row("06_fa2_forward", "refused_one", verdict="refused", message="d is 80"),
        ]
        page = self.page(rows)
        reasons = ["skipped: would take 35 min", "WRONG: no reason given (max error 0.25)", "CRASHED: signal 11", "refused: d is 80"]
        for line, reason in zip(page.lines[2:6], reasons):
            self.assertIn(reason, line[1])  # the only problem of its file is that of what crashed
        self.says(page, "Failed: 03_online_softmax/wrong_one, forward: WRONG; 04_fa1_forward/crashed_one, forward: CRASHED.")
        self.assertNotIn("as fast:", page.text)  # a wrong result is not the fastest one
        page = self.page([NAIVE, at(512, "01_naive", "naive", 9.0), rows[3]])
        self.says(page, "Runs that ended before they named their problem")
        self.assertIn("CRASHED: signal 11", page.line("04")[2])

    def test_a_sweep_has_an_overview(self):
        rows = []
        for n in (256, 512, 1024):
            rows.append(at(n, "01_naive", "naive", n / 32, batch=2048 // n, extra_memory_bytes=n * n))
            rows.append(at(n, "06_fa2_forward", "tiled", n / 128, batch=2048 // n))
        rows[-2].update(verdict="skipped", message="would not fit")
        page = self.page(rows + [{**one, "pass": "backward"} for one in rows])
        heads = ["N=256B=8", "N=512B=4", "N=1,024B=2"]
        self.assertEqual([line[1:] for line in page.lines[:3]], [heads, ["18", "0.516", "skipped"], ["42", "24", "18"]])
        self.says(page, "Forward, fp32, causal, H=4 d=64", "B·N is always 2,048", "GPU: TFLOP/s, with the median time")
        self.assertEqual(sum(tag == "details" for tag, *_ in page.attributes), 2)  # of six tables the two of the lesson are open
        rows.append(at(512, "04_fa1_forward", "grows", 1.0, extra_memory_bytes=512))
        page = self.page([{**one, "problem": {**one["problem"], "batch": 1}} for one in rows])
        said = "4 × the extra memory for a sequence 2 times as long: 01_naive/naive needs 64 KiB at N=256, 256 KiB at N=512; "
        self.says(page, said, "; 06_fa2_forward/tiled needs none at that length.")

    def test_a_sweep_of_the_simulator_shows_bytes_over_memory(self):
        page = self.page([at(n, "01_naive", "naive", device=CPU, extra_memory_bytes=n - 256) for n in (256, 512)])
        self.assertEqual(page.lines[1][1:], ["4 MiBnone", "4 MiB256 B"])
        self.says(page, "Simulator: bytes moved, an exact count")

    def test_the_fewest_bytes_make_no_stage_the_best(self):
        moved = {("01_naive", "naive"): 9, ("04_fa1_forward", "first"): 2, ("06_fa2_forward", "second"): 3}
        page = self.page([row(*name, device=CPU, hbm_read_bytes=mib << 20, hbm_written_bytes=0) for name, mib in moved.items()])
        self.says(page, "9 MiB become 3 MiB in 06_fa2_forward/second")

    def test_equal_lines_are_said_once(self):
        rows = [at(n, "04_fa1_forward", "slow", verdict="TIMED OUT") for n in (256, 512)]
        rows.append(at(1024, "04_fa1_forward", "slow", verdict="skipped", message="would take about 11 s; the limit is 10 s"))
        for n in (256, 512, 1024):
            rows.append(at(n, "01_naive", "naive", 8.0))
            rows += [at(n, "peer", name, verdict="refused", message="16 bits only") for name in ("flash", "cudnn")]
        page = self.page(rows)
        self.assertEqual(page.lines[2][1:], ["too long"] * 3)  # in the overview, whether the limit ended a run or foresaw it
        self.says(
            page,
            "Failed: 04_fa1_forward/slow, forward: TIMED OUT (2 problems).",
            "Without a result in any column: peer/flash, peer/cudnn (refused).",
            "TIMED OUT: the time limit ended the run",
        )
        self.assertEqual(page.text.count("refused: 16 bits only"), 3)  # once in each table
        self.assertIn("refused: 16 bits only", page.line("peer flash, cudnn")[1])
        finished = at(128, "04_fa1_forward", "slow", 8.0)  # so it does not hang: long problems are long
        self.assertNotIn("Failed:", self.page([*rows, finished]).text)
        for elsewhere in ({"pass": "backward"}, {"device": CPU}):
            self.says(self.page([*rows, {**finished, **elsewhere}]), "Failed:")

    def test_the_peer_of_the_same_algorithm_beside_the_fastest_one(self):
        self.assertNotIn("the same algorithm", self.page([NAIVE, TILED, PEER]).text)
        page = self.page([NAIVE, TILED, PEER, {**PEER, "variant": "cudnn", "time": {**PEER["time"], "median_ms": 1.0}}])
        self.says(page, "0.5 × as fast as the fastest peer", "2 × as fast as the peer of the same algorithm")

    def test_of_the_same_run_the_latest_is_shown(self):
        page = self.page([NAIVE, TILED, {**TILED, "date": "2027-01-01T00:00:00Z", "time": {**TILED["time"], "median_ms": 1.0}}])
        self.assertEqual([line[0][:8] for line in page.lines if line[0].startswith("06")], ["06_fa2_f"])
        self.says(page, "8 × as fast", "; 1 older of the same runs is not in the tables")
        both = self.page([NAIVE, TILED, {**TILED, "tiles": {"br": 64, "bc": 64}}])
        self.assertEqual(sum(line[0].startswith("06") for line in both.lines), 2)

    def test_a_column_without_figures_is_left_out(self):
        self.assertIn("bytes movedread + written", self.page([NAIVE, TILED]).lines[0])
        bare = [{key: value for key, value in one.items() if not key.startswith("hbm_")} for one in (NAIVE, TILED)]
        self.assertNotIn("bytes movedread + written", self.page(bare).lines[0])

    def test_each_figure_can_stand_under_its_title(self):
        """Where a table is too wide, a cell shows its data-title, since the head of its column is gone."""
        swept = [at(n, "04_fa1_forward", "swept", 1.0, batch=2048 // n) for n in (128, 256)]
        page = self.page([NAIVE, row("06_fa2_forward", "bad", verdict="refused", message="no"), *swept])
        self.assertEqual(page.titles[1], [None, "N=128 B=16", "N=256 B=2", "N=256 B=8"])
        self.assertIn([None, None, "verdict"], page.titles)  # a reason in place of figures
        head = next(line for line in page.lines if "tiles" in line)
        titles = next(titles for titles in page.titles if "TFLOP/s" in titles)
        self.assertEqual(len(head), len(titles))
        for shown, title in zip(head[1:], titles[1:]):
            self.assertTrue(shown.startswith(title), (shown, title))


if __name__ == "__main__":
    unittest.main()
