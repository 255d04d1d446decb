"""Of docs/course: the exercises, and the wrong kernels with what each is told."""

import difflib
import re
import sys

from rows.files import ROOT

from .formatting import table

sys.path.insert(0, str(ROOT / "docs" / "course"))
from kit import exercise


def all_exercises():
    return [exercise.load(name) for name in exercise.names()]


def exercises():
    rows = []
    for e in all_exercises():
        lines = e.parts()[1].rstrip("\n").count("\n") + 1
        rubric = ", ".join(f"{name.replace('_', ' ')} {most}" for name, most in e.rubric.items())
        title = f"[{e.title}](../{e.chapter.removeprefix('docs/')})"
        rows.append([f"`{e.name}`", e.level, title, e.equation, lines, len(exercise.gallery(e)), rubric])
    return table("exercise | level | what to write | equations | lines | wrong kernels | points", rows)


def cheats():
    return table(
        "cheat | noticed by, each alone",
        [[c["name"], ", ".join({"run": "judge"}.get(w, w) for w in c["caught"])] for c in exercise.cheats()],
    )


def wrong(name):
    """The gallery of an exercise."""
    e = exercise.load(name)
    solution = e.parts()[1].splitlines()
    text = []
    for w in exercise.gallery(e):
        changed = [
            line
            for line in difflib.unified_diff(solution, w["lines"].splitlines(), n=0, lineterm="")
            if line.rstrip() != "+" and not line.startswith(("---", "+++", "@@"))  # an empty line in place of another says nothing
        ]
        text += [
            f"**{w['name'][0].upper()}{w['name'][1:]}.** The verdict says “{w['says']}”.",
            "",
            "```diff",
            *changed,
            "```",
            "",
            w["lesson"],
            "",
        ]
    return "\n".join(text).rstrip()


def equation(number):
    """The equation of a chapter without its number, which is said beside it."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```math\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            if f"\\tag{{{number}}}" in block:
                return "```math\n" + re.sub(r"[.,]?\s*\\tag\{[^}]*\}", "", block) + "```"
    raise SystemExit(f"no chapter has equation ({number})")
