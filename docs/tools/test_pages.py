#!/usr/bin/env python3
"""What pages say of rows with known ratios, and of rows that lack what is asked for; numbers and tables as text; and wrong markers."""

import json
import math
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generate  # noqa: E402
from tools import (
    autotuning,
    check_pages,
    debugging,
    decode,
    dropout,
    formatting,
    headline,
    hopper_forward,
    platforms,
    quotes,
    saved,
    shapes,
    tensor_results,
    timed,
    tuned,
)  # noqa: E402


def row(stage, variant, direction="forward", ms=1.0, tflops=1.0, date="2026-01-01", clock=None, **problem):
    usual = {"batch": 8, "heads": 12, "kv_heads": 12, "seq_q": 1024, "seq_k": 1024, "head_dim": 64, "causal": True, "dtype": "fp32"}
    of_row = {"stage": stage, "variant": variant, "pass": direction, "problem": usual | problem, "device": {"kind": "gpu", "name": "a GPU"}}
    return of_row | {"time": {"median_ms": ms, **(clock or {})}, "tflops": tflops, "date": date, "commit": "abc"}


def lines(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|")][2:]


class OfSavedRows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        patch = mock.patch.object(saved, "RESULTS", self.results)
        patch.start()
        self.addCleanup(patch.stop)
        (self.results / "gpu").mkdir()

    def save(self, **files):
        for name, rows in files.items():
            (self.results / "gpu" / f"{name}.json").write_text(json.dumps(rows))


class Newest(OfSavedRows):
    def test_of_the_same_run_the_one_saved_last(self):
        borrowed, tune = row("07_fa2_backward", "a"), {**row("06", "a", date="2026-03-01"), "tune": {}}
        self.save(large={"rows": [row("06", "a", tflops=1.0, date="2026-02-01"), row("06", "b", tflops=2.0)]}, choices=[tune])
        self.save(
            sweep=[
                row("06", "a", tflops=3.0),
                row("06", "b", tflops=4.0, date="2026-02-01"),
                row("06", "a", "backward", tflops=5.0),
                borrowed,
            ]
        )
        for names in (("large.json", "sweep.json"), ("sweep.json", "large.json")):
            found = {(one["variant"], one["pass"]): one["tflops"] for one in saved.newest("gpu", *names)}
            self.assertEqual(found, {("a", "forward"): 1.0, ("b", "forward"): 4.0, ("a", "backward"): 5.0})
        self.assertEqual([one["tflops"] for one in saved.newest("gpu", "sweep.json", stage="06", direction="backward")], [5.0])
        self.assertEqual(len(saved.newest("gpu", having="tune")), 1)
        self.assertEqual([one["date"][6] for one in saved.newest("gpu")], ["3", "1"])  # of all files but sweeps

    def test_a_step_whose_file_is_gone_is_not_of_today(self):
        here, gone = ({**row("01_naive", "a"), "sources": {path: "1"}} for path in ("01_naive/kernel.cuh", "01_naive/gone.cuh"))
        self.assertEqual((saved.of_today(here), saved.of_today(gone)), (True, False))
        self.assertIn("**Changed since:** `01_naive/gone.cuh`, `01_naive/kernel.cuh`.", saved.origin([here, gone]))

    def test_a_row_of_a_step_that_no_program_has_listed(self):
        with mock.patch.object(shapes, "RESULTS", pathlib.Path(__file__).resolve().parents[1] / "results"):
            with self.assertRaisesRegex(
                SystemExit, "^docs/results/cpu/programs/06_fa2_forward.json does not list 'mine'; run docs/save_results"
            ):
                timed.least_ms({**row("06_fa2_forward", "mine"), "device": {"name": "NVIDIA H200"}})


class Headline(OfSavedRows):
    FILES = {
        "compare": [
            row("01_naive", "naive", ms=6.0, clock={"enqueue_ms": 0.03, "first_enqueue_ms": 3.0}),
            row("05_fa1_backward", "thread_per_row", ms=0.001),  # runs the kernel of 04 and is no step of its own
            row("06_fa2_forward", "loop_order", clock={"enqueue_ms": 0.02}),
            row("06_fa2_forward", "warp_tiled", ms=0.5, clock={"enqueue_ms": 0.01}),
        ],
        "compare16": [row("08_tensor_cores", "tuned", ms=0.05, clock={"enqueue_ms": 0.01}, dtype="fp16")],
        "peers": [
            row("peer", "plain", ms=2.0, clock={"enqueue_ms": 0.2, "first_enqueue_ms": 5.0}),
            row("peer", "plain", ms=9.0, seq_q=4096),
            row("peer", "memory_efficient", ms=0.1),
        ],
    }

    def test_measured(self):
        self.save(**self.FILES)
        text = headline.measured("forward")
        expected = [
            ["01_naive", "fp32", "6.00", "1.0", "0.33"],
            ["torch, plain, fp32", "fp32", "2.00", "3.0", "1.0"],
            ["**06_fa2_forward** `warp_tiled`", "fp32", "0.500", "12.0", "4.0"],
            ["**08_tensor_cores** `tuned`", "fp16", "0.0500", "120", "–"],
        ]
        self.assertEqual(lines(text), expected)
        self.assertIn("Plain torch in fp16 on this problem is not saved yet.", text)

    def test_claimed(self):
        self.save(**self.FILES)
        found = {line[0]: line[1:] for line in lines(headline.claimed())}
        self.assertEqual(found["**06_fa2_forward** `warp_tiled`"], ["0.500", "0.0100", "–", "4.0", "20.0", "500", "12.0", "3.0", "300"])
        self.assertEqual(found["**08_tensor_cores** `tuned`"], ["0.0500", "0.0100", "–", "–", "–", "–", "120", "3.0", "300"])

    def test_what_is_missing_is_said(self):
        self.assertEqual(headline.measured("forward"), saved.NOTHING_SAVED)
        self.save(compare=[row("06_fa2_forward", "warp_tiled")])
        self.assertEqual(headline.measured("forward"), saved.NOTHING_SAVED)
        self.save(compare=[row("01_naive", "naive", ms=6.0), row("06_fa2_forward", "warp_tiled", ms=0.5)])
        self.assertEqual(headline.claimed(), headline.NOT_CLOCKED)
        self.assertEqual(lines(headline.measured("forward"))[-1][-2:], ["12.0", "–"])


class FrontPage(OfSavedRows):
    def rows(self):
        """Forward 1.5 times FlashAttention-2 in one cell and as fast in the others, twice backward; cuDNN four times as fast as this. On
        Hopper five times as fast."""
        found = []
        for at, (d, n, causal, dtype) in enumerate(tensor_results.CELLS):
            problem = {"head_dim": d, "seq_q": n, "seq_k": n, "causal": causal, "dtype": dtype}
            for direction, gain in (("forward", 1.5 if at == 3 else 1.0), ("backward", 2.0)):
                speeds = {"first": 1, tensor_results.LAST[direction]: 100, tensor_results.ON_HOPPER[direction]: 500, "warpgroups": 500}
                found += [row("08_tensor_cores", name, direction, tflops=speed, **problem) for name, speed in speeds.items()]
                found += [row("peer", name, direction, tflops=speed, **problem) for name, speed in (("flash", 100 / gain), ("cudnn", 400))]
        return found

    def test_means_and_ends(self):
        self.save(sweep16=self.rows()[:60], tensor_cores=self.rows()[60:])
        text = tensor_results.summary()
        forward = f"**{math.exp(math.log(1.5) / 12):.2f} times** the rate of torch's FlashAttention-2 in the forward pass (1.00 to 1.50)"
        self.assertIn(forward, text)
        self.assertIn(
            "**2.00 times** in the backward pass (2.00 to 2.00; geometric means). These steps run on every GPU since Ampere; they have 0.25 and "
            "0.25 times the rate of cuDNN",
            text,
        )
        self.assertIn("have **1.25 times** the rate of cuDNN forward (1.25 to 1.25) and **1.25 times** the rate of cuDNN backward", text)
        self.assertIn("Saved on 2026-01-01.", text)
        self.assertNotIn("Triton", text)

    def test_triton_where_it_was_timed(self):
        of_triton = [{**one, "stage": "peer", "variant": "triton", "tflops": 250} for one in self.rows() if one["variant"] == "first"]
        self.save(sweep16=self.rows(), sweep_peers=of_triton)
        self.assertIn("**2.00 times** and **2.00 times** the rate of this project's FlashAttention-2 in [Triton]", tensor_results.summary())

    def test_a_step_is_compared_with_the_one_that_it_changes(self):
        speeds = {"ring": 100, "bulk": 110, "ordered": 88, "persistent": 120}  # `persistent` changes `ring`
        problem = {"head_dim": 64, "seq_q": 4096, "seq_k": 4096, "causal": False, "dtype": "fp16"}
        self.save(tensor_steps=[row("08_tensor_cores", name, "backward", tflops=speed, **problem) for name, speed in speeds.items()])
        text = tensor_results.steps("backward", *speeds)
        self.assertEqual([line[1] for line in lines(text)], ["100", "110 (× 1.10)", "88 (× 0.80)", "120 (× 1.20)"])

    def test_nothing_is_said_where_a_cell_is_missing(self):
        for name, others in (("tuned", False), ("flash", False), ("cudnn", False), ("scheduled", True)):
            rows = self.rows()
            rows.remove(next(row for row in rows if row["variant"] == name and row["pass"] == "forward"))
            self.save(sweep16=rows)
            self.assertEqual("geometric means" in tensor_results.summary(), others, name)
            self.assertNotIn("steps for Hopper", tensor_results.summary())


class Growing(OfSavedRows):
    def test_each_run_beside_its_own_level_scores(self):
        def timed(*of_nats):
            return [{"step": "lazy", "d": 64, "nats": nats, "tflops": tflops} for nats, tflops in of_nats]

        runs = [timed((0, 600.0), (-20, 450.0)), timed((0, 498.0), (10, 540.0), (0, 502.0), (10, 560.0))]
        of_file = {"device": {"name": "a GPU"}, "commit": "abc", "date": "2026-01-01", "sources": {"gone.cuh": "1"}, "runs": runs}
        (self.results / "nvidia_h200").mkdir()
        (self.results / "nvidia_h200" / "growing.json").write_text(json.dumps(of_file))
        text = hopper_forward.growing()
        self.assertEqual(lines(text), [["64", "`lazy`", "600", "450 (× 0.75)", "500", "550 (× 1.10)"]])
        self.assertIn("| d | step | 0 | −20 | 0 | +10 |", text)
        self.assertTrue(text.startswith("a GPU, ") and text.endswith("on 2026-01-01 at commit `abc`. **Changed since:** `gone.cuh`."), text)


class Tuned(unittest.TestCase):
    def line(self, default, *times):
        choices = [{"br": 64, "bc": 16 * at, **({"time": {"median_ms": ms}} if ms else {})} for at, ms in enumerate(times)]
        return tuned.line({"problem": row("", "")["problem"], "tune": {"choices": choices, "default": default}})[3:]

    def test_the_default_beside_the_best_of_the_others(self):
        default = {"br": 64, "bc": 16}
        self.assertEqual(self.line(default, 4.0, 2.0, 3.0), [3, "64 × 16", "2.00", "64 × 32", "3.00", "+50.0"])
        self.assertEqual(self.line(default, 1.0, 2.0), [2, "64 × 16", "2.00", "64 × 0", "1.00", "-50.0"])  # not the fastest

    def test_what_was_not_timed(self):
        self.assertEqual(self.line({"br": 64, "bc": 16}, 4.0, None), [2, "64 × 16", "–", "64 × 0", "4.00", "–"])
        self.assertEqual(self.line({"br": 64, "bc": 0}, 4.0), [1, "64 × 0", "4.00", "–", "–", "–"])
        self.assertEqual(self.line(None), [0, "–", "–", "–", "–", "–"])


class Text(unittest.TestCase):
    def test_numbers_have_three_digits(self):
        numbers = [0.0, 0.00012, 0.0649, 1.3, 44.0, 99.96, 100.0, 999.4, 999.7, 1234.5, -2.5, 1024, 7]
        texts = ["0", "0.00012", "0.0649", "1.30", "44.0", "100", "100", "999", "1,000", "1,234", "-2.50", "1,024", "7"]
        self.assertEqual(list(map(formatting.number, numbers)), texts)

    def test_columns_of_numbers_are_aligned_to_the_right_whatever_is_missing(self):
        rows = [["x", "1.5", "no"], ["y", "–", "yes"], ["z", "–", "2"], ["w", "", "3 KiB"]]
        self.assertEqual(formatting.table(["name", "a", "b"], rows).split("\n")[1], "| --- | ---: | --- |")

    def test_every_variable_that_the_simulator_reads_is_listed(self):
        names = [name for name, _, _ in platforms.variables()]
        self.assertEqual(len(names), 6)
        self.assertLessEqual({"FLASH_SIMT_TARGET", "FLASH_COMMIT"}, set(names))
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path in (platforms.LIST, "common/simt/options.cpp"):
                (root / path).parent.mkdir(parents=True)
                (root / path).write_text((platforms.ROOT / path).read_text().replace('"FLASH_SIMT_ORDER", "', '"FLASH_SIMT_ODER", "'))
            with (
                mock.patch.object(platforms, "ROOT", root),
                self.assertRaisesRegex(SystemExit, "differ: FLASH_SIMT_ODER, FLASH_SIMT_ORDER"),
            ):
                platforms.variables()


class OptionalPages(unittest.TestCase):
    def test_how_lucky_the_best_of_equal_choices_is(self):
        self.assertEqual(
            lines(autotuning.luck())[:4], [["2", "0.56"], ["4", "1.03"], ["8", "1.42"], ["16", "1.77"]]
        )  # as in tables of statistics

    def test_what_a_query_row_reads_and_what_parts_add(self):
        self.assertEqual(decode.cache_bytes(1024), 4 << 20)
        first, *_, last = lines(decode.parts())
        self.assertEqual((first[2:6], last[2:]), (["8", "6 %", "17", "481"], ["512", "100 %", "1", "131,072", "0.0 %"]))

    def test_what_random_numbers_cost(self):
        self.assertEqual([dropout.per_score(rounds, scores) for _, rounds, scores in dropout.DRAWS], [0, 3.75, 12])
        self.assertEqual(lines(dropout.cost())[0][-1], "579")  # nothing drawn: (8.0) as chapter 08 has it


class Quotes(unittest.TestCase):
    def test_a_part_of_a_function_from_one_text_to_the_next(self):
        kernel = "01_naive/kernel.cuh"
        sums = quotes.part(kernel, "softmax_kernel", *"float l = ... const float inverse".split()).split("\n")
        self.assertEqual((sums[0], sums[1], len(sums)), ("```cpp", "float l = 0.0f;", 5))
        self.assertTrue(sums[3].startswith("const float inverse"))
        self.assertEqual(quotes.part(kernel, "dS_kernel", "float D =").count("\n"), 2)  # one line, and its fences
        inner = quotes.part(kernel, "tile_product", "const", "float", "a", "...", "sum", "+=").split("\n")
        self.assertEqual(inner[3], "sum += a * b;")  # as far to the left as it goes
        loop = quotes.part("04_fa1_forward/kernel.cuh", "accumulate", *"for (int g = 0; g < GROUP; ++g) { ... sum +=".split()).split("\n")
        self.assertEqual((loop[1][:4], loop[-2]), ("for ", "}"))  # closed, if its brace comes next
        loop = quotes.part("04_fa1_forward/kernel.cuh", "accumulate", *"float sum ... for (int g".split()).split("\n")
        self.assertEqual(loop[1:4], ["float sum = 0.0f;", "#pragma unroll", "for (int g = 0; g < GROUP; ++g) {"])

    def test_a_struct_to_its_closing_brace(self):
        lines = quotes.functions("06_fa2_forward/parts.cuh", "Along").split("\n")
        self.assertEqual((lines[1][:3], lines[2], lines[-2]), ("///", "struct Along {", "};"))

    def test_what_the_simulator_says_of_a_mistake_in_a_marked_line(self):
        text = debugging.bug("zoo_memory.cpp", "past_the_last_row", "row")
        self.assertIn("// BUG row\n}\n```\n\n```text\nkernel zoo, block (0,0,0), thread (4,0,0): K[b=0, h=1](4, 2) is outside", text)
        with self.assertRaisesRegex(SystemExit, "no message of 'BUG rows' in common/simt/test/zoo_memory.cpp; run docs/save"):
            debugging.bug("zoo_memory.cpp", "past_the_last_row", "rows")

    def test_functions_in_python(self):
        lines = quotes.python("docs/lab/jacobians.py", "flat", "dot").split("\n")
        self.assertEqual((lines[:2], lines[3:6], len(lines)), (["```py", "def flat(A):"], ["", "", "def dot(x, y):"], 8))
        with self.assertRaisesRegex(SystemExit, "jacobians.py: no function 'flatter' to quote"):
            quotes.python("docs/lab/jacobians.py", "flatter")

    def test_a_file_whole(self):
        text = quotes.file("docs/lab/first.cu")
        self.assertEqual((text.split("\n")[0], text.split("\n")[-2:]), ("```cpp", ["}", "```"]))


class Formulas(unittest.TestCase):
    def test_what_github_would_not_take_for_one(self):
        self.assertEqual(list(check_pages.math_problems("At $`d = 64`$, of `$HOME`, with $`d = 128`$\n\n```math\nx\n```\n")), [])
        self.assertEqual(
            list(check_pages.math_problems("At $`d = 64$ and at $`d = 128`$")),
            ["a formula that is not closed by `$: d = 64$ and at $`d = 128"],
        )
        self.assertIn("a '$' that belongs", "".join(check_pages.math_problems("At $`d = 64`$ of 5 $ and")))


class Markers(unittest.TestCase):
    def test_a_marker_names_a_function_and_its_arguments(self):
        text = "<!-- generated: notation.table -->\nold\n<!-- end -->"
        for marker in ("nothing.table", "fa2_forward", "fa2_forward.nothing", "fa2_forward.table", "svg.Picture"):
            with (
                self.subTest(marker),
                self.assertRaisesRegex(SystemExit, f"^a.md: no generated part is called '{marker}'; a part is MODULE"),
            ):
                generate.page(text.replace("notation.table", marker), "a.md")
        for marker in ("fa2_forward.tiles 3", "timed.against few_heads.json", "plot_files.picture nvidia_h200"):
            with self.subTest(marker), self.assertRaisesRegex(SystemExit, f"^a.md: generated part '{marker}': .*argument"):
                generate.page(text.replace("notation.table", marker), "a.md")
        for marker, wrong in (("functions none.cuh f", "none.cuh: no such file"), ("functions 01_naive/kernel.cuh f", "no function 'f'")):
            with self.subTest(marker), self.assertRaisesRegex(SystemExit, wrong):
                generate.page(text.replace("notation.table", f"quotes.{marker}"), "a.md")
        with self.assertRaisesRegex(SystemExit, r"softmax_kernel\(\) has no lines from 'float l' to 'none' to quote"):
            generate.page(text.replace("notation.table", "quotes.part 01_naive/kernel.cuh softmax_kernel float l ... none"), "a.md")
        after, stale = generate.page(text.replace("notation.table", "quotes.printed lab_none"), "a.md")
        self.assertEqual((after.split("\n")[1], stale), (saved.NOTHING_SAVED, ["quotes.printed lab_none"]))
        self.assertEqual(generate.page(after, "a.md"), (after, []))


if __name__ == "__main__":
    unittest.main()
