"""course.py grade: points for counts, not for times.

From a student's file come the lines between the marks alone; all else is the project's own. They are looked at (scan), compiled and looked at
again, and run on problems that the student has not seen, with limits. What they save is judged by another process.
"""

import json
import os
import xml.etree.ElementTree as xml
from pathlib import Path

from kit import Usage, build, check, exercise, measure, scan, words

LAYERS = ("source", "object")
PROBLEMS = 6
ORDERS = ("reverse", "random:7", "random:23")
PATIENCE = 5  # seconds: what ends without a result after that is not run on the other problems
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


def item(name, points, most, says):
    return {"name": name, "points": points, "max": most, "says": says}


def nothing(ex, why):
    return {"exercise": ex.name, "score": 0, "max": sum(ex.rubric.values()), "refused": why, "items": []}


def grade_lines(ex, lines, build_folder, seed="1", layers=LAYERS, count=PROBLEMS):
    """The score of lines for the blank. It has no times, no names of folders and no errors in it: the same on every machine."""
    if check.untouched(ex, lines):
        return nothing(ex, "the blank is as it was given out")
    why = scan.source(lines, ex.allow) if "source" in layers else ""
    if why:
        return nothing(ex, why)
    with check.workplace() as folder:
        built = build.build(ex, ex.to_compile(lines), build_folder, folder / "build", scan.compiled if "object" in layers else None)
        if built.program is None:
            return nothing(ex, built.message if built.refused else "it does not compile")
        return points(ex, built.program, build_folder, seed, folder, count, scan.misses(ex, lines))


def problems_of_solution(ex, solution, build_folder):
    """What keeps a solution from being right, and from scoring 100. Compiled once for both, and graded on fewer problems than a student's."""
    with check.workplace() as folder:
        built = build.build(ex, ex.to_compile(solution), build_folder, folder / "build", scan.compiled)
        if built.program is None:
            yield f"the solution gives no program: {built.message}"
            return
        verdict = check.run_cases(ex, built.program, build_folder, folder)
        if not verdict.right:
            yield f"the solution is {verdict.status}: {' '.join(verdict.told)}"
        score = points(ex, built.program, build_folder, "1", folder, 2)
    if score["score"] != 100:
        yield f"the solution scores {score['score']}: {score}"


def points(ex, program, build_folder, seed, folder, count, misses=False):
    problems = measure.draw_problems(ex, seed, count)
    right, same, races, over = 0, 0, 0, {}
    for number, options in enumerate(problems):
        place = folder / f"problem{number}"
        ran = measure.run(program, ex, options, place, save=True)
        if ran.report is None and ran.done.seconds > PATIENCE:
            break  # it would take as long each time
        if ran.report is None or not measure.judge(build_folder, ex, options, place):
            continue
        right += 1
        races += bool(ran.report["threads"]["mistakes"]) or not ran.report["threads"]["complete"]
        usual = measure.fingerprint(place)
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
            got, says = (0, f"{says}: without {ex.asked['word']}") if misses else (most, says)
        elif name in over:
            says = "{}: on one problem {:,}, where {:,} are enough".format(says, *over[name])
        else:
            got = most
        items.append(item(name, got, most, says))
    return {"exercise": ex.name, "score": sum(i["points"] for i in items), "max": sum(ex.rubric.values()), "refused": "", "items": items}


def grade_folder(folder, wanted, build_folder, seed):
    """[score of an exercise] for the exercises that are wanted, handed in or not."""
    scores = []
    for ex in wanted:
        path = folder / ex.student_name
        if not path.is_file() or path.is_symlink():
            scores.append(nothing(ex, f"{ex.student_name} was not handed in"))
            continue
        try:
            if path.stat().st_size > 1 << 18:
                raise Usage("the file is larger than 256 KiB")
            lines = ex.student_lines(path.read_text(errors="replace"))
        except Usage as error:
            scores.append(nothing(ex, str(error)))
            continue
        scores.append(grade_lines(ex, lines, build_folder, seed))
    return scores


def write(scores, out, form):
    """out/score.json, and the file that a service reads."""
    whole = {"score": sum(s["score"] for s in scores), "max": sum(s["max"] for s in scores), "exercises": scores}
    (out / "score.json").write_text(json.dumps(whole, indent=2) + "\n")
    text = {"gradescope": gradescope, "classroom50": classroom50, "junit": junit}[form](whole)
    (out / FORMATS[form]).write_text(text)
    return whole


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
    return json.dumps({"score": whole["score"], "tests": tests}, indent=2) + "\n"


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
    return json.dumps(result, indent=2) + "\n"


def junit(whole):
    found = list(rows(whole))
    suite = xml.Element("testsuite", name="flash-steps course", tests=str(len(found)), failures=str(sum(g < m for _, g, m, _ in found)))
    for name, got, most, text in found:
        case = xml.SubElement(suite, "testcase", classname=name.split(":")[0], name=name)
        if got < most:
            xml.SubElement(case, "failure", message=f"{got} of {most} points: {text}")
    xml.indent(suite)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def command(arguments, build_folder):
    folder, out = Path(arguments.folder), Path(arguments.out)
    if not folder.is_dir():
        raise Usage(f"there is no folder {folder}")
    if out.resolve() == folder.resolve() or folder.resolve() in out.resolve().parents:
        raise Usage(f"--out is {out}, which lies in the student's folder; allowed: another one")
    wanted = [e for what in arguments.exercises for e in exercise.chosen(what)]
    if not wanted:
        wanted = [exercise.load(name) for name in exercise.names() if (folder / f"{name}.cuh").exists()]
    if not wanted:
        raise Usage(f"{folder} has no file of an exercise, and none was named")
    if arguments.variants and not Path(arguments.variants).is_dir():
        raise Usage(f"there is no folder {arguments.variants}; course.py variant writes it, as OUT/teacher")
    wanted = [exercise.of_folder(e, arguments.variants) for e in wanted] if arguments.variants else wanted
    out.mkdir(parents=True, exist_ok=True)
    build.prepare(build_folder, {e.stage for e in wanted})
    whole = write(grade_folder(folder, wanted, build_folder, arguments.seed), out, arguments.format)
    for name, got, most, text in rows(whole):
        print(f"{got:4} of {most:3}  {name}: {text}")
    print(f"{whole['score']:4} of {whole['max']:3}  written to {out / 'score.json'} and {out / FORMATS[arguments.format]}")
    return 0
