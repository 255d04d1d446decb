"""course.py self-test: each blank compiles and fails, each solution passes with full points, each has hints, files differ only within the
anchors, each wrong kernel is rejected with the message that its file names, each variant's solution is right and the project's is not, each cheat scores 0
at every layer that should catch it."""

import concurrent.futures
import functools
import os
import time

from kit import Usage, build, check, exercise, grade, measure, sandbox, scan, variant


def long_lines(text):
    """The lines without comments that say too much in a hint."""
    lines = (" ".join(line.split()) for line in scan.without_comments(text).split("\n"))
    return [line for line in lines if len(line) >= 30]


def problems_of(e, build_folder):
    """What does not hold of an exercise."""
    before, solution, after = e.parts()
    filled = e.file_with(solution)
    if e.student_lines(filled) != solution or e.changed_outside(filled):
        yield "the file with the solution differs from the kernel outside the anchors"
    if "".join(line + "\n" for line in filled.split("\n")[:-1] if line.strip() not in (e.begin, e.end)) != before + solution + after:
        yield "the file with the solution is not the kernel"
    if not e.changed_outside(e.file_with(e.blank()).replace("#pragma once", "#pragma  once")):
        yield "a change outside the marks goes unseen"
    if len(e.hints) < 2:
        yield f"it has {len(e.hints)} hints; two at least"
    told = next((line for line in long_lines(solution) for hint in e.hints if line in " ".join(hint.split())), None)
    if told:
        yield f"a hint has a line of the solution: {told}"
    if not (exercise.ROOT / e.chapter.split("#")[0]).is_file():
        yield f"there is no {e.chapter}"
    if sum(e.rubric.values()) != 100 or "result" not in e.rubric:
        yield f"the rubric adds up to {sum(e.rubric.values())}, not to 100, or has no result"

    with sandbox.workplace() as folder:  # as it is given out, it is a program that is wrong
        built = build.build(e, e.to_compile(e.blank()), build_folder, folder / "build")
        if built.program is None:
            yield f"the blank does not compile: {built.message}"
        else:
            verdict = check.run_cases(e, built.program, build_folder, folder)
            if verdict.right:
                yield f"the blank is {verdict.status}"
    if check.check_lines(e, e.blank(), build_folder).status != "not started":
        yield "the blank counts as started"

    yield from grade.problems_of_solution(e, solution, build_folder)
    if e.level == 1:  # as a student's, twice
        scores = [grade.grade_lines(e, solution, build_folder, count=2) for _ in range(2)]
        if scores[0]["score"] != 100 or scores[0] != scores[1]:
            yield f"the same lines score {scores[0]['score']} and {scores[1]['score']}"


def problems_of_wrong(e, wrong, build_folder):
    verdict = check.check_lines(e, wrong["lines"], build_folder)
    told = " ".join(" ".join(verdict.told).split())
    if verdict.right:
        yield "it is accepted"
    elif wrong["says"] not in told:
        yield f"the verdict is {verdict.status} and does not say '{wrong['says']}': {told}"
    if verdict.status in ("does not compile", "refused", "not started"):
        yield f"it is {verdict.status}, so that it teaches nothing"


def problems_of_cheat(cheat, build_folder):
    """Each layer that is to catch it has to do so alone."""
    e = exercise.load(cheat["exercise"])
    lines = cheat["lines"].replace("@SOLUTION@", e.parts()[1])
    for layer in ("source", "object", "run"):
        if layer not in cheat["caught"]:
            continue
        score = grade.grade_lines(e, lines, build_folder, layers=() if layer == "run" else (layer,))
        if score["score"] != 0:
            yield f"scores {score['score']} before the layer '{layer}'"
        if layer != "run" and (not score["refused"] or score["refused"] == "it does not compile"):
            yield f"the layer '{layer}' lets it through: {score['refused']}"


def tasks(wanted, with_cheats, build_folder):
    """[(name, function)]"""
    found = []
    for e in wanted:
        found.append((e.name, lambda e=e: list(problems_of(e, build_folder))))
        gallery = exercise.gallery(e)
        if len(gallery) < 4:
            found.append((f"{e.name}: gallery", lambda g=gallery: [f"it has {len(g)} wrong kernels; four at least"]))
        axes = variant.axes(e)
        for chosen in variant.subsets(axes):
            name = f"{e.name}: variant {' + '.join(axis['name'] for axis in chosen)}"
            varied = functools.partial(variant.vary, e, chosen, measure.Draw(name))
            found.append((name, lambda varied=varied, graded=chosen is axes: list(variant.problems_of(varied(), build_folder, graded))))
        for w in gallery:
            found.append((f"{e.name}: wrong kernel '{w['name']}'", lambda e=e, w=w: list(problems_of_wrong(e, w, build_folder))))
    for cheat in exercise.cheats() if with_cheats else []:
        found.append((f"cheat '{cheat['name']}'", lambda c=cheat: list(problems_of_cheat(c, build_folder))))
    return found


def timed(function):
    """([what does not hold], seconds)"""
    began = time.monotonic()
    try:
        wrong = function()
    except Usage as error:
        wrong = [str(error)]
    return wrong, time.monotonic() - began


def command(arguments, build_folder):
    named = [what for what in arguments.exercises if what != "cheats"]
    wanted = [e for what in named for e in exercise.chosen(what)] if arguments.exercises else exercise.chosen("all")
    with_cheats = not arguments.exercises or "cheats" in arguments.exercises
    stages = {e.stage for e in wanted} | ({exercise.load(c["exercise"]).stage for c in exercise.cheats()} if with_cheats else set())
    build.prepare(build_folder, stages)
    scan.names_of_the_simulator()
    sandbox.boxed = not sandbox.missing()
    print(f"isolation: {sandbox.isolation()} {sandbox.missing()}".rstrip(), flush=True)
    began, failed = time.monotonic(), 0
    todo = tasks(wanted, with_cheats, build_folder)
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for (name, _), future in [(task, pool.submit(timed, task[1])) for task in todo]:
            wrong, seconds = future.result()
            print(f"{'FAILED' if wrong else 'ok    '} {seconds:5.1f} s  {name}" + "".join(f"\n       {text}" for text in wrong), flush=True)
            failed += bool(wrong)
    print(f"self-test: {len(todo)} tests, {failed} failures, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0
