#!/usr/bin/env python3
"""What pages say of rows with known ratios, and of rows that lack what is asked for; numbers and tables as text; and wrong markers."""

import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1] / "playground")]
import kernels  # noqa: E402

import generate  # noqa: E402
from tools import check_pages, counted, formatting, platforms, saved, site, tuned  # noqa: E402


def row(stage, variant, direction="forward", ms=1.0, tflops=1.0, date="2026-01-01", **problem):
    usual = {
        "bias": "none",
        "layout": "bhnd",
        "batch": 8,
        "heads": 12,
        "kv_heads": 12,
        "seq_q": 1024,
        "seq_k": 1024,
        "head_dim": 64,
        "causal": True,
        "dtype": "fp32",
    }
    of_row = {
        "stage": stage,
        "variant": variant,
        "pass": direction,
        "verdict": "ok",
        "problem": usual | problem,
        "device": {"kind": "gpu", "name": "a GPU"},
    }
    return of_row | {"time": {"median_ms": ms}, "tflops": tflops, "date": date, "commit": "abc"}


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
            (self.results / "gpu" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Newest(OfSavedRows):
    def test_of_the_same_run_the_one_saved_last(self):
        borrowed, tune = row("07_fa2_backward", "a"), {**row("06", "a", date="2026-03-01"), "tune": {}}
        self.save(large=[row("06", "a", tflops=1.0, date="2026-02-01"), row("06", "b", tflops=2.0)], choices=[tune])
        newer, backward = row("06", "b", tflops=4.0, date="2026-02-01"), row("06", "a", "backward", tflops=5.0)
        self.save(sweep=[row("06", "a", tflops=3.0), newer, backward, borrowed])
        for names in (("large.jsonl", "sweep.jsonl"), ("sweep.jsonl", "large.jsonl")):
            found = {(one["variant"], one["pass"]): one["tflops"] for one in saved.newest("gpu", *names)}
            self.assertEqual(found, {("a", "forward"): 1.0, ("b", "forward"): 4.0, ("a", "backward"): 5.0})
        self.assertEqual([one["tflops"] for one in saved.newest("gpu", "sweep.jsonl", stage="06", direction="backward")], [5.0])
        self.assertEqual(len(saved.newest("gpu", having="tune")), 1)
        self.assertEqual([one["date"][6] for one in saved.newest("gpu")], ["3", "2", "1"])  # of all files but sweeps

    def test_a_step_whose_file_is_gone_is_not_of_today(self):
        here, gone = ({**row("01_naive", "a"), "sources": {path: "1"}} for path in ("01_naive/kernel.cuh", "01_naive/gone.cuh"))
        self.assertEqual((saved.of_today(here), saved.of_today(gone)), (True, False))
        self.assertIn("**Changed since:** `01_naive/gone.cuh`, `01_naive/kernel.cuh`.", saved.origin([here, gone]))


class Counted(OfSavedRows):
    def counting(self, stage, variant, read, sectors):
        side = {"read_bytes": read + 8, "written_bytes": 0, "sectors": sectors}
        side["tensors"] = {"Q": {"read_bytes": 8, "written_bytes": 0}, "S": {"read_bytes": read, "written_bytes": 0}}
        return row(stage, variant) | {"predicted": side, "counters": side}

    def test_only_the_lines_that_changed_since_an_earlier_stage(self):
        (self.results / "cpu").mkdir()
        rows = [self.counting("01", "a", 16, 4), self.counting("02", "b", 32, 4), self.counting("02", "c", 32, 2)]
        (self.results / "cpu" / "compare.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
        changed = [["S read, bytes", "16", "32", "32", "32"], ["**all bytes**", "**24**", "**40**", "**40**", "**40**"]]
        self.assertEqual(lines(counted.changes("02", "01", "forward")), [*changed, ["sectors of 32 bytes", "4", "4 `b`, 2 `c`", "4", "2"]])


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


class Formulas(unittest.TestCase):
    def test_what_github_would_not_take_for_one(self):
        self.assertEqual(list(check_pages.math_problems("At $`d = 64`$, of `$HOME`, with $`d = 128`$\n\n```math\nx\n```\n")), [])
        self.assertEqual(
            list(check_pages.math_problems("At $`d = 64$ and at $`d = 128`$")),
            ["a formula that is not closed by `$: d = 64$ and at $`d = 128"],
        )
        self.assertIn("a '$' that belongs", "".join(check_pages.math_problems("At $`d = 64`$ of 5 $ and")))


class Markers(unittest.TestCase):
    TEXT = "<!-- generated: notation.table -->\nold\n<!-- end -->"

    def test_a_marker_names_a_function_and_its_arguments(self):
        unknown = "^a.md: no generated part is called '{}'; a part is MODULE"
        wrong = {name: unknown.format(name) for name in ("nothing.table", "fa2_forward", "fa2_forward.table", "svg.Picture")}
        for marker in ("counted.repeats 3", "timed.gains 06_fa2_forward", "plot_files.picture"):
            wrong[marker] = f"^a.md: generated part '{marker}': .*argument"
        wrong["quotes.functions none.cuh f"] = "none.cuh: no such file"
        wrong["quotes.functions 01_naive/kernel.cuh f"] = "no function 'f'"
        wrong["quotes.python docs/lab/jacobians.py f"] = "jacobians.py: no function 'f' to quote"
        nothing = r"softmax_kernel\(\) has no lines from 'float l' to 'none' to quote"
        wrong["quotes.part 01_naive/kernel.cuh softmax_kernel float l ... none"] = nothing
        no_message = "no message of 'BUG rows' in common/simt/test/zoo_memory.cpp; run docs/save"
        wrong["debugging.bug zoo_memory.cpp past_the_last_row rows"] = no_message
        for marker, message in wrong.items():
            with self.subTest(marker), self.assertRaisesRegex(SystemExit, message):
                generate.page(self.TEXT.replace("notation.table", marker), "a.md")

    def test_a_part_that_changed(self):
        after, stale = generate.page(self.TEXT.replace("notation.table", "quotes.printed lab_hello"), "a.md")
        self.assertEqual((after.split("\n")[1], stale), ("```text", ["quotes.printed lab_hello"]))
        self.assertEqual(generate.page(after, "a.md"), (after, []))


class Site(unittest.TestCase):
    def links(self, address):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(site, "ADDRESS", pathlib.Path(folder) / "address.txt"):
            site.ADDRESS.write_text(f"# a comment\n{address}\n")
            return site.links()

    def test_pages_link_to_a_site_only_if_there_is_one(self):
        self.assertNotIn("http", self.links(""))
        self.assertIn("(https://a.b/c/playground/", self.links("https://a.b/c/"))

    def test_what_is_no_address(self):
        for wrong in ("a.b/c", "https://a.b c", "https://a.b)\nhttps://c"):
            with self.assertRaisesRegex(SystemExit, "allowed: one line https"):
                self.links(wrong)

    def test_the_race_that_it_links_to_is_one_of_the_playground(self):
        page, _, mistake = site.RACE.removeprefix("playground/").partition(".html#break=")
        self.assertIn((page, mistake), [(p.name, b.id) for p in kernels.pages() for b in p.breaks])


if __name__ == "__main__":
    unittest.main()
