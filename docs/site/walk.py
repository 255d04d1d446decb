"""Walks over a site that docs/site.sh has made, in Chromium and without a network, and says what a reader would stumble over.

walk.py SITE        exit code 1: something was found

Of each page: nothing wider than a screen of 400 pixels but what scrolls by itself; both themes, with enough contrast; every formula
rendered; no text, no picture's text below 12 pixels on a screen of 1280, no picture's text cut off at its edge; answers unfold on paper;
links that lead somewhere; nothing from outside, no error on the console. Of the site: from the first page to the last by `next`, and back;
titles that differ; the search.
"""

import re
import sys
import time
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import browser

HERE = Path(__file__).resolve().parent
FACTS, CONTRAST, CUT = (HERE / name for name in ("facts.js", "contrast.js", "cut.js"))
NARROW, WIDE = ({"width": width, "height": 900} for width in (400, 1280))
UNFOLDED = "[...document.querySelectorAll('details > :not(summary)')].every(element => element.checkVisibility())"
COLOURS = "[...document.images].map(image => getComputedStyle(image).colorScheme)"
WIDTHS = "[...document.querySelectorAll('article img')].map(image => [image.src, image.width])"
HERE_ALONE = ("file:", "data:", "about:")
SMALLEST = 11.8  # pixels


def file_of(address):
    return Path(unquote(urlparse(address).path))


def smallest_text(picture):
    """Of an SVG file, as a part of the picture's width; None if it has no text"""
    drawing = picture.read_text() if picture.suffix == ".svg" and picture.exists() else ""
    sizes = re.findall(r"font-size[=:] ?[\"']?([\d.]+)|font: ([\d.]+)px", drawing)
    width = re.search(r'viewBox="0 0 ([\d.]+)', drawing)
    return min(float(size or other) for size, other in sizes) / float(width[1]) if sizes and width else None


class Walk:
    def __init__(self, site, page):
        self.site, self.page, self.problems, self.where = site, page, [], None
        self.drawings = {}  # as a set, in the order of the pages
        page.on("console", lambda message: message.type == "error" and self.problem(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.problem(f"script: {error}"))
        page.on("requestfailed", lambda request: self.problem(f"not loaded: {request.url}"))
        page.on(
            "request", lambda request: request.url.startswith(("file:", "data:", "about:")) or self.problem(f"from outside: {request.url}")
        )

    def problem(self, text):
        self.problems.append(f"{self.where}: {text}")

    def open(self, address):
        self.where = file_of(address).relative_to(self.site)
        self.page.goto(address)

    def themes(self):
        for theme, other in (("light", "dark"), ("dark", "light")):
            self.page.emulate_media(color_scheme=other)  # what the reader chose counts, not the system
            self.page.evaluate(f"document.body.dataset.theme = '{theme}'")
            for text in self.page.evaluate(CONTRAST.read_text()):
                self.problem(f"{theme}: contrast {text}")
            if set(self.page.evaluate(COLOURS)) - {theme}:
                self.problem(f"{theme}: pictures do not follow the theme")

    def pictures(self):
        for address, width in self.page.evaluate(WIDTHS):
            smallest = smallest_text(file_of(address))
            if smallest:
                self.drawings[address] = True
            if smallest and smallest * width < SMALLEST:
                self.problem(f"{file_of(address).name}: text of {smallest * width:.1f} pixels")

    def visit(self, address):
        """The facts of a page"""
        self.page.goto("about:blank")  # which is quickly narrow
        self.page.set_viewport_size(NARROW)
        self.open(address)
        facts = self.page.evaluate(FACTS.read_text())
        for what, say in (
            ("tooWide", "wider than the screen"),
            ("wrongFormulas", "no formula"),
            ("rawFormulas", "not rendered"),
            ("smallTexts", "small"),
        ):
            for text in dict.fromkeys(facts[what]):
                self.problem(f"{say}: {text}")
        self.themes()
        self.page.set_viewport_size(WIDE)
        self.pictures()
        self.page.emulate_media(media="print")
        if not self.page.evaluate(UNFOLDED):
            self.problem("something stays folded on paper")
        self.page.emulate_media(media="screen")
        return facts

    def along(self, first):
        """{address: facts} of all pages, in the order of `next`"""
        found, before, address = {}, None, first
        while address and address not in found:
            found[address] = facts = self.visit(address)
            if facts["previous"] != before:
                self.problem(f"'previous' leads to {facts['previous']}")
            before, address = address, facts["next"]
        return found

    def cut_texts(self):
        """Of all pictures on pages"""
        for address in self.drawings:
            self.open(address)
            for text in self.page.evaluate(CUT.read_text()):
                self.problem(f"cut off: {text}")

    def links(self, found):
        anchors = {file_of(address): set(facts["anchors"]) for address, facts in found.items()}
        for address, facts in found.items():
            self.where = file_of(address).relative_to(self.site)
            for link in dict.fromkeys(facts["links"]):
                path, anchor = file_of(link), unquote(urldefrag(link).fragment)
                if not link.startswith("file:"):
                    continue
                if not path.is_file():
                    self.problem(f"link to {path}: not there")
                elif anchor and path in anchors and anchor not in anchors[path]:
                    self.problem(f"link to {path.name}#{anchor}: no such place")

    def search(self, word):
        self.open((self.site / "search.html").as_uri() + f"?q={word}")
        self.page.wait_for_function("document.querySelector('#search-results h2')?.textContent === 'Search Results'")
        if not self.page.query_selector("#search-results li a"):
            self.problem(f"finds no '{word}'")


def walk(site, word):
    """(addresses of the pages, problems)"""
    with browser.opened() as page:
        of = Walk(site, page)
        of.page.goto((site / "index.html").as_uri())
        of.page.wait_for_url(lambda address: not address.endswith("/index.html"))
        found = of.along(of.page.url)
        for of_source in sorted((site / "source").glob("[0-9]*/*.html"))[:2]:  # a file and a list of files
            of.visit(of_source.as_uri())
        left = {path for path in site.rglob("*.html") if path.parts[len(site.parts)] not in ("source", "search.html", "index.html")}
        left -= set(map(file_of, found))
        titles = [facts["title"] for facts in found.values()]
        of.problems += [f"{path.relative_to(site)}: no 'next' leads there" for path in sorted(left)]
        of.problems += [f"{title}: the title of two pages" for title in sorted(set(titles)) if titles.count(title) > 1]
        of.cut_texts()
        of.links(found)
        of.search(word)
        return list(found), of.problems


def main(site):
    began = time.monotonic()
    pages, problems = walk(site, "barrier")
    print("\n".join(problems), end="\n" if problems else "")
    print(f"site: {len(pages)} pages walked in {time.monotonic() - began:.0f} s, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
