#!/usr/bin/env python3
"""Does the exercises of the Markdown pages as they are written: makes the edit, sees it fail with the words of the page, undoes it, sees
it pass.

  exercises.py [PAGE...]    of all pages, or of these, in a copy of the project

An exercise that is checked is followed by a comment, which readers do not see. A line of it is a keyword and its text:

  <!-- exercise
  in 01_naive/kernel.cuh          the file to edit, from the root of the project
  replace l += expf(S(i, j))      a text that occurs there once; \\n is the end of a line
  by                              its replacement; nothing: the text goes
  apply                           the diff that the page shows last before this comment
  run common/try.sh 01            a command that the page shows
  exits 1                         its exit code; 1 if this line is missing
  says o is wrong                 what the command has to print, and the page to say
  -->

`in` holds until the next one, and each keyword may come again. At the end all files are as they were, and each command that was
meant to fail, and did not pass before, has to pass (of common/try.sh the program and a second of its tests).
"""

import argparse
import re
import sys
import tempfile

from scratch import ROOT, Copy, Wrong

sys.path.insert(0, str(ROOT / "docs"))
from tools.check_pages import pages

KEYWORDS = ("in", "replace", "by", "apply", "run", "exits", "says")


def exercises(text):
    """Each a list of (keyword, text); the text of `apply` is the diff."""
    found = []
    for comment in re.finditer(r"^ *<!-- exercise\n(.*?)^ *-->$", text, re.DOTALL | re.MULTILINE):
        lines = [line.strip() for line in comment[1].splitlines() if line.strip()]
        steps = [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]
        steps = [(keyword, what.replace("\\n", "\n") if keyword in ("replace", "by") else what) for keyword, what in steps]
        diffs = re.findall(r"^```diff\n(.*?)^```$", text[: comment.start()], re.DOTALL | re.MULTILINE)
        found.append([(keyword, diffs[-1] if keyword == "apply" and diffs else what) for keyword, what in steps])
    return found


def hunks(diff):
    """(old text, new text) of what follows each line that begins with @@."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        lines = [line if line.strip() else " \n" for line in hunk.splitlines(keepends=True)]
        yield tuple("".join(line[1:] for line in lines if line[0] != without) for without in "+-")


def check(text, steps):
    """Raises Wrong if the exercise is not one that the page can promise."""
    visible = " ".join(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split())
    keywords = [keyword for keyword, _ in steps]
    for keyword, what in steps:
        if keyword not in KEYWORDS:
            raise Wrong(f"unknown keyword '{keyword}'")
        if keyword in ("run", "says") and " ".join(what.split()) not in visible:
            raise Wrong(f"the page does not say '{what}'")
    if "run" not in keywords or keywords.count("replace") != keywords.count("by"):
        raise Wrong("it needs a command to run, and a `by` for each `replace`")
    if any(keyword == "apply" and not list(hunks(what)) for keyword, what in steps):
        raise Wrong("the page shows no diff before `apply`")


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
            elif keyword == "apply":
                for before, after in hunks(what):
                    copy.edit(file, before, after)
            elif keyword == "run":
                following = next((m for m in range(n + 1, len(steps)) if steps[m][0] not in ("exits", "says")), len(steps))
                told = steps[n + 1 : following]
                code = int(dict(told).get("exits", "1"))
                copy.expect(what, code, [word for key, word in told if key == "says"])
                to_pass += [what] if code == 1 else []
                passed += [what] if code == 0 else []
    finally:
        copy.undo()
    return [command for command in to_pass if command not in passed]  # one that passed half-way may need what is undone


def do_page(copy, page, text):
    """How many of its exercises, or of the commands after them, did not do what the page says; and how many there are."""
    found, failed, to_pass = exercises(text), 0, {}
    for number, steps in enumerate(found, 1):
        print(f"{page}, exercise {number} of {len(found)}", flush=True)
        try:
            check(text, steps)
            to_pass |= dict.fromkeys(do(copy, steps))
        except Wrong as wrong:
            print(f"FAILED: {wrong}")
            failed += 1
    for command in to_pass:
        print(f"{page}, everything undone")
        try:
            copy.expect(command.replace("common/try.sh ", "common/try.sh --seconds 1 "))  # its tests are tests of their own
        except Wrong as wrong:
            print(f"FAILED: {wrong}")
            failed += 1
    return failed, len(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    chosen = parser.parse_args().pages
    failed = count = 0
    with tempfile.TemporaryDirectory(prefix="flash stëps exercises.") as folder:
        copy = Copy(folder)
        copy.configure()
        for path in pages():
            page = str(path.relative_to(ROOT))
            if not chosen or page in chosen:
                wrong, found = do_page(copy, page, path.read_text())
                failed, count = failed + wrong, count + found
    print(f"{count} exercises, {failed} failures")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
