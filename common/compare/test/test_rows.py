#!/usr/bin/env python3
"""The package rows: which rows are of the same run, how a problem is named, whose pass a row runs."""

import json
import unittest

from cases import TILED, Case
from made_rows import CPU, problem, row

from rows.read import read_file
from rows.row import absence, borrowed_from, judged, latest, problem_key, verdict
from rows.text import describe, size


class Rows(Case):
    def test_rows_that_differ_in_any_field_of_the_problem_are_both_there(self):
        others = {"batch": 3, "heads": 8, "kv_heads": 2, "seq_q": 1, "seq_k": 1, "head_dim": 32, "scale": 0.5, "causal": False}
        others.update(bias="alibi", dtype="bf16", layout="qkv", input="ones", seed=2, window=128)
        self.assertEqual(set(problem()) - set(others), set())  # a new field has to be here
        for name, value in others.items():
            with self.subTest(name):
                rows = [TILED, row("06_fa2_forward", "tiled", 1.0, sizes={name: value})]
                self.assertEqual(latest(rows), rows)
                self.assertNotEqual(describe(rows[0]["problem"]), describe(rows[1]["problem"]))

    def test_what_means_the_same_is_the_same(self):
        for same in ({"scale": 0.125000001}, {"scale": None}, {"window": None}):
            self.assertEqual(problem_key(problem()), problem_key(problem(**same)), same)
        bare = {name: value for name, value in problem().items() if name not in ("scale", "input", "seed")}
        self.assertEqual(problem_key(problem()), problem_key(bare))
        self.assertEqual(describe(bare), "B=2 H=4 N=256 d=64 causal fp32")
        odd = problem(kv_heads=2, seq_k=9, bias="alibi", layout="kv", scale=2.0)
        self.assertEqual(describe(odd), "B=2 H=4 Hkv=2 Nq=256 Nk=9 d=64 causal bias=alibi kv scale=2.0 fp32")

    def test_what_is_no_file_of_rows_is_refused(self):
        def row_with(**damage):
            return json.dumps([TILED, {**TILED, **damage}]).encode()

        path = self.path / "rows.json"
        for contents, part in (
            (b"", "damaged"),
            (b"[", "damaged"),
            (b"[" * 100000, "damaged"),
            (b"\xff\xfe[", "damaged"),
            (b"[NaN]", "NaN"),
            (b"[]", "has no rows"),
            (b"{}", "holds no list of rows"),
            (b"[1]", "row 1: is no object"),
            (row_with(**{"pass": "both"}), 'row 2: pass is "both"'),
            (row_with(stage=7), "row 2: stage is 7"),
            (row_with(date=3), "row 2: date is 3, no text"),
            (row_with(device=[]), "row 2: device is [], no object"),
            (row_with(problem=3), "row 2: problem is no object"),
            (row_with(problem=problem(heads="x")), 'row 2: problem.heads is "x"'),
            (row_with(problem=problem(causal=1)), "row 2: problem.causal"),
            (row_with(problem=problem(window=[1])), "row 2: problem.window is [1]"),
            (row_with(tune={}), "row 2: is a choice of tile sizes"),
            (row_with(verdict=None, check=None, time=None), "row 2: has no verdict"),
        ):
            path.write_bytes(contents)
            with self.fails(part):
                read_file(path)
        for missing in (path.with_name("none.json"), self.path):
            with self.fails("cannot be read"):
                read_file(missing)
        self.assertEqual(read_file(self.save({"rows": [TILED]})), [TILED])

    def test_of_the_same_run_the_latest_row_stands(self):
        newer = {**TILED, "date": "2027-01-01T00:00:00Z", "tiles": {"br": 64, "bc": 64}}
        self.assertEqual(latest([newer, TILED]), [newer])
        self.assertEqual(latest([newer, TILED], by_tiles=True), [newer, TILED])
        cpus = ({**CPU, **more} for more in ({}, {"simulates_sm": 90}, {"simulates_sm": 75}, {"name": "Other"}))
        simulated = [row("06_fa2_forward", "tiled", device=cpu) for cpu in cpus]
        self.assertEqual(latest(simulated), simulated[2:])
        crash = {**{key: value for key, value in TILED.items() if key != "tiles"}, "date": "2026-06-01T00:00:00Z"}
        self.assertEqual(latest([TILED, crash, newer], by_tiles=True), [newer])  # repaired
        self.assertEqual(latest([newer, {**crash, "date": "2028"}], by_tiles=True), [{**crash, "date": "2028"}])  # broken since

    def test_a_forward_pass_is_borrowed_by_a_backward_stage_alone(self):
        kernels = {"06_fa2_forward/1.cuh": "", "04_fa1_forward/thread_rows.cuh": ""}  # a step may use parts of another stage
        self.assertEqual(borrowed_from(row("06_fa2_forward", "loop_order", sources=kernels)), "")
        self.assertEqual(borrowed_from(row("07_fa2_backward", "one", sources={"07_fa2_backward/1.cuh": "", **kernels})), "06_fa2_forward")
        self.assertEqual(borrowed_from(row("07_fa2_backward", "one", sources=kernels, **{"pass": "backward"})), "")

    def test_verdicts(self):
        self.assertEqual(verdict({**TILED, "check": {"passed": False}}), "WRONG")
        self.assertEqual(verdict({**TILED, "verdict": None}), "ok")
        self.assertEqual(verdict({"verdict": "refused"}), "refused")
        slow = {**TILED, "verdict": "TIMED OUT", "check": None}
        self.assertEqual([one["long"] for one in judged([slow, TILED])], [True, False])
        self.assertEqual([one["long"] for one in judged([slow])], [False])

    def test_one_word_for_one_reason(self):
        for said, message, word in (
            ("TIMED OUT", None, "too long"),
            ("skipped", "would take about 11 s; the limit is 10 s", "too long"),
            ("skipped", "a problem no larger took more than the limit of 10 s (B=1 H=32 N=16384 d=64 fp32)", "too long"),
            ("skipped", "a problem no larger could not run (B=1 H=32 N=16384 d=64 fp32): not enough memory", "no room"),
            ("skipped", "S and P need 9 GiB of GPU memory; 8 GiB are free", "no room"),
            ("cannot run", "not enough GPU memory", "no room"),
            ("skipped", "the user said so", "skipped"),
            ("refused", "fp32", "refused"),
            ("WRONG", None, "failed"),
        ):
            self.assertEqual(absence({"verdict": said, "message": message}), word, message)

    def test_sizes(self):
        words = ["0 B", "999 B", "1023 B", "1 KiB", "1.5 KiB", "1023 KiB", "3 GiB", "5000 GiB"]
        self.assertEqual([size(n) for n in (0, 999, 1023, 1024, 1536, 1023 * 1024, 3 << 30, 5000 << 30)], words)


if __name__ == "__main__":
    unittest.main()
