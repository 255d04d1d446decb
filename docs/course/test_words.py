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

    def test_a_program_that_does_not_end(self):
        told = words.of_failure(exercise.load(NAME), sandbox.Done(124, "", "", 8.0), None, ["--seq", "4"])
        self.assertEqual(told[:2], ["On the problem --seq 4:", "It did not come to an end."])
        self.assertIn("which thread comes first", words.meaning("the result depends on the order of the threads: FLASH_SIMT_ORDER=reverse"))

    def test_a_problem_says_what_follows_from_its_options(self):
        for options, says in (
            ("--heads 1 --seq 4 --head-dim 4 --input ramp", "O is the mean of the j that its row sees, plus c/1000."),
            ("--heads 2 --kv-heads 1 --seq-q 45 --seq-k 70", "2 heads share 1 head of K and V."),
            ("--heads 1 --seq-q 70 --seq-k 41 --causal", "Rows 0 to 28 see no key: there O = 0 and L = -inf. Row 29 sees one"),
            ("--heads 1 --seq 40 --input large", "exp overflows"),
            ("--heads 1 --kv-heads 1 --seq-q 41 --seq-k 70 --causal", ""),
        ):
            told = words.of_problem(options.split(), "problem 2 of 5")
            self.assertEqual(told[0], f"On problem 2 of 5, {options}:")
            self.assertTrue(says in told[1] if says else not told[1], told)

    def test_a_failure_names_the_problem_and_how_many_there_are(self):
        solution = exercise.load("03_online_sum").parts()[1]
        told = self.told("03_online_sum", solution.replace("m == -INFINITY ? 0.0f : m", "m"))
        self.assertIn("On problem 4 of 6, --heads 2 --seq-q 70 --seq-k 41 --head-dim 36 --causal: Rows 0 to 28 see no key", told)

    def test_the_number_of_tiles(self):
        problem = {"seq_q": 129, "seq_k": 64}
        self.assertEqual(words.of_tiles({"tiles": {"br": 64, "bc": 64}, "problem": problem}), "Tiles: 3 of 64 queries, 1 of 64 keys.")
        self.assertEqual(words.of_tiles({"tiles": None, "problem": problem}), "")
        e = exercise.load("06_outer_product")
        told = self.told(e.name, e.parts()[1].replace("C.col(c)", "c"))
        self.assertIn("Tiles: 1 of 128 queries, 1 of 64 keys.", told)

    def test_no_two_rules_for_one_message(self):
        for said, means in (
            ("a.cuh:37 writes and a.cuh:54 reads the same shared memory", "nothing orders the two"),
            ("divergent barrier: threads 0..31 wait in __syncthreads at a.cuh:3", "A barrier waits for every thread"),
            ("a.cuh:37 writes and a.cuh:37 writes the same shared memory", "each element should have one thread"),
            ("misaligned access: the address of Q", "A wide access"),
        ):
            self.assertIn(means, words.meaning(said))

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

    def test_a_right_L_on_scores_that_are_all_alike_says_little(self):
        e = exercise.load("06_outer_product")
        lines = e.parts()[1].replace("C.col(c)", "c")
        self.assertIn("wrong rows of Q or K would not show in L. Whatever your lines do not compute is", self.told(e.name, lines))
        rescale = exercise.gallery(exercise.load("04_merge_output"))[0]["lines"]
        told = self.told("04_merge_output", rescale)
        self.assertIn("L is right, so S, m and l are", told)
        self.assertNotIn("would not show", told)

    def test_which_index_is_beyond_which_end(self):
        for said, means in (
            ("shared matrix(99, 32) is outside: it has 128 rows and 32 columns", "Its columns are 0 to 31. That is one too far"),
            ("K[b=0, h=1](4, 2) is outside: it has 4 rows and 8 columns", "Its rows are 0 to 3. That is one too far"),
            ("shared matrix(0, 39) is outside: it has 64 rows and 32 columns", "Its columns are 0 to 31. (39, 0) would be inside: are row"),
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
