"""Builds one kernel file into its stage's program, against objects and libraries that are built already: two seconds instead of minutes."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from kit import Fault, Usage, sandbox
from kit.exercise import ROOT

JUDGE = "course_judge"
JAIL = f"docs/course/CMakeFiles/{JUDGE}.dir/jail.cpp.o"  # what a graded program may not do: docs/course/jail.cpp
MOST_JOBS = 8  # a compiler takes up to a gigabyte
up_to_date = False  # nothing has to be built


class Built(NamedTuple):
    program: Path  # None: there is none
    message: str  # why not: the compiler's first error, or why the object is refused
    refused: bool = False


def prepare(build, stages):
    """Configures the build folder, if nobody has, or if it builds another checkout, of which this one is a copy, and builds the programs of these
    stages and the judge."""
    if up_to_date:
        missing = [name for name in (*(f"bin/{stage}" for stage in stages), f"bin/{JUDGE}", JAIL) if not (build / name).is_file()]
        if missing:
            raise Usage(f"{build} has no {missing[0]}; allowed with --built: a folder in which the project was built")
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
    targets = [*sorted(stages), JUDGE]
    new = [name for name in targets if not (build / "bin" / name).is_file()]
    if new:
        print(f"course: building {', '.join(new)}; that takes a minute or two for a stage, once", flush=True)
    jobs = min(os.cpu_count() or 2, MOST_JOBS)
    must(["cmake", "--build", build, "-j", jobs, "--target", *targets], f"{', '.join(targets)} cannot be built")


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


digests = {}  # of the project's programs, as this process has first seen them


def unchanged(path):
    """The file, if it is still what it was at its first use."""
    digest = hashlib.sha256(path.read_bytes()).digest()
    if digests.setdefault(path, digest) != digest:
        raise Fault(f"{path} has changed since grading began; nothing that was graded with it counts")
    return path


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


def build(exercise, text, build_folder, work, refuse=None, headers=None, jailed=False):
    """Compiles and links the kernel file with this text in the empty folder `work`, with the texts of `headers` ({file: text}) in place of the
    project's. refuse(object, that of the project): "" or why an object is not linked. jailed: it can start no process, not even to look up
    the lines that `check` names."""
    header = work / "include" / exercise.file
    for file, contents in {**(headers or exercise.headers()), exercise.file: text}.items():
        place = work / "include" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(contents)
    words, old_object = compile_command(build_folder, exercise.file)
    folder = work / "compile"
    folder.mkdir()
    new_object = folder / "kernel.o"
    words[words.index("-o") + 1] = str(new_object)
    words.insert(1, f"-I{work / 'include'}")
    words += ["-fdiagnostics-color=never"]
    place = (ROOT, build_folder, work / "include", *home_of(words[0]))
    done = sandbox.run(words, folder, seconds=60, memory=4096, file_size=128, read=place, keep=["kernel.o"])
    if done.code != 0 or not new_object.is_file():
        return Built(None, first_error(done, header, exercise))
    why = refuse(new_object, old_object) if refuse else ""
    if why:
        return Built(None, why, refused=True)
    return link(exercise, build_folder, work, old_object, [new_object, *([unchanged(build_folder / JAIL)] if jailed else [])])


def link(exercise, build_folder, work, old_object, objects):
    words, folder = link_command(build_folder, exercise.stage)
    place = work / "link"
    place.mkdir()
    program = place / "program"
    words[words.index("-o") + 1] = str(program)
    at = [n for n, word in enumerate(words) if folder / word == old_object]
    if not at:
        raise Usage(f"{build_folder}: the program {exercise.stage} is not linked from {old_object}")
    words[at[0] : at[0] + 1] = map(str, objects)
    read = (ROOT, build_folder, *objects, *home_of(words[0]))
    done = sandbox.run(words, place, seconds=60, memory=4096, file_size=1024, cwd=folder, read=read, keep=["program"])
    if done.code != 0 or not program.is_file():
        return Built(None, "it does not link: " + (done.err + done.out).strip().split("\n")[0])
    program.chmod(0o755)
    return Built(program, "")


def home_of(compiler):
    """The folder of a compiler that does not come with the system."""
    path = Path(compiler).resolve()
    return () if path.is_relative_to("/usr") or len(path.parents) < 4 else (path.parent.parent,)


def works(exercise, build_folder):
    """Nobody's lines are to blame where the solution does not compile either."""
    key = (exercise.name, exercise.changes.get("solution"))
    if key not in compiled:
        with sandbox.workplace() as work:
            built = build(exercise, exercise.to_compile(exercise.parts()[1]), build_folder, work)
        if built.program is None:
            raise Fault(f"the project's own solution does not compile here: {built.message}")
        compiled.add(key)


compiled = set()  # the exercises for which works() holds


def first_error(done, header, exercise):
    if done.code == 124:
        return "the compiler did not come to an end"
    text = done.err.replace(str(header), exercise.student_name)
    found = re.search(r"(?<=[^\s:]):(\d+):\d+: (?:fatal )?error: ([^\n]*(?:\n +[^\n]*){0,2})", text)  # linear, however long the lines are
    if not found:
        return "the compiler stopped: " + (text.strip().split("\n")[-1] or f"exit code {done.code}")
    file = text[: found.start()].rsplit(maxsplit=1)[-1].rsplit(":", 1)[-1]
    return f"{file}, line {found.group(1)}: {found.group(2)}"
