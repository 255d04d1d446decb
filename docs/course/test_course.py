#!/usr/bin/env python3
"""Tests of the course as students and teachers use it. test_course.py BUILD runs them against a build folder of the project."""

import csv
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree as xml
from pathlib import Path

from kit import build, check, exercise, grade, sandbox

HERE = Path(__file__).resolve().parent
COURSE = [sys.executable, "-B", HERE / "course.py"]
BUILD = HERE.parents[1] / "build-course"
NAME = "01_softmax"
E = exercise.load(NAME)
SOLUTION = E.parts()[1]


def course(*words, built=True):
    """(exit code, what it prints, what it complains about)"""
    words = ["--built", BUILD, *words] if built else ["--build", "absent", *words]
    done = subprocess.run([*COURSE, *words], capture_output=True, text=True)
    return done.returncode, " ".join(done.stdout.split()), done.stderr.strip()


def wrong(name, mistake):
    return next(w["lines"] for w in exercise.gallery(exercise.load(name)) if w["name"] == mistake)


class WithFolder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="flash stëps course.")
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        self.folder = self.place / "mine"
        self.file = self.folder / f"{NAME}.cuh"
        self.folder.mkdir()

    def fill(self, lines, e=E):
        (self.folder / e.student_name).write_text(e.file_with(lines))


class Student(WithFolder):
    def test_the_way_from_the_blank_to_right(self):
        self.assertEqual(course("blank", NAME, self.folder)[0], 0)
        text = self.file.read_text()
        self.assertIn(E.comment.split()[0], text)
        self.assertNotIn("inverse;", text.split(E.begin)[1].split(E.end)[0])
        self.assertTrue((self.folder / "AGENTS.md").is_file())
        self.assertEqual((course("blank", NAME, self.folder)[0], self.file.read_text()), (2, text))
        code, printed, _ = course("check", self.folder, NAME, built=False)  # nothing is built for it
        self.assertEqual((code, "NOT STARTED" in printed), (1, True))
        for number in (1, 2, 3):
            self.assertIn(f"hint {number} of 3", course("hint", self.folder, NAME)[1])
        self.fill(SOLUTION)
        code, printed, _ = course("check", self.folder, "1")  # 01_tile_product is not there, and not asked for
        self.assertEqual(code, 0)
        self.assertRegex(printed, f"{NAME}: RIGHT .* Next: .* blank 01_tile_product {shlex.quote(str(self.folder))}$")
        self.assertRegex(course("progress", self.folder)[1], "right +hints 3 of 3 1 of 1 right")

    def test_a_wrong_line_is_named(self):
        printing = 'float l = 0.0f; printf("row %d {\\n", i);'
        self.fill(SOLUTION.replace("* inverse", "* inverse * 2.0f").replace("float l = 0.0f;", printing))
        self.file.write_text(self.file.read_text().replace("S and P written", "P and S written"))
        code, printed, _ = course("check", self.folder, NAME)
        self.assertEqual(code, 1)
        self.assertRegex(printed, r"WRONG \[o\] .* batch 0, head 0, row \d+, column \d+.* row 3 {.* Line \d+ of .* lies outside")
        self.fill(SOLUTION.replace("j < problem.Nk; ++j) l", "j <= problem.Nk; ++j) l"))
        self.assertRegex(course("check", self.folder, NAME)[1], r":(\d+) \[out_of_bounds\] .* \1 \| for \(int j")
        self.fill(SOLUTION.replace("++j) l +=", ") l +="))
        self.assertRegex(course("check", self.folder, NAME)[1], r"endless_loop\] .* yours begins in \S+:(\d+)\. .*\1 \| for \(int j")
        self.fill("  float l = nonsense;\n")
        self.assertRegex(course("check", self.folder, NAME)[1], f"{NAME}.cuh, line {E.first_line()}: .*nonsense")

    def test_bad_input(self):
        (self.folder / "progress.json").write_text("[]")
        self.file.write_text("no marks")
        for line in (
            ("blank", "09", self.folder),
            ("blank", "01", HERE),
            ("blank", "01", "/dev/null/folder"),
            ("check", self.folder / "absent", "01"),
            ("check", self.folder, NAME),
            ("check", self.file),
            ("check", self.folder),
            ("hint", self.folder, NAME),
            ("grade", self.folder, "--out", self.folder / "out"),
            ("grade", self.place, "--out", self.place / "out"),
            ("grade-class", self.folder, "--out", self.place / "marks.csv"),
            ("slides", self.file),
        ):
            code, _, printed = course(*line)
            self.assertEqual((code, printed.count("\n"), "Errno" in printed), (2, 0, False), printed)
        self.assertRegex(course("check", NAME, self.folder)[2], "the folder comes first, .*course.py check")
        self.assertEqual(((self.folder / "progress.json").read_text(), self.file.read_text()), ("[]", "no marks"))

    def test_watch_on_a_terminal(self):
        other = exercise.load("01_tile_product")
        self.fill(SOLUTION)
        self.fill(other.parts()[1], other)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [*COURSE, "--built", BUILD, "watch", self.folder, "all"])
        printed = ""
        for number, key in enumerate(b"nhrbbq", 1):
            while printed.count("quit") < number:
                printed += os.read(terminal, 9999).decode()
            os.write(terminal, bytes([key]))
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertRegex(
            " ".join(printed.split()), f"{NAME}: RIGHT .* 1 of 2 are .* {other.name}: RIGHT .*int 1 of 3.*: RIGHT .*NOT STARTED"
        )
        self.assertEqual([file.read_text() for file in self.folder.glob("*.cuh.*")], [other.file_with(other.parts()[1])])


class Rules(unittest.TestCase):
    def verdict(self, name, old, new):
        lines = exercise.load(name).parts()[1]
        self.assertIn(old, lines)
        return check.check_lines(exercise.load(name), lines.replace(old, new), BUILD)

    def test_a_variable_that_no_one_has_written(self):
        for name, old, new in ((NAME, "float l = 0.0f", "float l"), ("02_coalesced_rows", "float m = -INFINITY", "float m")):
            verdict = self.verdict(name, old, new)
            self.assertEqual((verdict.status, verdict.rule), ("wrong", "unset"))
            self.assertRegex(verdict.sentences[1], rf"{name}.cuh, line \d+: .*uninitialized")
        members = [f"__shfl_xor_sync(ALL_LANES, stats.{name}, distance)" for name in "ml"]
        member = f"RowStats other; other.m = {members[0]};"
        verdict = self.verdict("03_warp_merge", f"const RowStats other{{{members[0]},\n{' ' * 25}{members[1]}}};", member)
        self.assertEqual(verdict.sentences[1].split(": ")[-1], "RowStats other;", verdict.sentences)

    def test_an_error_inside_a_template_names_the_student_s_line(self):
        verdict = self.verdict("07_two_halves", "KMajor{K_or_V}", "K_or_V")
        self.assertEqual(verdict.status, "does not compile")
        self.assertRegex(verdict.sentences[0], r"07_two_halves.cuh, line (\d+): .*\n +\1 \| .*K_or_V.*\n.*06_fa2_forward/operands.cuh")


class Teacher(WithFolder):
    def graded(self, *words):
        code, _, err = course("grade", self.folder, *words, "--out", self.place / "out")
        self.assertEqual(code, 0, err)
        whole = json.loads((self.place / "out" / "results.json").read_text())
        junit = xml.parse(self.place / "out" / "junit.xml").getroot()
        failed = [test["name"] for test in whole["tests"] if test["status"] == "failed"]
        self.assertEqual((junit.get("tests"), junit.get("failures")), (str(len(whole["tests"])), str(len(failed))))
        return whole, failed

    def test_results(self):
        self.fill(SOLUTION)
        self.file.write_text(self.file.read_text().replace('#include "01_naive/products.cuh"', "#error never compiled"))
        whole, failed = self.graded(NAME, "01_tile_product")
        self.assertEqual((whole["score"], failed, whole["not_graded"]), (100, ["01_tile_product"], []))
        self.assertEqual(sum(test["max_score"] for test in whole["tests"]), 200)

    def test_points_go_where_they_are_lost(self):
        for lines, score, lost in (
            (wrong(NAME, "right, with more bytes"), 80, [f"{NAME}: bytes", f"{NAME}: sectors"]),
            (wrong(NAME, "a row that sees no key"), 0, [NAME]),
            (SOLUTION.replace("* inverse;", "* (problem.d % 2 ? 2.0f : 1.0f) * inverse;"), 0, [NAME]),  # a drawn problem shows it
        ):
            self.fill(lines)
            whole, failed = self.graded()
            self.assertEqual((whole["score"], failed), (score, lost))
        self.assertNotIn(str(self.folder), json.dumps(whole))
        e = exercise.load("02_coalesced_rows")
        tests = grade.grade_lines(e, wrong(e.name, "all lanes write L"), BUILD, "1")["tests"]
        self.assertIn(f"{e.name}: races", [test for test, got, most, _ in tests if got < most])

    def test_a_class(self):
        texts = {"=anna": E.file_with(SOLUTION), "ben": "no marks", "c, d": None, "eve": E.file_with(E.blank())}
        for student, text in texts.items():
            (self.place / "class" / student).mkdir(parents=True)
            if text:
                (self.place / "class" / student / E.student_name).write_text(text)
        marks = self.place / "marks.csv"
        self.assertEqual(course("grade-class", self.place / "class", "--out", marks)[0], 0)
        text = marks.read_text()
        rows = [(student, points, bool(why)) for student, _, points, _, why in csv.reader(text.splitlines())]
        self.assertEqual(rows[1:], [("'=anna", "100", False), ("ben", "0", True), ("c, d", "0", True), ("eve", "0", True)])
        self.assertEqual((course("grade-class", self.place / "class", "--out", marks)[0], marks.read_text()), (2, text))

    def test_a_machine_without_a_compiler_takes_no_points(self):
        self.fill("nonsense\n")
        with unittest.mock.patch.object(build, "build", return_value=build.Built(None, "no space left")):
            self.assertTrue(grade.grade_file(E, self.folder, BUILD, "1")["failed"])

    def test_slides(self):
        page = self.place / "slides.html"
        if not shutil.which("pandoc"):
            self.skipTest("pandoc is missing")
        self.assertEqual(course("slides", page)[0], 0)
        html = page.read_text()
        self.assertEqual(html.count("<h1"), len(re.findall("^##? ", (HERE / "slides.md").read_text(), re.MULTILINE)))
        self.assertNotRegex(html, r"(src|href)=.?(http|\.\.)")
        self.assertNotIn("$", re.sub(r"<(script|style|annotation|pre)\b.*?</\1>", "", html, flags=re.DOTALL))

    def test_the_sandbox(self):
        self.assertEqual(sandbox.run(["sh", "-c", "while :; do :; done"], self.place, sandbox.Limits(seconds=1)).code, 124)
        self.assertLess(len(sandbox.run(["sh", "-c", "yes"], self.place, sandbox.Limits(seconds=3, file_size=1)).out), (1 << 20) + 1)
        self.assertNotEqual(sandbox.run([sys.executable, "-c", "x = bytearray(1 << 30)"], self.place, sandbox.Limits(memory=512)).code, 0)
        self.assertNotIn("USER", sandbox.run(["env"], self.place).out)
        if sandbox.has_box():
            for file in (HERE / "new", "/usr/new"):
                self.assertNotEqual(sandbox.run(["sh", "-c", f"echo > '{file}'"], self.place, boxed=True).code, 0, file)
            self.assertIn("unreachable", sandbox.run(["bash", "-c", "echo > /dev/tcp/192.0.2.1/80"], self.place, boxed=True).err)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()
