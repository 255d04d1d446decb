"""Builds one kernel file into its stage's program, against objects and libraries that are built already: two seconds instead of minutes."""

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from . import Usage, sandbox
from .exercise import ROOT

up_to_date = False  # nothing has to be built


class Built(NamedTuple):
    program: Path  # None: there is none
    message: str = ""  # why not: the compiler's first error
    warnings: list = []  # about the student's own lines
    unset: str = ""  # the first of them about a variable that is read before it has a value


def prepare(build, stages):
    """Configures the build folder, if nobody has, or if it builds another checkout, of which this one is a copy, and builds the programs
    of these stages."""
    new = [stage for stage in sorted(stages) if not (build / "bin" / stage).is_file()]
    if up_to_date:
        if new:
            raise Usage(f"{build} has no bin/{new[0]}; allowed with --built: a folder in which the project was built")
        return
    home = cached(build, "CMAKE_HOME_DIRECTORY")
    if not home or not os.path.exists(home) or not os.path.samefile(home, ROOT):
        print(f"course: preparing {build} for {ROOT}, once", flush=True)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DFLASH_CUDA={cached(build, 'FLASH_CUDA') or 'OFF'}"]
        must(["cmake", "--fresh", "-S", ROOT, "-B", build, *generator, *options], "the project cannot be configured")
    if new:
        print(f"course: building {', '.join(new)}; that takes a minute or two for a stage, once", flush=True)
    jobs = min(os.cpu_count() or 2, 8)  # a compiler takes up to a gigabyte
    must(["cmake", "--build", build, "-j", jobs, "--target", *sorted(stages)], f"{', '.join(sorted(stages))} cannot be built")


def cached(build, name):
    """An entry of a build folder's cache; "" if there is none."""
    cache = build / "CMakeCache.txt"
    found = re.search(f"^{name}:[A-Z]+=(.*)$", cache.read_text(), re.MULTILINE) if cache.is_file() else None
    return found.group(1) if found else ""


def must(argv, what):
    try:
        done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError:
        raise Usage(f"{argv[0]} is missing; common/setup.sh installs what a build needs") from None
    if done.returncode != 0:
        raise Usage(f"{what}:\n" + "\n".join(done.stdout.splitlines()[-25:]))


def compile_command(build, file):
    """(the words of the command that compiles a kernel file for the CPU, its object)"""
    source = file.removesuffix(".cuh") + "_cpu.cpp"
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(build / source):
            words = []
            for word in shlex.split(entry["command"]):
                if "cmake_pch" in word:  # precompiled, headers of an exercise would not take the place of the project's
                    while words[-1] in ("-include", "-include-pch", "-Xclang"):
                        words.pop()
                elif Path(word).name not in ("ccache", "sccache") and word != "-Werror":
                    words.append(word)
            return words, Path(entry["directory"]) / words[words.index("-o") + 1]
    raise Usage(f"{build} does not build {file}; allowed: a build folder of this project")


def link_command(build, stage):
    """(the words of the command that links a stage's program, the folder where it runs)"""
    make = build / stage / "CMakeFiles" / f"{stage}.dir" / "link.txt"
    if make.is_file():
        return shlex.split(make.read_text()), build / stage
    argv = [cached(build, "CMAKE_MAKE_PROGRAM"), "-C", build, "-t", "commands", "-s", f"bin/{stage}"]
    done = subprocess.run(argv, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if f"-o bin/{stage} " in line]
    if not lines:
        raise Usage(f"{build}: Ninja does not say how it links {stage}")
    return [word for word in shlex.split(lines[-1]) if word not in (":", "&&", ";")], build


@functools.cache
def shapes_of(program, variant, pass_):
    """([(width, Br, Bc)] that problems get by default, [the others, each Br, Bc once]) of those that the project's program lists."""
    with sandbox.workplace() as folder:
        done = sandbox.run([program, "--device", "cpu", "--list", "--json"], folder)
    if done.code != 0:
        raise Usage(f"{program} does not list its variants: {done.err.strip()}")
    groups = [group for v in json.loads(done.out)["variants"] if v["name"] == variant for group in v["tiles"] if group["pass"] == pass_]
    found = [(width, n, (c["br"], c["bc"])) for group in groups for width in group["head_dims"] for n, c in enumerate(group["choices"])]
    usual = [(width, *tiles) for width, n, tiles in found if n == 0 and width <= 128]  # no problem of all exercises is wider
    others = {tiles: (width, *tiles) for width, _, tiles in reversed(found) if tiles not in [shape[1:] for shape in usual]}
    return usual, list(others.values())


def build(exercise, lines, build_folder, work, *flags):
    """Compiles and links the kernel with these lines in the blank, in the empty folder `work`. `flags`: more of the compiler's."""
    header = work / "include" / exercise.file
    usual, others = shapes_of(build_folder / "bin" / exercise.stage, exercise.variant, exercise.pass_)
    for file, text in {**exercise.headers(), **exercise.fewer_sizes(usual + others), exercise.file: exercise.file_with(lines)}.items():
        place = work / "include" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    words, old_object = compile_command(build_folder, exercise.kernel)
    new_object = work / "kernel.o"
    words[words.index("-o") + 1] = str(new_object)
    words[1:1] = [f"-I{work / 'include'}"]
    words += "-Wuninitialized -Wfloat-conversion -Werror=vla -Werror=overflow -Werror=return-type".split()
    words += ["-fno-exceptions", "-fdiagnostics-color=never", *flags]
    done = sandbox.run(words, work, sandbox.Limits(seconds=60, memory=4096, file_size=128))
    err = re.sub(r"\bflash::(\{anonymous\}::|\w+::)*", "", done.err)
    diagnostics = Diagnostics(err.replace(str(header), exercise.student_name).replace(f"{ROOT}/", ""), exercise, lines)
    if done.code != 0 or not new_object.is_file():
        return Built(None, "the compiler did not come to an end" if done.code == 124 else diagnostics.first_error())
    warnings, unset = diagnostics.warnings()
    words, folder = link_command(build_folder, exercise.stage)
    program = work / "program"
    words[words.index("-o") + 1] = str(program)
    at = [n for n, word in enumerate(words) if folder / word == old_object]
    if not at:
        raise Usage(f"{build_folder}: the program {exercise.stage} is not linked from {old_object}")
    words[at[0]] = str(new_object)
    done = sandbox.run(words, work, sandbox.Limits(seconds=60, memory=4096, file_size=1024), cwd=folder)
    if done.code != 0 or not program.is_file():
        return Built(None, "it does not link: " + (done.err + done.out).strip().split("\n")[0])
    return Built(program, "", warnings, unset)


class Diagnostics:
    """What g++ or clang++ says about a student's file."""

    def __init__(self, text, exercise, lines):
        self.name, self.lines = exercise.student_name, [line[:2000] for line in text.split("\n")]
        begin = exercise.first_line()
        mine = range(begin, begin + lines.count("\n"))
        self.source = dict(enumerate(lines.split("\n"), begin))
        self.blank = f"your lines, {begin} to {mine.stop - 1}"
        found = [re.search(rf"(?:^|[\s/]){re.escape(self.name)}:(\d+)[:,]", line) for line in self.lines]
        self.places = [int(place[1]) if place and int(place[1]) in mine else 0 for place in found]
        self.messages = [n for n, line in enumerate(self.lines) if re.search(r": (fatal )?(error|warning): ", line)]

    def students_line(self, at):
        """The student's line that a message is about: its own, or one on the way into a template; 0 if there is none."""
        last = max((n for n in self.messages if n < at), default=-1)
        end = min((n for n in self.messages if n > at), default=len(self.lines))
        return next((self.places[n] for n in [at, *range(at - 1, last, -1), *range(at + 1, end)] if self.places[n]), 0)

    def message(self, at):
        """(the student's line, the message with the source below it)"""
        place, _, text = re.split(r": (?:fatal )?(error|warning): ", self.lines[at], maxsplit=1)
        if host := re.search(r"\W(cout|cuda[A-Z]\w*)\W", text):
            text = f"{host[1]} is the host's; a kernel {'prints by printf()' if host[1] == 'cout' else 'cannot call it'}"
        below = [line for line in self.lines[at + 1 : at + 3] if line.startswith("  ")]
        mine = self.students_line(at)
        if re.search("does not name a type|expected (unqualified-id|declaration)", text):
            text += "; it stands outside of all functions: is there a '}' too many above?"
        line = f"{self.name}, line {mine}: {text}" if mine else f"{place}: {text}"
        if mine and not self.places[at]:
            below = [f"{mine:7} | {self.source[mine]}"]
        found = f"\nThe compiler finds it at {place}, which this line uses." if mine and not self.places[at] else ""
        cause = "do they return a value?" if "no return" in text else "count their braces."
        at_end = "" if mine or not self.lines[at].startswith(self.name) else f"\nThe cause may be in {self.blank}: {cause}"
        return line, "\n".join([line, *below]) + found + at_end

    def first_error(self):
        at = next((n for n in self.messages if "error: " in self.lines[n]), None)
        return "the compiler stopped: " + (self.lines[-1] or "it does not say why") if at is None else self.message(at)[1]

    def warnings(self):
        """([warnings about the student's lines], the first about a variable that is read before it has a value, or "")"""
        found, unset = [], ""
        for at in (n for n in self.messages if "warning: " in self.lines[n]):
            is_unset = re.search(r"\[-W(maybe-|sometimes-|conditional-)?uninitialized\]$", self.lines[at])
            warning = f"The compiler warns: {self.message(at)[0]}"
            if warning not in found and (self.places[at] or (is_unset and self.students_line(at))):  # once per template otherwise
                found.append(warning)
                unset = unset or (warning if is_unset else "")
        return found, unset
