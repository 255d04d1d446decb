#!/usr/bin/env python3
"""Compiles a kernel for WebAssembly: places.py [LAUNCHER] em++ ARGUMENTS -c SOURCE -o OBJECT

Before each access to memory that the simulator is told of (calls of __tsan_*) it stores the address of "file:line" in flash_simt_place, since
a called function cannot ask where it was called from. Of calls that were inlined, the innermost line that is not the simulator's counts.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

NODE = re.compile(r"^!(\d+) = (?:distinct )?!DI(\w+)\((.*)\)$", re.MULTILINE)
ACCESS = re.compile(r"^( +)(?:tail |notail )?call [^@\n]*@__tsan_(?!func|init)\w+\(.*!dbg !(\d+).*$", re.MULTILINE)
SIMULATOR = re.compile(r"(^|/)common/simt/(?!test/)")


def size_of(text):
    """The bytes of a constant, its final zero included: LLVM writes those beyond ASCII as \\C3."""
    return len(re.sub(r"\\[0-9A-F]{2}", "?", text)) + 1


class Places:
    def __init__(self, module):
        self.nodes = {number: (kind, text) for number, kind, text in NODE.findall(module)}
        self.texts = {}  # "file:line" -> the number of its constant

    def field(self, number, name):
        found = re.search(rf"\b{name}: !?(\"[^\"]*\"|\d+)", self.nodes[number][1])
        return found and found[1].strip('"')

    def file(self, scope):
        while (file := self.field(scope, "file")) is None:
            scope = self.field(scope, "scope")
        name, folder = self.field(file, "filename"), self.field(file, "directory")
        return os.path.normpath(os.path.join(folder or "", name))

    def of(self, location):
        """The number of the constant for a !DILocation."""
        places = []
        while location is not None:
            places.append((self.file(self.field(location, "scope")), self.field(location, "line") or "0"))
            location = self.field(location, "inlinedAt")
        file, line = next((place for place in places if not SIMULATOR.search(place[0])), places[0])
        return self.texts.setdefault(f"{file}:{line}", len(self.texts))


def with_places(module):
    places = Places(module)
    opaque = "i8*" not in module  # pointers, from LLVM 15 on
    pointer, pointers = ("ptr", "ptr") if opaque else ("i8*", "i8**")

    def note(access):
        number = places.of(access[2])
        text = next(text for text, n in places.texts.items() if n == number)
        constant = f"@.flash_place.{number}"
        if not opaque:
            constant = f"bitcast ([{size_of(text)} x i8]* {constant} to i8*)"
        return f"{access[1]}store {pointer} {constant}, {pointers} @flash_simt_place\n{access[0]}"

    module = ACCESS.sub(note, module)
    constants = [f"@flash_simt_place = external global {pointer}"]
    for text, number in places.texts.items():
        constants.append(f'@.flash_place.{number} = private unnamed_addr constant [{size_of(text)} x i8] c"{text}\\00"')
    return module + "\n".join(constants) + "\n" if places.texts else module


def main(command):
    output = Path(command[command.index("-o") + 1])
    text = output.with_suffix(".ll")
    to_text = [str(text) if argument == str(output) else "-S" if argument == "-c" else argument for argument in command]
    subprocess.run([*to_text, "-emit-llvm"], check=True)
    module = text.read_text()
    text.write_text(with_places(module))
    compiler = next(argument for argument in command if Path(argument).name.startswith("em++"))
    optimise = [argument for argument in command if re.fullmatch(r"-O\w", argument)][-1:]
    # A lab catches what its kernels throw. Sources that catch nothing stay smaller and faster without.
    catch = ["-fexceptions"] if re.search(r"^ +catch .*@_ZTI", module, re.MULTILINE) else []
    # From its declaration on a variable has its place on the stack to itself: the simulator watches accumulators before they are first used.
    own_places = ["-mllvm", "-stackcoloring-lifetime-start-on-first-use=false"]
    subprocess.run(
        [compiler, *optimise, *catch, *own_places, "-Xclang", "-disable-llvm-passes", "-c", str(text), "-o", str(output)], check=True
    )
    text.unlink()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
