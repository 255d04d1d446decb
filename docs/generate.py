#!/usr/bin/env python3
"""Writes every generated part of the Markdown pages, and the pictures of docs/img, from saved results. Those of docs/plots are drawn by
compare plot --docs.

  docs/generate.py           rewrites what changed
  docs/generate.py --check   changes nothing; exits with 1 and names each part that is stale, each broken link and equation

A generated part stands between `<!-- generated: MODULE.FUNCTION ARGUMENTS -->` and `<!-- end -->`: what that function of docs/tools gives.
docs/img/src/*.py draw the SVG pictures of docs/img: each function in a list PICTURES one, NAME.svg.
Saved results are docs/results/DEVICE/*.json (rows of `compare --save`) and *.txt (what a program printed): docs/save_results.sh.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

from tools import check_pages, plot_files

# isort: split
from common.compare.rows import run  # where tools looks

ROOT = Path(__file__).resolve().parent.parent
MARKER = re.compile(r"(<!-- generated: ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def modules(folder, package):
    names = (path.stem for path in sorted((ROOT / folder).glob("[!_]*.py")) if not path.stem.startswith("test_"))
    return {name: importlib.import_module(f"{package}.{name}") for name in names}


MODULES = modules("docs/tools", "tools")


def part(where, marker):
    """What the function of a marker returns."""
    name, *arguments = marker.split()
    module, _, function = name.partition(".")
    made_by = vars(MODULES[module]).get(function) if module in MODULES else None
    if not inspect.isfunction(made_by) or made_by.__module__ != f"tools.{module}":
        raise SystemExit(f"{where}: no generated part is called '{name}'; a part is MODULE.FUNCTION of docs/tools")
    if made_by is plot_files.picture:
        arguments.insert(0, where)  # links start from the page
    try:
        inspect.signature(made_by).bind(*arguments)
    except TypeError as error:
        raise SystemExit(f"{where}: generated part '{marker}': {error}") from None
    made = made_by(*arguments)
    if not made:
        raise SystemExit(f"{where}: generated part '{marker}': docs/results has no rows for it")
    return made + "\n"


def page(text, where):
    """The text with all its generated parts made anew, and the markers of those that changed."""
    stale = []

    def fill(match):
        start, marker, before, end = match.groups()
        after = part(where, marker)
        if after != before:
            stale.append(marker)
        return start + after + end

    return MARKER.sub(fill, text), stale


def pictures():
    """{path relative to the project: contents}"""
    sources = modules("docs/img/src", "img.src").values()
    return {f"docs/img/{draw.__name__}.svg": draw().text() for module in sources for draw in getattr(module, "PICTURES", [])}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        raise SystemExit(__doc__)
    wrong = []
    for path in check_pages.pages():
        relative = path.relative_to(ROOT)
        before = path.read_text()
        after, stale = page(before, relative)
        wrong += [f"{relative}: generated part '{marker}' is stale; run docs/generate.py" for marker in stale if check]
        if not check and after != before:
            path.write_text(after)
            print(f"{relative}: {', '.join(stale)}")
    drawn = pictures()
    for name, contents in drawn.items():
        path = ROOT / name
        if path.exists() and path.read_text() == contents:
            continue
        if check:
            wrong.append(f"{name} is stale; run docs/generate.py")
        else:
            path.write_text(contents)
            print(name)
    saved = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs/img").glob("*.svg"))]
    wrong += [f"{name} is drawn by no function in a list PICTURES of docs/img/src" for name in saved if name not in drawn]
    wrong += check_pages.problems()
    print("\n".join(wrong) or "docs: all generated parts, links and equation numbers are right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    run("generate", lambda arguments: main())
