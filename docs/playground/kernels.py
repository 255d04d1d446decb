"""The pages of the playground, and what each of them runs: kernels of a stage or a program of docs/lab, and copies with one mistake each.

kernels.py FOLDER writes the sources that docs/playground/CMakeLists.txt compiles, and pages.cmake, which lists them. The mistakes are the wrong
kernels of the course (docs/course/wrong_kernels.md) and, for kernels without an exercise and programs, those of mistakes.toml.
"""

import argparse
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

HERE = Path(__file__).resolve().parent
LAB = "docs/lab"
WIDTHS = ("32", "64")  # of kernels with a compiled copy per width a page has those for d up to 64, since each takes time and room
USUAL = ["--seq", "80", "--head-dim", "24", "--heads", "1"]
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

    @property
    def native(self):
        """The program that runs the same on this machine."""
        return self.name if self.stage == LAB else self.stage

    def sources(self):
        """The kernels and what they include of their stages and of common/device: a message may name a line of it."""
        files = set(self.kernels)
        for kernel in self.kernels:
            included_by(kernel, files)
        return sorted(
            (file for file in files if file.endswith(".cuh") or file.startswith(LAB)),
            key=lambda file: (file not in self.kernels, file.startswith("common"), file),
        )


def word(name):
    return re.sub(r"\W+", "_", name).strip("_").lower()


def line_like(text):
    """An expression for a text in a kernel, however many spaces align it there."""
    return re.compile(" +".join(map(re.escape, re.split(" +", text))))


def unpractised():
    """The kernels of mistakes.toml as exercises that ask for nothing, each with its mistakes."""
    for kernel in tomllib.loads((HERE / "mistakes.toml").read_text())["kernel"]:
        mistakes, text = kernel.pop("wrong"), (ROOT / kernel["file"]).read_text()
        for wrong in mistakes:
            if (times := len(line_like(wrong["replace"]).findall(text))) != 1:
                sys.exit(f"mistakes.toml: what '{wrong['name']}' replaces stands {times} times in {kernel['file']}, not once")
        first, *_, last = text.splitlines(keepends=True)
        name = Path(kernel["file"]).stem
        blank = {key: "" for key in exercise.KEYS - {"pass"}} | {"name": name, "variant": name, "passes": "", "first": first, "last": last}
        yield (
            exercise.Exercise(**(blank | kernel)),
            [(wrong, line_like(wrong["replace"]).sub(lambda _, by=wrong["by"]: by, text)) for wrong in mistakes],
        )


def practised():
    """The exercises of the course, each with its wrong kernels."""
    for e in map(exercise.load, exercise.names()):
        before, _, after = e.parts()
        # The checker reads in the source that a right kernel lacks what was asked for; no run shows it. A page has no field for the scale.
        unseen = ("Right, but without", "All scores are far below zero")
        shown = [wrong for wrong in exercise.gallery(e) if not wrong["says"].startswith(unseen)]
        yield e, [(wrong, before + wrong["lines"] + after) for wrong in shown]


def compiled(case):
    """The options of a problem that a page's kernels take."""
    return re.sub(r"(?<=--head-dim )\d+", lambda d: str(min(int(d[0]), int(WIDTHS[-1]))), case)


def gallery(files):
    """The wrong kernels of these files."""
    found = []
    for e, mistakes in (*practised(), *unpractised()):
        for wrong, text in mistakes if e.file in files else []:
            common = ["--pass", e.passes, "--dtype", e.dtype]
            usual = [([*common, *USUAL], 90)] if e.passes else [([], 90)]  # a lab has no problem to choose
            cases = [
                compiled(case).split()
                for case in (*(e.cases or check.CASES), *(e.counted or check.COUNTED))
                if e.passes and "--scale" not in case
            ]
            problems = [*usual, *(([*common, *case], e.target) for case in cases)]
            taken = sum(word(wrong["name"]) == word(b.name) for b in found)
            name = word(wrong["name"]) + (f"_{taken + 1}" if taken else "")
            found.append(Break(name, wrong["name"], e.variant, e.file, text, wrong["says"], wrong["lesson"], problems, e))
    return found


def on_pages():
    """pages.toml"""
    return tomllib.loads((HERE / "pages.toml").read_text())


def stage_options(stage):
    """What a stage's CMakeLists.txt says of it."""
    text = re.sub(r"#.*", "", (ROOT / stage / "CMakeLists.txt").read_text())
    kernels = [f"{stage}/{name}" for name in re.findall(r"[\w/]+\.cuh", re.search(r"KERNELS((?:\s+\S+\.cuh\S*)+)", text)[1])]
    return kernels, *(re.search(rf"{key} (\S+?)[\s)]", text + " ") for key in ("FORWARD", "PREDICT"))


def pages():
    """All pages. A module holds as many kernels as fit into a page of 2 MB: docs/playground/pages.toml."""
    split = on_pages()
    for stage in sorted(path.parent.name for path in ROOT.glob("0*/main.cpp")):
        for name, part in split.get(stage, {stage: stage_options(stage)[0]}).items():
            files = [f"{stage}/{file.removeprefix(stage + '/')}" for file in part]
            yield Page(name, stage, files, gallery(files))


def labs():
    """A page per program of docs/lab that mistakes.toml has mistakes for, since readers add programs of their own."""
    for kernel in tomllib.loads((HERE / "mistakes.toml").read_text())["kernel"]:
        if (file := kernel["file"]).startswith(LAB):
            yield Page(f"lab_{Path(file).stem}", LAB, [file], gallery([file]))


def with_tiles(text, firsts):
    """Only with the compiled tile sizes that begin with one of these numbers; lines keep their numbers."""

    def kept(size):
        return size[0] if any(f"<{first}, " in size[0] for first in firsts) else ""

    def narrowed(table):
        sizes = re.sub(r"compiled<.*?\),", kept, table[2]) if firsts else table[2]
        return table[1] + "\n".join(line.rstrip() for line in sizes.split("\n")) + table[3]

    return re.sub(r"(constexpr CompiledShape \w+\[\] = \{\n)(.*?)(\};\n)", narrowed, text, flags=re.DOTALL)


def narrow(text, firsts):
    """Without what is compiled for wider rows: in a table of tile sizes, or per width of a kernel that takes any tiles."""
    return re.sub(r"_kernel<(96|128)>", f"_kernel<{WIDTHS[-1]}>", with_tiles(text, firsts or WIDTHS))


def widths(text):
    """The padded widths of d in a kernel's table of tile sizes; none if it has no table."""
    _, _, table = text.partition(" shapes[] = {")
    return [int(width) for width in re.findall(r"<(\d+), ", table.partition("};")[0])]


def inlined(file, text, firsts, name=None):
    """The lines of a source that has this text in place of the kernel, and defines `copied`, its variant, of a broken copy with this name."""
    kernel = narrow(text, firsts)
    variant = re.findall(r"^namespace (flash[\w:]*) \{", text, re.MULTILINE)[-1] + "::variant"
    changes = [f'copy.name = "{name}";'] if name else []
    changes += [f"copy.max_head_dim = {max(widths(kernel), default=WIDTHS[-1])};"] if kernel != text else []
    kernel = kernel.replace("#pragma once\n", "\n")
    copy = f"static const auto copied = [] {{ auto copy = {variant}; {' '.join(changes)} return copy; }}();"
    return [f'#line 1 "{ROOT / file}"', kernel, '#line 1 "playground"', copy], variant


def source(page, file, number, broken=None):
    """A source that registers a kernel, or its broken copy, whose lines count as the kernel's."""
    _, _, predict = stage_options(page.stage)
    lines = [f'#include "{page.stage}/predicted.hpp"'] if predict else []
    text = broken.text if broken else (ROOT / file).read_text()
    sizes = broken.exercise.tiles if broken else on_pages()["tiles"].get(file)
    kernel, variant = inlined(file, text, sizes, broken and broken.id)
    # Of a broken copy the prediction is that of the kernel as it is, by its name.
    predict = f"[]({', '.join(TAKEN)}) {{ return {predict[1]}({variant}, problem, pass, tiles, limits); }}" if predict else "nullptr"
    register = f'static const flash::RegisterVariant registered(flash::Backend::cpu, {number}, copied, "{file}", {predict});\n'
    return "\n".join([*lines, *kernel, register])


def forward_pass(file, width):
    """A source with the forward pass of a page's backward kernels for rows of this width. No page shows its tiles: of the narrowest that fit, the
    last size in its table, the smallest, will do."""
    text = (ROOT / file).read_text()
    _, _, table = text.partition(" shapes[] = {")
    width = min((wide for wide in widths(text) if wide >= width), default=width)
    lines, _ = inlined(file, text, re.findall(rf"<({width}, \d+, \d+), ", table)[-1:])
    return "\n".join([*lines, "namespace flash::simt { const Variant& forward_pass() { return copied; } }\n"])


def program(text, file, name):
    """A lab, or its broken copy, that shares a module with others: only its main() is seen, as flash_NAME(), and lines keep their numbers. Functions
    that wait have `flash` in their names for common/wasm/suspended.txt."""
    text = re.sub(r"^namespace \{", f"inline namespace flash_of_{name} {{", text, flags=re.MULTILINE)
    text = re.sub(
        r"^int main\(.*\) \{", f"int flash_{name}([[maybe_unused]] int argc, [[maybe_unused]] char** argv) {{", text, flags=re.MULTILINE
    )
    return f'#line 1 "{ROOT / file}"\n{text}'


def lab_programs(page):
    """{name: text}: a lab and its broken copies."""
    (file,) = page.kernels
    return {Path(file).stem: (ROOT / file).read_text()} | {b.id: b.text for b in page.breaks}


def lab_main(names):
    """The main() of a lab's module."""
    main = (HERE / "lab_main.cpp").read_text()
    main = main.replace("// @DECLARED@", " ".join(f"int flash_{name}(int, char**);" for name in names))
    return main.replace("// @LISTED@", " ".join(f'{{"{name}", flash_{name}}},' for name in names))


def write(path, text):
    """Only if it changes anything, since each takes minutes to compile."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def added(page, main, sources):
    return f"add_page({page.name} {main} {' '.join(f'{page.name}/{name}.cpp' for name in sources)})\n"


def main(folder):
    lines = []
    for page in pages():
        _, forward, _ = stage_options(page.stage)
        sources = {word(file): source(page, file, n) for n, file in enumerate(page.kernels, 1)}
        sources |= {b.id: source(page, b.file, 100 + n, b) for n, b in enumerate(page.breaks)}
        if forward and any("backward" in file for file in page.kernels):
            shown = [narrow((ROOT / file).read_text(), on_pages()["tiles"].get(file)) for file in page.kernels]
            sources["forward_pass"] = forward_pass(
                forward[1], max((width for text in shown for width in widths(text)), default=int(WIDTHS[-1]))
            )
        for name, text in sources.items():
            write(folder / page.name / f"{name}.cpp", text)
        lines.append(added(page, f"${{PROJECT_SOURCE_DIR}}/{page.stage}/main.cpp flash_harness", sources))
    for page in labs():
        programs = lab_programs(page)
        sources = {name: program(text, page.kernels[0], name) for name, text in programs.items()}
        for name, text in (sources | {"main": lab_main(programs)}).items():
            write(folder / page.name / f"{name}.cpp", text)
        lines.append(added(page, f"{page.name}/main.cpp flash_simt", sources))
    write(folder / "pages.cmake", "".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    main(parser.parse_args().folder)
