#!/usr/bin/env python3
"""Tests of course.py as a student and a teacher use it: what each command says, its exit codes, and that nothing of a student's is
overwritten. test_course.py BUILD runs them against a build folder of the project."""

import csv
import json
import os
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
            (("grade", self.folder, "--out", self.folder / "out"), "lies in the student's folder"),
            (("grade", self.folder / "absent", "--out", bad), "there is no folder"),
            (("grade", self.folder.parent, "--out", self.folder.parent.parent), "there is no file of an exercise"),
            (("grade-class", bad, "--out", self.folder / "marks.csv"), "has no sub-folders"),
            (("grade-class", self.folder, "--out", self.file), "is there already"),
            (("frobnicate",), "invalid choice: 'frobnicate'"),
        ):
            code, _, said = course(*line)
            self.assertEqual(code, 2, line)
            self.assertIn(says, said)
        self.assertEqual((bad / "progress.json").read_text(), "[]")

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

    def test_watch_goes_on_to_the_next_that_is_not_right(self):
        self.solve()
        course("check", self.folder, NAME)
        course("blank", "01", self.folder)
        other = exercise.load("01_tile_product")
        path = self.folder / other.student_name
        path.write_text(other.file_with(other.parts()[1]))
        self.file.write_text(exercise.load(NAME).file_with("nonsense\n"))
        said = course("watch", self.folder, "all", "--changes", "1")[1]
        self.assertIn(f"Right already: {NAME} {other.name}: RIGHT", said)
        (self.folder / "progress.json").unlink()
        self.solve()
        said = course("watch", self.folder, "all", "--changes", "2")[1]
        self.assertRegex(said, f"{NAME}: RIGHT .* {other.name}: RIGHT")


class Teacher(WithFolder):
    def graded(self, *words, code=0, env=None):
        out = self.folder.parent / "out"
        got, said, err = course("grade", self.folder, *words, "--out", out, env=env)
        self.assertEqual(got, code, err)
        return json.loads((out / "results.json").read_text()), xml.parse(out / "junit.xml").getroot(), said

    def test_results(self):
        self.solve()
        self.file.write_text(self.file.read_text().replace('#include "common/device/device.cuh"', "#error never compiled"))
        whole, junit, _ = self.graded(NAME, "01_tile_product")
        self.assertEqual((whole["score"], whole["not_graded"]), (100, []))
        self.assertEqual(whole["isolation"], "bubblewrap" if sandbox.has_box() else "none")
        tests = {test["name"]: test for test in whole["tests"]}
        self.assertEqual(sum(test["max_score"] for test in tests.values()), 200)
        self.assertEqual((tests["01_tile_product"]["score"], tests["01_tile_product"]["status"]), (0, "failed"))
        self.assertIn("not handed in", tests["01_tile_product"]["output"])
        self.assertEqual((junit.get("tests"), junit.get("failures")), (str(len(tests)), "1"))

    def test_without_a_sandbox(self):
        self.solve()
        nothing = self.folder.parent / "bin"
        nothing.mkdir()
        for tool in ("c++", "g++", "clang++", "as", "ld", "ninja", "cmake", "addr2line", "sh"):
            if shutil.which(tool):
                (nothing / tool).symlink_to(shutil.which(tool))
        whole, _, said = self.graded(env={"PATH": str(nothing)})
        self.assertEqual((whole["score"], whole["isolation"]), (100, "none"))
        self.assertIn("isolation: none", said)

    def test_points_go_where_they_are_lost(self):
        wrong = {w["name"]: w["lines"] for w in exercise.gallery(exercise.load(NAME))}
        self.fill(wrong["right, with more bytes"])
        whole, _, _ = self.graded()
        lost = [test["name"] for test in whole["tests"] if test["status"] == "failed"]
        self.assertEqual((whole["score"], lost), (80, [f"{NAME}: bytes", f"{NAME}: sectors"]))
        self.assertNotIn(str(self.folder), json.dumps(whole))
        self.fill(wrong["a row that sees no key"])
        whole, _, _ = self.graded()
        self.assertEqual((whole["score"], len(whole["tests"])), (0, 1))
        self.assertIn("wrong on a problem: --heads 2 --seq-q 70 --seq-k 41 --head-dim 36 --causal", whole["tests"][0]["output"])

    def test_a_mistake_that_only_a_drawn_problem_shows_gets_no_points(self):
        e = exercise.load(NAME)
        self.fill(e.parts()[1].replace("* inverse;", "* (problem.Nk > 80 ? 2.0f : 1.0f) * inverse;"))
        whole, _, _ = self.graded()
        self.assertEqual(whole["score"], 0)
        self.assertRegex(whole["tests"][0]["output"], r"wrong on a drawn problem: --batch \d .*--seed \d+")

    def test_a_class(self):
        folder, marks = self.folder.parent / "class", self.folder.parent / "marks.csv"
        e = exercise.load(NAME)
        for student, text in (("=anna", e.file_with(e.parts()[1])), ("ben", "no marks"), ("c, d", None), ("eve", e.file_with(e.blank()))):
            (folder / student).mkdir(parents=True)
            if text:
                (folder / student / e.student_name).write_text(text)
        (folder / "fay").mkdir()
        os.mkfifo(folder / "fay" / e.student_name)
        code, said, _ = course("grade-class", folder, "--out", marks)
        self.assertEqual(code, 0)
        rows = list(csv.reader(marks.read_text().splitlines()))
        self.assertEqual(rows[0], ["student", "exercise", "points", "max", "reason"])
        self.assertEqual(
            [row[:4] for row in rows[1:]],
            [[s, NAME, p, "100"] for s, p in (("'=anna", "100"), ("ben", "0"), ("c, d", "0"), ("eve", "0"), ("fay", "0"))],
        )
        self.assertEqual(rows[1][4], "")
        self.assertTrue(all(row[4] for row in rows[2:]))
        self.assertIn("ben: 01_softmax 0", said)
        text = marks.read_text()
        self.assertEqual(course("grade-class", folder, "--out", marks)[0], 2)
        self.assertEqual(marks.read_text(), text)


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
