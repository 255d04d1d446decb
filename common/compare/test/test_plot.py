#!/usr/bin/env python3
"""plot.py: which rows a picture shows, by its rules, and what the program says of bad input. Needs no matplotlib."""

import contextlib
import io
import pathlib
import unittest
from unittest import mock

import made_rows as made
from cases import Case

import plot
from plots import labels, lines, style
from plots.choose import PEERS, Unfit, of_one_device


def picture(name, rows):
    return plot.select(rows, [name])[0][name]


def panel(name, rows, title):
    return next(one for one in picture(name, rows).content["panels"] if one["title"] == title)


def series(name, rows, title):
    return {line["label"]: line for line in panel(name, rows, title)["series"]}


def sweep(lengths, stage, variant, ms=1.0, **more):
    return [made.at(n, stage, variant, "forward", ms, **more) for n in lengths]


class Rules(Case):
    def test_time_has_the_best_variant_of_each_stage(self):
        lines = series("time", made.gpu_rows(), "fp32, forward")
        # warp_tiled is slower at the shortest length, fastest at the longest; refused peers and borrowed passes have no line.
        self.assertEqual(list(lines), ["01 naive", "04 thread_per_row", "06 warp_tiled", "torch mem.-efficient"])
        self.assertEqual(lines["06 warp_tiled"]["points"], [[1000, 0.1], [2000, 0.1], [4000, 0.4]])

    def test_time_says_which_problem_and_what_is_missing(self):
        forward = panel("time", made.gpu_rows(), "fp32, forward")
        self.assertEqual(forward["note"], "B = 2, H = 4, d = 64, no mask")
        self.assertEqual(forward["gaps"], ["01 naive, N = 8,000: no room"])
        self.assertEqual(forward["guides"][0]["label"], "∝ N²")
        self.assertEqual(panel("time", made.gpu_rows(), "fp16, tensor cores, forward")["gaps"], ["torch plain, N = 4,000: no room"])

    def test_the_guide_of_a_sweep_at_fixed_tokens_is_linear(self):
        rows = [made.at(n, "01_naive", "naive", "forward", tflops=2, batch=4096 // n, heads=8) for n in (512, 1024, 2048)]
        found = panel("time", rows, "fp32, forward")
        self.assertEqual((found["guides"][0]["label"], found["note"]), ("∝ N", "B·N = 4,096, H = 8, d = 64, no mask"))

    def test_of_two_families_the_one_with_more_lengths(self):
        rows = sweep((64, 128, 256, 512, 1024), "01_naive", "naive", batch=3, head_dim=128, causal=True)
        self.assertEqual(panel("time", made.gpu_rows() + rows, "fp32, forward")["note"], "B = 3, H = 4, d = 128, causal")

    def test_a_length_beside_another_is_left_out(self):
        rows = sweep((1000, 1000, 1020, 4000), "01_naive", "naive") + made.gpu_rows()
        self.assertEqual([n for n, _ in series("time", rows, "fp32, forward")["01 naive"]["points"]], [1000, 2000, 4000])

    def test_a_type_of_one_length_has_no_panel_which_is_said(self):
        found = picture("time", [row for row in made.gpu_rows() if row["problem"]["dtype"] == "fp32" or row["problem"]["seq_q"] == 1000])
        self.assertEqual([panel["row"] for panel in found.content["panels"]], ["fp32", "fp32"])
        self.assertTrue(found.note.endswith("Both axes logarithmic. fp16: only one length is saved."), found.note)

    def test_bars_of_the_best_step_and_of_peers(self):
        bars = series("tflops_forward", made.gpu_rows(), "d = 64, no mask")
        self.assertEqual(list(bars), ["08 tuned", "torch plain", "torch FA2"])
        for value in bars["08 tuned"]["values"]:
            self.assertAlmostEqual(value, 200)
        self.assertEqual(bars["torch plain"]["values"][2], "no room")

    def test_bars_stand_at_the_lengths_of_stages(self):
        rows = made.gpu_rows() + sweep([8000], "peer", "flash", dtype="fp16")
        self.assertEqual(panel("tflops_forward", rows, "d = 64, no mask")["lengths"], [1000, 2000, 4000])

    def test_both_passes_are_all_flops_over_all_time(self):
        bars = series("tflops_both", made.gpu_rows(), "d = 64, no mask")
        # 3.5 F / (F / 200 + 2.5 F / 50)
        self.assertAlmostEqual(bars["08 tuned + one_kernel"]["values"][0], 3.5 / (1 / 200 + 2.5 / 50))
        self.assertNotIn("torch plain", bars)  # it has no backward pass here

    def test_fp32_joins_the_stage_with_the_backward_pass(self):
        bars = series("tflops_both_fp32", made.gpu_rows(), "d = 64, no mask")
        self.assertEqual(list(bars), ["06 + 07"])
        f = made.flops(made.problem(seq_q=4000, seq_k=4000))
        self.assertAlmostEqual(bars["06 + 07"]["values"][2], 3.5 * f / (16 / 40 + 16 / 10) / 1e9)

    def test_memory_is_of_one_head_and_joins_equal_lines(self):
        lines = series("memory", made.gpu_rows(), "forward")
        self.assertEqual(list(lines), ["01", "04", "06, 08"])
        self.assertEqual(lines["01"]["points"][0], [1000, 8 * 1000 * 1000])
        guides = panel("memory", made.gpu_rows(), "forward")["guides"]
        self.assertEqual([guide["label"] for guide in guides], ["∝ N²", "∝ N"])

    def test_a_head_s_share_of_a_word_for_all_heads_guides_nobody(self):
        rows = [row for n in (1, 2, 4) for row in sweep([1000 * n], "08_tensor_cores", "scheduled", dtype="fp16", extra_memory_bytes=n)]
        one, other = (panel("memory", made.gpu_rows() + more, "forward")["guides"][1] for more in ([], rows))
        self.assertEqual(one, other)

    def test_many_steps_of_a_stage_on_one_line_of_memory_are_counted(self):
        def of_08(variant, extra, *lengths):
            return sweep(lengths, "08_tensor_cores", variant, dtype="fp16", extra_memory_bytes=extra)

        rows = made.gpu_rows() + of_08("scheduled", 8000, 1000) + of_08("scheduled", 16000, 2000)
        self.assertEqual(list(series("memory", rows, "forward")), ["01", "04", "06, 08 mma, 08 tuned", "08 scheduled"])
        self.assertEqual(plot.select(of_08("mma", 8, 1000) + of_08("tuned", 8, 2000), ["memory"])[0], {})  # no line has two points
        rows += of_08("swizzle", 0, 1000, 2000) + of_08("at_one_length", 32, 1000)
        self.assertEqual(list(series("memory", rows, "forward")), ["01", "04", "06, 08 (3 steps)", "08 scheduled"])

    def test_the_ladder_has_all_steps_by_stage_and_torch_beside_them(self):
        rows = made.gpu_rows()[::-1]  # measured in another order
        rows += [
            made.at(4000, "08_tensor_cores", "tma", "forward", tflops=220, dtype="fp16", kernel="08_tensor_cores/hopper_forward/1_tma.cuh")
        ]
        found = panel("ladder", rows, "forward")
        steps = {group: [name for name, _ in members] for group, members in found["groups"].items()}
        early = {"to 05, fp32": ["01 naive", "04 fa1"]}
        self.assertEqual(
            steps, early | {"06, fp32": ["loop_order", "warp_tiled"], "08, fp16": ["mma", "tuned"], "08 Hopper, fp16": ["tma"]}
        )
        self.assertAlmostEqual(found["groups"]["08, fp16"][1][1], 200)
        self.assertEqual([line[:2] for line in found["lines"]], [["peer_flash", "FA2"]])
        self.assertAlmostEqual(found["lines"][0][2], 150)

    def test_of_several_problems_the_ladder_takes_that_of_chapter_08(self):
        rows = made.gpu_rows()
        for step in ("one", "two", "three", "four", "five", "six"):
            for n, batch in ((4096, 4), (16384, 1)):
                rows += sweep([n], "08_tensor_cores", step, batch=batch, dtype="fp16")
        self.assertIn("B = 4, H = 4, N = 4,096,", picture("ladder", rows).note)

    def test_the_roofline_of_another_gpu_has_no_slope(self):
        found = picture("roofline", made.gpu_rows()).content
        self.assertEqual([mark["label"] for mark in found["marks"]], ["06 warp_tiled", "07 warp_tiled"])
        for value, expected in ((found["marks"][0]["x"], 64), (found["marks"][0]["y"], 32), (found["peaks"]["fp32"], 64)):
            self.assertAlmostEqual(value, expected)
        self.assertIsNone(found["bandwidth"])

    def test_the_roofs_of_an_h200_are_those_of_the_docs(self):
        rows = made.gpu_rows()
        for row in rows:
            row["device"] = {**made.GPU, "name": "NVIDIA H200"}
        found = picture("roofline", rows).content
        self.assertEqual((found["peaks"], found["bandwidth"]), ({"fp32": 67.0}, 4.8))

    def test_counted_bytes_stand_beside_the_least(self):
        lines = series("bytes", made.cpu_rows(), "fp32, forward")
        self.assertEqual(list(lines), ["01 naive", "04 thread_per_row", "06 warp_tiled", "must move"])  # of 06 the last step
        self.assertEqual(lines["01 naive"]["points"][1], [128, 16 * 128 * 128])
        self.assertEqual(lines["must move"]["points"][1], [128, 1024 * 128])

    def test_counts_are_of_the_largest_problem_with_all_steps(self):
        found = picture("counts", made.cpu_rows() + [made.counted(512, "01_naive", "naive", "forward", 1)])
        self.assertIn("N = 256,", found.note)
        labels = ["01 naive", "04 thread_per_row", "06 loop_order", "06 warp_tiled", "08 tuned", "05 thread_per_row"]
        self.assertEqual([step["label"] for step in found.content["steps"]], labels)

    def test_a_count_that_is_zero_everywhere_has_no_column(self):
        rows = made.cpu_rows()
        found = picture("counts", rows)
        self.assertEqual(list(found.content["counts"]), ["sectors", "barriers", "warp_operations"])
        self.assertEqual(found.remark, "No step has bank conflicts here.")
        rows[-1]["counters"]["bank_conflicts"] = 1
        found = picture("counts", rows)
        self.assertEqual((len(found.content["counts"]), found.remark), (4, ""))
        for row in rows:
            row["counters"] = dict.fromkeys(row["counters"], 0)
        self.assertEqual(len(picture("counts", rows).content["counts"]), 4)  # rather than no picture

    def test_what_cannot_be_drawn_is_said(self):
        pictures, reasons = plot.select(made.cpu_rows())
        self.assertEqual(sorted(pictures), ["bytes", "counts", "memory"])
        self.assertEqual(reasons["time"], "no row has a time")
        self.assertEqual(set(plot.select(made.gpu_rows())[1]), {"bytes", "counts"})

    def test_a_type_that_is_not_known_is_left_out(self):
        for rows in (made.gpu_rows(), made.cpu_rows()):
            rows = [{**row, "problem": {**row["problem"], "dtype": "fp8"}} for row in rows]
            self.assertEqual(plot.select(rows)[0], {})

    def test_rows_of_two_devices_have_no_common_axis(self):
        old, new, other = ({"kind": "cpu", "name": "CPU", **more} for more in ({}, {"simulates_sm": 90}, {"simulates_sm": 75}))
        rows_of = [[{"device": device, "stage": "01_naive", "pass": "forward", "problem": made.problem()}] for device in (old, new, other)]
        self.assertEqual(len(of_one_device(rows_of[0] + rows_of[1])), 2)
        with self.assertRaisesRegex(Unfit, "several devices: CPU simulator, CPU simulator of sm_75; allowed: one"):
            of_one_device(rows_of[1] + rows_of[2])
        with self.assertRaisesRegex(Unfit, "several devices: CPU simulator, Test GPU; allowed: one"):
            plot.select(made.cpu_rows() + made.gpu_rows())

    def test_the_digest_knows_what_is_drawn(self):
        rows = made.gpu_rows()
        before = plot.select(rows)[0]
        rows[0]["time"]["median_ms"] *= 1.001
        after = plot.select(rows)[0]
        self.assertEqual(
            {name for name in before if plot.digest(name, before[name]) != plot.digest(name, after[name])}, {"time", "tflops_forward_fp32"}
        )
        found = picture("time", rows)
        found.remark = "another"
        self.assertNotEqual(plot.digest("time", found), plot.digest("time", after["time"]))

    def test_the_digest_knows_the_code_that_draws_the_picture_and_no_other(self):
        names = ("time", "roofline", "ladder")
        before = [plot.code_digest(name) for name in names]
        edited = self.path / "edited.py"
        for module, changed in ((lines, [True, False, False]), (style, [True, True, True])):
            edited.write_text(pathlib.Path(module.__file__).read_text() + "# edited")
            with mock.patch.object(module, "__file__", str(edited)):
                after = [plot.code_digest(name) for name in names]
            self.assertEqual([one != other for one, other in zip(before, after)], changed, module.__name__)

    def test_each_peer_has_a_colour_and_a_mark_of_its_own(self):
        names = [f"peer_{name}" for name in PEERS]
        for of in (style.COLOURS.get, style.MARKERS.get):
            self.assertEqual(len({of(name) for name in names} - {None}), len(names))

    def test_labels_are_pushed_apart_and_no_further(self):
        places = labels.spread([10, 11, 50, 12], 10, 0, 100)
        self.assertEqual(places, [1, 11, 50, 21])
        self.assertEqual(labels.spread([95, 99, 100], 10, 0, 100), [80, 90, 100])

    def test_damaged_numbers_are_no_numbers(self):
        damages = [{"time": time} for time in (3, {"median_ms": "fast"}, {"median_ms": -1}, {"median_ms": True})]
        damages += [{"flops": flops} for flops in (None, float("inf"), 1e30)]
        for damage in [*damages, {"verdict": "WRONG"}]:
            rows = [{**row, **damage} for row in made.gpu_rows()]
            self.assertEqual(plot.select(rows, ["time"])[1]["time"], "no row has a time")

    def test_bad_input_is_one_line(self):
        out, good, bad = self.path / "out", self.save(made.gpu_rows(), "good.json"), self.save("{", "bad.json")
        for part, *arguments in (
            ("is damaged or no JSON", bad, "--out", out),
            ("--out", good),
            ("unrecognized arguments", good, "--out", out, "--size", "3"),
            ("'speed'; allowed: time,", good, "--out", out, "--only", "speed"),
            ("nothing to draw", good, "--out", out, "--only", "bytes"),
        ):
            with contextlib.redirect_stdout(io.StringIO()), self.fails(part):
                plot.main([*map(str, arguments)])
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
