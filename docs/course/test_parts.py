#!/usr/bin/env python3
"""Tests of what course.py is made of: anchors, the scan, the sandbox, messages, formulas. test_parts.py BUILD runs them against a build folder
of the project."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import Usage, build, check, exercise, grade, mathml, measure, sandbox, scan, words

BUILD = HERE.parents[1] / "build-course"
NAME = "01_softmax"


class Parts(unittest.TestCase):
    def test_an_anchor_that_a_kernel_has_lost_is_an_error(self):
        e = exercise.load(NAME)
        e.first = "  float el = 0.0f;\n"
        with self.assertRaisesRegex(Usage, "the anchor 'first' stands 0 times in 01_naive/kernel.cuh"):
            e.parts()
        e.first = "\n"
        with self.assertRaisesRegex(Usage, "the anchor 'first' stands .* times"):
            e.parts()

    def test_a_chapter_that_shows_the_solution_is_found_out(self):
        quoted = {name: exercise.load(name).is_quoted() for name in exercise.names()}
        self.assertEqual([name for name in quoted if not quoted[name]], ["08_fragments", "08_swizzle"])

    def test_the_commands_of_ninja_and_of_make(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            stage = "01_naive"
            (folder / stage / "CMakeFiles" / f"{stage}.dir").mkdir(parents=True)
            (folder / stage / "CMakeFiles" / f"{stage}.dir" / "link.txt").write_text(
                "c++ CMakeFiles/step.dir/kernel.o -o ../bin/01_naive\n"
            )
            command = "/usr/bin/ccache c++ -Werror -o CMakeFiles/step.dir/kernel.o -c kernel_cpu.cpp"
            entry = {"directory": str(folder / stage), "command": command, "file": str(folder / stage / "kernel_cpu.cpp")}
            (folder / "compile_commands.json").write_text(json.dumps([entry]))
            words, made = build.compile_command(folder, "01_naive/kernel.cuh")
            self.assertEqual(words, ["c++", "-o", "CMakeFiles/step.dir/kernel.o", "-c", "kernel_cpu.cpp"])
            linked, place = build.link_command(folder, stage)
            self.assertIn(made, [place / word for word in linked])
            with self.assertRaisesRegex(Usage, "does not build 02_absent/kernel.cuh"):
                build.compile_command(folder, "02_absent/kernel.cuh")
        words, made = build.compile_command(BUILD, "01_naive/kernel.cuh")
        linked, place = build.link_command(BUILD, "01_naive")
        self.assertIn(made, [place / word for word in linked])

    def test_a_build_that_takes_minutes_is_announced(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(build, "must") as must:
            folder = Path(name)
            (folder / "bin").mkdir()
            (folder / "CMakeCache.txt").touch()
            for there, says in (
                ("01_naive", "course: building 08_tensor_cores, course_judge;"),
                ("08_tensor_cores", "building course_judge;"),
            ):
                (folder / "bin" / there).touch()
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    build.prepare(folder, {"01_naive", "08_tensor_cores"})
                self.assertIn(says, out.getvalue())
            (folder / "bin" / build.JUDGE).touch()
            with contextlib.redirect_stdout(io.StringIO()) as out:
                build.prepare(folder, {"01_naive", "08_tensor_cores"})
            self.assertEqual((out.getvalue(), must.call_count), ("", 3))

    def test_the_scan(self):
        for lines, says in (
            ("int a = 1; // std::exit(0)", ""),
            ("float x[4]; x[0] = a * b; if (a && b) x[1] += -c[2] * d;", ""),
            ("const auto f = [&](float& x, int r) { x *= alpha[r]; };", ""),
            ("auto& p = x;", "auto: write the type"),
            ("const auto& p = [&]() { return x; }();", "auto: write the type"),
            ("f([](auto p) { p[9] = 0; });", "auto: write the type"),
            ("(float4&)x[3] = y;", "a cast to a reference"),
            ("(T&&)x;", "a cast to a reference"),
            ("f((T*)x);", "a pointer"),
            ("RowStats* p = rows;", "a pointer"),
            ("{ const RowStats* p = rows; }", "a pointer"),
            ("auto f = [](RowStats* p) {};", "a pointer"),
            ("auto f = [](const RowStats* p) {};", "a pointer"),
            ("f(this);", "'this': a pointer"),
            ("return {*this, 0};", ""),
            ("x = K.as<Left>(0, 0);", "numbers and vectors of them"),
            ("x = K.as<const float4>(0, 0).x * y;", ""),
            ("4[x] = 0;", "an index after something"),
            ("f(bitand x);", "another way to write an operator"),
            ("x<:9:> = 0;", "another way to write a bracket"),
            ("memcpy(x, y, 1 << 20);", "know no bounds"),
            ("#pragma unroll 4\nfor (int g = 0; g < GROUP; ++g) S[g] = i > 0 ? 1.0f : -INFINITY;", ""),
            ("float* p = 0;", "a pointer"),
            ("x = *y;", "a pointer"),
            ("f(&x);", "an address"),
            ("auto p = x;", "auto: write the type"),
            ("const auto p = x;", "auto: write the type"),
            ("auto [a, b] = K;", "auto: write the type"),
            ("(x + 1)[9] = 0;", "an index after something"),
            ("auto f = [](float p[4]) { return p[9]; };", "an array as a parameter becomes a pointer"),
            ("std::exit(0);", "'std'"),
            ("m = std::max(m, s);", "a kernel has fmaxf"),
            ("n = S.cols;", "the insides of a view; the solution does without"),
            ("__builtin_trap();", "belongs to the compiler"),
            ("running_traffic[0].read = 0;", "a name of the simulator"),
            ('f("x");', "text and macros"),
            ("#define for while", "a preprocessor line"),
            ("%:define for while", "another way to write a bracket"),
            ("a \\\n b", "a backslash"),
            ("} void f() {", "a closing brace"),
            ("if (a) {", "an opening brace"),
            ("/* open", "a comment that does not end"),
            ("x->y;", "pointers"),
            ("int é;", "not ASCII"),
        ):
            said = scan.source(lines)
            self.assertTrue(says in said if says else not said, (lines, said))

    def test_the_sandbox(self):
        with tempfile.TemporaryDirectory() as name:
            self.assertEqual(sandbox.run(["sh", "-c", "while :; do :; done"], name, seconds=1).code, 124)
            done = sandbox.run(["sh", "-c", "yes > big; echo; cat /dev/zero"], name, seconds=3, file_size=1)
            self.assertLess((Path(name) / "big").stat().st_size, (1 << 20) + 1)
            self.assertLess(len(done.out), (1 << 20) + 1)
            eater = "x = bytearray(1 << 30)"
            self.assertNotEqual(sandbox.run([sys.executable, "-c", eater], name, memory=512).code, 0)
            sandbox.run(["sh", "-c", "(sleep 3; touch late) & exit 0"], name)
            subprocess.run(["sleep", "3.5"], check=True)
            self.assertFalse((Path(name) / "late").exists())
            self.assertNotIn("USER", sandbox.run(["env"], name).out)

    def test_problems_follow_from_the_seed_alone(self):
        e = exercise.load(NAME)
        self.assertEqual(measure.draw_problems(e, "1", 6), measure.draw_problems(e, "1", 6))
        self.assertNotEqual(measure.draw_problems(e, "1", 6), measure.draw_problems(e, "2", 6))
        self.assertEqual(measure.draw_problems(e, "1", 6)[0][:6], ["--batch", "1", "--kv-heads", "2", "--heads", "2"])


class Score(unittest.TestCase):
    def lost(self, *found):
        score = grade.score(exercise.load("04_tile_loop"), 6, *found)
        self.assertEqual(score["max"], 100)
        self.assertEqual(score["score"], sum(i["points"] for i in score["items"]))
        return {i["name"]: i["max"] - i["points"] for i in score["items"] if i["points"] < i["max"]}

    def test_each_item_is_lost_by_itself(self):
        self.assertEqual(self.lost(6, 6, 0, {}), {})
        self.assertEqual(self.lost(6, 5, 0, {}), {"orders": 10})
        self.assertEqual(self.lost(6, 6, 1, {}), {"races": 20})
        self.assertEqual(self.lost(6, 6, 0, {"bytes": (4, 2), "barriers": (3, 2)}), {"bytes": 10, "barriers": 10})

    def test_a_count_that_is_too_high_is_told_with_what_is_enough(self):
        e = exercise.load("06_outer_product")
        lines = next(w for w in exercise.gallery(e) if w["name"] == "right, with bank conflicts")["lines"]
        items = grade.grade_lines(e, lines, BUILD, count=2)["items"]
        says = next(i["says"] for i in items if i["name"] == "bank_conflicts")
        self.assertRegex(says, r"no more bank conflicts than the project's kernel: on one problem [\d,]+, where 0 are enough")

    def test_a_wrong_kernel_keeps_a_share_of_the_result_alone(self):
        lost = self.lost(5, 5, 0, {})
        self.assertEqual((lost["result"], sum(lost.values())), (40 - 33, 100 - 33))
        self.assertEqual(sum(self.lost(0, 0, 0, {}).values()), 100)

    def test_another_way_than_the_one_asked_for_costs_points(self):
        e = exercise.load("06_outer_product")
        lines = next(w for w in exercise.gallery(e) if w["name"] == "right, with 128 reads for 64 multiply-adds")["lines"]
        for text, got in ((lines, 0), (f"// add_outer_product\n{lines}", 0), (e.parts()[1], 10)):
            items = grade.grade_lines(e, text, BUILD, count=1)["items"]
            self.assertEqual([i["points"] for i in items if i["name"] == "asked"], [got])

    def test_a_race_that_is_right_costs_points(self):
        e = exercise.load("02_coalesced_rows")
        racy = next(w for w in exercise.gallery(e) if w["name"] == "all lanes write L")
        score = grade.grade_lines(e, racy["lines"], BUILD, count=2)
        points = {i["name"]: i["points"] for i in score["items"]}
        self.assertEqual((points["result"], points["races"], points["bytes"]), (50, 0, 0))


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
        self.assertIn("integer division of 4 by zero at 01_softmax.cuh:88 An integer divided by zero", divided)
        array = self.told(NAME, "  float x[4];\n  for (int j = 0; j < problem.Nk + 1; ++j) x[j] = 1.0f;\n  P(i, 0) = x[0];\n")
        self.assertIn("does not exist at 01_softmax.cuh:88 The kernel touched an element that does not exist", array)
        e = exercise.load("06_rows_in_registers")
        unwritten = self.told(e.name, e.parts()[1].replace("    load_tile<Shape::Width>(V_smem, V, col0, wide);\n", ""))
        self.assertIn("Shared memory holds nothing until a thread writes to it", unwritten)

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
            told, r"The simulator found a race: .* 01_tile_product.cuh:36 is the project's: tile\[threadIdx.y\]\[threadIdx.x\] ="
        )
        said = "07_fa2_backward/parts.cuh:1 writes and absent.cuh:1 reads the same shared memory at 06_outer_product.cuh:999"
        told = words.whose(e, said, "mine\n")
        self.assertEqual(told[0], f"07_fa2_backward/parts.cuh:1 is the project's: {words.source('07_fa2_backward/parts.cuh')[0]}")
        self.assertEqual(len(told), 2)

    def test_a_right_L_on_scores_that_are_all_alike_says_little(self):
        e = exercise.load("06_outer_product")
        lines = e.parts()[1].replace("C.col(c)", "c")
        self.assertIn("wrong rows of Q or K would not show in L. Whatever your lines do not compute is", self.told(e.name, lines))
        e.cases = ["--heads 1 --seq 4 --head-dim 4"]
        self.assertNotIn("would not show", " ".join(check.check_lines(e, lines, BUILD).told))

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


class Formulas(unittest.TestCase):
    def test_formulas(self):
        for tex, wanted in (
            ("a_i^2", "<msubsup><mi>a</mi><mi>i</mi><mn>2</mn></msubsup>"),
            (r"\sum_j e^{s_j - m}", "<munder><mo>∑</mo><mi>j</mi></munder><msup><mi>e</mi>"),
            (
                r"\frac{1}{\ell_{\text{new}}}",
                "<mfrac><mrow><mn>1</mn></mrow><mrow><msub><mi>ℓ</mi><mrow><mtext>new</mtext></mrow></msub></mrow></mfrac>",
            ),
            (r"\left( x \right)", '<mrow><mo stretchy="true">(</mo><mrow><mi>x</mi></mrow><mo stretchy="true">)</mo></mrow>'),
            (r"\text{at most one}", "<mtext>at most one</mtext>"),
            ("m' < 1", "<msup><mi>m</mi><mo>′</mo></msup><mo>&lt;</mo>"),
        ):
            self.assertIn(wanted, mathml.mathml(tex))
        for tex, says in ((r"\underbrace{x}", "does not know"), ("{x", "ends too early"), ("x }", "at a place where")):
            with self.assertRaisesRegex(Usage, says):
                mathml.mathml(tex)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
