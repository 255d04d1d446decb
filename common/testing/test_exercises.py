#!/usr/bin/env python3
"""exercises.py: an exercise that does not do what its page says is a failure; reuse.py: what counts as unchanged."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import exercises  # both lie beside this file
import reuse

# Plays common/try.sh: wrong without the first line of kernel.txt, and in an odd way with "mad".
TRY = """#!/bin/sh
grep -q mad kernel.txt && exit 139
grep -q '^barrier' kernel.txt && echo "right: $*" && exit 0
echo "o is
  wrong"; exit 1
"""
PAGE = """Delete it and run `common/try.sh 01`: o is wrong.
   <!-- exercise
   in kernel.txt
   replace {replace}
   by {by}
   run {run}
   says {says}
   -->
"""
GOOD = {"replace": "barrier  // why", "by": "// why", "run": "common/try.sh 01", "says": "o is wrong"}


class Exercises(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "common").mkdir()
        (self.folder / "common/try.sh").write_text(TRY)
        (self.folder / "common/try.sh").chmod(0o755)
        (self.folder / "kernel.txt").write_text("barrier  // why\nuse\nuse\n")

    def do(self, text):
        """(failures, exercises, what is printed)"""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            failed, found = exercises.do_page(exercises.Copy(self.folder), "01_naive/README.md", text)
        self.assertEqual((self.folder / "kernel.txt").read_text(), "barrier  // why\nuse\nuse\n", "not undone")
        return failed, found, out.getvalue()

    def test_good(self):
        failed, found, out = self.do(PAGE.format(**GOOD) + PAGE.format(**GOOD))
        self.assertEqual((failed, found), (0, 2), out)
        self.assertEqual(out.count("exit code 1"), 2)
        self.assertEqual(out.count("exit code 0"), 1)  # once, since both run the same command

    def test_failures(self):
        for change, why in (
            ({"replace": "nowhere"}, "stands 0 times"),
            ({"replace": "use"}, "stands 2 times"),
            ({"by": "barrier"}, "exit code 0, expected 1"),
            ({"by": "mad"}, "exit code 139"),
            ({"says": "Delete it"}, "does not say"),
            ({"says": "never"}, "page does not say"),
            ({"run": "common/try.sh 02"}, "page does not show"),
            ({"by": "x\n   cut y"}, "unknown keyword 'cut'"),
            ({"by": "x\n   exits 0"}, "`by` for each `replace`"),
        ):
            text = PAGE.format(**{**GOOD, **change})
            if why.startswith("`by`"):
                text = text.replace("   by x\n", "")
            failed, _, out = self.do(text)
            self.assertEqual(failed, 1, out)
            self.assertIn(why, out)

    def test_what_fails_when_all_is_undone(self):
        (self.folder / "common/try.sh").write_text("#!/bin/sh\necho o is wrong; exit 1\n")
        failed, _, out = self.do(PAGE.format(**GOOD))
        self.assertEqual((failed, "everything undone" in out), (1, True), out)

    def test_an_exercise_may_be_meant_to_pass(self):
        text = PAGE.format(**{**GOOD, "by": "barrier  // mine", "says": "right: 01"}).replace("   run", "   exits 0\n   run")
        self.assertEqual(self.do(text)[0], 1)  # the exit code belongs after the command
        text = text.replace("   exits 0\n", "").replace("   says", "   exits 0\n   says") + "right: 01\n"
        self.assertEqual(self.do(text)[0], 0)


class Reuse(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash stëps reuse.")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name).resolve()
        self.compiler = self.folder / "compiler"
        self.compiler.write_text('#!/bin/sh\necho compiled >x.o\necho "x.o: real" >x.d\n')
        self.compiler.chmod(0o755)
        for tree in ("project", "copy"):
            (self.folder / tree / "build").mkdir(parents=True)
            (self.folder / tree / "a.cpp").write_text("source")
            (self.folder / tree / "a b.hpp").write_text("header")
            (self.folder / tree / "build/made.cpp").write_text(f'#include "{self.folder / tree}/a.cpp"')
        (self.folder / "project/build/x.o").write_text("original")
        self.made_by("-O2")

    def made_by(self, *flags):
        root, build = self.folder / "project", self.folder / "project/build"
        command = [str(self.compiler), *flags, f"-I{root}", "-o", "x.o", "-c", f"{root}/a.cpp"]
        files = [f"{root}/a.cpp", f"{root}/a b.hpp", f"{build}/made.cpp"]
        copy = self.folder / "copy"
        facts = {
            "root": str(root),
            "build": str(build),
            "copy": str(copy),
            "folder": str(copy / "build"),
            "objects": {"x.o": (command, files)},
        }
        (copy / "build" / reuse.FACTS).write_text(json.dumps(facts))

    def object(self, *more):
        """What the launcher made."""
        copy = self.folder / "copy"
        command = [self.compiler, "-O2", *more, f"-I{copy}", "-MD", "-MT", "x.o", "-MF", "x.d", "-o", "x.o", "-c", f"{copy}/a.cpp"]
        subprocess.run([sys.executable, "-B", reuse.__file__, *command], cwd=copy / "build", check=True)
        return (copy / "build/x.o").read_text().strip()

    def test_unchanged(self):
        self.assertEqual(self.object(), "original")
        copy = str(self.folder / "copy").replace(" ", "\\ ")
        self.assertEqual((self.folder / "copy/build/x.d").read_text(), f"x.o: {copy}/a.cpp {copy}/a\\ b.hpp {copy}/build/made.cpp\n")

    def test_whatever_differs(self):
        for name in ("copy/a.cpp", "copy/a b.hpp", "copy/build/made.cpp", "project/a.cpp"):
            text = (self.folder / name).read_text()
            (self.folder / name).write_text(text + " edited")
            self.assertEqual(self.object(), "compiled", name)
            (self.folder / name).write_text(text)
        os.remove(self.folder / "copy/a.cpp")
        self.assertEqual(self.object(), "compiled")

    def test_other_flags(self):
        self.made_by("-O3")
        self.assertEqual(self.object(), "compiled")

    def test_a_program_that_holds_the_path_of_its_project(self):
        self.made_by("-O2", f'-DSOURCES="{self.folder}/project"')
        self.assertEqual(self.object(f'-DSOURCES="{self.folder}/copy"'), "compiled")

    def test_an_original_that_is_out_of_date(self):
        os.utime(self.folder / "project/build/x.o", (1, 1))
        self.assertEqual(self.object(), "compiled")


if __name__ == "__main__":
    unittest.main()
