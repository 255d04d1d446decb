"""course.py self-test: each blank compiles and fails, each solution is right and gets full points, each has hints, files differ only within
the anchors, and each wrong kernel is rejected by the rule that its file names."""

import concurrent.futures
import os
import re
import time

from . import Usage, build, check, exercise, grade, sandbox


def problems_of(e, build_folder):
    """What does not hold of an exercise."""
    solution = e.parts()[1]
    filled = e.file_with(solution)
    if e.student_lines(filled) != solution or e.changed_outside(filled):
        yield "the file with the solution differs from the kernel outside the anchors"
    if len(e.hints) < 2:
        yield f"it has {len(e.hints)} hints; two at least"
    long = [line for line in (" ".join(line.split()) for line in re.sub(r"//.*", "", solution).split("\n")) if len(line) >= 30]
    yield from (f"a hint has a line of the solution: {line}" for line in long if any(line in " ".join(hint.split()) for hint in e.hints))
    if sum(e.rubric.values()) != 100 or "result" not in e.rubric:
        yield f"the rubric adds up to {sum(e.rubric.values())}, not to 100, or has no result"

    with sandbox.workplace() as folder:  # as it is given out, it is a program that is wrong
        built = build.build(e, e.blank(), build_folder, folder / "build")
        if built.program is None:
            yield f"the blank does not compile: {built.message}"
        elif check.run_cases(e, built.program, build_folder, folder).right:
            yield "the blank is right"
    if check.check_lines(e, e.blank(), build_folder).status != "not started":
        yield "the blank counts as started"

    verdict = check.check_lines(e, solution, build_folder)
    if not verdict.right or verdict.sentences:
        yield f"the solution is {verdict.status}: {' '.join(verdict.sentences)}"
    score = grade.grade_lines(e, solution, build_folder, "1")
    if grade.points_of(score) != 100:
        yield f"the solution gets {grade.points_of(score)} points: {score}"


def problems_of_wrong(e, wrong, build_folder):
    verdict = check.check_lines(e, wrong["lines"], build_folder)
    if verdict.status in ("right", "does not compile", "not started"):
        yield f"it is {verdict.status}, so that it teaches nothing"
    if verdict.rule != wrong["rule"]:
        yield f"the verdict is {verdict.status} by '{verdict.rule}', not by '{wrong['rule']}': {' '.join(verdict.sentences)}"


def found_by(function, *arguments):
    """[what does not hold]"""
    try:
        return list(function(*arguments))
    except Usage as error:
        return [str(error)]


def command(arguments, build_folder):
    wanted = [e for what in arguments.exercises or ["all"] for e in exercise.chosen(what)]
    build.prepare(build_folder, {e.stage for e in wanted})
    began, failed, tasks = time.monotonic(), 0, []
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for e in wanted:
            tasks.append((e.name, pool.submit(found_by, problems_of, e, build_folder)))
            for w in (*exercise.gallery(e), *exercise.refused(e)):
                tasks.append((f"{e.name}: wrong kernel '{w['name']}'", pool.submit(found_by, problems_of_wrong, e, w, build_folder)))
        for name, future in tasks:
            wrong = future.result()
            print(f"{'FAILED' if wrong else 'ok    '} {name}" + "".join(f"\n       {text}" for text in wrong), flush=True)
            failed += bool(wrong)
    print(f"self-test: {len(tasks)} tests, {failed} failures, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0
