#!/usr/bin/env python3
"""Builds a copy of the project without compiling again what the copy did not change.

configure(copy, build) configures copy/build, or another folder of the copy, with this file as the compiler's launcher. For each object
that Ninja asks for, the launcher takes the one of `build`, the build folder of the original, if it was made by the same command of the
same sources, and no definition names a folder of the project, which would be that of the original; else it compiles. So a copy with one
edited kernel costs its configuration and one or two translation units, and any target can be built in it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

FACTS = "reuse.json"  # in the copy's build folder: what the launcher has to know
SAME = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE", "CMAKE_PREFIX_PATH", "FLASH_SANITIZE")


def cache(build):
    """The entries of a build folder's CMakeCache.txt."""
    return dict(re.findall(r"^([^#/][^:\n]*):[A-Z]+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE))


def objects(build, root):
    """{object: (the command that made it, the files of the project that it was made of)}"""
    ninja = cache(build)["CMAKE_MAKE_PROGRAM"]
    text = subprocess.run([ninja, "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    made_of = {}
    for block in text.split("\n\n"):
        name, _, files = block.lstrip().removeprefix(f"ninja: Entering directory `{build}'\n").partition(": #deps")
        paths = [os.path.normpath(os.path.join(build, line.strip())) for line in files.split("\n")[1:]]
        made_of[name] = [path for path in paths if path.startswith((f"{root}/", f"{build}/"))]
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        command = shlex.split(entry["command"])
        if "-o" in command:
            commands[command[command.index("-o") + 1]] = command
    return {name: (commands[name], files) for name, files in made_of.items() if name in commands}


def configure(copy, build, into="build"):
    """Configures the folder `into` of the copy for the CPU backend alone, with the compiler and the flags of `build`, but with warnings that
    are no errors: so a reader builds, whose edit may leave a variable unused."""
    entries = cache(build)
    root = entries["CMAKE_HOME_DIRECTORY"]
    folder = copy / into
    folder.mkdir(exist_ok=True)
    facts = {"root": root, "build": str(build), "copy": str(copy), "folder": str(folder), "objects": objects(build, root)}
    (folder / FACTS).write_text(json.dumps(facts))
    if (build / "_deps").is_dir():
        (folder / "_deps").symlink_to(build / "_deps")  # libraries that were downloaded
    same = [f"-D{name}={entries[name]}" for name in SAME if entries.get(name)]
    launcher = f"-DCMAKE_CXX_COMPILER_LAUNCHER={sys.executable};-SB;{Path(__file__).resolve()}"
    command = ["cmake", "-G", "Ninja", "-S", copy, "-B", folder, "-DFLASH_CUDA=OFF", launcher, *same]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"the copy of the project cannot be configured:\n{done.stdout}")


def launch(command):
    """Runs in the copy's build folder: copies the original's object of this command, with a list of what it depends on, or else runs the
    command."""
    facts = json.loads(Path(FACTS).read_text())
    root, build, copy, folder = facts["root"], facts["build"], facts["copy"], facts["folder"]

    def original(text):
        return text.replace(folder, build).replace(copy, root)

    def copied(path):
        return path.replace(build, folder, 1) if path.startswith(f"{build}/") else path.replace(root, copy, 1)

    def same_file(path):  # generated ones name the project's folders
        try:
            return os.fsdecode(Path(path).read_bytes()) == original(os.fsdecode(Path(copied(path)).read_bytes()))
        except OSError:
            return False

    options = {name: command[command.index(name) + 1] for name in ("-o", "-MF") if name in command}
    before, files = facts["objects"].get(options.get("-o"), ([], []))
    plain, skip = [], 0
    for word in command:  # without the options for lists of dependences
        skip = 2 if word in ("-MF", "-MT") else skip
        if skip == 0 and word != "-MD":
            plain.append(original(word))
        skip = max(skip - 1, 0)
    made = Path(build, options.get("-o", ""))
    names_folder = any(word.startswith("-D") and copy in word for word in command)
    if (
        not names_folder
        and plain == [word for word in before if word != "-Werror"]
        and made.is_file()
        and all(same_file(f) and os.path.getmtime(f) <= made.stat().st_mtime for f in files)
    ):
        shutil.copyfile(made, options["-o"])
        listed = " ".join(copied(path).replace(" ", "\\ ") for path in files)
        Path(options["-MF"]).write_text(f"{options['-o']}: {listed}\n")
    else:
        os.execvp(command[0], command)


if __name__ == "__main__":
    launch(sys.argv[1:])
