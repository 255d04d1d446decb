"""course.py grade: points for counts, not for times.

From a student's file come the lines between the marks alone; all else is the project's own. They are looked at (scan), compiled and looked at
again, and run in a sandbox on problems that the student has not seen. What they save is judged by another process in another sandbox. What fails
outside the student's lines takes no points: the exercise counts as not graded, and the command ends with exit code 2.
"""

import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

from kit import Fault, Usage, build, check, exercise, measure, sandbox, scan, words

LAYERS = ("source", "object")
PROBLEMS = 6
ORDERS = ("reverse", "random:7", "random:23")
PATIENCE = 5  # seconds: what ends without a result after that is not run on the other problems
MOST_TEXT = 200  # characters of a message
FORMATS = {"gradescope": "results.json", "classroom50": "result.json", "junit": "junit.xml"}
SAYS = {
    "result": "right on problems that nobody has seen",
    "orders": "the same bits in every order of the threads",
    "races": "no race",
    "asked": "done in the way that the exercise asks for",
    "bytes": "no more bytes from and to HBM than the project's kernel",
    "sectors": "no more sectors of 32 bytes than the project's kernel",
    "bank_conflicts": "no more bank conflicts than the project's kernel",
    "barriers": "no more barriers than the project's kernel",
    "extra_memory": "no more bytes of extra memory than the project's kernel",
}


def tidy(text):
    """One line without control characters, which XML cannot hold, and not a long one."""
    text = re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+", " ", text)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


def item(name, points, most, says):
    return {"name": name, "points": points, "max": most, "says": tidy(says)}


def nothing(ex, why, fault=False):
    return {
        "exercise": ex.name,
        "score": 0,
        "max": sum(ex.rubric.values()),
        "refused": tidy(f"not graded: {why}" if fault else why),
        "fault": fault,
        "items": [],
    }


def grade_lines(ex, lines, build_folder, seed="1", layers=LAYERS, count=PROBLEMS):
    """The score of lines for the blank. It has no times, no names of folders and no errors in it: the same on every machine."""
    if check.untouched(ex, lines):
        return nothing(ex, "the blank is as it was given out")
    why = scan.source(lines, ex.allow) if "source" in layers else ""
    if why:
        return nothing(ex, why)
    refuse = scan.compiled if "object" in layers else None
    with sandbox.workplace() as folder:
        built = build.build(ex, ex.to_compile(lines), build_folder, folder / "build", refuse, jailed=True)
        if built.program is None and not built.refused:  # the machine's fault? Or was it, for a moment?
            build.works(ex, build_folder)
            built = build.build(ex, ex.to_compile(lines), build_folder, folder / "again", refuse, jailed=True)
        if built.program is None:
            return nothing(ex, built.message if built.refused else "it does not compile")
        return points(ex, built.program, build_folder, seed, folder, count, lines)


def problems_of_solution(ex, solution, build_folder):
    """What keeps a solution from being right, and from scoring 100. Compiled once for both, and graded on fewer problems than a student's."""
    with sandbox.workplace() as folder:
        built = build.build(ex, ex.to_compile(solution), build_folder, folder / "build", scan.compiled)
        if built.program is None:
            yield f"the solution gives no program: {built.message}"
            return
        verdict = check.run_cases(ex, built.program, build_folder, folder)
        if not verdict.right:
            yield f"the solution is {verdict.status}: {' '.join(verdict.told)}"
            return
        score = points(ex, built.program, build_folder, "1", folder, 2, solution)
    if score["score"] != 100:
        yield f"the solution scores {score['score']}: {score}"


judged = {}  # (exercise, its variant's solution, options): the judge knows right from wrong there


def judge_works(ex, build_folder, options):
    """The project's own solution is right, and rubbish is wrong. Otherwise nobody's results can be judged on this machine."""
    key = (ex.name, ex.changes.get("solution"), *options)
    if key in judged:
        return
    program = check.solution_program(build_folder, ex)
    with sandbox.workplace() as folder:
        ran = measure.run(program, ex, options, folder / "run", save=True, check=False, trusted=True)
        if ran.report is None:
            raise Fault(f"the project's own solution does not run here: {ran.done.err.strip() or ran.done.code}")
        if not measure.judge(build_folder, ex, options, folder / "run"):
            raise Fault(f"{build.JUDGE} finds the project's own solution wrong")
        (folder / "empty" / "out").mkdir(parents=True)
        if measure.judge(build_folder, ex, options, folder / "empty"):
            raise Fault(f"{build.JUDGE} finds results right that are not there")
    judged[key] = True


def asked_for(ex, lines, build_folder, folder, options, usual):
    """Do the results depend on the function that the exercise asks for? They have to change when its body is empty."""
    built = build.build(ex, ex.to_compile(lines), build_folder, folder / "asked", headers=ex.headers(asked=False), jailed=True)
    if built.program is None:
        raise Fault(f"{ex.name} does not compile without the body of {ex.asked['word']}: {built.message}")
    measure.run(built.program, ex, options, folder / "asked" / "run", save=True, check=False)
    return measure.fingerprint(folder / "asked" / "run") != usual


def points(ex, program, build_folder, seed, folder, count, lines):
    problems = measure.draw_problems(ex, seed, count)
    judge_works(ex, build_folder, problems[0])
    right, same, races, over, prints = 0, 0, 0, {}, []
    for number, options in enumerate(problems):
        place = folder / f"problem{number}"
        ran = measure.run(program, ex, options, place, save=True)
        if ran.report is None and ran.done.seconds > PATIENCE:
            break  # it would take as long each time
        if ran.report is None or not measure.judge(build_folder, ex, options, place):
            continue
        right += 1
        watched = ran.report.get("threads", {})
        races += bool(watched.get("mistakes", True)) or not watched.get("complete")
        usual = measure.fingerprint(place)
        prints.append(usual)
        orders = []
        for order in ORDERS:
            other = folder / f"problem{number}.{order.replace(':', '')}"
            measure.run(program, ex, options, other, order=order, save=True, check=False)
            orders.append(measure.fingerprint(other))
        same += all(print_ == usual for print_ in orders)
        got, wanted = measure.counts(ran.report), check.solution_counts(build_folder, ex, options)
        for name in words.COUNTS:
            if got[name] - wanted[name] > over.get(name, (0, 0))[0] - over.get(name, (0, 0))[1]:
                over[name] = (got[name], wanted[name])
    misses = ex.asked and right == count and not asked_for(ex, lines, build_folder, folder, problems[0], prints[0])
    return score(ex, len(problems), right, same, races, over, misses)


def score(ex, problems, right, same, races, over, misses=False):
    """All other points are for kernels that are right: zeros written quickly are no good. `over`: of counts that are too high what was counted
    and what is enough, on the problem that shows it most."""
    items = []
    for name, most in ex.rubric.items():
        got, says = 0, SAYS[name]
        if name == "result":
            got, says = measure.share(most, right, problems), f"right on {right} of {problems} problems that nobody has seen"
        elif right < problems:
            says = f"not asked, as not all results are right: {says}"
        elif name == "orders":
            got, says = (most if same == problems else 0), f"{says}: {same} of {problems} problems"
        elif name == "races":
            got, says = (0 if races else most), f"{says}: {problems - races} of {problems} problems"
        elif name == "asked":
            got, says = (0, f"{says}: the results do not depend on {ex.asked['word']}") if misses else (most, says)
        elif name in over:
            says = "{}: on one problem {:,}, where {:,} are enough".format(says, *over[name])
        else:
            got = most
        items.append(item(name, got, most, says))
    return {
        "exercise": ex.name,
        "score": sum(i["points"] for i in items),
        "max": sum(ex.rubric.values()),
        "refused": "",
        "fault": False,
        "items": items,
    }


def grade_folder(folder, wanted, build_folder, seed):
    """[score of an exercise] for the exercises that are wanted, handed in or not. A fault ends the grading of one exercise alone."""
    scores = []
    for ex in wanted:
        try:
            scores.append(grade_file(ex, folder / ex.student_name, build_folder, seed))
        except Usage as error:
            scores.append(nothing(ex, str(error), fault=True))
        except OSError as error:
            scores.append(
                nothing(ex, (error.strerror or str(error)) + (f": {Path(error.filename).name}" if error.filename else ""), fault=True)
            )
    return scores


def grade_file(ex, path, build_folder, seed):
    if not path.is_file() or path.is_symlink():
        return nothing(ex, f"{ex.student_name} was not handed in")
    if path.stat().st_size > 1 << 18:
        return nothing(ex, "the file is larger than 256 KiB")
    text = path.read_text(errors="replace")
    try:
        lines = ex.student_lines(text)
    except Usage as error:
        return nothing(ex, str(error))
    return grade_lines(ex, lines, build_folder, seed)


def write(scores, out, form):
    """out/score.json, and the file that a service reads: both whole, or neither."""
    whole = {
        "score": sum(s["score"] for s in scores),
        "max": sum(s["max"] for s in scores),
        "isolation": sandbox.isolation(),
        "not_graded": [s["exercise"] for s in scores if s["fault"]],
        "exercises": scores,
    }
    texts = {"score.json": json.dumps(whole, indent=2) + "\n"}
    texts[FORMATS[form]] = {"gradescope": gradescope, "classroom50": classroom50, "junit": junit}[form](whole)
    part = out / f".part.{os.getpid()}"
    part.mkdir()
    try:
        for name, text in texts.items():
            (part / name).write_text(text, encoding="utf-8")
        for name in texts:
            os.replace(part / name, out / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return whole


def remark(whole):
    """How the grading went, in a sentence for people."""
    lost = f"; NOT GRADED, through no fault of the student: {', '.join(whole['not_graded'])}" if whole["not_graded"] else ""
    return f"isolation: {whole['isolation']}{lost}"


def rows(whole):
    """(name, points, most, text) of everything that has points."""
    for s in whole["exercises"]:
        if s["refused"]:
            yield s["exercise"], 0, s["max"], s["refused"]
        for i in s["items"]:
            yield f"{s['exercise']}: {i['name']}", i["points"], i["max"], i["says"]


def gradescope(whole):
    """https://gradescope-autograders.readthedocs.io/en/latest/specs/"""
    tests = [
        {"name": name, "score": got, "max_score": most, "status": "passed" if got == most else "failed", "output": text}
        for name, got, most, text in rows(whole)
    ]
    return json.dumps({"score": whole["score"], "output": remark(whole), "tests": tests}, indent=2) + "\n"


def classroom50(whole):
    """https://github.com/foundation50/classroom50/wiki/Advanced-Autograding; its runner stamps the date and the owner."""
    tests = [
        {"test-name": f"{name}: {text}", "passed": got == most, "score": got, "max-score": most} for name, got, most, text in rows(whole)
    ]
    settings = {"classroom": "CLASSROOM", "assignment": "ASSIGNMENT", "submission": "SUBMISSION_TAG", "commit": "COMMIT_URL"}
    settings |= {"release": "RELEASE_URL", "review": "REVIEW_URL"}
    stamped = {key: os.environ.get(name, "") for key, name in settings.items()}
    stamped["review"] = stamped["review"] or stamped["commit"]
    result = {"schema": "classroom50/result/v1", **stamped, "score": whole["score"], "max-score": whole["max"], "tests": tests}
    result["remark"] = remark(whole)
    return json.dumps(result, indent=2) + "\n"


def junit(whole):
    found = list(rows(whole))
    suite = xml.Element("testsuite", name="flash-steps course", tests=str(len(found)), failures=str(sum(g < m for _, g, m, _ in found)))
    xml.SubElement(xml.SubElement(suite, "properties"), "property", name="isolation", value=whole["isolation"])
    for name, got, most, text in found:
        case = xml.SubElement(suite, "testcase", classname=name.split(":")[0], name=name)
        if got < most:
            xml.SubElement(case, "error" if name in whole["not_graded"] else "failure", message=f"{got} of {most} points: {text}")
    xml.indent(suite)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def command(arguments, build_folder):
    folder, out = Path(arguments.folder), Path(arguments.out)
    if not folder.is_dir():
        raise Usage(f"there is no folder {folder}")
    if not arguments.out:
        raise Usage("--out is empty; allowed: a folder")
    if out.exists() and not out.is_dir():
        raise Usage(f"--out is {out}, which is no folder")
    if out.resolve() == folder.resolve() or folder.resolve() in out.resolve().parents:
        raise Usage(f"--out is {out}, which lies in the student's folder; allowed: another one")
    wanted = list({e.name: e for what in arguments.exercises for e in exercise.chosen(what)}.values())
    if not wanted:
        wanted = [exercise.load(name) for name in exercise.names() if (folder / f"{name}.cuh").exists()]
    if not wanted:
        raise Usage(f"{folder} has no file of an exercise, and none was named")
    if arguments.variants and not Path(arguments.variants).is_dir():
        raise Usage(f"there is no folder {arguments.variants}; course.py variant writes it, as OUT/teacher")
    wanted = [exercise.of_folder(e, arguments.variants) for e in wanted] if arguments.variants else wanted
    if not arguments.unsandboxed and sandbox.missing():
        raise Usage(f"there is no sandbox here: {sandbox.missing()}. --unsandboxed grades without one, as docs/SECURITY.md explains")
    sandbox.boxed = not arguments.unsandboxed
    out.mkdir(parents=True, exist_ok=True)
    build.prepare(build_folder, {e.stage for e in wanted})
    whole = write(grade_folder(folder, wanted, build_folder, arguments.seed), out, arguments.format)
    for name, got, most, text in rows(whole):
        print(f"{got:4} of {most:3}  {name}: {text}")
    print(f"{whole['score']:4} of {whole['max']:3}  written to {out / 'score.json'} and {out / FORMATS[arguments.format]}; {remark(whole)}")
    if whole["not_graded"]:
        print(f"course.py: not graded: {', '.join(whole['not_graded'])}", file=sys.stderr)
        return 2
    return 0
