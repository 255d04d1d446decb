#!/usr/bin/env python3
"""Tests of course.py as a student and a teacher use it: what each command says, its exit codes, and that nothing of a student's is
overwritten. test_course.py BUILD runs them against a build folder of the project."""

import json
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import exercise, sandbox

import course as program

BUILD = HERE.parents[1] / "build-course"
NAME = "01_softmax"


def course(*words, env=None):
    done = subprocess.run([sys.executable, "-B", HERE / "course.py", "--built", BUILD, *words], capture_output=True, text=True, env=env)
    return done.returncode, " ".join(done.stdout.split()), done.stderr.strip()


class WithFolder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="flash stëps course.")
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
        self.assertIn("Read the text of docs/chapters/01_naive.md#3-the-forward-pass-kernel-by-kernel; it has the equations.", text)
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
        begin = self.file.read_text().split("\n").index(f"  // >>>>> {NAME}: your lines begin here") + 1
        self.assertIn(f"A hint: {shlex.join([str(HERE / 'course.py'), 'hint', str(self.folder), NAME])}", said)
        self.assertRegex(said, f"NOT STARTED after .* It begins in {NAME}.cuh, line {begin + 1}[.]")
        self.assertIn("Hint 1 of 3", course("hint", self.folder, NAME)[1])
        self.assertIn("Hint 2 of 3", course("hint", self.folder, NAME)[1])
        self.assertNotIn("Hint 2 of 3", course("hint", self.folder, NAME)[1])
        self.assertRegex(
            course("hint", self.folder, NAME)[1], "no further hint. All of them again: Hint 1 of 3.* Hint 2 of 3.* Hint 3 of 3"
        )
        self.solve()
        code, said, _ = course("check", self.folder, "1")  # 01_tile_product is not there, and not asked for
        self.assertEqual(code, 0)
        self.assertRegex(
            said,
            f"{NAME}: RIGHT after .* What might have gone wrong: docs/course/exercises/{NAME}/README.md#wrong-kernels Next: .* blank 01_tile_product {shlex.quote(str(self.folder))}$",
        )
        self.assertIn("\n## Wrong kernels\n", (HERE / f"exercises/{NAME}/README.md").read_text())
        said = course("progress", self.folder)[1]
        self.assertIn("right hints 3 of 3", said)
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
        said = course("check", self.folder, NAME)[1]
        self.assertIn("DOES NOT COMPILE", said)
        self.assertRegex(said, f"01_softmax.cuh, line {line}: .*nonsense")  # each compiler has words of its own

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
        course_py, mine = shlex.quote(str(HERE / "course.py")), shlex.quote(str(self.folder))
        bad = self.folder / "bad"
        bad.mkdir()
        (bad / "progress.json").write_text("[]")
        (bad / f"{NAME}.cuh").write_text("no marks")
        for line, says in (
            (("blank", "09", self.folder), "no exercise or stage '09'; there are: all, 01_softmax"),
            (("check", self.folder, f"{NAME}.cuh"), f"no exercise or stage '{NAME}.cuh'; do you mean {NAME}?; there are"),
            (("blank", self.folder, "01"), f"the exercise comes first: {course_py} blank 01 {mine}"),
            (("check", NAME, self.folder), f"the folder comes first: {course_py} check {mine} {NAME}"),
            (("hint", self.file, NAME), f"a word of its own: {course_py} hint {mine} {NAME}"),
            (("check", self.folder / "absent", "03"), f"blank 03 {shlex.quote(str(self.folder / 'absent'))} makes it"),
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
            (("variant", "08_swizzle", self.folder / "out", "--seed", "1"), "08_swizzle has no variants"),
            (("variant", NAME, self.folder, "--seed", "1"), "is there already"),
            (("variant", NAME, HERE / "out", "--seed", "1"), "so that nobody publishes the solutions"),
            (
                ("grade", self.folder, "--format", "junit", "--out", self.folder.parent / "out", "--variants", self.folder / "absent"),
                "course.py variant writes it",
            ),
            (("frobnicate",), "invalid choice: 'frobnicate'"),
        ):
            code, _, said = course(*line)
            self.assertEqual(code, 2, line)
            self.assertIn(says, said)
        self.assertEqual((bad / "progress.json").read_text(), "[]")
        for text in ("no JSON", "[]", '{"cases": [], "counted": []}'):
            (bad / f"{NAME}.json").write_text(text)
            code, _, said = course("check", bad, NAME)
            self.assertEqual((code, said), (2, f"course.py: {bad / NAME}.json is not what course.py variant has written"))

    def test_a_blank_that_nobody_touched_is_not_built(self):
        self.blank()
        absent = self.folder.parent / "absent"
        done = subprocess.run(
            [sys.executable, "-B", HERE / "course.py", "--build", absent, "check", self.folder, NAME], capture_output=True, text=True
        )
        self.assertIn("NOT STARTED", done.stdout)
        self.assertFalse(absent.exists())

    def test_the_next_exercise_is_the_first_that_is_not_right(self):
        self.solve()
        course("blank", "01_tile_product", self.folder)
        self.assertRegex(course("check", self.folder, NAME)[1], f"Next: .* check {shlex.quote(str(self.folder))} 01_tile_product$")
        right = {name: {"status": "right"} for name in exercise.names() if name != "02_shuffles"}
        (self.folder / "progress.json").write_text(json.dumps(right))
        self.assertRegex(course("check", self.folder, NAME)[1], f"Next: .* blank 02_shuffles {shlex.quote(str(self.folder))}$")
        self.assertIn("blank 02_shuffles", program.next_after(exercise.load("08_swizzle"), self.folder))


class Teacher(WithFolder):
    def test_a_variant_is_another_exercise_whose_solution_only_the_teacher_has(self):
        out = self.folder.parent / "autumn"
        self.assertEqual(course("variant", NAME, out, "--seed", "autumn")[0], 0)
        student, teacher = out / "student", out / "teacher"
        again = self.folder.parent / "again"
        course("variant", NAME, again, "--seed", "autumn")
        self.assertEqual(*((folder / "student" / f"{NAME}.json").read_text() for folder in (out, again)))
        changes = json.loads((teacher / f"{NAME}.json").read_text())
        said = json.loads((student / f"{NAME}.json").read_text())
        self.assertEqual(set(changes) - set(said), {"solution"})
        longest = max(changes["solution"].split("\n"), key=len)
        self.assertFalse(any(longest in path.read_text() for path in student.iterdir()))
        self.assertIn("NOT STARTED", course("check", student, NAME)[1])
        e, public = exercise.of_folder(exercise.load(NAME), student), exercise.load(NAME).parts()[1]
        for lines, verdict, points in ((public, "WRONG", 0), (changes["solution"], "RIGHT", 100)):
            (student / f"{NAME}.cuh").write_text(e.file_with(lines))
            self.assertIn(f"{NAME}: {verdict}", course("check", student, NAME)[1])
            self.file = student / f"{NAME}.cuh"
            self.folder = student
            self.assertEqual(self.graded("junit", "--variants", teacher)[0]["score"], points)

    def test_requirements_of_ones_own(self):
        axes, out = self.folder.parent / "axes", self.folder.parent / "out"
        axes.mkdir()
        mine = axes / f"{NAME}.toml"
        edit = (
            """[[axis]]\nname = "shifted"\nsays = "S holds the scores plus 1."\noutside = [['h, i, j, dot\\)', 'h, i, j, dot) + 1.0f']]\n"""
        )
        for inside, code, says in (
            ("S\\(i, j\\)', '(S(i, j) - 1.0f)", 0, "S holds the scores plus 1."),
            ("nowhere', '", 2, "changes 'nowhere'"),
            ("j = 0', 'j = 1", 2, "the solution is wrong"),
        ):
            mine.write_text(f"{edit}inside = [['{inside}']]\n")
            got, said, err = course("variant", NAME, out, "--seed", "1", "--axes", axes)
            self.assertEqual(got, code, err)
            self.assertIn(says, said + err)
            shutil.rmtree(out, ignore_errors=True)

    def graded(self, form, *words, env=None):
        out = self.folder.parent / "out"
        box = ("--unsandboxed",) if sandbox.missing() else ()
        code, said, err = course("grade", self.folder, *words, "--format", form, "--out", out, *box, env=env)
        self.assertEqual(code, 0, err)
        return json.loads((out / "score.json").read_text()), out, said

    def test_the_formats(self):
        self.solve()
        whole, out, _ = self.graded("gradescope")
        self.assertEqual((whole["score"], whole["max"]), (100, 100))
        self.assertEqual(whole["isolation"], "none" if sandbox.missing() else "bubblewrap")
        results = json.loads((out / "results.json").read_text())
        self.assertEqual(results["output"], f"isolation: {whole['isolation']}")
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
        self.assertEqual(result["remark"], f"isolation: {whole['isolation']}")
        self.graded("junit", NAME, "--unsandboxed")
        self.assertEqual(xml.parse(out / "junit.xml").find("properties/property").get("value"), "none")
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


class Slides(WithFolder):
    def test_the_page_is_whole_and_overwrites_nothing(self):
        page = self.folder.parent / "slides.html"
        nothing = {"PATH": str(self.folder.parent)}
        self.assertIn("pandoc is missing", course("slides", page, env=nothing)[2])
        if not shutil.which("pandoc"):
            self.skipTest("pandoc is missing")
        code, said, _ = course("slides", page)
        self.assertEqual(code, 0)
        html = page.read_text()
        titles = re.findall("^##? ", (HERE / "slides.md").read_text(), re.MULTILINE)
        self.assertIn(f": {len(titles)} slides; arrow keys", said)
        self.assertEqual(html.count("<h1"), len(titles))
        self.assertNotRegex(html, r"(src|href)=.?(http|\.\.)")
        self.assertNotIn("$", re.sub(r"<(script|style|annotation|pre)\b.*?</\1>", "", html, flags=re.DOTALL))
        self.assertIn("<math", html)
        page.write_text("mine")
        self.assertEqual((course("slides", page)[0], page.read_text()), (2, "mine"))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
