"""Opens every page of a site that docs/site.sh has made in Chromium, without a network. Exit code 1: a page has a problem.

python3 -m docs.site.walk SITE
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import TimeoutError, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NARROW, WIDE = ({"width": width, "height": 900} for width in (400, 1280))
LOCAL = ("file:", "data:", "about:", "blob:")
SEARCHES = {"what is a warp": "Glossary", "bank conflict": "Glossary", "mbarrier": "Glossary"}
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


def look(page):
    """Problems of the page that is open, narrow and wide, in both themes, and on paper."""
    page.set_viewport_size(NARROW)
    yield from (f"not rendered: {text}" for text in page.evaluate(UNRENDERED))
    yield from (f"wider than the window: {text}" for text in page.evaluate(TOO_WIDE))
    page.set_viewport_size(WIDE)
    if not page.evaluate(CONTENTS):
        yield "the contents of the page are hidden"
    yield from (f"code does not fit: {text}" for text in page.evaluate(CUT))
    backgrounds = set()
    for theme in ("light", "dark"):
        page.evaluate(f"document.body.dataset.theme = '{theme}'")
        backgrounds.add(page.evaluate(BACKGROUND))
        if set(page.evaluate(SCHEMES)) - {theme}:
            yield f"{theme}: pictures or runs do not follow the theme"
    if len(backgrounds) < 2:
        yield "both themes look the same"
    page.emulate_media(media="print")
    if not page.evaluate(UNFOLDED):
        yield "answers stay folded on paper"
    page.emulate_media(media="screen")


def search(page, first):
    """Is this the first result, and has it an excerpt?"""
    try:
        page.wait_for_selector(f"#search-results li:first-child:has-text('{first}') p.context", timeout=10000)
    except TimeoutError:
        yield f"does not find {first} first, with an excerpt"


def main(site):
    names = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    names = [name for name in names if name != "index.html" and not name.startswith("playground/")]  # the playground has a test of its own
    problems, where = [], ""

    def problem(text):
        problems.append(f"{where}: {text}")

    with sync_playwright() as play:
        options = {"args": ["--host-resolver-rules=MAP * ~NOTFOUND"], "ignore_default_args": ["--hide-scrollbars"]}
        page = play.chromium.launch(executable_path=CHROMIUM, **options).new_page()
        page.on("console", lambda message: message.type == "error" and problem(f"console: {message.text}"))
        page.on("pageerror", lambda error: problem(f"script: {error}"))
        page.on("requestfailed", lambda request: problem(f"not loaded: {request.url}"))
        page.on("request", lambda request: request.url.startswith(LOCAL) or problem(f"from outside: {request.url}"))
        for where in names:
            page.goto((site / where).as_uri())
            list(map(problem, look(page)))
        for words, first in SEARCHES.items():
            where = f"search for '{words}'"
            page.goto((site / "search.html").as_uri() + f"?q={words}")
            list(map(problem, search(page, first)))
    print("\n".join([*problems, f"site: {len(names)} pages opened, {len(problems)} problems"]))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
