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

JUDGE = "course_judge"
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
        missing = [name for name in (*stages, JUDGE) if not (build / "bin" / name).is_file()]
        if missing:
            raise Usage(f"{build} has no bin/{missing[0]}; allowed with --built: a folder in which the project was built")
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


def compile_command(build, file):
    """(the words of the command that compiles a kernel file for the CPU, its object)"""
    source = file.removesuffix(".cuh") + "_cpu.cpp"
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(build / source):
            words = [word for word in shlex.split(entry["command"]) if Path(word).name not in ("ccache", "sccache") and word != "-Werror"]
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


def build(exercise, text, build_folder, work, refuse=None):
    """Compiles and links the kernel file with this text in the empty folder `work`. refuse(object, that of the project): "" or why an object is
    not linked."""
    header = work / "include" / exercise.file
    header.parent.mkdir(parents=True)
    header.write_text(text)
    words, old_object = compile_command(build_folder, exercise.file)
    new_object = work / "kernel.o"
    words[words.index("-o") + 1] = str(new_object)
    words.insert(1, f"-I{work / 'include'}")
    words += ["-fdiagnostics-color=never"]
    folder = work / "compile"
    folder.mkdir()
    done = sandbox.run(words, folder, seconds=60, memory=4096, file_size=128)
    if done.code != 0 or not new_object.is_file():
        return Built(None, first_error(done, header, exercise))
    why = refuse(new_object, old_object) if refuse else ""
    if why:
        return Built(None, why, refused=True)
    words, folder = link_command(build_folder, exercise.stage)
    program = work / "program"
    words[words.index("-o") + 1] = str(program)
    replaced = [str(new_object) if folder / word == old_object else word for word in words]
    if replaced == words:
        raise Usage(f"{build_folder}: the program {exercise.stage} is not linked from {old_object}")
    linked = subprocess.run(replaced, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if linked.returncode != 0:
        return Built(None, "it does not link: " + linked.stdout.strip().split("\n")[0])
    return Built(program, "")


def first_error(done, header, exercise):
    if done.code == 124:
        return "the compiler did not come to an end"
    text = done.err.replace(str(header), exercise.student_name)
    found = re.search(r"^[^\n]*?([^\s:]+):(\d+):\d+: (?:fatal )?error: ([^\n]*(?:\n +[^\n]*){0,2})", text, re.MULTILINE)
    if not found:
        return "the compiler stopped: " + (text.strip().split("\n")[-1] or f"exit code {done.code}")
    return f"{found.group(1)}, line {found.group(2)}: {found.group(3)}"
