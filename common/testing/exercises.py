#!/usr/bin/env python3
"""Does the exercises of the Markdown pages as they are written: makes the edit, sees it fail with the words of the page, undoes it, sees
it pass.

  exercises.py --build FOLDER [--page PAGE]    in a copy of the project; FOLDER: where the project was built, by Ninja

An exercise that is checked is followed by a comment, which readers do not see. A line of it is a keyword and its text:

  <!-- exercise
  in 01_naive/kernel.cuh          the file to edit, from the root of the project
  replace __syncthreads();  // read     a text that stands there once
  by                              what takes its place; nothing: the text goes
  run common/try.sh 01            a command that the page shows
  exits 1                         its exit code; 1 if this line is missing
  says o is wrong                 what the command has to print, and the page to say
  -->

`in` holds until the next one, and each keyword may come again. At the end all files are as they were, and each command that was
meant to fail, and did not pass before, has to pass (of common/try.sh the program and a second of its tests).
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import commands
import page_commands
import reuse

SECONDS = 300


class Wrong(Exception):
    """What is wrong with an exercise, in words."""


def check(page, text, steps):
    """Raises Wrong if the exercise is not one that the page can promise."""
    visible = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    shown = {command.text for command in page_commands.commands(page, visible)[0]}
    keywords = [keyword for keyword, _ in steps]
    for keyword, what in steps:
        if keyword not in ("in", "replace", "by", "run", "exits", "says"):
            raise Wrong(f"unknown keyword '{keyword}'")
        if keyword == "run" and what not in shown:
            raise Wrong(f"the page does not show the command {what}")
        if keyword == "says" and " ".join(what.split()) not in " ".join(visible.split()):
            raise Wrong(f"the page does not say '{what}'")
    if "run" not in keywords or keywords.count("replace") != keywords.count("by"):
        raise Wrong("it needs a command to run, and a `by` for each `replace`")


class Copy:
    """A copy of the project in which commands run and edits are undone."""

    def __init__(self, folder):
        self.folder = folder
        self.before = {}  # file: what it was

    def run(self, command):
        """(exit code, what it printed)"""
        try:
            options = {"cwd": self.folder, "env": commands.environment(), "timeout": SECONDS}
            done = subprocess.run(["bash", "-c", command], **options, **commands.PIPES)
        except subprocess.TimeoutExpired:
            return 124, f"stopped after {SECONDS} s"
        return done.returncode, done.stdout

    def edit(self, name, old, new):
        path = self.folder / name
        text = path.read_text() if path.is_file() else ""
        if text.count(old) != 1:
            raise Wrong(f"'{old}' stands {text.count(old)} times in {name}, not once")
        self.before.setdefault(path, text)
        path.write_text(text.replace(old, new))

    def undo(self):
        for path, text in self.before.items():
            path.write_text(text)
        self.before = {}


def expect(copy, command, code, words=()):
    began = time.monotonic()
    got, printed = copy.run(command)
    missing = [word for word in words if " ".join(word.split()) not in " ".join(printed.split())]
    if got != code or missing:
        ending = "\n".join(printed.splitlines()[-40:])
        raise Wrong(f"{command}: exit code {got}, expected {code}; {'does not say ' + repr(missing[0]) if missing else ''}\n{ending}")
    print(f"      exit code {code} after {time.monotonic() - began:.1f} s: {command}", flush=True)


def do(copy, steps):
    """Does one exercise and undoes it. Returns the commands that have to pass now."""
    to_pass, passed, file, old = [], [], "", ""
    try:
        for n, (keyword, what) in enumerate(steps):
            if keyword == "in":
                file = what
            elif keyword == "replace":
                old = what
            elif keyword == "by":
                copy.edit(file, old, what)
            elif keyword == "run":
                following = next((m for m in range(n + 1, len(steps)) if steps[m][0] not in ("exits", "says")), len(steps))
                told = steps[n + 1 : following]
                code = int(dict(told).get("exits", "1"))
                expect(copy, what, code, [word for key, word in told if key == "says"])
                to_pass += [what] if code == 1 else []
                passed += [what] if code == 0 else []
    finally:
        copy.undo()
    return [command for command in to_pass if command not in passed]  # one that passed half-way may need what is undone


def do_page(copy, page, text):
    """How many of its exercises, or of the commands after them, did not do what the page says; and how many there are."""
    found, failed, to_pass = page_commands.exercises(text), 0, {}
    for number, steps in enumerate(found, 1):
        print(f"{page}, exercise {number} of {len(found)}", flush=True)
        try:
            check(page, text, steps)
            to_pass |= dict.fromkeys(do(copy, steps))
        except Wrong as wrong:
            print(f"FAILED: {wrong}")
            failed += 1
    for command in to_pass:
        print(f"{page}, everything undone")
        try:
            expect(copy, command.replace("common/try.sh ", "common/try.sh --seconds 1 "), 0)  # its tests are tests of their own
        except Wrong as wrong:
            print(f"FAILED: {wrong}")
            failed += 1
    return failed, len(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--page", choices=sorted(page_commands.pages()), metavar="PAGE")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if not (build / "build.ninja").is_file():
        print(f"skipped: {build} was not built by Ninja")
        return 77
    failed = count = 0
    with tempfile.TemporaryDirectory(prefix="flash stëps exercises.") as name:
        folder = Path(name).resolve()
        commands.copy_project(folder)
        reuse.configure(folder, build)
        for page, path in page_commands.pages().items():
            if arguments.page in (None, page):
                wrong, found = do_page(Copy(folder), page, path.read_text())
                failed, count = failed + wrong, count + found
    print(f"{count} exercises, {failed} failures")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
