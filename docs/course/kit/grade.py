"""course.py grade and grade-class: points, from the student's lines alone.

Lines that are wrong on a problem of `check`, or on one that is drawn from the seed, get no points. Right ones lose points for orders of the
threads that change the result, for races, and for counts above the project's: on the problems of `check`, so that no seed decides them.
What fails outside the student's lines takes no points: it is reported as not graded, and the command ends with exit code 2.
"""

import csv
import io
import json
import os
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from . import Usage, build, check, exercise, measure, sandbox, words

ORDERS = ("reverse", "random:7", "random:23")


def tidy(text):
    """One line without control characters, which XML cannot hold, and not a long one."""
    text = re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+", " ", text)
    return text if len(text) <= 400 else text[:397] + "..."


def graded(ex, lost, why=""):
    """What an exercise gets. `lost`: {row of the rubric: why it gets no points}. `why`: it gets none at all."""
    tests = [(name, 0 if why or name in lost else most, most, lost.get(name, "all points")) for name, most in ex.rubric.items()]
    tests = [(ex.name, 0, sum(ex.rubric.values()), why)] if why else [(f"{ex.name}: {name}", *rest) for name, *rest in tests]
    return {"exercise": ex.name, "failed": False, "tests": [(name, got, most, tidy(text)) for name, got, most, text in tests]}


def points_of(score):
    return sum(got for _, got, _, _ in score["tests"])


def grade_lines(ex, lines, build_folder, seed):
    if check.untouched(ex, lines):
        return graded(ex, {}, "the blank is as it was given out")
    with sandbox.workplace() as folder:
        built = build.build(ex, lines, build_folder, folder / "build")
        if built.program is None:
            works(ex, build_folder)
            return graded(ex, {}, f"it does not compile: {built.message}")
        lost, why = lost_by(ex, built.program, build_folder, seed, folder, lines)
        return graded(ex, lost, why or (f"{check.UNSET} {built.unset}" if built.unset else ""))


compiled = set()  # the exercises for which works() holds


def works(ex, build_folder):
    """Nobody's lines are to blame where the solution does not compile either."""
    if ex.name not in compiled:
        with sandbox.workplace() as folder:
            built = build.build(ex, ex.parts()[1], build_folder, folder / "build")
        if built.program is None:
            raise Usage(f"the project's own solution does not compile here: {built.message}")
        compiled.add(ex.name)


def lost_by(ex, program, build_folder, seed, folder, lines):
    """({row of the rubric: why it gets no points}, why nothing does) of a program."""
    cases, counted = check.problems(ex, build_folder)
    fixed, drawn = [*cases, *counted], measure.draw_problems(ex, seed)
    lost = {"asked": f"without {ex.asked['word']}"} if check.lacks_what_is_asked(ex, lines) else {}
    for number, options in enumerate([*fixed, *drawn]):
        shown = " ".join(options)
        ran = measure.run(program, ex, options, folder / str(number), save=number < len(fixed), boxed=sandbox.has_box())
        if ran.report is None or not all(tensor["passed"] for tensor in ran.report["check"]["tensors"].values()):
            wanted = check.solution_counts(build_folder, ex, *options)  # raises Usage where the project's kernel does not run
            kind = "a drawn problem" if number >= len(fixed) else "a problem"
            return lost, wanted and f"wrong on {kind}: {shown}. {words.run_sentences(ex, ran.done, ran.report)[0]}"
        mistakes = (ran.report.get("threads") or {"mistakes": []})["mistakes"]
        if mistakes:
            lost.setdefault("races", f"a race on {shown}: {words.without_paths(mistakes[0]['text'], ex)}")
        if number >= len(fixed):
            continue
        for order in ORDERS if "orders" not in lost else ():
            other = folder / f"{number}.{order.replace(':', '')}"
            measure.run(program, ex, options, other, order=order, save=True, boxed=sandbox.has_box())
            if measure.fingerprint(other) != measure.fingerprint(folder / str(number)):
                lost.setdefault("orders", f"other bits in the order {order} of the threads, on {shown}")
        if number >= len(cases):
            got, wanted = measure.counts(ran.report), check.solution_counts(build_folder, ex, *options)
            for name, (what, _) in words.COUNTS.items():
                if got[name] > wanted[name]:
                    lost.setdefault(name, f"{got[name]:,} {what} where {wanted[name]:,} are enough, on {shown}")
    return lost, ""


def grade_file(ex, folder, build_folder, seed):
    """What the file of a student gets. Whatever goes wrong here besides, it ends the grading of this file alone."""
    path = folder / ex.student_name
    try:
        if not path.is_file() or path.is_symlink():
            return graded(ex, {}, f"{path.name} was not handed in")
        try:
            lines = ex.student_lines(path.read_text(errors="replace"))
        except Usage as error:
            return graded(ex, {}, str(error))
        return grade_lines(ex, lines, build_folder, seed)
    except Exception as error:
        said = str(error) if isinstance(error, (Usage, OSError)) else repr(error)
        return graded(ex, {}, f"not graded: {said}") | {"failed": True}


def results(scores):
    """What Gradescope reads, https://gradescope-autograders.readthedocs.io/en/latest/specs/, and keys of our own."""
    failed = [score["exercise"] for score in scores if score["failed"]]
    lost = f" NOT GRADED, through no fault of the student: {', '.join(failed)}." if failed else ""
    keys, tests = ("name", "score", "max_score", "output", "status", "exercise"), []
    for score in scores:
        for test in score["tests"]:
            tests.append(dict(zip(keys, [*test, "passed" if test[1] == test[2] else "failed", score["exercise"]])))
    output = f"Isolation: {'bubblewrap' if sandbox.has_box() else 'none'}.{lost}"
    return {"score": sum(map(points_of, scores)), "output": output, "tests": tests, "not_graded": failed}


def junit(whole):
    tests = whole["tests"]
    suite = xml.Element("testsuite", name="flash-steps course", tests=str(len(tests)))
    for test in tests:
        case = xml.SubElement(suite, "testcase", classname=test["exercise"], name=test["name"])
        if test["status"] == "failed":
            kind = "error" if test["exercise"] in whole["not_graded"] else "failure"
            xml.SubElement(case, kind, message=f"{test['score']} of {test['max_score']} points: {test['output']}")
    suite.set("failures", str(len(suite.findall("*/failure"))))
    xml.indent(suite)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def exercises_of(folders, named):
    """The exercises that are named, or else those that a folder has a file of."""
    wanted = list({e.name: e for what in named for e in exercise.chosen(what)}.values())
    wanted = wanted or [e for e in exercise.chosen("all") if any(os.path.isfile(folder / e.student_name) for folder in folders)]
    if not wanted:
        raise Usage("there is no file of an exercise, and none was named")
    return wanted


def prepare(build_folder, wanted):
    build.prepare(build_folder, {e.stage for e in wanted})
    if not sandbox.has_box():
        print("isolation: none, since bwrap is missing or cannot run here: the students' programs run as you")


def grade(arguments, build_folder):
    folder, out = Path(arguments.folder), Path(arguments.out)
    if not folder.is_dir():
        raise Usage(f"there is no folder {folder}")
    if not arguments.out or out.is_file() or folder.resolve() in [out.resolve(), *out.resolve().parents]:
        raise Usage(f"--out is '{arguments.out}'; allowed: a folder that does not lie in the student's")
    wanted = exercises_of([folder], arguments.exercises)
    out.mkdir(parents=True, exist_ok=True)
    prepare(build_folder, wanted)
    whole = results([grade_file(e, folder, build_folder, arguments.seed) for e in wanted])
    (out / "results.json").write_text(json.dumps(whole, indent=2) + "\n")
    (out / "junit.xml").write_text(junit(whole), encoding="utf-8")
    for test in whole["tests"]:
        print(f"{test['score']:4} of {test['max_score']:3}  {test['name']}: {test['output']}")
    most = sum(test["max_score"] for test in whole["tests"])
    print(f"{whole['score']:4} of {most:3}  written to {out / 'results.json'} and {out / 'junit.xml'}; {whole['output']}")
    return 2 if whole["not_graded"] else 0


def row(*cells):
    """A line of a table as spreadsheets read it, and take no cell for a formula."""
    text = io.StringIO()
    csv.writer(text).writerow([f"'{cell}" if str(cell)[:1] in tuple("=+-@\t\r") else cell for cell in cells])
    return text.getvalue().encode()


def grade_class(arguments, build_folder):
    folder, out = Path(arguments.folder), Path(arguments.out)
    if not folder.is_dir():
        raise Usage(f"there is no folder {folder}")
    students = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not students:
        raise Usage(f"{folder} has no sub-folders; allowed: a folder with one for each student")
    wanted = exercises_of(students, arguments.exercises)
    if out.exists():
        raise Usage(f"{out} is there already; allowed: a new file")
    prepare(build_folder, wanted)
    failed = 0
    with open(out, "xb", buffering=0) as table:  # a row is written at once
        table.write(row("student", "exercise", "points", "max", "reason"))
        for student in students:
            name, marks = tidy(student.name.encode(errors="replace").decode()), []
            for e in wanted:
                score = grade_file(e, student, build_folder, arguments.seed)
                points = "" if score["failed"] else points_of(score)
                reasons = [text for _, got, most, text in score["tests"] if got < most]
                table.write(row(name, e.name, points, sum(e.rubric.values()), "; ".join(reasons)))
                marks.append(f"{e.name} {'not graded' if score['failed'] else points}")
                failed += score["failed"]
            print(f"{name}: {', '.join(marks)}", flush=True)
    print(f"{out}: {len(students)} students")
    if failed:
        print(f"course.py: {failed} of {len(students) * len(wanted)} could not be graded; {out} says why", file=sys.stderr)
    return 2 if failed else 0
