"""Of docs/course: the exercises, and the wrong kernels with what each is told."""

import difflib
import re
import sys

from rows.files import ROOT

from .formatting import tabled
from .quotes import block

sys.path.insert(0, str(ROOT / "docs" / "course"))
from kit import exercise


@tabled("exercise | level | what to write | equations | lines | wrong kernels | points")
def exercises():
    for e in map(exercise.load, exercise.names()):
        lines = e.parts()[1].rstrip("\n").count("\n") + 1
        rubric = ", ".join(f"{name.replace('_', ' ')} {most}" for name, most in e.rubric.items())
        title = f"[{e.title}](../{e.chapter.removeprefix('docs/')})"
        yield [f"`{e.name}`", e.level, title, e.equation, lines, len(exercise.gallery(e)), rubric]


@tabled("cheat | noticed by, each alone")
def cheats():
    for cheat in exercise.cheats():
        yield [cheat["name"], ", ".join({"run": "judge"}.get(what, what) for what in cheat["caught"])]


def wrong(name):
    """The gallery of an exercise."""
    e = exercise.load(name)
    solution = e.parts()[1].splitlines()
    parts = []
    for w in exercise.gallery(e):
        changed = [
            line
            for line in difflib.unified_diff(solution, w["lines"].splitlines(), n=0, lineterm="")
            if line.rstrip() != "+" and not line.startswith(("---", "+++", "@@"))  # an empty line in place of another says nothing
        ]
        title = f"**{w['name'][0].upper()}{w['name'][1:]}.** The verdict says “{w['says']}”."
        parts += [title, block(changed, "diff"), w["lesson"]]
    return "\n\n".join(parts).rstrip()


def equation(number):
    """The equation of a chapter without its number, which is said beside it."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for formula in re.findall(r"^```math\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            if f"\\tag{{{number}}}" in formula:
                return "```math\n" + re.sub(r"[.,]?\s*\\tag\{[^}]*\}", "", formula) + "```"
    raise SystemExit(f"no chapter has equation ({number})")
