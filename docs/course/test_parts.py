#!/usr/bin/env python3
"""Tests of what course.py is made of: anchors, commands of a build, the sandbox, points, formulas. test_parts.py BUILD runs them against a
build folder of the project."""

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
from kit import Usage, build, exercise, grade, measure, sandbox, slides

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
        self.assertEqual([name for name in quoted if not quoted[name]], ["01_softmax", "05_key_gradient", "08_fragments", "08_swizzle"])

    def test_the_commands_of_ninja_and_of_make(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            stage = "01_naive"
            (folder / stage / "CMakeFiles" / f"{stage}.dir").mkdir(parents=True)
            (folder / stage / "CMakeFiles" / f"{stage}.dir" / "link.txt").write_text(
                "c++ CMakeFiles/step.dir/kernel.o -o ../bin/01_naive\n"
            )
            precompiled = (
                "",
                "-include /x/cmake_pch.hxx",
                "-Xclang -include-pch -Xclang /x/cmake_pch.hxx.pch -Xclang -include -Xclang /x/cmake_pch.hxx",
            )
            for headers in precompiled:
                command = f"/usr/bin/ccache c++ -Werror {headers} -o CMakeFiles/step.dir/kernel.o -c kernel_cpu.cpp"
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

    def test_a_body_is_replaced(self):
        text = "int g(int);\nint f(int a) { if (a) { return 1; } return f(0); }\nint h() {}\n"
        self.assertEqual(exercise.with_body(text, "f", " return 2; "), "int g(int);\nint f(int a) { return 2; }\nint h() {}\n")
        with self.assertRaisesRegex(Usage, "0 functions g, not one"):
            exercise.with_body(text, "g", "")

    def test_limits_stay_below_those_of_the_container(self):
        limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 29,) * 2); sys.path.insert(0, sys.argv[1])\n"
        runs = "from kit import sandbox; print(sandbox.run(['sh', '-c', 'ulimit -v'], sys.argv[2]).out)"
        with tempfile.TemporaryDirectory() as name:
            done = subprocess.run([sys.executable, "-B", "-c", limited + runs, HERE, name], capture_output=True, text=True)
        self.assertEqual(done.stdout.strip(), str((1 << 29) >> 10), done.stderr)

    def test_problems_follow_from_the_seed_alone(self):
        e = exercise.load("02_coalesced_rows")
        self.assertEqual(measure.draw_problems(e, "1"), measure.draw_problems(e, "1"))
        self.assertNotEqual(measure.draw_problems(e, "1"), measure.draw_problems(e, "2"))
        self.assertTrue(any("--scale=-" in " ".join(options) for options in measure.draw_problems(e, "1")))

    def test_a_report_is_found_behind_what_a_kernel_prints(self):
        report = """{
  "stage": "01_naive", "check": {}, "extra_memory_bytes": 0,
  "counters": {"sectors": 1, "bank_conflicts": 0, "barriers": 0, "read_bytes": 4, "written_bytes": 4}
}
"""
        for printed in ("", "x\n", "{\n", '{"stage": 1}\n', "no end of a line"):
            self.assertEqual(measure.parted(printed + report), (printed, json.loads(report)))
        self.assertEqual(measure.parted("x\n"), ("x\n", None))

    def test_what_pandoc_gets_of_a_slide(self):
        for given, wanted in (
            ("```math\na_i\n```", "$$a_i$$"),
            ("a $`\\tau \\le 1`$ b", "a $\\tau \\le 1$ b"),
            ("[the page](../a.md) ![alt](b.svg)", "the page ![alt](b.svg)"),
            ("```cpp\nf([&](int) {});\n```", "```cpp\nf([&](int) {});\n```"),
            ("a\n---\n<!-- generated: x\ny -->b", "a\n\nb"),
            ("# All\n\n## One", "# All\n\n# One"),
        ):
            self.assertEqual(slides.for_pandoc(given), wanted)

    def test_the_box(self):
        if not sandbox.has_box():
            self.skipTest("bwrap is missing or cannot run")
        with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:

            def shell(script, **more):
                return sandbox.run(["sh", "-c", script], name, boxed=True, **more)

            for file in (f"{other}/new", HERE / "new", "/usr/new", "/dev/new", "/dev/shm/new"):
                self.assertNotEqual(shell(f"echo > '{file}'").code, 0, file)
            self.assertEqual(shell("echo mine > new; exit 7").code, 7)
            self.assertEqual((Path(name) / "new").read_text(), "mine\n")
            self.assertIn("Network is unreachable", shell("bash -c 'echo > /dev/tcp/192.0.2.1/80'").err)
            self.assertEqual(shell("kill -SEGV $$").code, -11)
            self.assertEqual(shell("while :; do :; done", seconds=1).code, 124)


class Score(unittest.TestCase):
    def lost(self, name, lines):
        """{row of the rubric: why it has no points}"""
        score = grade.grade_lines(exercise.load(name), lines, BUILD, "1")
        return {test.partition(": ")[2]: text for test, got, most, text in score["tests"] if got < most}

    def wrong(self, name, mistake):
        return next(w["lines"] for w in exercise.gallery(exercise.load(name)) if w["name"] == mistake)

    def test_a_count_that_is_too_high_is_told_with_what_is_enough(self):
        lost = self.lost("06_outer_product", self.wrong("06_outer_product", "right, with bank conflicts"))
        self.assertEqual(list(lost), ["bank_conflicts"])
        self.assertRegex(lost["bank_conflicts"], r"[\d,]+ bank conflicts where 0 are enough, on --heads 1 --seq-q 66")

    def test_another_way_than_the_one_asked_for_costs_points(self):
        lines = self.wrong("06_outer_product", "right, with 128 reads for 64 multiply-adds")
        self.assertIn("asked", self.lost("06_outer_product", f"// add_outer_product\n{lines}"))

    def test_a_race_that_is_right_costs_points(self):
        lost = self.lost("02_coalesced_rows", self.wrong("02_coalesced_rows", "all lanes write L"))
        self.assertEqual(("races" in lost, "result" in lost), (True, False))

    def test_no_seed_decides_about_a_maximum_that_starts_at_0(self):
        for name, mistake in (("02_coalesced_rows", "float m = 0.0f;"), ("02_coalesced_rows", "float m;")):
            lines = exercise.load(name).parts()[1].replace("float m = -INFINITY;", mistake)
            self.assertEqual(list(self.lost(name, lines)), [""])

    def test_a_machine_without_a_compiler_takes_no_points(self):
        e = exercise.load(NAME)
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.dict("os.environ", PATH=name):
            (Path(name) / e.student_name).write_text(e.file_with("nonsense\n"))
            missing = build.Built(None, "no space left")
            with unittest.mock.patch.object(build, "build", return_value=missing), unittest.mock.patch.object(grade, "compiled", set()):
                score = grade.grade_file(e, Path(name), BUILD, "1")
        self.assertTrue(score["failed"])
        self.assertIn("not graded", score["tests"][0][3])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
