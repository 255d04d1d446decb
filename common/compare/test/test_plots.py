#!/usr/bin/env python3
"""plot.py: pictures show what the rows say, and say what is missing. Skipped without pandas and matplotlib (exit code 77)."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from dataclasses import replace
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import plot
import rows
from plots import PLOTS

STAGES = {"01": "01_naive", "06": "06_fa2_forward", "07": "07_fa2_backward", "08": "08_tensor_cores", "peer": "peer"}
HALF = {"dtype": "fp16"}


def row(step, n=1024, ms=None, which="forward", kind="gpu", problem=(), **more):
    """Of "06 tuned", with 8 GFLOP. No figure here is a measurement."""
    stage, variant = step.split()
    sizes = {"batch": 16384 // n, "heads": 32, "seq_q": n, "seq_k": n, "head_dim": 64, "causal": False, "dtype": "fp32", "bias": "none"}
    sizes |= {"layout": "bhnd", **dict(problem)}
    sizes["kv_heads"] = sizes["heads"]
    made = {"stage": STAGES[stage], "variant": variant, "pass": which, "device": {"kind": kind, "name": "NVIDIA H200"}, "problem": sizes}
    made |= {"verdict": "ok", "flops": 8e9, "date": "2026-01-02"} | ({"time": {"median_ms": ms}} if ms else {})
    return rows.make(made | more)


def lines(axes):
    """{label: values}"""
    return {line.get_label(): [float(value) for value in line.get_ydata()] for line in axes.lines}


def bars(axes, along="width"):
    return [round(float(getattr(bar, f"get_{along}")()), 6) for bar in axes.patches]


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts] + [text.get_text() for text in figure.texts]


class Plots(unittest.TestCase):
    def draw(self, name, found, where=None):
        return plot.figure(PLOTS[name], plot.table(found), where)

    def test_a_line_is_the_variant_that_is_fastest_at_the_largest_length(self):
        found = [row(f"06 {name}", n, ms) for n, old, new in ((1024, 1, 9), (2048, 8, 4)) for name, ms in (("old", old), ("new", new))]
        found += [row("01 naive", n, 50 * n / 1024) for n in (1024, 2048)] + [row("01 naive", 4096, verdict="cannot run")]
        found += [row("06 wrong", 2048, 0.1, verdict="WRONG"), row("07 borrowed", 2048, 0.1)]
        figure = self.draw("time", found)
        drawn = lines(figure.axes[0])
        self.assertEqual((drawn.pop("06 new"), drawn.pop("01 naive")), ([9, 4], [50, 100]))
        self.assertEqual(drawn, {"∝ N": [4.5, 9]})
        self.assertIn("01 naive, N = 4,096: no room", texts(figure))

    def test_both_passes_are_their_flops_over_their_times(self):
        times = {"08 mma": (2, 9), "08 ring": (9, 6), "peer flash": (1, 1)}
        found = [
            row(step, 1024, ms, which, problem=HALF) for step, both in times.items() for which, ms in zip(("forward", "backward"), both)
        ]
        found += [row("08 mma", 2048, 1, problem=HALF), row("08 ring", 2048, which="backward", problem=HALF, verdict="TIMED OUT")]
        figure = self.draw("tflops_both", found)
        self.assertEqual(bars(figure.axes[0], "height"), [2, 8])  # 16 GFLOP in 2 + 6 ms, in 1 + 1 ms
        self.assertEqual([text.get_text() for text in figure.legends[0].get_texts()], ["08", "torch FA2"])
        self.assertLessEqual({"d = 64, no mask: 08 mma + 08 ring", "too long"}, set(texts(figure)))

    def test_steps_stand_in_the_order_of_their_files_with_their_numbers(self):
        one = {"seq_q": 4096, "seq_k": 4096, "batch": 4, "heads": 16, "head_dim": 128, "causal": True}
        half = one | HALF
        found = [row("08 tma", ms=0.02, problem=half, kernel="08_tensor_cores/hopper_forward/1_tma.cuh")]
        found += [row("08 mma", ms=0.04, problem=half, kernel="08_tensor_cores/forward/1_mma.cuh"), row("01 naive", ms=4, problem=one)]
        found += [row("peer flash", ms=0.05, problem=half, torch="9.9")]
        figure = self.draw("ladder", found)
        self.assertEqual(bars(figure.axes[0]), [20, 200, 400])  # fp32 is drawn ten times as long
        said = texts(figure)
        self.assertEqual(
            [text for text in said if text[:2] in ("08", "01") and "fp" in text], ["01 to 05, fp32", "08, fp16", "08 Hopper, fp16"]
        )
        self.assertLessEqual(
            {"bars at 10 × scale", "FA2 160", "Dashed, in fp16: FlashAttention-2 and cuDNN of torch 9.9, FlashAttention-3."}, set(said)
        )

    def test_counts_are_whole_and_zeros_are_said(self):
        counts = {"sectors": 7777777, "barriers": 3, "warp_operations": 7, "bank_conflicts": 0, "read_bytes": 8, "written_bytes": 8}
        found = [row("01 naive", kind="cpu", problem={"batch": 1, "heads": 1}, counters=counts)]
        figure = self.draw("counts", found)
        self.assertEqual([bars(axes) for axes in figure.axes], [[7777777], [3], [7]])
        self.assertLessEqual({"7,777,777", "No step has bank conflicts here."}, set(texts(figure)))

    def test_steps_that_need_the_same_memory_share_a_line(self):
        need = {"01 naive": (2**23, 2**25), "06 old": (0, 0), "06 new": (0, 0), "08 mma": (0, 0)}  # bytes of a head
        more = {"problem": {"batch": 1, "heads": 2, "causal": True}}
        found = [row(step, n, extra_memory_bytes=2 * size, **more) for step, sizes in need.items() for n, size in zip((1024, 2048), sizes)]
        flash = [
            row("peer flash", n, extra_memory_bytes=8 * n + 4, problem={**more["problem"], **HALF}) for n in (1024, 2048)
        ]  # L of two heads
        drawn = lines(self.draw("memory", found + flash).axes[0])
        naive = [2**23 + 2**12, 2**25 + 2**13]
        self.assertEqual(drawn.pop("∝ N²"), [naive[0] / 2, 2 * naive[0]])
        self.assertEqual(drawn.pop("∝ N"), [2**11, 2**12])
        self.assertEqual(drawn, {"01 naive": naive, "06 old, 06 new, 08 mma, torch FA2": [2**12, 2**13]})

    def test_a_mark_of_the_roofline_is_flops_for_each_byte_of_all_kernels(self):
        profile = [{"hbm_read_bytes": 3e8, "hbm_written_bytes": 1e8}] * 2
        axes = self.draw("roofline", [row("06 tuned", ms=1, problem={"causal": True}, profile=profile)]).axes[0]
        mark = next(line for line in axes.lines if line.get_label() == "06 tuned, forward")
        self.assertEqual((mark.get_xdata()[0], mark.get_ydata()[0]), (10, 8))

    def test_rows_that_do_not_suffice_are_said(self):
        timed = [row("06 tuned", n, 1) for n in (1024, 2048)]
        for name, found, where, reason in (
            ("bytes", timed, None, "no row has counted_bytes_of_a_head and head_dim == 64 and not causal; --where"),
            ("time", timed, "head_dim == 128", "no row has ms and head_dim == 128; --where names other problems"),
            ("time", timed[:1], None, "no panel has two lengths"),
            ("time", [*timed, row("06 tuned", 1024, 1, problem={"batch": 3})], "", "one place for rows with batch of 3, 16; --where"),
        ):
            drawn, reasons = plot.pictures(found, [name], where)
            self.assertEqual(drawn, {})
            self.assertIn(reason, reasons[name])
        for found, where, wrong in (
            ([*timed, row("01 naive", kind="cpu")], None, "CPU simulator and NVIDIA H200"),
            (timed, "size == 3", "'size'"),
        ):
            with self.assertRaisesRegex(rows.Failure, wrong):
                plot.pictures(found, ["time"], where)

    def test_an_entry_makes_a_new_plot(self):
        new = replace(PLOTS["time"], title="Registers & time", where="head_dim == 64", panels={"all": "seq_q > 0"})
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(PLOTS, mine=new), contextlib.redirect_stdout(io.StringIO()) as said:
            out = pathlib.Path(folder)
            (out / "rows.jsonl").write_text("".join(json.dumps(dict(row("06 tuned", n, 1.0))) + "\n" for n in (1024, 2048)))
            command = [str(out / "rows.jsonl"), "--only", "mine,counts", "--out", folder]
            plot.main(command)
            first = (out / "mine.svg").read_text()
            self.assertIn("<title>Registers &amp; time</title>", first)
            self.assertIn(">06 tuned</text>", first)
            self.assertNotIn("#7f01", first)  # every colour is one of light and dark
            self.assertIn("no counts: no row has counters_sectors", said.getvalue())
            plot.main(command)
            self.assertEqual((out / "mine.svg").read_text(), first)


if __name__ == "__main__":
    try:
        import matplotlib  # noqa: F401
        import pandas  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    unittest.main()
