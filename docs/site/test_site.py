"""The site of a small project: what becomes of its pages, which errors Sphinx names, and what the walk finds."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "playground")]

import walk  # noqa: E402
from chromium import Chromium  # noqa: E402

FILES = {
    "README.md": "# The project\n\nRead [the text](docs/README.md).\n",
    "docs/README.md": "# The text\n\n| page | about |\n| --- | --- |\n| [One](one.md) | One, before [two](two.md) |\n\n"
    "To do:\n\n| page | about |\n| --- | --- |\n| [Two](two.md) | Two, and [three](three.md) |\n\n"
    "To look up:\n\n| page | about |\n| --- | --- |\n| [Glossary](reference/glossary.md) | Terms |\n\n"
    "The rest:\n\n| page | about |\n| --- | --- |\n| [Last](last.md) | The end |\n",
    "docs/one.md": "# 01 One\n\nOf ($`x_i`$, $`y`$) and `$HOME`: [a kernel](../01_one/kernel.cuh), [a folder](../01_one), [rows](rows), "
    "[two](two.md#a-barrier).\n\n```math\n\\frac{a}{b}<c \\tag{1.1}\n```\n\n"
    "<details>\n<summary>Answers</summary>\n\nIt is *folded*.\n\n</details>\n\n## More\n\nText.\n",
    "docs/two.md": "# Two\n\n## A barrier\n\n```cpp\n" + "x" * 119 + ";\n```\n\n![A picture](img/a.svg)\n",
    "docs/three.md": "# Three\n\nOf ($`a + b + c + d + e + f + g + h`$), and so on.\n",
    "docs/reference/glossary.md": "# Glossary\n\n| term | what |\n| --- | --- |\n| **barrier** | All wait |\n"
    "| **bank**, **bank conflict** | Of memory |\n",
    "docs/last.md": "# Last\n\nThe end.\n",
    "docs/img/a.svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 40" width="400" height="40"></svg>\n',
    "docs/rows/row.json": "{}\n",
    "01_one/README.md": "# 01 One, too\n\nCode: [kernel.cuh](kernel.cuh).\n",
    "01_one/kernel.cuh": "__global__ void kernel() {}\n",
}
FAULTS = """
<div style="width: 500px">broad</div> <span class="math">\\(\\nomacro\\)</span> <img src="https://example.org/a.png" alt="">
<div class="highlight"><pre style="width: 700px">%s</pre></div>
<style>@media print { details::details-content { content-visibility: hidden } } img { color-scheme: light !important }
.toc-drawer { position: fixed !important; right: -15em } body { background: white !important }</style>
<script>console.error("a message"); throw new Error("an error")</script>
""" % ("y" * 120)


class Project(unittest.TestCase):
    files = FILES
    options = ()

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="flash sité.")
        cls.addClassCleanup(scratch.cleanup)
        root, cls.site = Path(scratch.name).resolve() / "project", Path(scratch.name).resolve() / "html"
        for name, text in cls.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        command = [sys.executable, "-m", "sphinx", "-q", "--no-color", "-c", HERE, "-D", "include_patterns=*.md,**/*.md"]
        cls.said = subprocess.run([*command, *cls.options, root, cls.site], check=True, stderr=subprocess.PIPE, text=True).stderr

    def page(self, name):
        return (self.site / f"{name}.html").read_text()


class Right(Project):
    def test_pages_have_an_order_and_titles(self):
        self.assertEqual(self.said, "")
        order = {"one": "Two", "two": "Three", "three": "Glossary", "reference/glossary": "Last", "last": "Code of 01 One, too"}
        for name, following in order.items():
            self.assertIn(f'<div class="title">{following}</div>', self.page(f"docs/{name}"))

    def test_nothing_tears_formulas(self):
        self.assertIn('<span class="tied">(<span class="math">\\(x_i\\)</span>,</span>', self.page("docs/one"))
        self.assertIn("\\(\\text{(}a + b + c + d + e + f + g + h\\text{),}\\)</span> and so on", self.page("docs/three"))

    def test_links_to_code(self):
        self.assertIn('<a class="reference internal" href="../01_one/README.html">', self.page("docs/one"))
        self.assertRegex(self.page("docs/one"), r'<abbr title="01_one/kernel.cuh">(<[^>]*>)*a kernel')

    def test_the_walk_finds_nothing(self):
        self.assertEqual(walk.walk(self.site, {"what is a barrier": "Glossary", "bank conflicts": "Glossary"}), (9, []))

    def test_the_walk_finds_each_fault(self):
        site = self.site.with_name("faulty")
        shutil.copytree(self.site, site)
        page = site / "docs/one.html"
        page.write_text(page.read_text().replace("</article>", FAULTS + "</article>"))
        (site / "_static/texts.js").write_text("const TEXTS = {}")
        _, problems = walk.walk(site, {"syncwarp": "Two", "barrier": "Glossary"})
        for text in (
            "docs/one.html: wider than the window: DIV broad",
            "docs/one.html: not rendered: \\(\\nomacro\\)",
            "docs/one.html: code does not fit: yyyy",
            "docs/one.html: both themes look the same",
            "docs/one.html: dark: pictures or runs do not follow the theme",
            "docs/one.html: from outside: https://example.org/a.png",
            "docs/one.html: console: a message",
            "docs/one.html: console: KaTeX auto-render: Failed to parse",
            "docs/one.html: script: an error",
            "docs/one.html: the contents of the page are hidden",
            "docs/one.html: answers stay folded on paper",
            "search.html: 'syncwarp' does not find Two first",
            "search.html: 'barrier' has no excerpt",
        ):
            self.assertTrue(any(problem.startswith(text) for problem in problems), (text, problems))


class WithRepository(Project):
    options = ("-D", "repository=https://example.org/flash-steps")

    def test_links_to_code_lead_there(self):
        for link in ("blob/HEAD/01_one/kernel.cuh", "tree/HEAD/docs/rows"):
            self.assertIn(f'href="https://example.org/flash-steps/{link}"', self.page("docs/one"))


class WithPlayground(Project):
    files = FILES | {
        "docs/one.md": FILES["docs/one.md"]
        + "\n<!-- playground 01_one break=a&N=8: Break it & see -->\n\n<!-- playground 02_two: Not made -->\n"
    }

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        (Path(folder.name) / "01_one.html").write_text("a run")
        cls.options = ("-D", f"playground={folder.name}")
        super().setUpClass()

    def test_a_run_is_on_the_page_if_it_was_made(self):
        page = self.page("docs/one")
        self.assertIn('<iframe src="../playground/01_one.html#break=a&amp;N=8" title="Break it &amp; see" loading="lazy">', page)
        self.assertNotIn("02_two.html", page)
        self.assertEqual((self.site / "playground/01_one.html").read_text(), "a run")


class Course(Project):
    """Quizzes that take predictions, and links from an exercise's wrong kernels to their runs."""

    files = FILES | {
        "docs/README.md": FILES["docs/README.md"].replace(
            "| [Last]", "| [Course](course/README.md) | [Quizzes](course/quizzes.md) |\n| [Last]"
        ),
        "docs/course/README.md": "# The course\n\nExercises.\n",
        "docs/course/exercises/01_sum/README.md": "# A sum\n\n<details>\n<summary>Barrier</summary>\n\nWait for it.\n\n</details>\n",
        "docs/course/quizzes.toml": """[[quiz]]
chapter = "01_one"
[[quiz.question]]
ask = "How many bytes?"
answer = "2 · 32,768 = 65,536, and 98,304 written."
run = "build/bin/01_one --device cpu --seq 8 --variant usual --causal"
says = "S 65,536 65,536 98,304"
[[quiz.question]]
ask = "Why?"
answer = "Because it *is* so."
[[quiz.question]]
ask = "Guess the order of magnitude."
answer = "400."
says = "barriers - 400"
run = "common/try.sh lab_guess"
""",
        "docs/course/quizzes.md": "# Quizzes\n\nText.\n\n## One\n\n1. How many bytes?\n2. Why?\n3. Guess the order of magnitude.\n\n"
        "<details>\n<summary>Answers</summary>\n\n1. 2 · 32,768 = 65,536, and 98,304 written.\n2. Because it *is* so.\n3. 400.\n\n</details>\n",
    }

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        data = {"variants": [{"name": "usual"}], "breaks": [{"id": "late", "lesson": "Wait for it."}]}
        for name in ("01_one", "lab_guess"):
            (Path(folder.name) / f"{name}.html").write_text(f'<script id="data" type="application/json">{json.dumps(data)}</script>')
        cls.options = ("-D", f"playground={folder.name}")
        super().setUpClass()

    def test_a_wrong_kernel_has_a_run(self):
        self.assertEqual(self.said, "")
        link = '<a href="../../../../playground/01_one.html#break=late">Run it in your browser</a>'
        self.assertIn(f"Wait for it. {link}", self.page("docs/course/exercises/01_sum/README"))
        self.assertTrue((self.site / "docs/course/exercises/01_sum" / link.split('"')[1].partition("#")[0]).is_file())

    def test_predictions(self):
        self.assertNotIn("quiz.js", self.page("docs/one"))
        told = "[...document.querySelectorAll('.told')].map((told) => told.textContent)"
        with Chromium() as browser:
            page = f"file://{self.site}/docs/course/quizzes.html".replace(" ", "%20")
            browser.open(page)
            self.assertTrue(browser.wait("document.querySelectorAll('form.quiz').length === 3", 10), browser.problems)
            for typed, verdict in (("65536", "Wrong."), ("98304, 65536", "Wrong."), ("65,536 and 98304", "Right.")):
                self.answer(browser, 0, typed)
                self.assertTrue(browser.value(f"{told}[0]").startswith(f"{verdict} 2 · 32,768 = 65,536"), typed)
            run = "../../playground/01_one.html#d=64&pass=forward&N=8&variant=usual&mask=causal"
            self.assertEqual(browser.value("document.querySelector('.told a').getAttribute('href')"), run)
            self.answer(browser, 1, "no idea")
            self.assertTrue(browser.value(f"{told}[1]").startswith("The answer: Because it is so."))
            browser.value("document.querySelectorAll('.told')[1].querySelector('button').click()")
            for typed, verdict in (("4000", "Wrong."), ("300", "Right.")):
                self.answer(browser, 2, typed)
                self.assertTrue(browser.value(f"{told}[2]").startswith(verdict), typed)
            links = browser.value("[...document.querySelectorAll('.told a')].map((a) => a.getAttribute('href'))")
            self.assertEqual(links, [run, "../../playground/lab_guess.html"])
            browser.open(page)  # what was typed is still there
            score = "document.querySelector('.quiz-progress').textContent"
            self.assertTrue(browser.wait(f"{score}.startsWith('3 of 3 right, 3 answered')", 10), browser.value(score))
            exported = "new Promise((done) => { const old = URL.createObjectURL; URL.createObjectURL = (blob) => (blob.text().then(done), old(blob)); "
            exported += "document.querySelector('.quiz-progress button').click(); })"
            self.assertEqual(json.loads(browser.value(exported))["01_one 1"], {"typed": "65,536 and 98304", "right": True})
            self.assertEqual(browser.problems, [])

    def answer(self, browser, at, typed):
        form = f"document.querySelectorAll('form.quiz')[{at}]"
        browser.value(f"{form}.querySelector('input').value = {json.dumps(typed)}; {form}.requestSubmit()")


class Wrong(Project):
    files = FILES | {"docs/two.md": "# Two\n\nOf $x$. [None](none.md), [nor](one.md#none), [nor](none/).\n", "docs/four.md": "# Four\n"}

    def test_each_error_is_named(self):
        for text in (
            "docs/two.md:3: WARNING: '$x$' is no formula to GitHub",
            "docs/one.md:3: WARNING: local id not found in doc 'docs/two': 'a-barrier'",
            "'none.md'",
            "'none'",
            "'none/'",
            "docs/four.md: WARNING: document isn't included in any toctree",
        ):
            self.assertIn(text, self.said)
        self.assertEqual(self.said.count("WARNING"), 6, self.said)


if __name__ == "__main__":
    unittest.main()
