#!/usr/bin/env python3
"""headline.py on rows with known ratios, and on rows that lack what it asks for."""
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tools import headline  # noqa: E402


def row(stage, variant, ms, dtype="fp32", direction="forward", seq=1024, **clock):
    problem = {"batch": 8, "heads": 12, "kv_heads": 12, "seq_q": seq, "seq_k": seq, "head_dim": 64, "causal": True, "bias": "none",
               "layout": "bhnd", "dtype": dtype}  # fmt: skip
    return {"stage": stage, "variant": variant, "pass": direction, "problem": problem, "device": {"name": "a GPU"},
            "time": {"median_ms": ms, **clock}, "date": "2026-01-01", "commit": "abc"}  # fmt: skip


class Headline(unittest.TestCase):
    def part(self, function, files, *arguments):
        with mock.patch.object(headline, "rows_of", lambda _, file: files.get(file, [])), mock.patch.object(headline, "gpus", lambda: ["gpu"]):
            return function(*arguments)

    def lines(self, text):
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|")][2:]

    FILES = {
        "compare.json": [
            row("01_naive", "naive", 6.0, enqueue_ms=0.03, first_enqueue_ms=3.0),
            row("05_fa1_backward", "thread_per_row", 0.001),  # runs the kernel of 04 and is no step of its own
            row("06_fa2_forward", "loop_order", 1.0, enqueue_ms=0.02),
            row("06_fa2_forward", "warp_tiled", 0.5, enqueue_ms=0.01),
        ],
        "compare16.json": [row("08_tensor_cores", "tuned", 0.05, "fp16", enqueue_ms=0.01)],
        "peers.json": [row("peer", "plain", 2.0, enqueue_ms=0.2, first_enqueue_ms=5.0), row("peer", "plain", 9.0, seq=4096),
                       row("peer", "memory_efficient", 0.1)],
    }  # fmt: skip

    def test_measured(self):
        text = self.part(headline.headline, self.FILES, "forward")
        self.assertEqual(
            self.lines(text),
            [["01_naive", "fp32", "6.00", "1.0", "0.33"], ["torch, plain", "fp32", "2.00", "3.0", "1.0"],
             ["**06_fa2_forward** `warp_tiled`", "fp32", "0.500", "12.0", "4.0"], ["**08_tensor_cores** `tuned`", "fp16", "0.0500", "120", "–"]],
        )  # fmt: skip
        self.assertIn("Plain torch in fp16 on this problem is not saved yet.", text)

    def test_claimed(self):
        lines = {line[0]: line[1:] for line in self.lines(self.part(headline.claimed, self.FILES))}
        self.assertEqual(lines["**06_fa2_forward** `warp_tiled`"], ["0.500", "0.0100", "–", "4.0", "20.0", "500", "12.0", "3.0", "300"])
        self.assertEqual(lines["**08_tensor_cores** `tuned`"], ["0.0500", "0.0100", "–", "–", "–", "–", "120", "3.0", "300"])

    def test_what_is_missing_is_said(self):
        old = {"compare.json": [row("01_naive", "naive", 6.0), row("06_fa2_forward", "warp_tiled", 0.5)]}
        self.assertEqual(self.part(headline.claimed, old), headline.NOT_CLOCKED)
        self.assertEqual(self.lines(self.part(headline.headline, old, "forward"))[-1][-2:], ["12.0", "–"])
        self.assertEqual(self.part(headline.headline, {}, "forward"), headline.NOT_TIMED)
        self.assertEqual(self.part(headline.headline, {"compare.json": [row("06_fa2_forward", "warp_tiled", 1.0)]}, "forward"), headline.NOT_TIMED)


if __name__ == "__main__":
    unittest.main()
