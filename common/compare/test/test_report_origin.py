#!/usr/bin/env python3
"""report.py: where rows come from, whether they can be compared, how to make them again; several files of them."""

import hashlib
import os
import unittest

from made_rows import COMMIT, CPU, GPU, row
from report_case import NAIVE, PEER, ROOT, TILED, Case


class Origin(Case):
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

    def test_commands(self):
        odd = row(
            "08_tensor_cores", "mma", 1.0, sizes={"seq_q": 113, "seq_k": 203, "kv_heads": 2, "causal": False, "bias": "alibi", "seed": 7}
        )
        text = self.page([odd, PEER]).text
        self.assertIn(f"git checkout {COMMIT}", text)
        sizes = "--batch 2 --heads 4 --kv-heads 2 --seq-q 113 --seq-k 203 --head-dim 64 --no-causal"
        self.assertIn(f"build/bin/compare --device gpu {sizes} --dtype fp32 --bias alibi --seed 7 --save rows_1.json", text)
        sizes = "--batch 2 --heads 4 --seq 256 --head-dim 64 --causal"
        self.assertIn(f"build/bin/compare --only peer {sizes} --dtype fp32 --save rows_2.json", text)
        text = self.page([odd], "--command", "build/bin/compare --save rows.json").text
        self.assertIn("build/bin/compare --save rows.json\ncommon/compare/report.py rows.json --out report.html", text)
        self.assertNotIn("--bias alibi", text)

    def test_many_commands_are_folded(self):
        sizes = [{"seq_q": n, "seq_k": n} for n in range(1, 10)]
        rows = [row("01_naive", "naive", 1.0, sizes=one, commit="f" * 40, date="2026-02-01T00:00:00Z") for one in sizes]
        page = self.page([*rows, NAIVE])
        for part in (
            f"git checkout {'f' * 40}",
            "(the commit of most rows)",
            "# ... and 8 more, see below",
            "All 10 commands",
            "2026-01-02 to 2026-02-01",
        ):
            self.assertIn(part, page.text)
        self.assertNotIn("All 8 commands", self.page(rows[:8]).text)

    def test_several_files_share_tables(self):
        files = self.save([PEER], "a.json"), self.save({"rows": [TILED]}, "b.json"), self.save([NAIVE], "c.json")
        page = self.report(*files)
        self.assertEqual([cells[0][:8] for cells in page.lines], ["stage/va", "01_naive", "06_fa2_f", "peer fla"])
        self.assertEqual(page.text.count("any implementation must move"), 1)

    def test_kernel_files(self):
        contents = (ROOT / "01_naive" / "kernel.cuh").read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(contents) + contents).hexdigest()
        outside = os.path.relpath("/etc/hosts", ROOT)
        for sources, state in (
            ({"01_naive/kernel.cuh": blob}, "the same"),
            ({"01_naive/kernel.cuh": "0" * 40}, "changed"),
            ({"01_naive/gone.cuh": blob}, "not here"),
            ({outside: blob}, "not here"),
        ):
            page = self.page([row("01_naive", "naive", 1.0, sources=sources)])
            self.assertEqual(page.lines[-1], [*sources, *sources.values(), state])
            self.assertEqual("Changed since these rows were made" in page.text, state != "the same")

    def test_two_machines_side_by_side(self):
        other = {**GPU, "name": "Other GPU"}
        slower = row("06_fa2_forward", "tiled", 8.0, device=other, date="2026-02-03T00:00:00Z")
        refused = row("01_naive", "naive", device=other, verdict="cannot run", message="not enough memory")
        files = self.save([NAIVE, TILED, row("04_fa1_forward", "alone", 3.0)], "a.json"), self.save([refused, slower], "b.json")
        page = self.report(*files)
        head = next(index for index, line in enumerate(page.lines) if line[1].startswith("a.json"))
        heads = ["stage/variant", "a.jsonTest GPU 2026-01-02 1234567890ab", "b.jsonOther GPU"]  # its rows are of two days
        self.assertEqual(page.lines[head], heads)
        self.assertEqual([line[1:] for line in page.lines[head + 1 : head + 3]], [["8", "no room"], ["2", "80.25 ×"]])
        self.assertFalse(page.lines[head + 3][0].startswith("04"))  # in one file alone
        self.assertIn("Test GPU: Forward, B=2", page.text)  # which device the lesson is of

    def test_before_and_after_a_change(self):
        before = row("06_fa2_forward", "tiled", device=CPU)
        after = {**before, "hbm_read_bytes": 1 << 20, "date": "2026-01-03T00:00:00Z", "commit": "f" * 40}
        for folder, rows in (("one", [before]), ("two", [after])):
            (self.path / folder).mkdir()
            self.save(rows, f"{folder}/rows.json")
        page = self.report(self.path / "one" / "rows.json", self.path / "two" / "rows.json")
        names = [os.path.join(folder, "rows.json") for folder in ("one", "two")]
        origins = ["CPU simulator 2026-01-02 1234567890ab", "CPU simulator 2026-01-03 ffffffffffff"]
        self.assertEqual(page.lines[0], ["stage/variant", *map(str.__add__, names, origins)])
        self.assertEqual(page.lines[1][1:], ["4 MiB", "2 MiB2 ×"])
        self.assertIn("Bytes moved; in small print the gain over the first file.", page.text)
        self.assertNotIn("Runs side by side", self.page([before, after]).text)  # one file is one run


if __name__ == "__main__":
    unittest.main()
