#!/usr/bin/env python3
"""Tests of course.py as a student and a teacher use it: what each command says, its exit codes, and that nothing of a student's is
overwritten. test_course.py BUILD runs them against a build folder of the project."""

import json
import re
import resource
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import Usage, build, exercise, mathml, measure, sandbox, scan

BUILD = HERE.parents[1] / "build-course"
NAME = "01_softmax"


def course(*words, env=None):
    done = subprocess.run([sys.executable, "-B", HERE / "course.py", "--built", BUILD, *words], capture_output=True, text=True, env=env)
    return done.returncode, " ".join(done.stdout.split()), done.stderr.strip()


class WithFolder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="flash_course_test.")
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name) / "mine"
        self.file = self.folder / f"{NAME}.cuh"

    def blank(self):
        self.assertEqual(course("blank", NAME, self.folder)[0], 0)
        return exercise.load(NAME)

    def fill(self, lines):
        e = exercise.load(NAME) if self.file.exists() else self.blank()
        self.file.write_text(e.file_with(lines))
        return e

    def solve(self):
        e = exercise.load(NAME)
        return self.fill(e.parts()[1])


class Student(WithFolder):
    def test_a_blank_says_what_is_wanted_and_is_not_overwritten(self):
        e = self.blank()
        text = self.file.read_text()
        self.assertIn("P(i, j) = exp(S(i, j)) / l", text)
        self.assertIn("(1.2), (1.4); 5 lines in the project's kernel", text)
        self.assertNotIn("inverse;", text.split(e.begin)[1].split(e.end)[0])
        self.assertIn("Do not write the lines of the blank", (self.folder / "AGENTS.md").read_text())
        self.file.write_text("mine")
        code, said, _ = course("blank", NAME, self.folder)
        self.assertEqual((code, self.file.read_text()), (2, "mine"))
        self.assertIn("is there already and stays as it is", said)

    def test_the_way_from_the_blank_to_right(self):
        self.blank()
        code, said, _ = course("check", self.folder, NAME)
        self.assertEqual(code, 1)
        self.assertIn("NOT STARTED", said)
        self.assertIn("Hint 1 of 3", course("hint", self.folder, NAME)[1])
        self.assertIn("Hint 2 of 3", course("hint", self.folder, NAME)[1])
        self.solve()
        code, said, _ = course("check", self.folder, "1")  # 01_tile_product is not there, and not asked for
        self.assertEqual(code, 0)
        self.assertIn(f"{NAME}: RIGHT after", said)
        said = course("progress", self.folder)[1]
        self.assertIn("right hints 2 of 3", said)
        self.assertIn("1 of 1 right", said)

    def test_a_wrong_line_is_named_by_element_and_by_its_own_number(self):
        e = exercise.load(NAME)
        self.fill(e.parts()[1].replace("* inverse", "* inverse * 2.0f"))
        code, said, _ = course("check", self.folder, NAME)
        self.assertEqual(code, 1)
        self.assertIn("O is wrong, L right. The worst element of O is at batch 0, head 0, row", said)
        self.assertIn("every element of O is 2 times what it should be", said)
        self.fill("  float l = nonsense;\n")
        line = self.file.read_text().split("\n").index("  float l = nonsense;") + 1
        self.assertIn("DOES NOT COMPILE", course("check", self.folder, NAME)[1])
        self.assertIn(f"01_softmax.cuh, line {line}: ‘nonsense’ was not declared", course("check", self.folder, NAME)[1])

    def test_what_lies_outside_the_marks_is_told(self):
        self.solve()
        self.file.write_text(self.file.read_text().replace("constexpr int TILE = 32;", "constexpr int TILE = 16;"))
        said = course("check", self.folder, NAME)[1]
        self.assertIn("RIGHT", said)
        self.assertRegex(said, r"Line \d+ of 01_softmax.cuh lies outside your blank")

    def test_refused_words_are_named_with_their_line(self):
        self.fill("  static int runs;\n")
        line = self.file.read_text().split("\n").index("  static int runs;") + 1
        code, said, _ = course("check", self.folder, NAME)
        self.assertEqual(code, 1)
        self.assertIn(f"REFUSED after 0.0 s line {line}: 'static': memory that outlives the launch", said)

    def test_watch_gives_a_verdict_after_eight_seconds_of_processor_time(self):
        self.solve()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, said, _ = course("watch", self.folder, NAME, "--changes", "1")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(code, 0)
        self.assertIn("RIGHT after", said)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 8)

    def test_bad_input(self):
        self.blank()
        bad = self.folder / "bad"
        bad.mkdir()
        (bad / "progress.json").write_text("[]")
        (bad / f"{NAME}.cuh").write_text("no marks")
        for words, says in (
            (("blank", "09", self.folder), "no exercise or stage '09'; there are: all, 01_softmax"),
            (("blank", "01", HERE), "is part of the project"),
            (("blank", "01", self.file), "is no folder"),
            (("check", self.folder / "absent", "01"), "there is no folder"),
            (("check", self.folder, "04_merge_output"), "there is no"),
            (("check", bad, NAME), "the line '// >>>>> 01_softmax: your lines begin here' stands 0 times"),
            (("hint", self.folder, "01"), "which exercise? 01_softmax, 01_tile_product"),
            (("hint", bad, NAME), "is not what course.py has written"),
            (("grade", self.folder, "--format", "junit", "--out", self.folder / "out"), "lies in the student's folder"),
            (("grade", self.folder / "absent", "--format", "junit", "--out", bad), "there is no folder"),
            (("grade", self.folder, "--format", "pdf", "--out", bad), "invalid choice: 'pdf'"),
            (("frobnicate",), "invalid choice: 'frobnicate'"),
        ):
            code, _, said = course(*words)
            self.assertEqual(code, 2, words)
            self.assertIn(says, said)
        self.assertEqual((bad / "progress.json").read_text(), "[]")


class Teacher(WithFolder):
    def graded(self, form, *words, env=None):
        out = self.folder.parent / "out"
        code, said, err = course("grade", self.folder, *words, "--format", form, "--out", out, env=env)
        self.assertEqual(code, 0, err)
        return json.loads((out / "score.json").read_text()), out, said

    def test_the_formats(self):
        self.solve()
        whole, out, _ = self.graded("gradescope")
        self.assertEqual((whole["score"], whole["max"]), (100, 100))
        results = json.loads((out / "results.json").read_text())
        self.assertEqual(results["score"], 100)
        self.assertEqual(sum(test["max_score"] for test in results["tests"]), 100)
        self.file.unlink()
        whole, out, _ = self.graded("classroom50", NAME, env={"PATH": "/usr/bin:/bin", "ASSIGNMENT": "week1"})
        self.assertEqual((whole["score"], whole["max"]), (0, 100))
        result = json.loads((out / "result.json").read_text())
        self.assertEqual((result["schema"], result["assignment"], result["score"]), ("classroom50/result/v1", "week1", 0))
        self.assertEqual(
            result["tests"][0], {"test-name": f"{NAME}: {NAME}.cuh was not handed in", "passed": False, "score": 0, "max-score": 100}
        )
        self.graded("junit", NAME)
        self.assertEqual(xml.parse(out / "junit.xml").getroot().get("failures"), "1")

    def test_points_go_where_they_are_lost(self):
        e = exercise.load(NAME)
        wasteful = next(w for w in exercise.gallery(e) if w["name"] == "right, with more bytes")
        self.fill(wasteful["lines"])
        whole, _, _ = self.graded("junit")
        lost = [i["name"] for i in whole["exercises"][0]["items"] if i["points"] < i["max"]]
        self.assertEqual((whole["score"], lost), (80, ["bytes", "sectors"]))
        self.assertNotIn(str(self.folder), json.dumps(whole))

    def test_only_what_stands_between_the_marks_is_graded(self):
        self.solve()
        text = self.file.read_text().replace('#include "common/device/device.cuh"', "#error this never gets to the compiler")
        self.file.write_text(text)
        self.assertEqual(self.graded("junit")[0]["score"], 100)


class Parts(unittest.TestCase):
    def test_an_anchor_that_a_kernel_has_lost_is_an_error(self):
        e = exercise.load(NAME)
        e.first = "  float el = 0.0f;\n"
        with self.assertRaisesRegex(Usage, "the anchor 'first' stands 0 times in 01_naive/kernel.cuh"):
            e.parts()
        e.first = "\n"
        with self.assertRaisesRegex(Usage, "the anchor 'first' stands .* times"):
            e.parts()

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

    def test_the_scan(self):
        for lines, says in (
            ("int a = 1; // std::exit(0)", ""),
            ("float x[4]; x[0] = a * b; if (a && b) x[1] += -c[2] * d;", ""),
            ("const auto f = [&](float& x, int r) { x *= alpha[r]; };", ""),
            ("auto& p = x;", "auto: write the type"),
            ("const auto& p = [&]() { return x; }();", "auto: write the type"),
            ("f([](auto p) { p[9] = 0; });", "auto: write the type"),
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


class Slides(WithFolder):
    def test_the_page_is_whole_and_overwrites_nothing(self):
        page = self.folder.parent / "slides.html"
        code, said, _ = course("slides", page)
        self.assertEqual(code, 0)
        self.assertRegex(said, r"\d\d slides; arrow keys")
        html = page.read_text()
        self.assertNotRegex(html, r"(src|href)=.?http")
        for section in re.findall(r"<section>.*?</section>", html, re.DOTALL):
            xml.fromstring(section)
            self.assertIn("<h1>", section)
        page.write_text("mine")
        self.assertEqual((course("slides", page)[0], page.read_text()), (2, "mine"))

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
