"""The exercises of docs/course with their pages, and its slides."""

import difflib
import re
import textwrap

from docs.course.kit import exercise

from . import check_pages, ladder
from .formatting import details, table
from .quotes import block
from .quotes import part as lines_of
from .saved import H200, newest


def exercises():
    lines = []
    for e in map(exercise.load, exercise.names()):
        title = f"[{e.title}](../{e.chapter.removeprefix('docs/')})"
        lines.append([f"[`{e.name}`](exercises/{e.name}/README.md)", e.level, e.minutes, title])
    return table("exercise | level | minutes | what to write", lines)


def page(name):
    """An exercise: the task, its blank, hints, and wrong kernels with what each is told."""
    e = exercise.load(name)
    chapter = f"../../../{e.chapter.removeprefix('docs/')}"
    blank = textwrap.dedent(f"{e.indent()}{e.begin}\n{e.blank()}{e.indent()}{e.end}").split("\n")
    points = ", ".join(f"{name.replace('_', ' ')} {most}" for name, most in e.rubric.items())
    parts = [
        f"{e.goal} It needs {e.equation} of [this section]({chapter}), and takes about {e.minutes} minutes."
        f" Its level is {e.level}, {exercise.LEVELS[e.level]}. **After this exercise you can** {e.after}."
        f" Points: {points}.",
        f"## Task\n\nThis copies [`{e.file}`](../../../../{e.file}) with a blank, and checks it at each save:",
        block([f"docs/course/course.py blank {name} mine", f"docs/course/course.py watch mine {name}"], "sh"),
        f"This is the blank in `mine/{e.student_name}`:",
        block(blank, "cpp"),
        "## Hints",
        *(details(f"Hint {n} of {len(e.hints)}", hint) for n, hint in enumerate(e.hints, 1)),
        "## Wrong kernels\n\nOpen these once your lines are right: the lines with a minus are the project's.",
    ]
    solution = e.parts()[1].splitlines()
    for w in exercise.gallery(e):
        changed = [
            line
            for line in difflib.unified_diff(solution, w["lines"].splitlines(), n=0, lineterm="")
            if line.rstrip() != "+" and not line.startswith(("---", "+++", "@@"))  # an empty line in place of another says nothing
        ]
        says = f"`check` says `[{w['rule']}]`."
        parts.append(details(w["name"][0].upper() + w["name"][1:], f"{says}\n\n{block(changed, 'diff')}\n\n{w['lesson']}"))
    return "\n\n".join(parts)


def step(name, *lines):
    """Of a slide: a step's idea as its file says it, lines of its kernel (FUNCTION FIRST ... LAST of quotes.part), if any, and for NAME@STEP how
    many times as fast it is as that step, of the same stage or of a named one."""
    name, _, over = name.partition("@")
    file, _, idea = ladder.variants()[name]
    if re.match(r"(?!ldmatrix)[a-z]+\b(?![.\d])", idea):  # a word, and no name of the code
        idea = idea[0].upper() + idea[1:]
    parts = [f"{idea}.", *([lines_of(file, *lines)] if lines else [])]
    return "\n\n".join([*parts, *([gain(name, over if "/" in over else f"{name.split('/')[0]}/{over}")] if over else [])])


def gain(name, over):
    """Of a slide: how many times as fast a step is as another one, by the saved rows of both."""
    rate = {}
    for row in newest(H200, "large.jsonl", "tensor_steps.jsonl", having="time"):
        p = row["problem"]
        if row.label in (name, over) and p["seq_q"] == 4096 and not p["causal"]:
            rate[row.label, p["head_dim"]] = row.tflops
    gains = [f"**{rate[name, d] / rate[over, d]:.2f}x** at d = {d}" for d in (64, 128)]
    stage, variant = over.split("/")
    of = "" if name.startswith(stage) else f" of {stage[:2]}"
    return f"Over `{variant}`{of}: {', '.join(gains)}."


def equation(number):
    """The equation of a chapter without its number, which is said beside it."""
    for page in check_pages.pages():
        for formula in re.findall(r"^```math\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            if f"\\tag{{{number}}}" in formula:
                return "```math\n" + re.sub(r"[.,]?\s*\\tag\{[^}]*\}", "", formula) + "```"
    raise SystemExit(f"no chapter has equation ({number})")
