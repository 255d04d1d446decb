#!/usr/bin/env python3
"""Tests of what course.py is made of: anchors, the scan, the sandbox, points, formulas. test_parts.py BUILD runs them against a build folder
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
from kit import Usage, build, exercise, grade, measure, sandbox, scan, slides

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
            (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={exercise.ROOT}\n")
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

    def test_the_build_folder_of_a_copied_checkout_is_configured_anew(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for home in (name, "/nowhere"):
                (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={home}\nFLASH_CUDA:STRING=AUTO\n")
                with unittest.mock.patch.object(build, "must") as must, contextlib.redirect_stdout(io.StringIO()) as out:
                    build.prepare(folder, {"01_naive"})
                self.assertIn(f"builds another folder, {home}; preparing it anew", out.getvalue())
                configured = must.call_args_list[0].args[0]
                self.assertEqual([word in configured for word in ("--fresh", exercise.ROOT, "-DFLASH_CUDA=AUTO")], [True] * 3)

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
            ("count_access(0);", "a name of the simulator"),
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

    def test_what_pandoc_gets_of_a_slide(self):
        for given, wanted in (
            ("```math\na_i\n```", "$$a_i$$"),
            ("a $`\\tau \\le 1`$ b", "a $\\tau \\le 1$ b"),
            ("[the page](../a.md) ![alt](b.svg)", "the page ![alt](b.svg)"),
            ("```cpp\nf([&](int) {});\n```", "```cpp\nf([&](int) {});\n```"),
            ("a\n---\n<!-- generated: x\ny -->b", "a\n\nb"),
        ):
            self.assertEqual(slides.for_pandoc(given), wanted)


class Quizzes(unittest.TestCase):
    def test_what_the_answers_say_is_what_programs_print(self):
        printed = {}
        for quiz in exercise.quizzes():
            counted = [q for q in quiz["question"] if "run" in q]
            self.assertTrue(5 <= len(quiz["question"]) <= 8 and len(counted) >= 2, quiz["chapter"])
            for q in counted:
                if q["run"] not in printed:
                    argv = q["run"].replace("build/bin/", f"{BUILD}/bin/").split()
                    printed[q["run"]] = " ".join(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
                self.assertIn(f" {q['says']} ", f"{printed[q['run']]} ")
                self.assertIn(q["says"].removesuffix(" KiB").split()[-1], q["answer"])


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


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
