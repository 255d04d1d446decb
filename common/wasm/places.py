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

NODE = re.compile(r"^!(\d+) = (?:distinct )?!DI\w+\((.*)\)$", re.MULTILINE)
ACCESS = re.compile(r"^( +)(?:tail |notail )?call [^@\n]*@__tsan_(?!func|init)\w+\(.*!dbg !(\d+).*$", re.MULTILINE)
ESCAPED = re.compile(r"\\[0-9A-F]{2}")  # a byte beyond ASCII
SIMULATOR = re.compile(r"(^|/)common/machine/(?!test/)")


def place(nodes, location):
    """ "file:line" of a !DILocation"""

    def field(number, name):
        found = re.search(rf"\b{name}: !?(\"[^\"]*\"|\d+)", nodes[number])
        return found and found[1].strip('"')

    places = []
    while location is not None:
        scope = field(location, "scope")
        while (file := field(scope, "file")) is None:
            scope = field(scope, "scope")
        path = os.path.normpath(os.path.join(field(file, "directory") or "", field(file, "filename")))
        places.append((path, field(location, "line") or "0"))
        location = field(location, "inlinedAt")
    return ":".join(next((each for each in places if not SIMULATOR.search(each[0])), places[0]))


def with_places(module):
    nodes, numbers = dict(NODE.findall(module)), {}
    opaque = "i8*" not in module  # pointers, from LLVM 15 on
    pointer = "ptr" if opaque else "i8*"

    def array(text):  # with its final zero
        return f"[{len(ESCAPED.sub('?', text)) + 1} x i8]"

    def noted(access):
        text = place(nodes, access[2])
        constant = f"@.flash_place.{numbers.setdefault(text, len(numbers))}"
        value = constant if opaque else f"bitcast ({array(text)}* {constant} to i8*)"
        return f"{access[1]}store {pointer} {value}, {'ptr' if opaque else 'i8**'} @flash_simt_place\n{access[0]}"

    module = ACCESS.sub(noted, module)
    constants = [f'@.flash_place.{n} = private unnamed_addr constant {array(text)} c"{text}\\00"\n' for text, n in numbers.items()]
    return "".join([module, f"@flash_simt_place = external global {pointer}\n", *constants]) if numbers else module


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
    sys.exit(main(sys.argv[1:]))
