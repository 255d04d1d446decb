"""Does the exercises of the Markdown pages as they are written: makes the edit, sees it fail with the words of the page, undoes it, sees
it pass.

  python3 -m docs.testing.exercises [PAGE...]    of all pages, or of these, in a copy of the project

An exercise that is checked is followed by a comment, which readers do not see. A line of it is a keyword and its text:

  <!-- exercise
  in 01_naive/kernel.cuh          the file to edit, from the root of the project
  replace l += expf(S(i, j))      a text that occurs there once; \\n is the end of a line
  by                              its replacement; nothing: the text goes
  run common/try.sh 01            a command that the page shows
  exits 1                         its exit code; 1 if this line is missing
  says o is wrong                 what the command has to print, and the page to say
  -->

`in` holds until the next one, and each keyword may come again. At the end all files are as they were, and each command that was
meant to fail, and did not pass before, has to pass (of common/try.sh the program and a second of its tests).
"""

import re
import tempfile
from functools import partial

from common.compare.rows import Failure, run_main
from docs.tools.check_pages import pages

from .scratch import ROOT, Copy, Wrong


def exercises(text):
    """Each a list of (keyword, text, what is told of a command)."""
    for comment in re.finditer(r"^ *<!-- exercise\n(.*?)^ *-->$", text, re.DOTALL | re.MULTILINE):
        steps = []
        for line in filter(None, map(str.strip, comment[1].splitlines())):
            keyword, _, what = line.partition(" ")
            if keyword in ("exits", "says"):
                steps[-1][2].append((keyword, what.strip()))
            else:
                steps.append((keyword, what.strip(), []))
        yield steps


def do(copy, steps, visible):
    """Does one exercise and undoes it. Returns the commands that have to pass now."""
    to_pass, passed, file, old = [], [], "", ""
    try:
        for keyword, what, told in steps:
            if keyword == "in":
                file = what
            elif keyword == "replace":
                old = what.replace("\\n", "\n")
            elif keyword == "by":
                copy.edit(file, old, what.replace("\\n", "\n"))
            elif keyword == "run":
                words, code = [word for key, word in told if key == "says"], int(dict(told).get("exits", "1"))
                for promised in (what, *words):
                    if " ".join(promised.split()) not in visible:
                        raise Wrong(f"the page does not say '{promised}'")
                copy.expect(what, code, words)
                {0: passed, 1: to_pass}.get(code, []).append(what)
            else:
                raise Wrong(f"unknown keyword '{keyword}'")
    finally:
        copy.undo()
    return [command for command in to_pass if command not in passed]  # one that passed half-way may need what is undone


def jobs(copy, page, text):
    """(what to say of it, what to do) of each exercise of a page; then of each command that failed, with everything undone."""
    found, to_pass = list(exercises(text)), {}
    visible = " ".join(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split())
    for number, steps in enumerate(found, 1):
        yield f"{page}, exercise {number} of {len(found)}", lambda steps=steps: to_pass.update(dict.fromkeys(do(copy, steps, visible)))
    for command in to_pass:  # of common/try.sh a second: its tests are tests of their own
        yield f"{page}, everything undone", partial(copy.expect, command.replace("common/try.sh ", "TRY_SECONDS=1 common/try.sh "))


def main(chosen):
    if chosen in (["--help"], ["-h"]):
        return print(__doc__.strip())
    failed = count = 0
    if unknown := {*chosen} - {str(path.relative_to(ROOT)) for path in pages()}:
        raise Failure(2, f"{min(unknown)} is no page; allowed: paths from the root of the project, such as 01_naive/README.md")
    with tempfile.TemporaryDirectory(prefix="flash stëps exercises.") as folder:
        copy = Copy(folder)
        copy.configure()
        for path in pages():
            page = str(path.relative_to(ROOT))
            for title, job in jobs(copy, page, path.read_text()) if page in (chosen or [page]) else ():
                print(title, flush=True)
                count += 1
                try:
                    job()
                except Wrong as wrong:
                    print(f"FAILED: {wrong}")
                    failed += 1
    print(f"{count} exercises and commands, {failed} failures")
    return int(failed > 0 or not count)


if __name__ == "__main__":
    run_main("exercises", main)
