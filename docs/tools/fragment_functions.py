"""The index functions of common/attention/fragments.hpp, read from the source and callable here: pictures cannot show another layout than
the kernels and the simulator have.

  docs/tools/fragment_functions.py LAB     compares them with what lab_fragments --json says that the compiled functions return
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

HEADER = Path(__file__).resolve().parents[2] / "common" / "attention" / "fragments.hpp"
LANES = 32


def python_expression(expression):
    """Of whole numbers that are not negative: C++'s / is //, and its condition stands in front. The other operators agree."""
    choice = re.fullmatch(r"(.*?)\?(.*?):(.*)", expression)
    if choice:
        condition, yes, no = (python_expression(part.strip()) for part in choice.groups())
        return f"(({yes}) if ({condition}) else ({no}))"
    return expression.replace("/", "//")


def functions():
    """All functions of the header by name."""
    text = re.sub(r"//.*", "", HEADER.read_text())
    found = re.findall(r"constexpr int (\w+)\(([^)]*)\)\s*\{\s*return ([^;]*);\s*\}", text)
    scope = {"__builtins__": {}}
    for name, parameters, expression in found:
        parameters = ", ".join(part.strip().removeprefix("int ") for part in parameters.split(","))
        scope[name] = eval(f"lambda {parameters}: {python_expression(' '.join(expression.split()))}", scope)
    names = {name for name, _, _ in found}
    missing = {"a_row", "a_col", "b_row", "b_col", "c_row", "c_col", "swizzled_chunk"} - names
    if missing:
        raise SystemExit(f"{HEADER.name}: docs/tools/fragment_functions.py finds no {', '.join(sorted(missing))}")
    return SimpleNamespace(**{name: scope[name] for name in names})


def differences(lab):
    """Names of functions whose compiled twin has other values."""
    of = functions()

    def expected(name, count):
        if " " in name:  # swizzled_chunk WIDTH, by row and chunk
            width = int(name.split()[1])
            return [of.swizzled_chunk(width, i // (width // 8), i % (width // 8)) for i in range(count)]
        function, each = getattr(of, name), count // LANES
        if name.startswith("ldmatrix") or name == "b_col":
            return [function(lane, which) if each == 2 else function(lane) for lane in range(LANES) for which in range(each)]
        if name in ("a_col", "b_row"):
            return [function(lane, i // 2, i % 2) for lane in range(LANES) for i in range(each)]
        return [function(lane, reg) for lane in range(LANES) for reg in range(each)]

    compiled = json.loads(subprocess.run([lab, "--json"], capture_output=True, check=True, text=True).stdout)
    return [name for name, values in compiled.items() if name != "lanes" and values != expected(name, len(values))]


if __name__ == "__main__":
    wrong = differences(sys.argv[1])
    print(f"other values than the compiled functions: {', '.join(wrong)}" if wrong else "as compiled")
    sys.exit(1 if wrong else 0)
