#!/usr/bin/env python3
"""The course: exercises made of the project's kernels, checked on the CPU simulator. docs/course/README.md has the plan of a term.

  course.py list                     the exercises
  course.py blank 04 DIR             writes the files of stage 04 into DIR, each with a blank to fill; leaves those that are there
  course.py check DIR 04             builds each of them, and says the first thing that is wrong
  course.py watch DIR 04             the same at each save, and then the next; keys give hints; writes the files if none is there
  course.py hint DIR 04_merge_output the next hint
  course.py progress DIR             what is done
  course.py grade DIR --out RESULTS              for teachers: points, from the student's lines alone
  course.py grade-class DIR --out marks.csv      for teachers: the same for each sub-folder, as a table
  course.py slides PAGE.html                     for teachers: the slides as one page to project
  course.py self-test                            for teachers: does the course itself hold?
  course.py mutate 04                            for teachers: does check refuse solutions with a wrong token?

04 stands for all exercises of a stage; the name of an exercise and the word all are allowed too.
Exit codes: 0 right (grade: graded); 1 something is wrong; 2 bad usage or input (grade: also what could not be graded).
"""

import argparse
import json
import locale
import os
import re
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

from kit import Usage, build, check, exercise, grade, mutations, selftest, slides, words

sys.path.append(str(exercise.ROOT / "common/machine/run"))
import keys  # noqa: E402

STATE = "progress.json"
MOST_PRINTED = 20  # lines
ME = sys.argv[0] or "course.py"  # as it was called, to be called again


def student_folder(arguments):
    folder, named = Path(arguments.folder), getattr(arguments, "exercises", "all")
    if folder.is_dir() and named:
        return folder
    if folder.is_dir():
        meant = folder, "all"
    elif folder.is_file():
        meant = folder.parent, folder.stem
    elif named and Path(named).is_dir():
        meant = named, folder
    else:
        raise Usage(f"there is no folder {folder}; {shown('blank', named or '01_softmax', folder)} makes it")
    raise Usage(f"the folder comes first, then an exercise, a stage or all: {shown(arguments.command, *meant)}")


def shown(*words):
    """A command of this program, as a shell reads it."""
    return shlex.join(map(str, (ME, *words)))


def state_of(folder):
    """{exercise: {status, hints}}"""
    path = folder / STATE
    if not path.exists():
        return {}
    try:
        saved = json.loads(path.read_text())
        return {name: {"status": entry.get("status", "not checked"), "hints": int(entry.get("hints", 0))} for name, entry in saved.items()}
    except (ValueError, AttributeError, TypeError):
        raise Usage(f"{path} is not what course.py has written; move it away to begin anew") from None


def remember(folder, name, **what):
    state = state_of(folder)
    state[name] = state.get(name, {}) | what
    (folder / STATE).write_text(json.dumps(state, indent=2) + "\n")


def list_exercises(_, __):
    for e in exercise.chosen("all"):
        print(f"{e.name:24} level {e.level} ({exercise.LEVELS[e.level]}): {e.title} {e.equation}")
    return 0


def blank(arguments, _):
    folder = Path(arguments.folder)
    try:
        wanted = exercise.chosen(arguments.exercises)
    except Usage:
        if Path(arguments.exercises).is_dir():
            raise Usage(f"the exercise comes first: {shown(arguments.command, folder, arguments.exercises)}") from None
        raise
    if folder.resolve() == exercise.ROOT or exercise.ROOT / "docs" in [folder.resolve(), *folder.resolve().parents]:
        raise Usage(f"{folder} is part of the project; allowed: a folder of your own")
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for e in wanted:
        path = folder / e.student_name
        if path.exists() or path.is_symlink():
            print(f"{path} is there already and stays as it is")
            continue
        path.write_text(e.file_with(e.blank()))
        written += 1
        print(f"{path}: {e.title} {e.equation}. Look for the line '{e.begin}'")
    if written:
        if not (folder / "AGENTS.md").exists():  # asks an assistant to tutor, not to solve
            shutil.copyfile(exercise.FOLDER.parent / "AGENTS.md", folder / "AGENTS.md")
        print(f"Next: {shown('check', folder, arguments.exercises)}")
    return 0 if written else 2


prepared = set()  # the stages that are built


def verdict_on(e, folder, build_folder):
    """Checks one file, prints the verdict and remembers it."""
    path = folder / e.student_name
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise Usage(f"{path} is not text") from None
    lines = e.student_lines(text)
    if not check.untouched(e, lines) and e.stage not in prepared:
        build.prepare(build_folder, {e.stage})
        prepared.add(e.stage)
    began = time.monotonic()
    verdict = check.check_lines(e, lines, build_folder)
    rule = f" [{verdict.rule}]" if verdict.rule else ""
    print(f"{e.name}: {verdict.status.upper()}{rule} after {time.monotonic() - began:.1f} s")
    for sentence in verdict.sentences:
        print(words.wrapped(sentence) if "\n" not in sentence else "  " + sentence.replace("\n", "\n  "))
    if verdict.status == "wrong":
        named = {int(number) for number in re.findall(rf"{re.escape(e.student_name)}(?::|, line )(\d+)", " ".join(verdict.sentences))}
        print(*(f"{number:7} | {text.split(chr(10))[number - 1]}\n" for number in sorted(named)), sep="", end="")
    printed = verdict.printed.splitlines()
    if printed:
        print("  What your kernel printed:")
    for line in printed[:MOST_PRINTED]:
        print("    " + "".join(letter if letter.isprintable() else " " for letter in line))
    if len(printed) > MOST_PRINTED:
        print(f"    and {len(printed) - MOST_PRINTED:,} more lines")
    if changed := e.changed_outside(text):
        warning = f"Line {changed} of {path.name} lies outside your blank and is not the project's. Only the lines between the marks count."
        print(words.wrapped(warning))
    remember(folder, e.name, status=verdict.status)
    if verdict.right:
        print(words.wrapped(f"Now you can {e.after}. What might have gone wrong: docs/course/exercises/{e.name}/README.md#wrong-kernels"))
        print(next_after(e, folder))
    else:
        print(f"  A hint: {shown('hint', folder, e.name)}")
    return verdict


def in_order(exercises):
    """As the book has them."""
    return sorted(exercises, key=lambda e: (e.file, e.minutes))


def next_after(e, folder):
    """The command for the next exercise, in the order of the book, that is not right yet."""
    order, state = in_order(exercise.chosen("all")), state_of(folder)
    at = [other.name for other in order].index(e.name)
    for other in order[at + 1 :] + order[:at]:
        if state.get(other.name, {}).get("status") != "right":
            there = (folder / other.student_name).is_file()
            return "  Next: " + (shown("check", folder, other.name) if there else shown("blank", other.name, folder))
    return "  All exercises are right."


def present(arguments):
    """The folder, and of the exercises that are named those that it has files of."""
    folder, named = student_folder(arguments), exercise.chosen(arguments.exercises)
    found = [e for e in named if (folder / e.student_name).is_file()]
    if not found:
        raise Usage(f"there is no {folder / named[0].student_name}; {shown('blank', arguments.exercises, folder)} writes it")
    return folder, found


def check_all(arguments, build_folder):
    folder, wanted = present(arguments)
    verdicts = [verdict_on(e, folder, build_folder) for e in wanted]
    return 0 if all(v.right for v in verdicts) else 1


def watch(arguments, build_folder):
    """Judges the first exercise that is not right, and those that were right when their files change. On a terminal n goes on to the next."""
    try:
        folder, wanted = present(arguments)
    except Usage:
        if not arguments.exercises or Path(arguments.exercises).is_dir() or Path(arguments.folder).is_file():
            raise
        blank(arguments, build_folder)
        folder, wanted = present(arguments)
    wanted, state = in_order(wanted), state_of(folder)
    right = [e for e in wanted if state.get(e.name, {}).get("status") == "right"]
    right = right if len(right) < len(wanted) else []  # all of them: then look at them again
    key, seen, current = "", {e: stamp_of(folder / e.student_name) for e in right}, next(e for e in wanted if e not in right)

    def saved():
        if stamp_of(folder / current.student_name) is None and seen.pop(current, None):
            print(f"{folder / current.student_name} is gone; it is judged once it is there again", flush=True)
        return next((e for e in [current, *right] if stamp_of(folder / e.student_name) not in (None, seen.get(e))), None)

    print(f"Watching {', '.join(str(folder / e.student_name) for e in wanted)}; Ctrl-C ends it", flush=True)
    build.prepare(build_folder, {current.stage})  # while the student reads
    offered = {"h": "hint", "r": "check again", "b": "begin this exercise anew", "n": "next exercise", "q": "quit"}
    while True:
        e, before = saved(), key
        key = "" if e else keys.wait_for(saved, offered)
        if key == "q":
            return 0
        if key == "b":
            path = folder / current.student_name
            if before != "b":
                print(f"  Press b again to put {path} back as it was given out; it is kept beside, as {path.name}.TIME")
            elif path.is_file():
                shutil.move(path, f"{path}.{time.strftime('%H%M%S')}")
                blank(argparse.Namespace(folder=folder, exercises=current.name), build_folder)
                key = ""
        if key == "h":
            hint(argparse.Namespace(folder=folder, exercises=current.name), build_folder)
        if e:
            seen[e] = stamp_of(folder / e.student_name)
            right, current = [other for other in right if other is not e], e
            try:
                if verdict_on(e, folder, build_folder).right:
                    right += [e]
                print(f"  {len(right)} of {len(wanted)} are right")
            except (Usage, OSError) as error:  # half a file, while an editor saves it
                print(f"{e.name}: {error}")
            sys.stdout.flush()
        if key == "n" or (e in right and not keys.Keys().on_terminal):
            at = wanted.index(current) + 1
            current = next((e for e in wanted[at:] + wanted[:at] if e not in right), current)
        if key in ("n", "r"):
            seen.pop(current, None)  # its verdict is shown again


def stamp_of(path):
    return (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None


def hint(arguments, _):
    folder, wanted = student_folder(arguments), exercise.chosen(arguments.exercises)
    state = state_of(folder)
    e = next((e for e in in_order(wanted) if state.get(e.name, {}).get("status") != "right"), wanted[0])
    used = state.get(e.name, {}).get("hints", 0)
    remember(folder, e.name, hints=min(used + 1, len(e.hints)))
    for number, text in enumerate(e.hints[: used + 1], 1):
        print(f"{e.name}, hint {number} of {len(e.hints)}\n{words.wrapped(text)}")
    return 0


def progress(arguments, _):
    folder = student_folder(arguments)
    state, done = state_of(folder), 0
    found = [e for e in exercise.chosen("all") if (folder / e.student_name).is_file()]
    for e in found:
        entry = state.get(e.name, {})
        done += entry.get("status") == "right"
        print(f"{e.name:24} level {e.level}  {entry.get('status', 'not checked'):16} hints {entry.get('hints', 0)} of {len(e.hints)}")
    print(f"{done} of {len(found)} right")
    return 0


def parser():
    top = argparse.ArgumentParser(prog="course.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = next((f for f in ("build", "build-course") if (exercise.ROOT / f / "CMakeCache.txt").is_file()), "build-course")
    about_build = "build folder of the project (default: build, if the demo has made it, else build-course)"
    top.add_argument("--build", type=Path, help=about_build, default=exercise.ROOT / usual)
    top.add_argument("--built", type=Path, metavar="BUILD", help="the same; it is up to date, and nothing is built there")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name, function, *options):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        for option, settings in options:
            command.add_argument(option, **settings)

    folder = ("folder", {"metavar": "DIR", "help": "the student's folder"})
    which = ("exercises", {"metavar": "NN", "help": "a stage, an exercise, or all"})
    add("list", list_exercises)
    add("blank", blank, which, folder)
    named = ("exercises", {"metavar": "NN", "nargs": "?", "help": "a stage, an exercise, or all"})  # without it: what to type
    add("check", check_all, folder, named)
    add("watch", watch, folder, named)
    add("hint", hint, folder, named)
    add("progress", progress, folder)
    several = ("exercises", {"nargs": "*", "metavar": "NN", "help": "default: those of which there is a file"})
    seed = ("--seed", {"default": "1", "metavar": "WORD", "help": "problems that nobody has seen are drawn from it (default: 1)"})
    results = "where results.json is written, as Gradescope reads it"
    add("grade", grade.grade, folder, several, seed, ("--out", {"required": True, "metavar": "RESULTS", "help": results}))
    students = ("folder", {"metavar": "DIR", "help": "has a sub-folder for each student"})
    table = "a new file: student, exercise, points, max, reason"
    add("grade-class", grade.grade_class, students, several, seed, ("--out", {"required": True, "metavar": "marks.csv", "help": table}))
    add("slides", slides.command, ("out", {"metavar": "PAGE.html", "help": "a new file"}))
    every = ("exercises", {"nargs": "*", "metavar": "NN", "help": "default: all"})
    add("self-test", selftest.command, every)
    add("mutate", mutations.command, every)
    return top


def main():
    sys.dont_write_bytecode = True
    if locale.getpreferredencoding(False).lower() not in ("utf-8", "utf8"):  # the project's files are, whatever the locale
        os.execv(sys.executable, [sys.executable, "-B", "-X", "utf8", *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # no program and no folder is left behind
    arguments = parser().parse_args()
    try:
        build.up_to_date = arguments.built is not None
        return arguments.function(arguments, (arguments.built or arguments.build).resolve())
    except Usage as error:
        print(f"course.py: {error}", file=sys.stderr)
    except OSError as error:
        print(f"course.py: {error.filename or 'its output'}: {error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
