"""Opens every page of a site that docs/site.sh has made in Chromium, without a network. Exit code 1: a page has a problem.

walk.py SITE
"""

import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import TimeoutError, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NARROW, WIDE = ({"width": width, "height": 900} for width in (400, 1280))
LOCAL = ("file:", "data:", "about:", "blob:")
UNRENDERED = "[...document.querySelectorAll('.math')].filter(math => !math.querySelector('.katex')).map(math => math.textContent)"
UNFOLDED = "[...document.querySelectorAll('details > :not(summary)')].every(element => element.checkVisibility())"
CONTENTS = "(() => { const box = document.querySelector('.toc-tree')?.getBoundingClientRect(); return !box || box.right <= innerWidth })()"
SCHEMES = "[...document.querySelectorAll('article :is(img, iframe)')].map(element => getComputedStyle(element).colorScheme)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# What is wider than the window and has no ancestor that scrolls
TOO_WIDE = """() => {
  const scrolls = (element) => !element.matches('.content, body, html') &&
    (getComputedStyle(element).overflowX !== 'visible' || scrolls(element.parentElement));
  return [...document.querySelectorAll('article :not(.katex *)')]
    .filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !scrolls(element.parentElement))
    .map((element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`).slice(0, 3);
}"""
# Code of up to 120 columns that is cut or wrapped
CUT = """() => [...document.querySelectorAll('article pre')].filter((pre) => {
  if (!pre.checkVisibility()) return false;
  if (Math.max(...pre.textContent.split('\\n').map((line) => line.length)) <= 120) pre.style.whiteSpace = 'pre';
  return pre.scrollWidth > pre.clientWidth + 1;
}).map((pre) => pre.textContent.trim().slice(0, 40))"""


class Walk:
    def __init__(self, site, page):
        self.site, self.page, self.problems, self.where = site, page, [], None
        page.on("console", lambda message: message.type == "error" and self.problem(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.problem(f"script: {error}"))
        page.on("requestfailed", lambda request: self.problem(f"not loaded: {request.url}"))
        page.on("request", lambda request: request.url.startswith(LOCAL) or self.problem(f"from outside: {request.url}"))

    def problem(self, text):
        self.problems.append(f"{self.where}: {text}")

    def open(self, name, query=""):
        self.where = name
        self.page.goto((self.site / name).as_uri() + query)

    def visit(self, name):
        ask = self.page.evaluate
        self.page.set_viewport_size(NARROW)
        self.open(name)
        for text in ask(UNRENDERED):
            self.problem(f"not rendered: {text}")
        for text in ask(TOO_WIDE):
            self.problem(f"wider than the window: {text}")
        self.page.set_viewport_size(WIDE)
        if not ask(CONTENTS):
            self.problem("the contents of the page are hidden")
        for text in ask(CUT):
            self.problem(f"code does not fit: {text}")
        backgrounds = set()
        for theme in ("light", "dark"):
            ask(f"document.body.dataset.theme = '{theme}'")
            backgrounds.add(ask(BACKGROUND))
            if set(ask(SCHEMES)) - {theme}:
                self.problem(f"{theme}: pictures or runs do not follow the theme")
        if len(backgrounds) < 2:
            self.problem("both themes look the same")
        self.page.emulate_media(media="print")
        if not ask(UNFOLDED):
            self.problem("answers stay folded on paper")
        self.page.emulate_media(media="screen")

    def search(self, words, first):
        """What the first result is, and whether it has an excerpt"""
        self.open("search.html", f"?q={words}")
        self.page.wait_for_function("document.querySelector('#search-results h2')?.textContent === 'Search Results'")
        results = self.page.query_selector_all("#search-results li")
        if not results or first not in results[0].inner_text():
            return self.problem(f"'{words}' does not find {first} first")
        try:
            results[0].wait_for_selector("p.context", timeout=3000)
        except TimeoutError:
            self.problem(f"'{words}' has no excerpt")


def walk(site, questions):
    """(number of pages, problems)"""
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--host-resolver-rules=MAP * ~NOTFOUND"], ignore_default_args=["--hide-scrollbars"]
        )
        of = Walk(site, browser.new_page())
        pages = [path.relative_to(site) for path in sorted(site.rglob("*.html"))]
        pages = [
            name for name in pages if name != Path("index.html") and name.parts[0] != "playground"
        ]  # docs/playground has a test of its own
        for name in pages:
            of.visit(name)
        for words, first in questions.items():
            of.search(words, first)
        browser.close()
        return len(pages), of.problems


def main(site):
    began = time.monotonic()
    pages, problems = walk(site, {"what is a warp": "Glossary", "bank conflict": "Glossary", "mbarrier": "Glossary"})
    print("\n".join([*problems, f"site: {pages} pages opened in {time.monotonic() - began:.0f} s, {len(problems)} problems"]))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
