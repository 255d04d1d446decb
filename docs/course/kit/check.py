"""course.py check: one exercise of a student, the first thing that is wrong in words."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from kit import Usage, build, measure, sandbox, scan, words

CASES = (  # from the simplest to the most awkward
    "--heads 1 --seq 4 --head-dim 4 --input ramp",
    "--heads 1 --seq-q 5 --seq-k 40 --head-dim 8",
    "--heads 2 --kv-heads 1 --seq-q 45 --seq-k 70 --head-dim 20 --bias matrix",
    "--heads 2 --seq-q 70 --seq-k 41 --head-dim 36 --causal",
    "--heads 1 --seq 40 --head-dim 16 --input large",
)
COUNTED = ("--heads 2 --kv-heads 1 --seq-q 66 --seq-k 70 --head-dim 36",)


class Verdict(NamedTuple):
    status: str  # right, wasteful, wrong, refused, does not compile, not started
    told: list  # sentences

    @property
    def right(self):
        return self.status == "right"


needed = {}  # (exercise, its variant's solution, options): the counts of that kernel, or of the project's own


variants = {}  # (exercise, its variant's solution): the program


def solution_program(build_folder, exercise):
    if not exercise.changes:
        return build.unchanged(build_folder / "bin" / exercise.stage)
    key = (exercise.name, exercise.changes["solution"])
    if key not in variants:
        folder = Path(tempfile.mkdtemp(dir=sandbox.own_folder()[0]))
        built = build.build(exercise, exercise.to_compile(key[1]), build_folder, folder)
        if built.program is None:
            raise Usage(f"the variant's solution of {exercise.name} gives no program: {built.message}")
        variants[key] = built.program
    return build.unchanged(variants[key])


def solution_counts(build_folder, exercise, options):
    """What a variant needs on the problems of a check stands in its file."""
    told = exercise.changes.get("needed", {}).get(" ".join(options))
    key = (exercise.name, exercise.changes.get("solution"), *options)
    if told is None and key not in needed:
        program = solution_program(build_folder, exercise)
        with sandbox.workplace() as folder:
            ran = measure.run(program, exercise, options, folder / "run", check=False, trusted=True)
        if ran.report is None:
            raise Usage(f"{program} does not run {' '.join(options)}: {ran.done.err.strip()}")
        needed[key] = measure.counts(ran.report)
    return told or needed[key]


def untouched(exercise, lines):
    return lines.strip() == exercise.blank().strip()


def check_lines(exercise, lines, build_folder):
    """The verdict on lines for the blank."""
    if untouched(exercise, lines):
        place = f"{exercise.student_name}, line {exercise.first_line()}"
        return Verdict("not started", [f"The blank is as it was given out. It begins in {place}."])
    why = scan.source(lines, exercise.allow)
    if why:
        where, _, what = why.partition(": ") if why.startswith("line ") else ("", "", why)
        place = f"line {exercise.first_line() - 1 + int(where.split()[1])}: " if where else ""
        return Verdict(
            "refused", [f"{place}{what}.", "The grader takes the language of the kernels alone: no pointers, no state, no library."]
        )
    with sandbox.workplace() as folder:
        built = build.build(exercise, exercise.to_compile(lines), build_folder, folder / "build", scan.compiled)
        if built.refused:
            return Verdict("refused", [built.message + "."])
        if built.program is None:
            return Verdict("does not compile", [built.message])
        verdict = run_cases(exercise, built.program, build_folder, folder, lines)
    if verdict.status == "wasteful" and exercise.withheld:
        return Verdict("wasteful", [*verdict.told, exercise.withheld["why"]])
    if verdict.right and exercise.asked and not scan.uses(lines, exercise.asked["word"]):
        return Verdict("wasteful", [f"Right, but without {exercise.asked['word']}. {exercise.asked['why']}"])
    return verdict


def run_cases(exercise, program, build_folder, folder, lines=""):
    cases, counted = exercise.cases or CASES, exercise.counted or COUNTED
    wasteful = []
    for number, case in enumerate((*cases, *counted), 1):
        options, place = case.split(), f"problem {number} of {len(cases) + len(counted)}"
        ran = measure.run(program, exercise, options, folder / f"case{number}")
        told = words.of_failure(exercise, ran.done, ran.report, options, place, lines)
        if told:
            return Verdict("wrong", told)
        if number > len(cases) and not wasteful:
            wasteful = too_much(exercise, measure.counts(ran.report), solution_counts(build_folder, exercise, options), options, place)
    return Verdict("wasteful", wasteful) if wasteful else Verdict("right", [])


def too_much(exercise, got, wanted, options, place):
    """[sentences] about the first count that is higher than the project's."""
    for name in words.COUNTS:
        if name in exercise.rubric and got[name] > wanted[name]:
            return [words.of_problem(options, place)[0], words.of_count(name, got[name], wanted[name])]
    return []
