#!/usr/bin/env python3
"""report.py: where rows come from, whether they can be compared, how to make them again; several files of them."""

import os
import unittest

from cases import NAIVE, PEER, ROOT, TILED, ReportCase, at
from made_rows import COMMIT, CPU, GPU, row

from rows.files import code_hash


class Origin(ReportCase):
    def test_rows_that_should_not_be_compared_are_told(self):
        other = {**TILED, "commit": "f" * 40 + "-dirty", "device": {**GPU, "driver": "1.0"}}
        commits = "different commits: 1234567890ab (1 row), ffffffffffff-dirty (1 row)"
        self.says(self.page([NAIVE, other]), commits, "(-dirty)", "different drivers: 580.1, 1.0")
        self.says(self.page([NAIVE, row("01_naive", "naive", device=CPU)]), "different devices: Test GPU, CPU simulator")
        for other, said in (({**CPU, "simulates_sm": 90}, False), ({**CPU, "simulates_sm": 75}, True)):
            text = self.page([row("01_naive", "naive", device=CPU), row("06_fa2_forward", "tiled", device=other)]).text
            self.assertEqual("different devices: CPU simulator, CPU simulator of sm_75" in text, said)
        self.assertNotIn("These rows", self.page([NAIVE, TILED]).text)

    def test_commands(self):
        sizes = {"seq_q": 113, "seq_k": 203, "kv_heads": 2, "causal": False, "bias": "alibi", "seed": 7}
        odd = row("08_tensor_cores", "mma", 1.0, sizes=sizes)
        sizes = "--batch 2 --heads 4 --kv-heads 2 --seq-q 113 --seq-k 203 --head-dim 64 --no-causal"
        self.says(
            self.page([odd, PEER]),
            f"git checkout {COMMIT}",
            f"build/bin/compare --device gpu {sizes} --dtype fp32 --bias alibi --seed 7 --save rows_1.json",
            "build/bin/compare --only peer --batch 2 --heads 4 --seq 256 --head-dim 64 --causal --dtype fp32 --save rows_2.json",
        )
        page = self.page([odd], "--command", "build/bin/compare --save rows.json")
        self.says(page, "build/bin/compare --save rows.json\ncommon/compare/report.py rows.json --out report.html")
        self.assertNotIn("--bias alibi", page.text)

    def test_many_commands_are_folded(self):
        rows = [at(n, "01_naive", "naive", 1.0, commit="f" * 40, date="2026-02-01T00:00:00Z") for n in range(1, 10)]
        page, start = self.page([*rows, NAIVE]), f"(the commit of most rows)\ngit checkout {'f' * 40}\n"
        self.says(page, start, "# ... and 8 more, see below", "All 10 commands", "2026-01-02 to 2026-02-01")
        self.assertNotIn("All 8 commands", self.page(rows[:8]).text)

    def test_several_files_share_tables(self):
        files = self.save([PEER], "a.json"), self.save({"rows": [TILED]}, "b.json"), self.save([NAIVE], "c.json")
        page = self.report(*files)
        self.assertEqual([cells[0][:8] for cells in page.lines], ["stage/va", "01_naive", "06_fa2_f", "peer fla"])
        self.assertEqual(page.text.count("any implementation must move"), 1)

    def test_kernel_files(self):
        now = code_hash(ROOT / "01_naive" / "kernel.cuh")
        for file, of_row, state in (
            ("01_naive/kernel.cuh", now, "the same"),
            ("01_naive/kernel.cuh", "0" * 16, "changed"),
            ("01_naive/gone.cuh", now, "not here"),
            (os.path.relpath("/etc/hosts", ROOT), now, "not here"),
        ):
            page = self.page([row("01_naive", "naive", 1.0, sources={file: of_row})])
            self.assertEqual(page.lines[-1], [file, of_row, state])
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
        self.says(page, "Test GPU: Forward, B=2")  # which device the lesson is of

    def test_before_and_after_a_change(self):
        before = row("06_fa2_forward", "tiled", device=CPU)
        after = {**before, "hbm_read_bytes": 1 << 20, "date": "2026-01-03T00:00:00Z", "commit": "f" * 40}
        for folder in ("one", "two"):
            (self.path / folder).mkdir()
        page = self.report(self.save([before], "one/rows.json"), self.save([after], "two/rows.json"))
        heads = ["one/rows.jsonCPU simulator 2026-01-02 1234567890ab", "two/rows.jsonCPU simulator 2026-01-03 ffffffffffff"]
        self.assertEqual([line[1:] for line in page.lines[:2]], [heads, ["4 MiB", "2 MiB2 ×"]])
        self.says(page, "Bytes moved; in small print the gain over the first file.")
        self.assertNotIn("Runs side by side", self.page([before, after]).text)  # one file is one run


if __name__ == "__main__":
    unittest.main()
