#!/usr/bin/env python3
"""Runs the commands of the Markdown pages as a reader would.

  commands.py BUILD [PAGE...]    all pages, or these; BUILD: a folder in which the project was built, the build/ of the pages

A page marks what is to run by the word `test` after a block's language:

  ```sh test              each line is a command; one that ends with a backslash goes on in the next line
  ```python test          one program
  ```sh test torch        skipped where the Python module torch is not installed; several may follow

A command has to print something and to end with exit code 0, or N if its comment says `exits with N`. `git diff --no-index` has to find a
difference (1), and where no GPU answers a program has to refuse `--device gpu` (3).

The commands of a page run one after another in a copy of the project. Exit code: 1 if one ended in another way.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from scratch import ROOT, Copy

sys.path.insert(0, str(ROOT / "docs"))
from tools.check_pages import pages

SECONDS = 120  # more than any page may ask of its reader
BLOCK = re.compile(r"^ *```(sh|python) test\b(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
PYTHON = (sys.executable, "-c")


class Command(NamedTuple):
    text: str
    code: int = 0
    python: bool = False
    needs: list = []


def commands(text):
    """The commands of a page in its order."""
    for language, needs, block in BLOCK.findall(text):
        if language == "python":
            yield Command(block, python=True, needs=needs.split())
            continue
        for line in re.sub(r"\\\n *", "", block).splitlines():
            command, _, comment = line.partition(" #")
            said = re.search(r"exits with (\d)(?! without)", comment)
            code = int(said[1]) if said else int(command.startswith("git diff --no-index "))
            if command.strip() and not command.startswith("#"):
                yield Command(command.strip(), code, needs=needs.split())


def problem(copy, command, gpu):
    """What is wrong with how a command ends, or ''"""
    code = 3 if "--device gpu" in command.text and not gpu else command.code
    got, printed = copy.run(command.text, *([PYTHON] if command.python else []))
    if got != code:
        return f"exit code {got} instead of {code}; it printed last:\n" + "\n".join(printed.split("\n")[-15:])
    return "" if printed.strip() else "it printed nothing"


def run_page(path, build):
    """(what to show, how many of its commands failed)"""
    found, shown, failed = list(commands(path.read_text())), [], 0
    with tempfile.TemporaryDirectory(prefix="flash commands.") as folder:
        copy = Copy(folder, SECONDS) if found else None
        if copy:
            copy.use(build)
        gpu = copy and copy.run("build/bin/01_naive --device gpu --seq 8 --no-check")[0] == 0
        for command in found:
            missing = [module for module in command.needs if not importlib.util.find_spec(module)]
            wrong = "" if missing else problem(copy, command, gpu)
            failed += bool(wrong)
            verdict = f"skipped, no {missing[0]}:" if missing else "FAILED" if wrong else "ok"
            shown += filter(None, [f"{verdict} {command.text.splitlines()[0]}", wrong])
    return "\n".join([f"{path.relative_to(ROOT)}:", *shown]) if found else "", failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, metavar="BUILD")
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    arguments = parser.parse_args()
    if not (arguments.build / "bin/01_naive").is_file():
        parser.error(f"BUILD is {arguments.build}; it has to be a folder in which the project was built")
    chosen = [path for path in pages() if not arguments.pages or str(path.relative_to(ROOT)) in arguments.pages]
    if not chosen:
        parser.error(f"there is no page {' '.join(arguments.pages)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for shown, wrong in pool.map(lambda path: run_page(path, arguments.build.resolve()), chosen):
            failed += wrong
            if shown:
                print(shown, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
