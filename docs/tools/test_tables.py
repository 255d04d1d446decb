#!/usr/bin/env python3
"""Numbers and tables as text, the newest of several rows, and the sentence of the front page, on rows with known ratios."""
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tools import environment, formatting, saved, tensor_results, tuned  # noqa: E402


def row(stage, variant, direction, tflops, d=64, n=1024, causal=False, dtype="fp16", date="2026-01-01"):
    problem = {"batch": 16384 // n, "heads": 2048 // d, "kv_heads": 2048 // d, "seq_q": n, "seq_k": n, "head_dim": d, "causal": causal, "dtype": dtype}
    return {"stage": stage, "variant": variant, "pass": direction, "problem": problem, "device": {"name": "a GPU"}, "tflops": tflops,
            "time": {"median_ms": 1.0}, "date": date, "commit": "abc"}  # fmt: skip


class Formatting(unittest.TestCase):
    def test_numbers_have_three_digits(self):
        for value, text in ((0.0, "0"), (0.00012, "0.00012"), (0.0649, "0.0649"), (1.3, "1.30"), (44.0, "44.0"), (99.96, "100"), (100.0, "100"),
                            (999.4, "999"), (999.7, "1,000"), (1234.5, "1,234"), (-2.5, "-2.50"), (1024, "1,024"), (7, "7")):  # fmt: skip
            with self.subTest(value):
                self.assertEqual(formatting.number(value), text)

    def test_columns_of_numbers_are_aligned_to_the_right_whatever_is_missing(self):
        lines = formatting.table(["name", "a", "b"], [["x", "1.5", "no"], ["y", "–", "yes"], ["z", "–", "2"], ["w", "", "3 KiB"]]).split("\n")
        self.assertEqual(lines[1], "| --- | ---: | --- |")


class Environment(unittest.TestCase):
    def test_every_variable_that_the_simulator_reads_is_listed(self):
        names = [name for name, _, _ in environment.variables()]
        self.assertEqual(len(names), 5)
        self.assertLessEqual({"FLASH_SIMT_TARGET", "FLASH_COMMIT"}, set(names))
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path in (environment.LIST, "common/simt/options.cpp"):
                (root / path).parent.mkdir(parents=True)
                (root / path).write_text((environment.ROOT / path).read_text().replace('"FLASH_SIMT_ORDER", "', '"FLASH_SIMT_ODER", "'))
            with mock.patch.object(environment, "ROOT", root), self.assertRaisesRegex(SystemExit, "differ: FLASH_SIMT_ODER, FLASH_SIMT_ORDER"):
                environment.variables()


class NewestRows(unittest.TestCase):
    def test_of_the_same_run_the_one_saved_last(self):
        files = {"large.json": [row("06", "a", "forward", 1.0, date="2026-02-01"), row("06", "b", "forward", 2.0)],
                 "sweep.json": [row("06", "a", "forward", 3.0), row("06", "b", "forward", 4.0, date="2026-02-01"), row("06", "a", "backward", 5.0)]}  # fmt: skip
        with mock.patch.object(saved, "rows_of", lambda _, file: files[file]):
            for names in (("large.json", "sweep.json"), ("sweep.json", "large.json")):
                found = {(one["variant"], one["pass"]): one["tflops"] for one in saved.newest_rows("gpu", *names)}
                self.assertEqual(found, {("a", "forward"): 1.0, ("b", "forward"): 4.0, ("a", "backward"): 5.0})


class Tuned(unittest.TestCase):
    def line(self, default, *times):
        choices = [{"br": 64, "bc": 16 * at, **({"time": {"median_ms": ms}} if ms else {})} for at, ms in enumerate(times)]
        return tuned.line({"problem": row("", "", "", 1.0)["problem"], "tune": {"choices": choices, "default": default}})[3:]

    def test_the_default_beside_the_best_of_the_others(self):
        default = {"br": 64, "bc": 16}
        self.assertEqual(self.line(default, 4.0, 2.0, 3.0), [3, "64 × 16", "2.00", "64 × 32", "3.00", "+50.0"])
        self.assertEqual(self.line(default, 1.0, 2.0), [2, "64 × 16", "2.00", "64 × 0", "1.00", "-50.0"])  # not the fastest

    def test_what_was_not_timed(self):
        default = {"br": 64, "bc": 16}
        self.assertEqual(self.line(default, 4.0, None), [2, "64 × 16", "–", "64 × 0", "4.00", "–"])
        self.assertEqual(self.line({"br": 64, "bc": 0}, 4.0), [1, "64 × 0", "4.00", "–", "–", "–"])
        self.assertEqual(self.line(None), [0, "–", "–", "–", "–", "–"])


class FrontPage(unittest.TestCase):
    def rows(self):
        """Forward 1.5 times FlashAttention-2 in one cell and as fast in the others, twice as fast backward; cuDNN four times as fast as we are."""
        ours, peers = [], []
        for at, (d, n, causal, dtype) in enumerate(tensor_results.CELLS):
            for direction, gain in (("forward", 1.5 if at == 3 else 1.0), ("backward", 2.0)):
                ours += [row("08_tensor_cores", name, direction, speed, d, n, causal, dtype) for name, speed in (("first", 1.0), ("last", 100.0))]
                peers += [row("peer", name, direction, speed, d, n, causal, dtype) for name, speed in (("flash", 100 / gain), ("cudnn", 400))]
        return {"tensor_cores.json": ours, "peers16.json": peers}

    def summary(self, files):
        with mock.patch.object(tensor_results, "rows_of", lambda _, file: files[file]), mock.patch.object(tensor_results, "gpus", lambda: ["gpu"]):
            return tensor_results.summary()

    def test_means_and_ends(self):
        text = self.summary(self.rows())
        self.assertIn(f"**{math.exp(math.log(1.5) / 12):.2f} times** the rate of torch's FlashAttention-2 in the forward pass (1.00 to 1.50)", text)
        self.assertIn("**2.00 times** in the backward pass (2.00 to 2.00; geometric means). It has 0.25 and 0.25 times the rate of cuDNN", text)
        self.assertIn("Saved on 2026-01-01.", text)

    def test_nothing_is_said_where_a_cell_is_missing(self):
        for file in ("tensor_cores.json", "peers16.json"):
            files = self.rows()
            files[file] = files[file][:-2]
            self.assertEqual(self.summary(files), saved.NOTHING_SAVED)


if __name__ == "__main__":
    unittest.main()
