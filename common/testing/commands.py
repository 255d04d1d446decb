#!/usr/bin/env python3
"""Runs the commands that the Markdown pages show, as a reader would, and says which of them do not end as the page says.

  commands.py --list                        the pages that have a test
  commands.py --check PAGE...               the pages, their table and their tests fit together; PAGE...: those with a test
  commands.py --page PAGE --build FOLDER    runs the commands of one page; its build/ is FOLDER

What counts as a command, and the table of those that cannot run everywhere: page_commands.py.

How a command has to end: having printed something, with exit code 0, unless the page says `exits with N` in the comment at the end of
the line, or <!-- exits with N --> right after the span. `git diff --no-index` has to find a difference: 1. A program that needs a GPU or
torch has to say that there is none, where there is none: 3. A ctest command is only asked which tests it would run. Of common/try.sh
only the program runs, with its options. What an exercise runs is left to exercises.py.

They run one after another, in a copy of the project, so nothing of the reader's is overwritten. Exit code: 1 if one ended in another
way, 77 if none could run here.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page_commands
from page_commands import ROOT

# What ends with exit code 3 unless these are there, after a look at its options.
NEEDED = {r"--only peer\b|--peers\b": ("gpu", "torch"), r"\bbuild/bin/.* --device gpu\b": ("gpu",), r"\blab/autograd\.py\b": ("torch",)}
SECONDS = 120  # more than any page may ask of its reader
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}


def copy_project(folder):
    """The project without what was built or saved beside it."""
    for path in ROOT.iterdir():
        if path.is_dir() and (re.match(r"\d\d_|common$|docs$|\.ci$|\.devcontainer$|\.github$", path.name)):
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copy2(path, folder)


def scratch_copy(folder, build):
    """A copy of the project. Its build/ leads to `build`, but has a log of tests of its own."""
    copy_project(folder)
    (folder / "build").mkdir()
    for path in build.iterdir():
        if path.name != "Testing":
            (folder / "build" / path.name).symlink_to(path)


def environment():
    settings = {name: value for name, value in os.environ.items() if not name.startswith("FLASH_SIMT")}
    folder = str(Path(sys.executable).parent)  # a page's python3 is this one
    return settings | {"PATH": folder + os.pathsep + settings["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}


def program_of(text):
    """What `common/try.sh [--all] STAGE OPTION...` runs."""
    stage, _, options = text.removeprefix("common/try.sh ").removeprefix("--all ").partition(" ")
    named = [path.name for path in ROOT.glob(f"{stage}_*") if stage.isdigit()]
    return f"build/bin/{(named or [stage])[0]} {options}".strip()


class Runner:
    def __init__(self, folder):
        self.folder = folder
        code, printed = self.run("build/bin/01_naive --device gpu --seq 8 --no-check")
        self.here = {"gpu": code == 0, page_commands.SWEEP[0]: code != 0, "GPU code": "holds no GPU code" not in printed}

    def run(self, text, program="bash"):
        """(exit code, what it printed)"""
        argv = ["bash", "-o", "pipefail", "-c", text] if program == "bash" else [sys.executable, "-c", text]
        try:
            done = subprocess.run(argv, cwd=self.folder, env=environment(), timeout=SECONDS, **PIPES)
        except subprocess.TimeoutExpired as stopped:
            return 124, f"stopped after {stopped.timeout} s"
        return done.returncode, done.stdout

    def missing(self, needs):
        def has(need):
            return self.here[need] if need in self.here else shutil.which(need) or importlib.util.find_spec(need)

        return [need for need in needs if not has(need)]

    def needs(self, command):
        if command.kind == "python":
            return re.findall(r"^import (numpy|matplotlib|torch)", command.text, re.MULTILINE)
        return page_commands.NOT_EVERYWHERE.get(command.text, ())

    def answer(self, command):
        """(ended as it should, what to show if it did not)"""
        text, expected = command.text, command.expected
        if command.kind == "option":
            code, printed = self.run(f"build/bin/{command.stage} --help")
            return code == 0 and re.search(rf"^ +(-\w,)?{text}\b", printed, re.MULTILINE), f"{command.stage} has no option {text}"
        if text.startswith("common/try.sh "):
            return self.answer(command._replace(text=program_of(text)))
        if text.startswith("ctest "):
            code, printed = self.run(f"{text} -N")
            return code == 0 and int((re.findall(r"Total Tests: (\d+)", printed) or ["0"])[0]) > 0, "it runs no test: " + printed
        if not expected and any(re.search(pattern, text) and self.missing(needs) for pattern, needs in NEEDED.items()):
            expected = 3
        code, printed = self.run(text, "python" if command.kind == "python" else "bash")
        if code == expected:
            return bool(printed.strip()), "it printed nothing"
        return False, f"exit code {code} instead of {expected}; it printed last:\n" + "\n".join(printed.split("\n")[-15:])


def run_page(page, build):
    text = page_commands.pages()[page].read_text()
    found, wrong = page_commands.commands(page, text)
    in_exercises = {what for steps in page_commands.exercises(text) for keyword, what in steps if keyword == "run"}
    failed, ran = bool(wrong), 0
    print("\n".join(wrong), end="\n" if wrong else "")
    with tempfile.TemporaryDirectory(prefix="flash stëps commands.") as name:
        scratch_copy(Path(name), build)
        runner = Runner(Path(name))
        for command in found:
            needs = "by exercises.py" if command.text in in_exercises else runner.needs(command)
            shown = command.text.split("\n")[0] + (" ..." if command.kind == "python" else "")
            if isinstance(needs, str):
                print(f"not here         {shown}\n                 {needs}")
                continue
            missing = runner.missing(needs)
            if missing:
                print(f"skipped          {shown}\n                 not here: {', '.join(missing)}")
                continue
            began = time.monotonic()
            good, why = runner.answer(command)
            ran += 1
            failed = failed or not good
            print(f"{'ok    ' if good else 'FAILED'} {time.monotonic() - began:6.1f} s  {shown}", flush=True)
            if not good:
                print(why)
    return 1 if failed else 0 if ran else 77


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true")
    what.add_argument("--check", nargs="*", metavar="PAGE")
    what.add_argument("--page", choices=sorted(page_commands.pages()), metavar="PAGE")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(page_commands.with_a_test()))
        return 0
    if arguments.check is not None:
        wrong = page_commands.check(arguments.check)
        print("\n".join(wrong) or "all commands are accounted for")
        return 1 if wrong else 0
    if not (arguments.build / "bin").is_dir():
        parser.error(f"--build is {arguments.build}; it has to be a folder in which the project was built")
    return run_page(arguments.page, arguments.build.resolve())


if __name__ == "__main__":
    sys.exit(main())
