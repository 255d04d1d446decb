#!/usr/bin/env python3
"""Attacks on the grader, and faults of its machine: exercises/attacks.toml, and a kernel that calls the C library by an address.
test_attacks.py BUILD [--full] runs them against a build folder of the project."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree as xml
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from kit import build, exercise, grade, measure, sandbox

BUILD = HERE.parents[1] / "build-course"
FULL = "--full" in sys.argv
ATTACKS = tomllib.loads((exercise.FOLDER / "attacks.toml").read_text())["attack"]
NAME = "01_softmax"
GRADE = (sys.executable, "-B", HERE / "course.py", "--built")


def can_mount():
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return os.geteuid() == 0 and done.returncode == 0


class Held(unittest.TestCase):
    def setUp(self):
        if sandbox.missing():
            self.skipTest(sandbox.missing())
        boxed = unittest.mock.patch.object(sandbox, "boxed", True)
        boxed.start()
        self.addCleanup(boxed.stop)
        place = tempfile.TemporaryDirectory(prefix="attack.")
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)
        self.mine, self.out = self.folder / "mine", self.folder / "out"
        self.mine.mkdir()


class Attacks(Held):
    def cases(self, key):
        return [(a, exercise.load(a.get("exercise", NAME))) for a in ATTACKS if key in a and (FULL or not a.get("full"))]

    def expect(self, attack, score):
        said = "\n".join([score["refused"], *(i["says"] for i in score["items"])])
        self.assertEqual(score["score"], attack.get("score", 0), said)
        self.assertRegex(said, attack["says"])

    def test_lines(self):
        for attack, e in self.cases("lines"):
            with self.subTest(attack["name"]):
                lines = attack["lines"].replace("@SOLUTION@", e.parts()[1]) * attack.get("times", 1) + "\n"
                began = time.process_time()
                score = grade.grade_lines(e, lines, BUILD)
                self.expect(attack, score)
                self.assertLess(time.process_time() - began, 3)
                for form in grade.FORMATS:
                    grade.write([score], self.folder, form)
                xml.parse(self.folder / "junit.xml")

    def test_files(self):
        for attack, e in self.cases("file"):
            with self.subTest(attack["name"]):
                (self.mine / e.student_name).write_text(attack["file"] * attack.get("times", 1))
                self.expect(attack, grade.grade_folder(self.mine, [e], BUILD, "1")[0])

    def test_machines(self):
        e, root = exercise.load(NAME), can_mount()
        for attack, _ in self.cases("shell"):
            with self.subTest(attack["name"]):
                if attack.get("root") and not root:
                    print(f"skipped, since only root can mount: {attack['name']}")
                    continue
                place, self.out = (Path(tempfile.mkdtemp(dir=self.folder)) for _ in "12")
                for folder in (self.folder, self.out):
                    folder.chmod(0o777)
                shutil.rmtree(self.mine)
                self.mine.mkdir()
                (self.mine / e.student_name).write_text(e.file_with(e.parts()[1]))
                named = attack.get("exercises", [NAME])
                argv = [
                    "sh",
                    "-c",
                    attack["shell"],
                    "sh",
                    *GRADE,
                    BUILD,
                    "grade",
                    self.mine,
                    *named,
                    "--format",
                    "junit",
                    "--out",
                    self.out,
                ]
                env = os.environ | {"PLACE": str(place), "MINE": str(self.mine)}
                done = subprocess.run(argv, capture_output=True, text=True, env=env)
                self.assertEqual(done.returncode, attack["exit"], done.stdout + done.stderr)
                self.assertNotIn("Traceback", done.stderr)
                self.assertRegex(done.stderr + done.stdout.strip(), re.compile(attack.get("says", ""), re.DOTALL))
                if "score" in attack:
                    self.assertEqual(json.loads((self.out / "score.json").read_text())["score"], attack["score"], done.stdout)

    def test_a_judge_that_does_not_judge(self):
        e = exercise.load(NAME)
        (self.mine / e.student_name).write_text(e.file_with(e.parts()[1]))
        for script, says in (
            ("exit 3", "ended with 3"),
            ("exit 0", "finds results right that are not there"),
            ("exit 1", "own solution wrong"),
        ):
            judge = self.folder / script.replace(" ", "")
            judge.write_text(f"#!/bin/sh\n{script}\n")
            judge.chmod(0o755)
            with unittest.mock.patch.object(build, "JUDGE", str(judge)), unittest.mock.patch.dict(grade.judged, clear=True):
                score = grade.grade_folder(self.mine, [e, exercise.load("02_shuffles")], BUILD, "1")
            self.assertTrue(score[0]["fault"])
            self.assertIn(says, score[0]["refused"])
            self.assertEqual((score[1]["fault"], score[1]["refused"]), (False, "02_shuffles.cuh was not handed in"))
            grade.write(score, self.folder, "junit")
            self.assertEqual([c[0].tag for c in xml.parse(self.folder / "junit.xml").getroot().iter("testcase")], ["error", "failure"])

    def test_a_grader_that_is_killed_leaves_nothing(self):
        e = exercise.load(NAME)
        lines = "  int forever = problem.Nk;\n  while (forever > 0) forever = forever % 7 + 1;\n"
        (self.mine / e.student_name).write_text(e.file_with(lines))
        argv, env = [*GRADE, BUILD, "grade", self.mine, "--format", "junit", "--out", self.out], os.environ | {"TMPDIR": str(self.folder)}
        grader = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL)
        programs = f"^{self.folder}/flash_course.*/program "
        while grader.poll() is None and subprocess.run(["pgrep", "-f", programs], stdout=subprocess.DEVNULL).returncode != 0:
            time.sleep(0.1)
        self.assertIsNone(grader.poll())
        grader.send_signal(signal.SIGKILL)
        grader.wait()
        time.sleep(1)
        self.assertEqual(subprocess.run(["pgrep", "-f", programs], stdout=subprocess.DEVNULL).returncode, 1)
        self.assertEqual(list(self.out.iterdir()), [])
        self.assertEqual(len(list(self.folder.glob("flash_course.*"))), 1)
        (self.mine / e.student_name).write_text("")
        subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=True)
        self.assertEqual(list(self.folder.glob("flash_course.*")), [])


class Address(Held):
    """A kernel that calls system() by its distance from another function. Where nothing holds it back, it works."""

    LINES = """
  if (i == 0 && h == 0 && b == 0) {{
    const char command[] = {{{command}, 0}};
    const ulong there = (ulong)&::free + {distance}l;
    const int done = ((comparison_fn_t)there)(command, command);
    if (done == 77) return;
  }}
"""

    def distance(self, name):
        """From free to this function, in the C library: the same in all processes."""
        library = ctypes.CDLL(None)
        return ctypes.cast(library[name], ctypes.c_void_p).value - ctypes.cast(library.free, ctypes.c_void_p).value

    def test_a_death_that_is_not_the_machines_fault(self):
        e = exercise.load(NAME)
        lines = f"  ((comparison_fn_t)((ulong)&::free + {self.distance('raise')}l))((caddr_t){signal.SIGKILL:d}, 0);\n"
        self.assertFalse(grade.grade_lines(e, lines, BUILD, layers=(), count=1)["refused"])

    def test_a_command(self):
        e, options = exercise.load(NAME), measure.draw_problems(exercise.load(NAME), "1", 1)[0]
        mark = self.folder / "escaped"
        command = ", ".join(str(ord(letter)) for letter in f"touch {mark}")
        lines = self.LINES.format(command=command, distance=self.distance("system")) + e.parts()[1]
        empty = self.folder / "empty.o"
        subprocess.run(["c++", "-x", "c++", "-c", "-o", empty, "/dev/null"], check=True)
        for jail, boxed, escapes in ((build.JAIL, True, False), (build.JAIL, False, False), (empty, True, False), (empty, False, True)):
            place = Path(tempfile.mkdtemp(dir=self.folder))
            with unittest.mock.patch.object(build, "JAIL", str(jail)), unittest.mock.patch.object(sandbox, "boxed", False):
                built = build.build(e, e.to_compile(lines), BUILD, place / "build", jailed=True)
            self.assertIsNotNone(built.program, built.message)
            with unittest.mock.patch.object(sandbox, "boxed", boxed):
                done = measure.run(built.program, e, options, place / "run", check=False).done
            self.assertEqual(mark.exists(), escapes, (jail, boxed, done))


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--full"]
    if arguments and not arguments[0].startswith("-") and Path(arguments[0]).is_dir():
        BUILD = Path(arguments.pop(0)).resolve()
    unittest.main(argv=[sys.argv[0], *arguments])
