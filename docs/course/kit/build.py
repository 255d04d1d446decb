"""Builds one kernel file into its stage's program, against objects and libraries that are built already: two seconds instead of minutes."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from kit import Usage, sandbox
from kit.exercise import ROOT

MOST_JOBS = 8  # a compiler takes up to a gigabyte
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
        why = (
            f"{build} builds another folder, {home}; preparing it anew for this one" if home else f"the first time: preparing {build}, once"
        )
        print(f"course: {why}", flush=True)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DFLASH_CUDA={cached(build, 'FLASH_CUDA') or 'OFF'}", "-DFLASH_WERROR=OFF"]
        must(["cmake", "--fresh", "-S", ROOT, "-B", build, *generator, *options], "the project cannot be configured")
    if new:
        print(f"course: building {', '.join(new)}; that takes a minute or two for a stage, once", flush=True)
    jobs = min(os.cpu_count() or 2, MOST_JOBS)
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
    done = subprocess.run(
        [cached(build, "CMAKE_MAKE_PROGRAM"), "-C", build, "-t", "commands", "-s", f"bin/{stage}"], capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if f"-o bin/{stage} " in line]
    if done.returncode != 0 or not lines:
        raise Usage(f"{build}: Ninja does not say how it links {stage}")
    return [word for word in shlex.split(lines[-1]) if word not in (":", "&&", ";")], build


def build(exercise, lines, build_folder, work):
    """Compiles and links the kernel with these lines in the blank, in the empty folder `work`."""
    header = work / "include" / exercise.file
    for file, text in {**exercise.headers(), exercise.file: exercise.to_compile(lines)}.items():
        place = work / "include" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    words, old_object = compile_command(build_folder, exercise.file)
    new_object = work / "kernel.o"
    words[words.index("-o") + 1] = str(new_object)
    words[1:1] = [f"-I{work / 'include'}"]
    words += ["-Wuninitialized", "-fdiagnostics-color=never"]
    done = sandbox.run(words, work, seconds=60, memory=4096, file_size=128)
    said = Diagnostics(done.err.replace(str(header), exercise.student_name).replace(f"{ROOT}/", ""), exercise, lines)
    if done.code != 0 or not new_object.is_file():
        return Built(None, "the compiler did not come to an end" if done.code == 124 else said.first_error())
    warnings, unset = said.warnings()
    words, folder = link_command(build_folder, exercise.stage)
    program = work / "program"
    words[words.index("-o") + 1] = str(program)
    at = [n for n, word in enumerate(words) if folder / word == old_object]
    if not at:
        raise Usage(f"{build_folder}: the program {exercise.stage} is not linked from {old_object}")
    words[at[0]] = str(new_object)
    done = sandbox.run(words, work, seconds=60, memory=4096, file_size=1024, cwd=folder)
    if done.code != 0 or not program.is_file():
        return Built(None, "it does not link: " + (done.err + done.out).strip().split("\n")[0])
    return Built(program, "", warnings, unset)


class Said(NamedTuple):
    file: str
    line: int
    kind: str  # error, warning, note, or "chain": how it came to a place inside a template or an inlined function
    text: str
    below: str  # the source that the compiler shows


class Diagnostics:
    """What g++ or clang++ says about a student's file."""

    LINE = re.compile(r"\s*(?P<inlined>inlined from .* at )?(?P<file>[^\s:]+):(?P<line>\d+)(:\d+)?[:,](\s+(?P<rest>.*))?$")

    def __init__(self, text, exercise, lines):
        self.name, self.text = exercise.student_name, text
        self.mine = range(exercise.first_line(), exercise.first_line() + lines.count("\n"))
        self.all = []
        for line in text.split("\n"):
            found = self.LINE.match(line[:2000])
            if found and (found["inlined"] or found["rest"]):
                kind, _, rest = (found["rest"] or "").removeprefix("fatal ").partition(": ")
                if kind not in ("error", "warning", "note") or rest.endswith("requested here"):
                    kind = "chain"
                self.all.append(Said(found["file"], int(found["line"]), kind, rest, ""))
            elif self.all and line.startswith("  ") and self.all[-1].below.count("\n") < 2:
                self.all[-1] = self.all[-1]._replace(below=f"{self.all[-1].below}\n{line}")

    def is_mine(self, said):
        return said.file == self.name and said.line in self.mine

    def around(self, at):
        """([links of the chain], [notes]) of the message with this index."""
        first = next((n for n in range(at, 0, -1) if self.all[n - 1].kind != "chain"), 0)
        end = next((n for n in range(at + 1, len(self.all)) if self.all[n].kind in ("error", "warning")), len(self.all))
        rest = self.all[at + 1 : end]
        while rest and rest[-1].kind == "chain" and not rest[-1].text.endswith("requested here"):
            rest.pop()  # of the next message
        return [*self.all[first:at], *(said for said in rest if said.kind == "chain")], [said for said in rest if said.kind == "note"]

    def first_error(self):
        at = next((n for n, said in enumerate(self.all) if said.kind == "error"), None)
        if at is None:
            return "the compiler stopped: " + (self.text.strip().split("\n")[-1] or "it does not say why")
        error, (chain, notes) = self.all[at], self.around(at)
        mine = error if self.is_mine(error) else next((link for link in chain if self.is_mine(link)), error)
        told = f"{mine.file}, line {mine.line}: {error.text}{mine.below}"
        told += "" if mine is error else f"\nThe compiler finds it in {error.file}, line {error.line}, which this line uses."
        return "\n".join([told, *(note.text.strip()[:160] for note in notes if not note.text.endswith(":"))][:5])

    def warnings(self):
        """([warnings about the student's lines], the first about a variable that is read before it has a value, or "")"""
        found, unset = [], ""
        for at, said in enumerate(self.all):
            if said.kind == "warning":
                chain, notes = self.around(at)
                is_unset = re.search(r"\[-W(maybe-|sometimes-|conditional-)?uninitialized\]$", said.text)
                places = [said, *(notes + chain if is_unset else [])]
                place = next((place for place in places if self.is_mine(place)), None)
                if place:
                    found.append(f"The compiler warns: {place.file}, line {place.line}: {said.text}")
                    unset = unset or (found[-1] if is_unset else "")
        return found, unset
