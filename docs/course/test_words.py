#!/usr/bin/env python3
"""Tests of what `course.py check` tells a student. test_words.py BUILD runs them against a build folder of the project."""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import check, exercise, sandbox, words

BUILD = HERE.parents[1] / "build-course"
NAME = "01_softmax"


class Messages(unittest.TestCase):
    """What the simulator says, and what check makes of it. The galleries have the others."""

    def told(self, name, lines):
        verdict = check.check_lines(exercise.load(name), lines, BUILD)
        self.assertEqual(verdict.status, "wrong")
        return " ".join(verdict.told)

    def test_each_rule(self):
        endless = self.told(NAME, "  float l = 0.0f;\n  while (l >= 0.0f) l += S(i, 0) * 0.0f;\n")
        self.assertIn("A thread goes on and on. Does the variable of each loop change", endless)
        self.assertNotIn("FLASH_SIMT", endless)
        divided = self.told(NAME, "  int n = problem.Nk - problem.Nk;\n  P(i, 0) = S(i, problem.Nk / n);\n")
        self.assertRegex(divided, r"integer division of 4 by zero at 01_softmax\.cuh:\d+ An integer divided by zero")
        array = self.told(NAME, "  float x[4];\n  for (int j = 0; j < problem.Nk + 1; ++j) x[j] = 1.0f;\n  P(i, 0) = x[0];\n")
        self.assertRegex(array, r"does not exist at 01_softmax\.cuh:\d+ The kernel touched an element that does not exist")
        e = exercise.load("06_rows_in_registers")
        unwritten = self.told(e.name, e.parts()[1].replace("    load_tile<Shape::Width>(V_smem, V, key0, aligned);\n", ""))
        self.assertIn("Shared memory holds nothing until a thread writes to it", unwritten)
        nothing = self.told(NAME, "  float l = 0.0f;\n")
        self.assertIn("is its kernel launched? Do your lines write it, all of it?", nothing)
        self.assertEqual((nothing.count("Do your lines write it"), nothing.count("Shared memory")), (1, 0), nothing)

    def verdict(self, name, *edits):
        """The verdict on the solution with these edits."""
        e = exercise.load(name)
        lines = e.parts()[1]
        for old, new in edits:
            self.assertIn(old, lines)
            lines = lines.replace(old, new)
        return check.check_lines(e, lines, BUILD)

    def test_a_variable_that_no_one_has_written(self):
        for name, old, new in (
            (NAME, "float l = 0.0f", "float l"),
            ("02_coalesced_rows", "float m = -INFINITY", "float m"),
            ("02_coalesced_rows", "float l = 0.0f", "float l"),
        ):
            verdict = self.verdict(name, (old, new))
            self.assertEqual((verdict.status, verdict.told[0]), ("wrong", check.UNSET))
            self.assertRegex(verdict.told[1], rf"The compiler warns: {name}.cuh, line \d+: .*uninitialized")

    def test_an_array_or_struct_that_no_one_has_written(self):
        for old, new in (
            ("float4 PV_reg[Width / 4] = {};", "float4 PV_reg[Width / 4];"),
            ("RowStats tile_stats{-INFINITY, 0.0f};", "RowStats tile_stats; tile_stats.m = -INFINITY;"),
        ):
            self.assertEqual(self.verdict("04_tile_loop", (old, new)).status, "wrong")

    def test_a_warning_about_right_lines(self):
        verdict = self.verdict(NAME, ("float l = 0.0f;", "float l = 0.0f; int never;"))
        self.assertTrue(verdict.right)
        self.assertRegex(verdict.told[0], "line 102: .*never")

    def test_what_a_kernel_prints(self):
        verdict = self.verdict(NAME, ("float l = 0.0f;", 'float l = 0.0f; printf("row %d {\\n", i);'))
        self.assertTrue(verdict.right)
        self.assertIn("row 3 {", verdict.printed)
        stopped = self.verdict(NAME, ("float l = 0.0f;", 'float l = 0.0f; printf("here\\n"); P(9999, 0) = l;'))
        self.assertEqual((stopped.status, "here" in stopped.printed), ("wrong", True))

    def test_errors_of_templates(self):
        for name, old, new, says in (
            ("04_tile_loop", "load_tile<Width>(K_smem", "load_tile(K_smem", r"line 144: no matching function(.|\n)*'?.?Width"),
            ("07_two_halves", "KMajor{K_or_V}", "K_or_V", r"07_two_halves.cuh, line \d+: .*(.|\n)*06_fa2_forward/parts.cuh, line \d+"),
        ):
            verdict = self.verdict(name, (old, new))
            self.assertEqual(verdict.status, "does not compile")
            self.assertRegex(verdict.told[0], says)
            self.assertLess(verdict.told[0].count("\n"), 8)

    def test_a_program_that_does_not_end(self):
        told = words.of_failure(exercise.load(NAME), sandbox.Done(124, "", "", 8.0), None, ["--seq", "4"])
        self.assertEqual(told[:2], ["On the problem --seq 4:", "It did not come to an end."])
        self.assertIn("which thread comes first", words.meaning("the result depends on the order of the threads: FLASH_SIMT_ORDER=reverse"))

    def test_the_number_of_tiles(self):
        problem = {"seq_q": 129, "seq_k": 64}
        self.assertEqual(words.of_tiles({"tiles": {"br": 64, "bc": 64}, "problem": problem}), "Tiles: 3 of 64 queries, 1 of 64 keys.")
        self.assertEqual(words.of_tiles({"tiles": None, "problem": problem}), "")
        e = exercise.load("06_outer_product")
        told = self.told(e.name, e.parts()[1].replace("C.col(c)", "c"))
        self.assertIn("Tiles: 1 of 128 queries, 1 of 64 keys.", told)

    def test_lines_of_the_project_are_told_from_the_student_s(self):
        e = exercise.load("06_outer_product")
        begin = e.first_line()
        self.assertEqual(e.file_with("mine\n").split("\n")[begin - 1], "mine")
        told = self.told(e.name, e.parts()[1].replace("B(k, C.col(c))", "B(C.col(c), k)"))
        accessor = e.file_with("").split("\n").index("  __device__ float operator()(int row, int col) const { return tile(col, row); }") + 1
        self.assertIn(f"{e.student_name}:{accessor} is the project's: __device__ float operator()(int row, int col) const {{ return", told)
        self.assertIn(f"Your lines are {begin} to {begin + 8}: what do they pass on, and when?", told)
        self.assertIn("are row and column exchanged?", told)
        told = self.told(e.name, e.parts()[1].replace("k < A.cols", "k <= A.cols"))
        self.assertIn("Its columns are 0 to 31. That is one too far", told)
        self.assertNotIn("is the project's", told)
        e = exercise.load("01_tile_product")
        barrier = e.parts()[1].rindex("    __syncthreads();")
        told = self.told(e.name, e.parts()[1][:barrier] + "\n" + e.parts()[1][barrier:].partition("\n")[2])
        self.assertRegex(
            told, r"The simulator found a race: .* 01_tile_product.cuh:\d+ is the project's: tile\[threadIdx.y\]\[threadIdx.x\] ="
        )
        said = "07_fa2_backward/parts.cuh:1 writes and absent.cuh:1 reads the same shared memory at 06_outer_product.cuh:999"
        told = words.whose(e, said, "mine\n")
        self.assertEqual(told[0], f"07_fa2_backward/parts.cuh:1 is the project's: {words.source('07_fa2_backward/parts.cuh')[0]}")
        self.assertEqual(len(told), 2)

    def test_which_index_is_beyond_which_end(self):
        for said, means in (
            ("shared matrix(99, 32) is outside: it has 128 rows and 32 columns", "Its columns are 0 to 31. That is one too far"),
            ("K[b=0, h=1](4, 2) is outside: it has 4 rows and 8 columns", "Its rows are 0 to 3. That is one too far"),
            ("shared matrix(0, 39) is outside: it has 64 rows and 32 columns", "(39, 0) would be inside: are row and column exchanged?"),
            ("shared matrix(4, 40..47) is outside: it has 64 rows and 32 columns", "Its columns are 0 to 31. Is an index off"),
            ("shared matrix(1, 28..35) is outside: it has 64 rows and 32 columns", "Its columns are 0 to 31. Is an index off"),
            (
                "Q[b=0, h=0](-1, 50) is outside: it has 4 rows and 8 columns",
                "Its rows are 0 to 3 and its columns are 0 to 7. Is an index off",
            ),
            ("element 32 of an array of type 'float [32]' does not exist", "without a word. Is an index off by one"),
        ):
            self.assertIn(means, words.meaning(said))
        self.assertNotIn("ragged", words.meaning("an endless loop"))

    def test_long_lists_of_threads_are_cut(self):
        said = "divergent barrier: threads 0..15, 32, 64..79, 96..111, 128..143, 160..175 wait in __syncthreads at a.cuh:3 at a.cuh:3"
        cut = "divergent barrier: threads 0..15, 32, 64..79, 96..111 and 2 more such ranges wait in __syncthreads at a.cuh:3"
        self.assertEqual(words.shorter(said), cut)
        self.assertEqual(words.shorter("threads 0..15, 32 wait, thread (31,31,0)"), "threads 0..15, 32 wait, thread (31,31,0)")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
