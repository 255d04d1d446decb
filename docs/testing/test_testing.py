#!/usr/bin/env python3
"""commands.py and exercises.py: a page that promises what does not happen is a failure."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import commands
import exercises
import scratch

PAGE = """
`build/bin/not --marked`

```sh
build/bin/not --marked
```

```sh test
# a comment
build/bin/01_naive --input large   # exits with 1: it overflows
git diff --no-index a b
build/bin/01_naive \\
  --seq 8
```

```python test no_such_module
print(1)
```
"""
STAGE = """#!/bin/sh
case "$*" in
*gpu*nonsense*) echo "unknown argument"; exit 2 ;;
*gpu*) echo "no GPU"; exit 3 ;;
*large*) echo report; exit 1 ;;
*silent*) ;;
*) echo report ;;
esac
"""
# Plays common/try.sh: wrong without the first line of kernel.txt, and in an odd way with "mad".
TRY = """#!/bin/sh
grep -q mad kernel.txt && exit 139
grep -q '^barrier' kernel.txt && echo "right: $*" && exit 0
echo "o is
  wrong"; exit 1
"""
EXERCISE = """Delete it and run `common/try.sh 01`: o is wrong.
   <!-- exercise
   in kernel.txt
   replace {replace}
   by {by}
   run {run}
   says {says}
   -->
"""
GOOD = {"replace": "barrier  // why", "by": "// why", "run": "common/try.sh 01", "says": "o is wrong"}


class Folder(unittest.TestCase):
    def setUp(self):
        scratch_folder = tempfile.TemporaryDirectory()
        self.addCleanup(scratch_folder.cleanup)
        self.folder = pathlib.Path(scratch_folder.name)

    def program(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)


class Commands(Folder):
    def run_text(self, text):
        """(what is shown, how many commands failed) of a page with this text, where a shell script plays stage 01"""
        self.program("build/bin/01_naive", STAGE)
        page = scratch.ROOT / "docs/README.md"  # only its name is shown
        with unittest.mock.patch.object(pathlib.Path, "read_text", lambda path: text):
            return commands.run_page(page, self.folder / "build")

    def test_what_is_a_command(self):
        found = [(command.text.strip(), command.code) for command in commands.commands(PAGE)]
        naive = "build/bin/01_naive"
        self.assertEqual(found, [(f"{naive} --input large", 1), ("git diff --no-index a b", 1), (f"{naive} --seq 8", 0), ("print(1)", 0)])

    def test_good(self):
        shown, failed = self.run_text(PAGE.replace("git diff --no-index a b", "build/bin/01_naive --device gpu"))
        self.assertEqual((failed, shown.count("ok "), shown.count("skipped, no no_such_module")), (0, 3, 1), shown)

    def test_failures(self):
        for bad in ("--input large", "--seq 8   # exits with 1", "--silent", "--device gpu --nonsense", "| cat - no-such-file"):
            shown, failed = self.run_text(f"```sh test\nbuild/bin/01_naive {bad}\n```\n")
            self.assertEqual(failed, 1, shown)
        self.assertEqual(self.run_text("```python test\nraise SystemExit(1)\n```\n")[1], 1)

    def test_nothing_of_the_reader_is_touched(self):
        before = sorted(path.name for path in scratch.ROOT.iterdir())
        self.assertEqual(self.run_text("```sh test\necho x | tee README.md new.txt\n```\n")[1], 0)
        self.assertEqual(sorted(path.name for path in scratch.ROOT.iterdir()), before)
        self.assertNotEqual((scratch.ROOT / "README.md").read_bytes(), b"x\n")


class Exercises(Folder):
    def do(self, text):
        """(failures, exercises, what is printed)"""
        self.program("common/try.sh", self.script)
        (self.folder / "kernel.txt").write_text("barrier  // why\nuse\nuse\n")
        copy = scratch.Copy.__new__(scratch.Copy)  # no copy of the project
        copy.folder, copy.seconds, copy.before = self.folder, 10, {}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            failed, found = exercises.do_page(copy, "01_naive/README.md", text)
        self.assertEqual((self.folder / "kernel.txt").read_text(), "barrier  // why\nuse\nuse\n", "not undone")
        return failed, found, out.getvalue()

    script = TRY

    def test_a_diff_of_the_page(self):
        diff = "```diff\n@@ here\n-barrier  // why\n+mad\n use\n```\n"
        exercise = "`common/try.sh 01`\n<!-- exercise\nin kernel.txt\napply\nrun common/try.sh 01\nexits 139\n-->\n"
        for text, failures in ((diff + exercise, 0), (diff.replace("why", "not there") + exercise, 1), (exercise + diff, 1)):
            failed, found, out = self.do(text)
            self.assertEqual((failed, found), (failures, 1), out)

    def test_good(self):
        failed, found, out = self.do(EXERCISE.format(**GOOD) * 2)
        self.assertEqual((failed, found), (0, 2), out)
        self.assertEqual((out.count("exit code 1"), out.count("exit code 0")), (2, 1))  # once, since both run the same command

    def test_failures(self):
        for change, why in (
            ({"replace": "nowhere"}, "occurs 0 times"),
            ({"replace": "use"}, "occurs 2 times"),
            ({"by": "barrier"}, "exit code 0, expected 1"),
            ({"by": "mad"}, "exit code 139"),
            ({"says": "Delete it"}, "does not say 'Delete it'"),
            ({"says": "never"}, "page does not say"),
            ({"run": "common/try.sh 02"}, "page does not say"),
            ({"by": "x\n   cut y"}, "unknown keyword 'cut'"),
            ({"by": "x\n   replace y"}, "`by` for each `replace`"),
        ):
            failed, _, out = self.do(EXERCISE.format(**{**GOOD, **change}))
            self.assertEqual((failed, why in out), (1, True), out)

    def test_what_fails_when_all_is_undone(self):
        self.script = "#!/bin/sh\necho o is wrong; exit 1\n"
        failed, _, out = self.do(EXERCISE.format(**GOOD))
        self.assertEqual((failed, "everything undone" in out), (1, True), out)


if __name__ == "__main__":
    unittest.main()
