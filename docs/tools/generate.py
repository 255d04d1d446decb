"""Writes every generated part of the Markdown pages, and the pictures of docs/img that a function draws.

  docs/generate.py           rewrites what changed
  docs/generate.py --check   changes nothing; exits with 1 and names each part that is stale, each broken link and equation

A generated part stands between `<!-- generated: MODULE.FUNCTION ARGUMENTS -->` and `<!-- end -->`: what that function of docs/tools gives.
docs/img/src/*.py draw pictures: each function in a list PICTURES draws docs/img/NAME.svg.
Saved results are docs/results/DEVICE/*.jsonl (rows of `compare --save`) and *.txt (what a program printed): docs/save_results.sh.
"""

import importlib
import re

from common.compare.rows import Failure, run_main

from . import check_pages
from .check_pages import ROOT

MARKER = re.compile(r"(<!-- generated: ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def part(where, marker):
    """What the function of a marker returns."""
    name, *arguments = marker.split()
    module, _, function = name.partition(".")
    try:
        made = getattr(importlib.import_module(f"docs.tools.{module}"), function)(*arguments)
    except (ImportError, AttributeError, TypeError) as error:
        raise SystemExit(f"{where}: generated part '{marker}': {error}") from error
    if not made:
        raise SystemExit(f"{where}: generated part '{marker}': docs/results has no rows for it")
    return made + "\n"


def texts():
    """(path, its text as it should be) of each page and picture."""
    for path in check_pages.pages():
        where = path.relative_to(ROOT)
        yield path, MARKER.sub(lambda found, where=where: found[1] + part(where, found[2]) + found[4], path.read_text())
    for path in sorted((ROOT / "docs/img/src").glob("*.py")):
        if not path.stem.startswith("test_"):
            for draw in getattr(importlib.import_module(f"docs.img.src.{path.stem}"), "PICTURES", []):
                yield ROOT / f"docs/img/{draw.__name__}.svg", draw().text()


def main(arguments):
    if arguments in (["--help"], ["-h"]):
        return print(__doc__.strip())
    check = arguments == ["--check"]
    if arguments and not check:
        raise Failure(2, f"unknown argument '{' '.join(arguments)}'; allowed: --check, --help")
    wrong = []
    for path, text in texts():
        before = path.read_text() if path.exists() else ""
        if text == before:
            continue
        parts = [old[2] for old, new in zip(MARKER.finditer(before), MARKER.finditer(text)) if old[0] != new[0]]
        named = f"{path.relative_to(ROOT)}{': ' if parts else ''}{', '.join(parts)}"
        if check:
            wrong.append(f"{named} is stale; run docs/generate.py")
        else:
            path.write_text(text)
            print(named)
    wrong += check_pages.problems()
    print("\n".join(wrong) or "docs: all generated parts, links and equation numbers are right")
    return bool(wrong)


if __name__ == "__main__":
    run_main("generate", main)
