#!/usr/bin/env python3
"""The mistakes of the playground without compiling any: each is one change of a kernel, and what the pages link to is there."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import kernels  # noqa: E402
import make  # noqa: E402
from kernels import ROOT  # noqa: E402

PAGES = {page.name: page for page in kernels.pages()}
LABS = {page.name: page for page in kernels.labs()}
LINK = re.compile(r"^<!-- playground (\w+)(?: (\S+))?: .* -->$", re.MULTILINE)


def applied(broken):
    """The kernel after the changes that its page shows."""
    lines = (ROOT / broken.file).read_text().split("\n")
    for at, gone, come in reversed(broken.changes()):
        lines[at : at + gone] = come
    return "\n".join(lines)


class Kernels(unittest.TestCase):
    def test_a_page_shows_what_it_runs(self):
        for page in (*PAGES.values(), *LABS.values()):
            for broken in page.breaks:
                self.assertEqual(applied(broken), broken.text, broken.id)
                self.assertTrue(broken.changes(), broken.id)

    def test_a_title_is_a_chapters(self):
        for page in PAGES.values():
            self.assertTrue(make.title_of(page).startswith(page.stage[:2]), make.title_of(page))

    def test_names_are_unique(self):
        for page in (*PAGES.values(), *LABS.values()):
            ids = [broken.id for broken in page.breaks]
            self.assertEqual(len(set(ids)), len(ids), page.name)

    def test_lines_of_a_broken_copy_keep_their_numbers(self):
        page = PAGES["02_safe_softmax"]  # has nothing to leave out
        for broken in page.breaks:
            code = kernels.source(page, broken.file, 1, broken).split("\n")
            at = next(n for n, line in enumerate(code) if line.startswith("#line"))
            for n, line in enumerate(broken.text.split("\n")):
                self.assertEqual(code[at + 1 + n], "" if line == "#pragma once" else line, n)

    def test_a_lab_shares_its_module_with_broken_copies(self):
        for page in LABS.values():
            self.assertTrue(page.breaks, page.name)
            for name, text in kernels.lab_programs(page).items():
                code = kernels.program(text, page.kernels[0], name)
                self.assertNotRegex(code, r"\bmain\(|namespace \{", f"{page.name}: {name}")
                self.assertEqual(len(code.split("\n")), len(text.split("\n")) + 1)  # behind #line

    def test_tile_sizes_that_are_left_out_leave_empty_lines(self):
        table = "constexpr CompiledShape shapes[] = {\n"
        text = f'a\n{table}  compiled<32, 64>("x"), compiled<64, 8>("y", 0.5),\n  compiled<64, 64>("z"),\n}};\nb\n'
        self.assertEqual(kernels.with_tiles(text, ["32"]), f'a\n{table}  compiled<32, 64>("x"),\n\n}};\nb\n')
        self.assertEqual(kernels.with_tiles(text, []), text)
        second = text.replace("shapes[]", "more_shapes[]")
        self.assertEqual(kernels.with_tiles(text + second, ["32"]), kernels.with_tiles(text, ["32"]) + kernels.with_tiles(second, ["32"]))
        self.assertNotIn("<64, ", kernels.with_tiles(text + second, ["32"]))

    def test_each_page_has_a_table_of_tile_sizes_for_its_problem(self):
        for page in PAGES.values():
            for file in page.kernels:
                text = (ROOT / file).read_text()
                compiled = kernels.widths(kernels.narrow(text, kernels.on_pages()["tiles"].get(file)))
                self.assertEqual(max(compiled, default=0) >= 64, "CompiledShape shapes[]" in text, file)

    def test_a_width_that_is_left_out_is_refused(self):
        page = PAGES["04_fa1_forward"]
        for broken in (None, page.breaks[0]):
            code = kernels.source(page, page.kernels[0], 1, broken)
            self.assertEqual(re.findall(r"_kernel<(\w+)>", code), ["32", "64", "64", "64"])
            self.assertIn("max_head_dim = 64;", code)
        page = PAGES["07_fa2_backward"]
        self.assertIn("max_head_dim = 32;", kernels.source(page, page.kernels[0], 1, page.breaks[0]))
        self.assertNotIn("max_head_dim", kernels.source(PAGES["02_safe_softmax"], PAGES["02_safe_softmax"].kernels[0], 1))

    def test_a_broken_copy_takes_rows_as_narrow_as_the_kernel(self):
        """Buffers are as wide as the kernel's own choice for d; in a wider copy they would be too small."""
        for page in PAGES.values():
            for broken in page.breaks:
                code = kernels.source(page, broken.file, 1, broken)
                self.assertEqual(min(kernels.widths(code), default=0), min(kernels.widths(broken.text), default=0), broken.id)

    def test_no_kernel_is_on_two_pages(self):
        for stage in {page.stage for page in PAGES.values()}:
            on_pages = [kernel for page in PAGES.values() if page.stage == stage for kernel in page.kernels]
            self.assertEqual(len(on_pages), len(set(on_pages)), stage)
            self.assertLessEqual(set(on_pages), set(kernels.stage_options(stage)[0]))

    def test_links_of_the_text(self):
        linked = set()
        for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
            for name, state in LINK.findall(path.read_text()):
                linked.add(name)
                self.assertIn(name, PAGES | LABS, path)
                mistake = re.search(r"break=(\w+)", state)
                if mistake:
                    self.assertIn(mistake[1], {broken.id for broken in (PAGES | LABS)[name].breaks}, path)
        stages = {PAGES[name].stage for name in linked & set(PAGES)}
        self.assertEqual(stages, {page.stage for page in PAGES.values()}, "a stage's chapter has no run")
        self.assertEqual(linked & set(LABS), set(LABS), "the page that explains a lab has no run of it")


if __name__ == "__main__":
    unittest.main()
