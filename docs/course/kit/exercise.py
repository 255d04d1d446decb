"""An exercise: which lines of a kernel are blank, what stands there instead, hints, cases, rubric.

Exercises are defined in exercises/NAME/exercise.toml and not by marks in the kernels: a kernel stays what a reader of the chapter wants to
see, and measured results name it by its contents. The blank is named by its first and its last lines, each of which occurs once.
"""

import difflib
import re
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import tomllib

from . import Usage

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "course" / "exercises"
LEVELS = {1: "a formula", 2: "a building block", 3: "an algorithm"}


@dataclass(eq=False)
class Exercise:
    name: str
    title: str
    file: str  # of the kernel, from the root of the project
    variant: str
    pass_: str  # forward or backward
    level: int
    minutes: int  # our estimate
    equation: str
    chapter: str
    goal: str
    after: str  # what a student can do then: completes "After this you can"
    first: str
    last: str
    comment: str
    hints: list
    code: str = ""  # of the blank, below the comment
    cases: list = field(default_factory=list)
    counted: list = field(default_factory=list)  # the problems on which counts are compared, after the cases
    target: int = 90  # the GPU that the simulator stands for
    dtype: str = "fp32"
    rubric: dict = field(default_factory=dict)
    draw: dict = field(default_factory=dict)
    asked: dict = field(default_factory=dict)  # {word, why}, perhaps {before}: where no count shows that right lines miss the point
    withheld: dict = field(default_factory=dict)  # {file, code, body, why}: code that solves the exercise, and what stands there instead
    kernel: str = ""  # the file that is compiled, where `file` is a header of it
    solution: str = ""  # where the lines of the kernel use what is withheld

    @property
    def stage(self):
        return self.file.split("/")[0]

    @property
    def student_name(self):
        return self.name + ".cuh"

    @property
    def begin(self):
        return f"// >>>>> {self.name}: your lines begin here"

    @property
    def end(self):
        return f"// <<<<< {self.name}: your lines end here"

    def parts(self):
        """(before, the solution, after) of the kernel."""
        text = (ROOT / self.file).read_text()
        for name, anchor in (("first", self.first), ("last", self.last)):
            if text.count(anchor) != 1:
                raise Usage(f"{self.name}: the anchor '{name}' stands {text.count(anchor)} times in {self.file}, not once")
        start, stop = text.index(self.first), text.index(self.last) + len(self.last)
        if start >= stop or text[start - 1] != "\n" or text[stop - 1] != "\n":
            raise Usage(f"{self.name}: the anchors are not whole lines of {self.file}, one after the other")
        return text[:start], self.solution or text[start:stop], text[stop:]

    def headers(self):
        """{file: text} of what is compiled in place of the project's headers."""
        if not self.withheld:
            return {}
        file, code, body, _ = self.withheld.values()
        text = (ROOT / file).read_text()
        if text.count(code) != 1:
            raise Usage(f"{self.name}: what is withheld stands {text.count(code)} times in {file}, not once")
        return {file: text.replace(code, body)}

    def indent(self):
        return re.search("^( *)[^ #]", self.first, re.MULTILINE).group(1)

    def blank(self):
        """What stands in a student's file between the marks."""
        count = len(self.parts()[1].rstrip("\n").split("\n"))
        lines = [
            *self.comment.strip().split("\n"),
            f"{self.equation}; {count} lines in the project's kernel. Hints: course.py hint DIR {self.name}",
            f"Read the text of {self.chapter}; leave its code for later.",
        ]
        return "".join(f"{self.indent()}// {line}".rstrip() + "\n" for line in lines) + self.code

    def file_with(self, lines):
        """The kernel with other lines in the blank, between marks."""
        before, _, after = self.parts()
        marks = [f"{self.indent()}{mark}\n" for mark in (self.begin, self.end)]
        return before + marks[0] + lines + marks[1] + after

    def first_line(self):
        """The number of the first line of the blank."""
        return self.parts()[0].count("\n") + 2

    def fewer_sizes(self, shapes):
        """{its shapes.hpp: the same with those compiled tile sizes alone that the problems need}: a second to compile in place of four."""
        found = re.search(r'(?s)#include "(\S+/shapes\.hpp)".*\b(\w+_shapes)<', (ROOT / self.kernel).read_text())
        if not found:
            return {}
        before, sizes, after = re.split(rf"(?s)( {found[2]}\[\] = .*?}};\n)", (ROOT / found[1]).read_text(), maxsplit=1)
        needed = []
        for width, *tiles in shapes:  # compiled for it, or for the next larger one
            widths = [int(found) for found in re.findall(r"<(\d+), {}, {}[,>]".format(*tiles), sizes)]
            needed += [f"<{min((w for w in widths if w >= width), default=width)}, {tiles[0]}, {tiles[1]}{more}" for more in ",>"]
        sizes = re.sub(r"(?s)compiled<.+?\),\n", lambda size: size[0] if any(n in size[0] for n in needed) else "", sizes)
        return {found[1]: before + sizes + after}

    def student_lines(self, text):
        """What a student's file has between the marks."""
        lines = text.split("\n")
        places = []
        for mark in (self.begin, self.end):
            found = [n for n, line in enumerate(lines) if line.strip() == mark]
            if len(found) != 1:
                raise Usage(f"{self.student_name}: the line '{mark}' stands {len(found)} times; it has to stay there once")
            places += found
        if places[1] < places[0]:
            raise Usage(f"{self.student_name}: '{self.end}' stands before '{self.begin}'")
        return "".join(line + "\n" for line in lines[places[0] + 1 : places[1]])

    def changed_outside(self, text):
        """The number of the first line outside the marks that is not the project's; 0 if all are."""
        lines = text.split("\n")
        wanted = self.file_with(self.student_lines(text)).split("\n")
        pairs = zip_longest(lines, wanted)
        return next((n for n, (a, b) in enumerate(pairs, 1) if a != b), 0)


def load(name):
    path = FOLDER / name / "exercise.toml"
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise Usage(f"{path}: {error}") from None
    data = {"pass_": data.pop("pass", ""), "kernel": data.get("file")} | data
    try:
        return Exercise(name=name, **data)
    except TypeError as error:  # a key is missing, or is not one
        raise Usage(f"{path}: {error}") from None


def names():
    return sorted(path.parent.name for path in FOLDER.glob("*/exercise.toml"))


def chosen(what):
    """The exercises that a word of the command line names: 04, 4, 04_fa1_forward, 04_merge_output, all."""
    all_of_them = [load(name) for name in names()]
    number = what.zfill(2) if what.isdigit() else what
    found = [e for e in all_of_them if what in ("all", e.name, e.stage) or number == e.stage[:2]]
    if not found:
        near = "".join(f"; do you mean {name}?" for name in difflib.get_close_matches(what.removesuffix(".cuh"), names(), 1))
        raise Usage(f"no exercise or stage '{what}'{near}; there are: all, {', '.join(names())}, and the stages of these names")
    return found


def gallery(exercise):
    """The wrong kernels of an exercise: [{name, replace, by, rule, lesson}]; `rule` is what the verdict names."""
    found = tomllib.loads((FOLDER / exercise.name / "wrong.toml").read_text())["wrong"]
    for wrong in found:
        wrong["lines"] = changed(exercise, wrong["replace"], wrong["by"])
    return found


def refused(exercise):
    """What check has to refuse besides: the same without a lesson."""
    found = tomllib.loads((FOLDER / "refused.toml").read_text()).get(exercise.name, [])
    return [{"name": new, "rule": rule, "lines": changed(exercise, old, new)} for old, new, rule in found]


def changed(exercise, old, new):
    solution = exercise.parts()[1]
    if (times := solution.count(old)) != 1:
        raise Usage(f"{exercise.name}: what a wrong kernel replaces stands {times} times in the solution, not once: {old}")
    return solution.replace(old, new)
