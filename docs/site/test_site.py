"""The site of a small project: what becomes of its pages, which errors are named, and what the walk finds."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import contents  # noqa: E402
import pdf  # noqa: E402
import sources  # noqa: E402
import walk  # noqa: E402

FILES = {
    "README.md": "# The project\n\nRead [the text](docs/README.md).\n",
    "docs/README.md": "# The text\n\n| page | about |\n| --- | --- |\n| [One](one.md) | One, before [two](two.md) |\n\n"
    "To look up:\n\n| page | about |\n| --- | --- |\n| [Two](two.md) | Two, and [three](three.md) |\n",
    "docs/one.md": "# 01 One\n\nOf ($`x_i`$, $`y`$) and `$HOME`: [a kernel](../01_one/kernel.cuh), [a folder](../01_one), [results](results/), "
    "[two](two.md#a-barrier), [a figure](results/row.json).\n\n```math\n\\frac{a}{b} \\tag{1.1}\n```\n\n"
    "<details>\n<summary>Answers</summary>\n\nIt is *folded*.\n\n</details>\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n",
    "docs/two.md": "# Two\n\n## A barrier\n\n```cpp\n__syncthreads();  // read after write\n```\n\n![A picture](img/a.svg)\n",
    "docs/three.md": "# Three\n\nTiles of 64 × 32, `64 × 32`, 97 % of ($`a + b + c + d + e + f + g + h`$), and so on.\n",
    "docs/img/a.svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 40" width="400" height="40">'
    '<text x="9" y="20" font-size="13">a</text></svg>\n',
    "docs/results/row.json": "{}\n",
    "docs/one.json": "{}\n",
    "01_one/README.md": "# 01 One\n\nCode: [kernel.cuh](kernel.cuh).\n",
    "01_one/kernel.cuh": "__global__ void kernel() {}\n",
}


class Project(unittest.TestCase):
    files = FILES

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="flash_site.")
        cls.addClassCleanup(scratch.cleanup)
        cls.root, cls.site = Path(scratch.name).resolve() / "project", Path(scratch.name).resolve() / "html"
        for name, text in cls.files.items():
            (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.root / name).write_text(text)
        subprocess.run(["git", "init", "--quiet", cls.root], check=True)
        pages = ["-D", "include_patterns=*.md,**/*.md"]
        command = [sys.executable, "-m", "sphinx", "-q", "--no-color", "-b", "html", "-c", HERE, *pages, cls.root, cls.site]
        cls.said = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr

    def page(self, name):
        return (self.site / f"{name}.html").read_text()


FAULTS = """
<div style="width: 500px">broad</div>
<span class="katex-error">\\frac</span>
<p>raw $`x`$</p>
<p style="font-size: 9px">tiny</p>
<p style="color: #999; background: #fff">pale</p>
<img src="https://example.org/a.png" alt="">
<a href="nowhere.html">to nowhere</a> <a href="two.html#nowhere">to no place</a>
<style>@media print { details::details-content { content-visibility: hidden } } img { color-scheme: light !important }</style>
<script>console.error("a message"); throw new Error("an error")</script>
"""

CUT = "".join(
    f'<text x="{x}" y="{y}" font-size="9">{text}</text>'
    for x, y, text in ((-9, 20, "at the left"), (390, 20, "at the right"), (90, 50, "below"), (90, 36, "all there"))
)


class Right(Project):
    def test_nothing_is_said(self):
        self.assertEqual(self.said, "")

    def test_formulas_are_rendered(self):
        page = self.page("docs/one")
        self.assertEqual(page.count('class="katex"'), 3)
        self.assertRegex(
            page,
            r'Of <span class="tied">\(<span class="katex">.*</span>,</span> <span class="tied"><span class="katex">.*</span>\)</span> and',
        )
        self.assertEqual((page.count("katex-display"), "$HOME" in page, "$`" in page), (1, True, False))
        self.assertTrue((self.site / "_static/katex/fonts/KaTeX_Main-Regular.woff2").exists())

    def test_what_belongs_together_is_not_torn(self):
        page = self.page("docs/three")
        self.assertIn("Tiles of 64\u00a0×\u00a032, ", page)
        self.assertIn("</code>, 97\u00a0% of <span", page)
        self.assertNotIn("\u00a0", page[page.index("<code") : page.index("</code>")])
        self.assertRegex(page, r'class="mord text">.*?\(.*class="mord text">.*?\),.*</span> and so on')

    def test_links_to_what_is_no_page(self):
        page = self.page("docs/one")
        for link in (
            "../source/01_one/kernel.cuh.html",
            "../01_one/README.html",
            "../source/docs/results/index.html",
            "../source/docs/results/row.json",
        ):
            self.assertIn(f'href="{link}"><span class="xref', page)
            self.assertTrue((self.site / "docs" / link).resolve().exists(), link)
        code = self.page("source/01_one/kernel.cuh")
        self.assertIn('id="L-1"', code)
        self.assertIn('href="../../01_one/README.html"', self.page("source/01_one/index"))
        for link in ("../../docs/one.html", "../../source/docs/one.json"):
            self.assertIn(f'href="{link}"', self.page("source/docs/index"))

    def test_pages_are_in_the_order_of_the_list(self):
        tables = list(contents.listed((self.root / "docs/README.md").read_text()))
        self.assertEqual(tables, [["docs/one"], ["docs/two", "docs/three"]])
        self.assertIn('<div class="title">Two</div>', self.page("docs/one"))

    def test_a_page_beside_code_is_called_like_its_folder(self):
        self.assertIn('<div class="title">01_one/</div>', self.page("docs/three"))
        self.assertIn("<title>01_one/ - ", self.page("01_one/README"))
        self.assertIn(">01_one/</a>", self.page("docs/one").split("<article")[0])

    def test_files_are_shown_by_their_kind(self):
        kinds = {path: sources.address(self.root, path) for path in ("CMakeLists.txt", "docs/results/a.txt", ".ci/run", "01_one")}
        self.assertEqual(
            list(kinds.values()),
            ["source/CMakeLists.txt.html", "source/docs/results/a.txt", "source/.ci/run.html", "source/01_one/index.html"],
        )

    def test_the_walk_finds_nothing(self):
        pages, problems = walk.walk(self.site, "barrier")
        self.assertEqual((len(pages), problems), (6, []))

    def test_answers_are_unfolded_on_paper(self):
        with tempfile.TemporaryDirectory() as name:
            pdf.main(self.site, ["docs/one"], Path(name))
            self.assertEqual((Path(name) / "one.pdf").read_bytes()[:5], b"%PDF-")

    def test_each_fault_is_found(self):
        site = self.site.with_name("faulty")
        shutil.copytree(self.site, site)
        page = site / "docs/one.html"
        page.write_text(page.read_text().replace("</article>", FAULTS + "</article>"))
        (site / "docs/img.html").write_text("left behind")
        picture = next((site / "_images").glob("a*.svg"))
        picture.write_text(picture.read_text().replace('"13"', '"9"').replace("</svg>", CUT + "</svg>"))
        three = site / "docs/three.html"
        three.write_text(three.read_text().replace("prev-page", "no-page").replace("<title>Three", "<title>Two"))
        _, problems = walk.walk(site, "syncwarp")
        for text in (
            'docs/one.html: wider than the screen: <div class=""> broad',
            "docs/one.html: no formula: \\frac",
            "docs/one.html: not rendered: raw $`x`$",
            "docs/one.html: small: tiny",
            "docs/one.html: light: contrast 2.8 of 'pale'",
            "docs/one.html: dark: contrast 2.8 of 'pale'",
            "docs/one.html: dark: pictures do not follow the theme",
            "docs/one.html: from outside: https://example.org/a.png",
            "docs/one.html: console: a message",
            "docs/one.html: script: an error",
            "docs/one.html: something stays folded on paper",
            "docs/one.html: link to " + str(site / "docs/nowhere.html") + ": not there",
            "docs/one.html: link to two.html#nowhere: no such place",
            "docs/two.html: a.svg: text of 9.0 pixels",
            "_images/a.svg: cut off: at the left",
            "_images/a.svg: cut off: at the right",
            "_images/a.svg: cut off: below",
            "docs/three.html: 'previous' leads to None",
            "docs/img.html: no 'next' leads there",
            "Two - FlashAttention, step by step: the title of two pages",
            "search.html: finds no 'syncwarp'",
        ):
            self.assertTrue(any(problem.startswith(text) for problem in problems), (text, problems))
        self.assertFalse(any("all there" in problem for problem in problems), problems)


class Wrong(Project):
    files = FILES | {
        "docs/two.md": "# Two\n\nOf $x$.\n\n```math\n\\frac{a}\n```\n\n[None](none.md), [nor](one.md#none), [nor](none/).\n",
        "docs/three.md": "# two\n",
        "docs/four.md": "# Four\n",
    }

    def test_each_error_is_said(self):
        for text in (
            "docs/two.md:3: WARNING: '$x$' is no formula to GitHub",
            "docs/two.md:5: WARNING: KaTeX parse error: ",
            "docs/one.md:3: WARNING: local id not found in doc 'docs/two': 'a-barrier'",
            "'none.md'",
            "'none'",
            "'none/'",
            "docs/two.md: WARNING: docs/three.md has the same title: 'Two'",
            "docs/four.md: WARNING: document isn't included in any toctree",
        ):
            self.assertIn(text, self.said)
        self.assertEqual(self.said.count("WARNING"), 8, self.said)


if __name__ == "__main__":
    unittest.main()
