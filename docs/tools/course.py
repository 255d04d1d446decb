"""Of docs/course: the exercises, their pages, and the quizzes."""

import difflib
import re
import sys
import textwrap

from common.compare.rows import ROOT

from . import check_pages
from .formatting import details, tabled
from .ladder import file_of
from .quotes import block
from .quotes import part as lines_of
from .saved import H200, newest
from .steps import STEPS

sys.path.insert(0, str(ROOT / "docs" / "course"))
from kit import exercise


@tabled("exercise | level | minutes | what to write | after this you can | points")
def exercises():
    for e in map(exercise.load, exercise.names()):
        rubric = ", ".join(f"{name.replace('_', ' ')} {most}" for name, most in e.rubric.items())
        title = f"[{e.title}](../{e.chapter.removeprefix('docs/')})"
        yield [f"[`{e.name}`](exercises/{e.name}/README.md)", e.level, e.minutes, title, e.after, rubric]


@tabled("exercise | its wrong kernels")
def galleries():
    for e in map(exercise.load, exercise.names()):
        yield [f"[`{e.name}`](exercises/{e.name}/README.md#wrong-kernels)", "; ".join(w["name"] for w in exercise.gallery(e))]


def page(name):
    """An exercise: the task, its blank, hints, and wrong kernels with what each is told."""
    e = exercise.load(name)
    chapter = f"../../../{e.chapter.removeprefix('docs/')}"
    blank = textwrap.dedent(f"{e.indent()}{e.begin}\n{e.blank()}{e.indent()}{e.end}").split("\n")
    me = "docs/course/course.py"
    parts = [
        f"{e.goal} It needs {e.equation} of [this section]({chapter}), and takes about {e.minutes} minutes."
        f" Its level is {e.level}, {exercise.LEVELS[e.level]}. **After this exercise you can** {e.after}.",
        f"## Task\n\nThe first command writes a copy of [`{e.file}`](../../../../{e.file}) with a blank, the second checks it at each save.",
        block([f"{me} blank {name} mine", f"{me} watch mine {name}"], "sh"),
        f"This is the blank in `mine/{e.student_name}`:",
        block(blank, "cpp"),
        "## Hints\n\nEach one is a little nearer to the answer.",
        *(details(f"Hint {n} of {len(e.hints)}", hint) for n, hint in enumerate(e.hints, 1)),
        "## Wrong kernels\n\nOpen these once your lines are right: a minus marks lines of the project's kernel, a plus the mistake.",
    ]
    solution = e.parts()[1].splitlines()
    for w in exercise.gallery(e):
        changed = [
            line
            for line in difflib.unified_diff(solution, w["lines"].splitlines(), n=0, lineterm="")
            if line.rstrip() != "+" and not line.startswith(("---", "+++", "@@"))  # an empty line in place of another says nothing
        ]
        told = f"`check` says “{w['says']}”."
        parts.append(details(w["name"][0].upper() + w["name"][1:], f"{told}\n\n{block(changed, 'diff')}\n\n{w['lesson']}"))
    return "\n\n".join(parts)


def step(name, *lines):
    """Of a slide: a step's idea as its file says it, lines of its kernel (FUNCTION FIRST ... LAST of quotes.part) or none, and what it gains."""
    path, variant = file_of(name), name.split("/")[1]
    idea = re.search(rf'"{variant}",\s*(?:\.idea = )?"([^"]+)"', (ROOT / path).read_text()).group(1)
    return "\n\n".join(filter(None, [f"{idea[0].upper()}{idea[1:]}.", lines and lines_of(path, *lines), gain(name)]))


def gain(name):
    """How many times as fast a step is as the step that it changes: N = 4096, no mask, both widths; of 08 in fp16. "" if that one was not timed
    there."""
    found = ((which, step.over) for which, of in STEPS.items() for step in of if step.name == name)
    direction, over = next(found, ("", None))  # a step that no table of steps times
    rates = {}
    for row in newest(H200, "large.jsonl", "tensor_steps.jsonl", direction=direction.removeprefix("tensor_"), having="time"):
        p = row["problem"]
        if (p["seq_q"], p["causal"], p["dtype"]) == (4096, False, "fp16" if row["stage"].startswith("08") else "fp32"):
            rates[row.label, p["head_dim"]] = row["tflops"]
    pairs = [(rates.get((name, d)), rates.get((over, d))) for d in (64, 128)]
    gains = [f"{after / before:.2f}" if after and before else "–" for after, before in pairs]
    if gains == ["–", "–"]:
        return ""
    stage, before = over.split("/")
    before = f"`{before}`" + ("" if name.startswith(stage) else f" of {stage[:2]}")
    return f"Over {before}: **{gains[0]}** times the rate at d = 64, **{gains[1]}** at d = 128 ({row.device_name}, N = 4,096)."


def quizzes():
    """The questions of docs/course/quizzes.toml, a chapter's answers folded below its questions."""
    parts = []
    for quiz in exercise.quizzes():
        path = ROOT / "docs" / "chapters" / f"{quiz['chapter']}.md"
        parts.append(f"## [{path.read_text().split(chr(10), 1)[0].removeprefix('# ')}](../chapters/{path.name})")
        runs = [q.get("run", "") for q in quiz["question"]]
        told = [
            "" if not run else " The same run tells." if run in runs[:n] else f" Predict, then run `{run}`." for n, run in enumerate(runs)
        ]
        parts.append(numbered(q["ask"] + then for q, then in zip(quiz["question"], told)))
        parts.append(details("Answers", numbered(q["answer"] for q in quiz["question"])))
    return "\n\n".join(parts)


def numbered(lines):
    return "\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1))


def equation(number):
    """The equation of a chapter without its number, which is said beside it."""
    for page in check_pages.pages():
        for formula in re.findall(r"^```math\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            if f"\\tag{{{number}}}" in formula:
                return "```math\n" + re.sub(r"[.,]?\s*\\tag\{[^}]*\}", "", formula) + "```"
    raise SystemExit(f"no chapter has equation ({number})")
