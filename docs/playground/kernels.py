"""The pages of the playground, and the kernels that each of them runs: those of a stage, and copies with one mistake each.

kernels.py FOLDER writes the sources that docs/playground/CMakeLists.txt compiles, and pages.cmake, which lists them. The mistakes are the wrong
kernels of the course (docs/course/wrong_kernels.md).
"""

import difflib
import re
import sys
from pathlib import Path
from typing import NamedTuple

import tomllib

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs/course"), str(ROOT / "common")]

from kit import check, exercise  # noqa: E402
from mutation.mutants import included_by  # noqa: E402

USUAL = ["--seq", "80", "--head-dim", "40", "--heads", "1"]  # the problem that a page begins with
# What a prediction takes, after the variant
TAKEN = (
    "const flash::Variant&",
    "const flash::FullProblem& problem",
    "flash::Pass pass",
    "const flash::TileChoice& tiles",
    "const flash::DeviceLimits& limits",
)


class Break(NamedTuple):
    """A kernel with one mistake, and where it shows."""

    id: str
    name: str
    variant: str  # the one that it breaks
    file: str
    text: str
    says: str  # what a reader is promised
    lesson: str
    problems: list  # (options, GPU) of those that may show it, the first that does counts
    exercise: exercise.Exercise

    def changes(self):
        """[first line, lines that go, lines that come]: the difference from the kernel."""
        old, new = (text.split("\n") for text in ((ROOT / self.file).read_text(), self.text))
        codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return [[a, b - a, new[c:d]] for what, a, b, c, d in codes if what != "equal"]


class Page(NamedTuple):
    name: str
    stage: str
    kernels: list  # files
    breaks: list

    def sources(self):
        """The kernels and what they include of their stages and of common/device: a message may name a line of it."""
        files = set(self.kernels)
        for kernel in self.kernels:
            included_by(kernel, files)
        return sorted(
            (file for file in files if file.endswith(".cuh")), key=lambda file: (file not in self.kernels, file.startswith("common"), file)
        )


def word(name):
    return re.sub(r"\W+", "_", name).strip("_").lower()


def gallery(stage):
    """The wrong kernels of the course for a stage."""
    found = []
    for e in map(exercise.load, exercise.names()):
        for wrong in exercise.gallery(e) if e.stage == stage else []:
            if e.asked and wrong["says"].startswith("Right, but without"):
                continue  # the grader reads that in the source, and no run shows it
            before, _, after = e.parts()
            common = ["--pass", e.passes, "--dtype", e.dtype]
            cases = [case.split() for case in (*(e.cases or check.CASES), *(e.counted or check.COUNTED))]
            problems = [([*common, *USUAL], 90), *(([*common, *case], e.target) for case in cases)]
            taken = sum(word(wrong["name"]) == word(b.name) for b in found)
            name = word(wrong["name"]) + (f"_{taken + 1}" if taken else "")
            text = before + wrong["lines"] + after
            found.append(Break(name, wrong["name"], e.variant, e.file, text, wrong["says"], wrong["lesson"], problems, e))
    return found


def stage_options(stage):
    """What a stage's CMakeLists.txt says of it."""
    text = re.sub(r"#.*", "", (ROOT / stage / "CMakeLists.txt").read_text())
    kernels = [f"{stage}/{name}" for name in re.findall(r"[\w/]+\.cuh", re.search(r"KERNELS([^A-Z]*)", text)[1])]
    return kernels, *(re.search(rf"{key} (\S+?)[\s)]", text + " ") for key in ("FORWARD", "PREDICT"))


def pages():
    """All pages. A module holds as many kernels as fit into a page of 2 MB: docs/playground/pages.toml."""
    split = tomllib.loads((Path(__file__).parent / "pages.toml").read_text())
    for stage in sorted(path.parent.name for path in ROOT.glob("0*/main.cpp")):
        kernels, breaks = stage_options(stage)[0], gallery(stage)
        for name, part in split.get(stage, {stage: kernels}).items():
            files = [f"{stage}/{file.removeprefix(stage + '/')}" for file in part]
            yield Page(name, stage, files, [b for b in breaks if b.file in files])


def with_tiles(text, firsts):
    """Without those compiled tile sizes that the problems of the exercise don't need; lines keep their numbers."""
    head, table, rest = text.partition("constexpr CompiledShape shapes[] = {\n")
    sizes, end, after = rest.partition("};\n")
    kept = "\n".join(size if not firsts or any(f"<{first}, " in size for first in firsts) else "" for size in sizes.split("\n"))
    return head + table + kept + end + after


def source(page, file, number, broken=None):
    """A source that registers a kernel, or its broken copy, whose lines count as the kernel's."""
    _, _, predict = stage_options(page.stage)
    variant = re.findall(r"^namespace (flash[\w:]*) \{", (ROOT / file).read_text(), re.MULTILINE)[-1] + "::variant"
    lines = [f'#include "{page.stage}/predicted.hpp"'] if predict else []
    predict = "&" + predict[1] if predict else "nullptr"
    if broken:
        text = with_tiles(broken.text, broken.exercise.tiles).replace("#pragma once\n", "\n")
        copy = f'[] {{ auto copy = {variant}; copy.name = "{broken.id}"; return copy; }}()'
        of_original = f"[]({', '.join(TAKEN)}) {{ return ({predict})({variant}, problem, pass, tiles, limits); }}"
        predict = of_original if predict != "nullptr" else predict
        lines += [f'#line 1 "{ROOT / file}"', text, '#line 1 "playground"', f"static const auto broken = {copy};"]
        variant = "broken"
    else:
        lines += [f'#include "{file}"']
    return "\n".join(
        [*lines, f'static const flash::RegisterVariant registered(flash::Backend::cpu, {number}, {variant}, "{file}", {predict});\n']
    )


def write(path, text):
    """Only if it changes anything, since each takes minutes to compile."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(folder):
    lines = []
    for page in pages():
        _, forward, _ = stage_options(page.stage)
        kernels = [(word(file), source(page, file, n)) for n, file in enumerate(page.kernels, 1)]
        broken = [(b.id, source(page, b.file, 100 + n, b)) for n, b in enumerate(page.breaks)]
        for name, text in (*kernels, *broken):
            write(folder / page.name / f"{name}.cpp", text)
        step = f"step_{re.sub(r'[^0-9A-Za-z]', '_', forward[1].removesuffix('.cuh'))}_cpu" if forward else ""
        names = " ".join(f"{page.name}/{name}.cpp" for name, _ in (*kernels, *broken))
        lines.append(f'add_page({page.name} {page.stage} "{step}" {names})\n')
    write(folder / "pages.cmake", "".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
