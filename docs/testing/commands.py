"""Runs the commands of the Markdown pages as a reader would.

  python3 -m docs.testing.commands BUILD [PAGE...]    of all pages, or of these; BUILD: a folder in which the project was built

A page marks what is to run by the word `test` after a block's language:

  ```sh test              each line is a command; one that ends with a backslash goes on in the next line
  ```python test          one program
  ```sh test torch        skipped where the Python module torch is not installed; several may follow

A command has to print something and to end with exit code 0, or N if its comment says `exits with N`. `git diff --no-index` has to find a
difference (1), and where no GPU answers a program has to refuse `--device gpu` (3).

The commands of a page run one after another in a copy of the project. Exit code: 1 if one ended in another way.
"""

import concurrent.futures
import importlib.util
import os
import re
import sys
import tempfile
from pathlib import Path

from common.compare.rows import Failure, run_main
from docs.tools.check_pages import pages

from .scratch import ROOT, Copy

SECONDS = 120  # more than any page may ask of its reader
BLOCK = re.compile(r"^ *```(sh|python) test\b(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)


def commands(text):
    """(command, its exit code, the program that takes it, the modules that it needs) of a page in its order."""
    for language, needs, block in BLOCK.findall(text):
        if language == "python":
            yield block, 0, [(sys.executable, "-c")], needs.split()
            continue
        for line in re.sub(r"\\\n *", "", block).splitlines():
            command, _, comment = line.partition(" #")
            said = re.search(r"exits with (\d)(?! without)", comment)
            if command.strip() and not command.startswith("#"):
                yield command.strip(), int(said[1]) if said else int(command.startswith("git diff --no-index ")), [], needs.split()


def run_page(path, build):
    """(what to show, how many of its commands failed)"""
    found, shown, failed = list(commands(path.read_text())), [f"{path.relative_to(ROOT)}:"], 0
    if not found:
        return "", 0
    with tempfile.TemporaryDirectory(prefix="flash commands.") as folder:
        copy = Copy(folder, SECONDS)
        (copy.folder / "build").mkdir()
        for part in build.iterdir():
            if part.name != "Testing":  # a log of tests of its own
                (copy.folder / "build" / part.name).symlink_to(part)
        has_gpu = copy.run("build/bin/01_naive --device gpu --seq 8 --no-check")[0] == 0
        for text, code, program, needs in found:
            first = text.splitlines()[0]
            missing = [module for module in needs if not importlib.util.find_spec(module)]
            if missing:
                shown.append(f"skipped, no {missing[0]}: {first}")
                continue
            code = 3 if "--device gpu" in text and not has_gpu else code
            got, printed = copy.run(text, *program)
            good = got == code and printed.strip()
            shown += [f"{'ok' if good else 'FAILED'} {first}"]
            if not good:
                failed += 1
                shown += [f"exit code {got}, expected {code}; it printed last:", *printed.split("\n")[-15:]]
    return "\n".join(shown), failed


def main(arguments):
    if arguments in (["--help"], ["-h"]):
        return print(__doc__.strip())
    if not arguments:
        raise Failure(2, "BUILD is missing; --help explains it")
    build, names = Path(arguments[0]).resolve(), arguments[1:]
    if not (build / "bin/01_naive").is_file():
        raise Failure(2, f"BUILD is {build}; allowed: a folder in which the project was built")
    chosen = [path for path in pages() if not names or str(path.relative_to(ROOT)) in names]
    if len(chosen) < len(names):
        raise Failure(2, f"one of these is no page: {' '.join(names)}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda path: run_page(path, build), chosen))
    print("\n".join(shown for shown, _ in results if shown))
    return int(any(failed for _, failed in results))


if __name__ == "__main__":
    run_main("commands", main)
