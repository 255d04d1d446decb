"""course.py variant: an exercise with another requirement, drawn from a word of the teacher's.

exercises/NAME/variants.toml has the axes along which an exercise can vary. An axis edits the kernel outside of the blank (the scores arrive
negated, a tile lies transposed, a window replaces the mask) and the solution inside it, so that the kernel as a whole still computes
attention: check and grade work as before. Edits are regular expressions, and each has to match. `values` are constants of the kernel, one of
each list. A `window` is given to the harness as a bias of -inf, which the kernel does not get to see.
"""

import json
import re
import shlex
from pathlib import Path

import tomllib

from kit import Usage, build, check, exercise, grade, measure

KEYS = {"name", "says", "outside", "inside"}
OPTIONAL = {"values", "above", "below", "window"}


def axes(e, folder=None):
    """The axes of an exercise: the project's, or a teacher's own, of folder/NAME.toml. Without any it has no variants."""
    path = Path(folder) / f"{e.name}.toml" if folder else exercise.FOLDER / e.name / "variants.toml"
    try:
        found = tomllib.loads(path.read_text())["axis"] if path.is_file() else []
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise Usage(f"{path}: {error}") from None
    for axis in found:
        if not KEYS <= set(axis) <= KEYS | OPTIONAL:
            raise Usage(f"{path}: '{axis.get('name')}' has the keys {sorted(axis)}")
    return found


def edited(text, edits, name):
    for old, new in edits:
        text, count = re.subn(old, new, text)
        if not count:
            raise Usage(f"{name}: a variant changes '{old}', which does not stand in the solution")
    return text


def vary(e, chosen, draw):
    """The exercise along these axes, solution included."""
    values = {name: draw.one_of(of) for axis in chosen for name, of in axis.get("values", {}).items()}
    constants = [f"constexpr {'float' if value.endswith('f') else 'int'} {name} = {value};\n" for name, value in values.items()]
    solution, code = e.parts()[1], e.code
    for axis in chosen:
        solution = edited(solution, axis["inside"], e.name)
        for old, new in axis["inside"]:
            code = re.sub(old, new, code)
    window = next((int(values[axis["window"]]) for axis in chosen if "window" in axis), 0)
    cases, counted = e.cases or check.CASES, e.counted or check.COUNTED
    changes = {
        "says": " ".join(axis["says"] for axis in chosen),
        "constants": "".join(constants),
        "outside": [edit for axis in chosen for edit in axis["outside"]],
        "above": "".join(axis.get("above", "") for axis in chosen),
        "below": "".join(axis.get("below", "") for axis in chosen),
        "window": window,
        "cases": [measure.windowed(case, window) for case in cases] if window else cases,
        "counted": [measure.windowed(case, window) for case in counted] if window else counted,
        "code": code,
        "solution": solution,
    }
    return exercise.with_changes(e, changes)


def subsets(found):
    """Each axis alone, and all of them."""
    return [[axis] for axis in found] + ([found] if len(found) > 1 else [])


def problems_of(e, build_folder, graded=True):
    """What does not hold of a variant: its solution is right and scores 100, and the project's, pasted into the blank, is wrong."""
    if graded:
        yield from grade.problems_of_solution(e, e.changes["solution"], build_folder)
    else:
        verdict = check.check_lines(e, e.changes["solution"], build_folder)
        if not verdict.right:
            yield f"its solution is {verdict.status}: {' '.join(verdict.told)}"
    public = exercise.load(e.name).parts()[1]
    verdict = check.check_lines(e, public, build_folder)
    if verdict.status not in ("wrong", "does not compile"):
        yield f"the project's solution is {verdict.status}"


def command(arguments, build_folder):
    out = Path(arguments.out)
    student, teacher = out / "student", out / "teacher"
    if out.exists():
        raise Usage(f"{out} is there already; allowed: a new folder")
    if exercise.ROOT in [out.resolve(), *out.resolve().parents]:
        raise Usage(f"{out} is part of the project; allowed: a folder outside it, so that nobody publishes the solutions")
    wanted = [(e, axes(e, arguments.axes)) for e in exercise.chosen(arguments.exercises)]
    if not any(found for _, found in wanted):
        raise Usage(f"{arguments.exercises} has no variants")
    build.prepare(build_folder, {e.stage for e, found in wanted if found})
    made = []
    for e, found in wanted:
        if not found:
            print(f"{e.name} has no variants")
            continue
        draw = measure.Draw(f"variant/{e.name}/{arguments.seed}")
        picked = draw.number(1, (1 << len(found)) - 1)
        varied = vary(e, [axis for n, axis in enumerate(found) if picked >> n & 1], draw)
        wrong = list(problems_of(varied, build_folder))
        if wrong:
            raise Usage(f"{e.name}, seed {arguments.seed}: {wrong[0]}")
        needed = {options: check.solution_counts(build_folder, varied, options.split()) for options in varied.counted}
        made.append((varied, varied.changes | {"needed": needed}))
    student.mkdir(parents=True)
    teacher.mkdir()
    for e, changes in made:
        (student / e.student_name).write_text(e.file_with(e.blank()))
        (teacher / f"{e.name}.json").write_text(json.dumps(changes, indent=2) + "\n")
        (student / f"{e.name}.json").write_text(
            json.dumps({key: value for key, value in changes.items() if key != "solution"}, indent=2) + "\n"
        )
        (teacher / e.student_name).write_text(e.file_with(changes["solution"]))
        print(f"{e.name}: {changes['says']}")
    print(f"{student} is for the class; {teacher} has the solutions, and grade takes it as --variants {shlex.quote(str(teacher))}")
    return 0
