"""course.py check: one exercise of a student, the first thing that is wrong in words."""

import functools
import re
from typing import NamedTuple

from . import Usage, build, measure, sandbox, words

CASES = (  # from the simplest to the most awkward
    "--heads 1 --seq 4 --head-dim 4 --input ramp",
    "--heads 1 --seq-q 5 --seq-k 40 --head-dim 8",
    "--batch 2 --heads 2 --kv-heads 1 --seq-q 45 --seq-k 70 --head-dim 20",
    "--heads 2 --seq-q 70 --seq-k 41 --head-dim 36 --causal",
    "--heads 1 --seq 40 --head-dim 16 --input large",
)
EVERY = (  # of every exercise, with the default tiles of four widths: so no seed of `grade` is needed to find what is right for short rows only
    "--heads 1 --seq-q 3 --seq-k {long} --head-dim 8 --scale 1",  # weights of all sizes, and many of the small ones
    "--heads 1 --seq-q 300 --seq-k 10 --head-dim 96",
    "--heads 2 --kv-heads 1 --seq-q 7 --seq-k 100 --head-dim 64 --causal",  # the last queries of a long text
    "--heads 1 --seq-q 4 --seq-k 128 --head-dim 128 --input identity --scale 18",  # small weights that count together
    "--load {low} --causal",  # exercises/inputs
    "--load {low} --scale 10000",  # scores below -1e6, which is no -inf
)
COUNTED = (  # ragged tiles, full ones, and tiles that no query sees
    "--heads 2 --kv-heads 1 --seq-q 66 --seq-k 70 --head-dim 36",
    "--heads 1 --seq 64 --head-dim 64",
    "--heads 1 --seq 200 --head-dim 8 --causal",
)


class Verdict(NamedTuple):
    status: str  # right, wasteful, unclear, wrong, does not compile, not started
    sentences: list
    printed: str = ""  # by the kernel, on the problem that the verdict is about, or on the first if it is right
    rule: str = ""  # what is broken: words.rule_of(), a count of words.COUNTS, unset or asked

    @property
    def right(self):
        return self.status == "right"


UNSET = "A variable may be read that no one has written: give it a first value. What it holds differs from run to run."


@functools.cache
def solution_counts(build_folder, exercise, *options):
    """Of the project's kernel."""
    program = build_folder / "bin" / exercise.stage
    with sandbox.workplace() as folder:
        ran = measure.run(program, exercise, options, folder / "run")
    if ran.report is None:
        raise Usage(f"{program} does not run {' '.join(options)}: {ran.done.err.strip()}")
    return measure.counts(ran.report)


def untouched(exercise, lines):
    return lines.strip() == exercise.blank().strip()


def lacks_what_is_asked(exercise, lines):
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", lines, flags=re.DOTALL).partition(exercise.asked.get("before", "\0"))[0]
    return bool(exercise.asked) and not re.search(rf"\b{exercise.asked['word']}(?!\w)", code)


def check_lines(exercise, lines, build_folder):
    """The verdict on lines for the blank."""
    if untouched(exercise, lines):
        place = f"{exercise.student_name}, line {exercise.first_line()}"
        return Verdict("not started", [f"The blank is as it was given out. It begins in {place}."])
    with sandbox.workplace() as folder:
        built = build.build(exercise, lines, build_folder, folder / "build")
        if built.program is None:
            return Verdict("does not compile", [built.message])
        verdict = run_cases(exercise, built.program, build_folder, folder, lines)
        bare = re.findall(r"^\s*(?!return\b)([\w:<>]+ \w+[^=({;]*;)", lines, re.MULTILINE)
        if (
            bare and not built.unset and "local variable" in " ".join(verdict.sentences)
        ):  # is the result another if they hold something else?
            other = build.build(exercise, lines, build_folder, folder / "other", "-ftrivial-auto-var-init=pattern")
            if other.program and run_cases(exercise, other.program, build_folder, folder / "again", lines).sentences != verdict.sentences:
                built = built._replace(unset=f"The result is another if these variables hold something else at first: {' '.join(bare)}")
    if built.unset:
        wrong = verdict.status == "wrong"
        sentences = [UNSET, built.unset, *(verdict.sentences if wrong else [])]
        return Verdict("wrong" if wrong else "unclear", sentences, verdict.printed, "unset")
    why = [exercise.withheld["why"]] if exercise.withheld else []
    sentences = [*verdict.sentences, *(why if verdict.status == "wasteful" else built.warnings[:2])]
    if verdict.right and lacks_what_is_asked(exercise, lines):
        before = f" before {exercise.asked['before']}...)" if "before" in exercise.asked else ""
        sentences = [f"Right, but without {exercise.asked['word']}{before}. {exercise.asked['why']}", *sentences]
        return Verdict("wasteful", sentences, verdict.printed, "asked")
    return verdict._replace(sentences=sentences)


def problems(exercise, build_folder):
    """([options whose results are checked], [options whose counts are compared, too])"""
    forward = exercise.pass_ == "forward"
    long = 2100 if forward else 300  # a pass over all gradients takes longer, and keeps no row
    low = "low" if exercise.draw.get("large", True) else "small --scale 0.7"  # low: exp of each score is 0 unless the maximum is subtracted
    every = EVERY if low == "low" else EVERY[:-1]  # the last one has a scale of its own
    cases = [*(exercise.cases or CASES), *(case.format(long=long, low=low) for case in every)]
    for width, br, bc in build.shapes_of(build_folder / "bin" / exercise.stage, exercise.variant, exercise.pass_)[1]:
        rows, keys = (br + 2, 2 * bc + 2) if forward else (2 * br + 2, bc + 2)  # two blocks, of which the first has two tiles or more
        cases += [f"--heads 1 --seq-q {rows} --seq-k {keys} --head-dim {width - 12} --causal --tiles {br},{bc}"]
    if low == "low":  # rows of few keys, all far below 0
        cases += ["--heads 1 --seq-q 82 --seq-k 2 --head-dim 24 --input large"]
    if "tiles_of(p, a.limits)" in exercise.parts()[2]:  # its tiles depend on the GPU
        cases += [f"FLASH_SIMT_TARGET={75 if exercise.target == 90 else 90} --heads 1 --seq-q 70 --seq-k 40 --head-dim 128"]
    return tuple([case.split() for case in some] for some in (cases, exercise.counted or COUNTED))


def run_cases(exercise, program, build_folder, folder, lines=""):
    cases, counted = problems(exercise, build_folder)
    wasteful = first = alike = None
    for number, options in enumerate((*cases, *counted), 1):
        place = f"problem {number} of {len(cases) + len(counted)}"
        ran = measure.run(program, exercise, options, folder / f"case{number}")
        words.students_race_first(exercise, ran.report, lines)
        sentences = words.failure_sentences(exercise, ran.done, ran.report, options, place, lines)
        if sentences:
            verdict = Verdict("wrong", sentences, ran.printed, words.rule_of(ran.done, ran.report))
            if number > 1 or "ramp" not in options or not ran.report or ran.report["threads"]["mistakes"]:
                return verdict
            alike = verdict  # all scores are alike: the next problem says more, if it shows the mistake
            continue
        if alike:
            return alike
        first = first or Verdict("right", [], ran.printed)
        if number > len(cases) and not wasteful:
            got, wanted = measure.counts(ran.report), solution_counts(build_folder, exercise, *options)
            if name := too_much(exercise, got, wanted):
                sentences = [words.problem_sentences(options, place)[0], *words.count_sentences(name, got, wanted, exercise, lines)]
                wasteful = Verdict("wasteful", sentences, ran.printed, name)
    return wasteful or first


def too_much(exercise, got, wanted):
    """The first count that is higher than the project's, "" if none is."""
    return next((name for name in words.COUNTS if name in exercise.rubric and got[name] > wanted[name]), "")
