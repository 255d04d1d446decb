"""The pages of the playground, and what each of them runs: kernels of a stage and copies with one mistake each, or a program of docs/lab.

kernels.py FOLDER writes the sources that docs/playground/CMakeLists.txt compiles, and pages.cmake, which lists them. The mistakes are the wrong
kernels of the course (docs/course/exercises/*/wrong.toml), and two of pages.toml.
"""

import difflib
import re
import sys
import urllib.parse
from pathlib import Path
from typing import NamedTuple

import tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "docs/course"))

from kit import exercise  # noqa: E402

TABLES = tomllib.loads((HERE / "pages.toml").read_text())
PROBLEMS = {shown: problem for problem, mistakes in TABLES["problems"].items() for shown in mistakes}
USUAL = {"N": "80", "d": "24"}  # the problem that shows most mistakes


class Break(NamedTuple):
    """A kernel with one mistake, and the fields of the page that show it."""

    id: str
    name: str
    file: str
    text: str
    lesson: str
    state: dict

    def changes(self):
        """[first line, lines that go, lines that come]: the difference from the kernel."""
        old, new = (text.split("\n") for text in ((ROOT / self.file).read_text(), self.text))
        codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return [[a, b - a, new[c:d]] for what, a, b, c, d in codes if what != "equal"]


class Page(NamedTuple):
    name: str
    kernels: list  # files, the one that the page begins with first

    @property
    def lab(self):
        return self.name.startswith("lab_")

    @property
    def stage(self):
        return self.kernels[0].split("/")[0]

    @property
    def breaks(self):
        found = {}
        for file, wrong, text, state in mistakes(self):
            name = re.sub(r"\W+", "_", wrong["name"]).strip("_").lower()
            if name in found:
                name += "_2"
            state = USUAL | state | dict(urllib.parse.parse_qsl(PROBLEMS.get(f"{self.name} {name}", ""))) | {"break": name}
            found[name] = Break(name, wrong["name"], file, text, wrong["lesson"], state)
        return list(found.values())


def mistakes(page):
    """(file, entry, the file with the mistake, fields of the page) of each"""
    for wrong in TABLES["mistakes"].get(page.name, []):
        before, replaced, after = (ROOT / page.kernels[0]).read_text().partition(wrong["replace"])
        if not replaced or wrong["replace"] in after:
            sys.exit(f"pages.toml: what '{wrong['name']}' replaces does not stand once in {page.kernels[0]}")
        yield page.kernels[0], wrong, before + after, {}
    for e in map(exercise.load, exercise.names()):
        before, _, after = e.parts()
        for wrong in exercise.gallery(e) if e.kernel in page.kernels else []:
            # A count without a prediction does not show; neither do scores far below zero, as a page has no field for the scale.
            if wrong["name"] != "m starts at 0" and wrong["rule"] not in ("asked", "bank_conflicts"):
                yield e.file, wrong, before + wrong["lines"] + after, {"variant": e.variant, "pass": e.pass_}


def pages():
    labs = {f"lab_{name}": [f"docs/lab/{name}.cpp"] for name in TABLES["labs"]}
    return [Page(name, files) for name, files in (TABLES["pages"] | labs).items()]


def with_headers(files):
    """These files, and what they include for the device: a message may name a line of it."""
    files = list(files)
    for file in files:  # which grows
        included = re.findall(r'^#include "(\S+\.cuh|docs/lab/\S+)"', (ROOT / file).read_text(), re.MULTILINE)
        files += [name for name in dict.fromkeys(included) if name not in files]
    return files


# --- Sources: a line of a copy has the number that it has in the kernel ------------------------------------------------------


def expanded(file, changed, text, seen):
    """A kernel with the headers of its stage in their places, and the text of one of them."""
    lines = []
    for number, line in enumerate((text if file == changed else (ROOT / file).read_text()).split("\n"), 2):
        included = re.match(r'#include "(\d\d_[^"]+)"', line)
        if included and included[1] not in seen:
            seen.add(included[1])
            line = f'#line 1 "{ROOT / included[1]}"\n{expanded(included[1], changed, text, seen)}#line {number} "{ROOT / file}"'
        lines.append("" if line == "#pragma once" or line.startswith('#include "0') else line)
    return "\n".join(lines)


def of_kernel(file, text):
    """(source, variant) of a kernel or a copy, without what is compiled for rows wider than 64 and, where TABLES says so, for other tiles."""
    kept = tuple(TABLES["tiles"].get(file, ["32, ", "64, "]))
    if header := re.search(r'#include "(\S+/shapes\.hpp)"', text):
        before, after = text[: header.start()], text[header.end() :]
        text = f'{before}{(ROOT / header[1]).read_text()}#line {before.count(chr(10)) + 2} "{ROOT / file}"{after}'
    text = re.sub(r"(?s)compiled<(?:\w+<)?(\d[^>]*)>.*?\),", lambda size: size[0] if size[1].startswith(kept) else "", text)
    text = re.sub(r"_kernel<(96|128)>", "_kernel<64>", text).replace("#pragma once\n", "\n")
    variant = re.findall(r"^namespace (flash[\w:]*) \{", text, re.MULTILINE)[-1] + "::variant"
    return f'#line 1 "{ROOT / file}"\n{text}\n#line 1 "playground"\n', variant


def registered(page, file, text, number, name=""):
    """A source with a kernel or, if it has a name, a broken copy, of which the same is predicted."""
    source, variant = of_kernel(file, text)
    forward = "&flash::forward_step()" if page.name in TABLES["forward"] else ""
    changed = f'copy.name = "{name}"; ' if name else ""
    if "compiled<" in source or "_kernel<96>" in text:
        changed += "copy.max_head_dim = 64; "
    named = f"auto usual = each; usual.name = {variant}.name; return flash::{page.stage[3:]}::predicted(usual, rest...);"
    predicted = f"[](const flash::Variant& each, auto... rest) {{ {named} }}"
    return (
        f'#include "common/attention/registry.hpp"\n#include "{page.stage}/predicted.hpp"\n{source}'
        f"static const auto copied = [] {{ auto copy = {variant}; {changed}return copy; }}();\n"
        "namespace flash { void copy_rows_cpu(const TensorRef&, const TensorRef&); const Variant& forward_step();\n"
        f'Registration made_{number}() {{ return {{&copied, "{file}", {predicted}, copy_rows_cpu, {{{forward}}}}}; }} }}\n'
    )


def stage_sources(page):
    """{name: text}"""
    sources = {"copy_rows": '#include "common/parts/copy_rows.cuh"\n'}
    for n, file in enumerate(page.kernels):
        sources[f"kernel_{n}"] = registered(page, file, (ROOT / file).read_text(), n)
    for n, broken in enumerate(page.breaks, 100):
        file, text = broken.file, broken.text
        if file not in page.kernels:  # a header
            file = page.kernels[0]
            text = expanded(file, broken.file, text, set())
        sources[broken.id] = registered(page, file, text, n, broken.id)
    made = [f"made_{n}()" for n in [*range(len(page.kernels)), *range(100, 100 + len(page.breaks))]]
    sources["steps"] = (
        f'#include "common/attention/registry.hpp"\nnamespace flash {{ Registration {", ".join(made)};\n'
        f"static const RegisterVariants steps(Backend::cpu, {{{', '.join(made)}}}); }}\n"
    )
    if file := TABLES["forward"].get(page.name):
        source, variant = of_kernel(file, (ROOT / file).read_text())
        sources["forward"] = f"{source}namespace flash {{ const Variant& forward_step() {{ return {variant}; }} }}\n"
    return sources


def main(folder):
    lines = []
    for page in pages():
        if page.lab:
            lines.append(f"add_page({page.name} flash_machine lab_main.cpp ${{PROJECT_SOURCE_DIR}}/{page.kernels[0]})\n")
            lines.append(f"target_compile_definitions(page_{page.name}_kernels PRIVATE main=flash_lab)\n")
            continue
        sources = stage_sources(page)
        for name, text in sources.items():
            path = folder / page.name / f"{name}.cpp"
            if not path.exists() or path.read_text() != text:  # each takes long to compile
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        own = " ".join(f"{page.name}/{name}.cpp" for name in sources)
        lines.append(f'add_page({page.name} "flash_harness;flash_parts" ${{PROJECT_SOURCE_DIR}}/{page.stage}/main.cpp {own})\n')
    (folder / "pages.cmake").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
