"""Quotes: functions as they stand in a source file, what programs printed, and what a program of the docs prints."""

import ast
import difflib
import re
import subprocess
import sys
import textwrap

from .check_pages import ROOT


def block(lines, language="text"):
    return "\n".join([f"```{language}", *lines, "```"])


def source(path):
    if not (ROOT / path).exists():
        raise SystemExit(f"{path}: no such file to quote")
    return (ROOT / path).read_text().split("\n")


def definition(path, name):
    """The lines of the first function or struct of that name: its /// comment, its template line, all up to its closing brace."""
    lines = source(path)
    # A definition begins at the left margin; a call is indented. The name of a kernel may stand on the line after its launch bounds.
    start = next((i for i, line in enumerate(lines) if re.match(rf"(?!#|//|template)\S.*\b{name}\(|struct {name}\b", line)), None)
    if start is None:
        below = (i for i, line in enumerate(lines) if re.match(rf" +{name}\(", line) and lines[i - 1].startswith("__global__"))
        start = next((i - 1 for i in below), None)
    if start is None:
        raise SystemExit(f"{path}: no function '{name}' to quote")
    one_line = lines[start].endswith("}")
    end = start if one_line else next(i for i in range(start, len(lines)) if lines[i] in ("}", "};"))
    while lines[start - 1].startswith(("///", "template")):
        start -= 1
    return lines[start : end + 1]


def functions(path, *names):
    """Of a source file; one-liners stand together."""
    lines = []
    for name in names:
        found = definition(path, name)
        lines += ([""] if lines and len(found) > 1 else []) + found
    return block(lines, "cpp")


def changes(old, new, name):
    """A function, whole, as a diff from the function of that name in another file."""
    return block(list(difflib.unified_diff(definition(old, name), definition(new, name), n=999, lineterm=""))[3:], "diff")


def part(path, function, *words):
    """Of a function, the lines from the first with one text to the next with another, both included: FIRST ... LAST, or FIRST alone for
    one line. The statement below a comment, and braces that close right below, belong to it. No text may hold a '>', which would end the
    marker."""
    first, _, last = " ".join(words).partition(" ... ")
    lines = definition(path, function)
    start = next((i for i, line in enumerate(lines) if first in line), None)
    end = next((i for i in range(start, len(lines)) if last in lines[i]), None) if start is not None else None
    if end is None:
        raise SystemExit(f"{path}: {function}() has no lines from '{first}' to '{last or first}' to quote")
    while last and lines[end].lstrip().startswith("//"):
        end += 1
    while lines[end + 1].strip() == "}" and sum(line.count("{") - line.count("}") for line in lines[start : end + 1]) > 0:
        end += 1
    found = lines[start : end + 1]
    margin = min(len(line) - len(line.lstrip()) for line in found if line and line[0] != "#")
    return block([line if line[:1] == "#" else line[margin:] for line in found], "cpp")


def python(path, *names):
    """Functions and classes of a Python file, each from its decorators to its last line."""
    lines, found = source(path), []
    nodes = {node.name: node for node in ast.parse("\n".join(lines)).body if hasattr(node, "name")}
    for name in names:
        if name not in nodes:
            raise SystemExit(f"{path}: no function '{name}' to quote")
        first = min(part.lineno for part in [nodes[name], *nodes[name].decorator_list])
        found += (["", ""] if found else []) + lines[first - 1 : nodes[name].end_lineno]
    return block(found, "py")


def file(path):
    """A source file in C++, whole."""
    return block(source(path)[:-1], "cpp")


def printed(name, *numbers):
    """What a program printed on the CPU; or only some of its paragraphs, the first is number 1."""
    paragraphs = "\n".join(source(f"docs/results/cpu/{name}.txt")).strip().split("\n\n")
    return block(["\n\n".join(paragraphs[int(n) - 1] for n in numbers or range(1, len(paragraphs) + 1))])


def examples():
    """A table of the marks in common/machine/examples, a line per file: the statements to leave out, and the rule that reports each. Its
    prove.py tests them."""
    lines = ["| kernel | file | reported without line |", "| --- | --- | --- |"]
    for path in sorted((ROOT / "common/machine/examples").glob("*.cu")):
        text, left_out = path.read_text(encoding="utf-8").splitlines(), {}
        for number, line in enumerate(text, 1):
            if mark := re.search(r"// <- without this: (\w+) on \w+$", line):
                left_out.setdefault(f"`{mark[1]}`", []).append(str(number))
        reported = "; ".join(f"{rule} {','.join(numbers)}" for rule, numbers in left_out.items())
        lines.append(f"| {re.match('// (.+?)[:.]( |$)', text[0])[1]} | `{path.name}` | {reported} |")
    return "\n".join(lines)


def lab(name):
    """What docs/lab's program printed. Lines of prose are wrapped, tables (two spaces between cells) are left alone."""
    return "\n".join(line if "  " in line else textwrap.fill(line, 110) for line in printed(f"lab_{name}").split("\n"))


def run(path):
    """What a Python program of the docs prints. It has to end well."""
    done = subprocess.run([sys.executable, "-B", str(ROOT / path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{path} failed:\n{done.stdout}{done.stderr}")
    return block([done.stdout.strip()])
