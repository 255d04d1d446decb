#!/usr/bin/env python3
"""Opens each page of the playground in Chromium, from the disk: every kernel is right and counts what is predicted, every lab's claims hold, and
every mistake is found on a problem that the kernel as it is passes. The console stays empty, and nothing comes from outside.

test_playground.py [PAGE...]   Needs emscripten, node, Chromium and Playwright. Exit code 77: one is missing.
"""

import shutil
import subprocess
import sys

import make
from kernels import ROOT, pages

PROBLEMS = ("", "&N=33&keys=70&heads=2&kv=1&mask=causal&order=reverse")
RESULT = "window.finished && element('stop').disabled && window.finished"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Visit:
    """A page of the playground in a tab of the browser; `problems` in words"""

    def __init__(self, tab, page, folder):
        self.tab, self.page, self.problems = tab, page, []
        self.url = (folder / f"{page.name}.html").as_uri()
        tab.on("console", lambda message: message.type == "error" and self.problems.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        tab.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or self.problems.append(asked.url))

    def run(self, fragment, verdict, told=""):
        """A run that ends with this verdict"""
        self.tab.goto("about:blank")  # an address that differs in its hash alone would not be loaded again
        self.tab.goto(f"{self.url}#{fragment}")
        self.tab.wait_for_function(RESULT, timeout=300_000)
        seen = self.tab.inner_text("#result")
        if named := self.tab.locator("#told .message button").count():
            self.tab.evaluate("element('told').querySelector('.message button').click()")  # leads to a marked line
        marked = self.tab.locator("#listing .hit").count()
        if self.tab.get_attribute("#verdict", "class") != verdict or told not in seen or (named and not marked):
            self.problems.append(f"#{fragment}: not {verdict}, or without '{told}', or no marked lines: {seen[:400]}")

    def check_stop(self):
        self.tab.goto(f"{self.url}#N=1024")
        self.tab.click("#stop")
        self.tab.fill("[name=N]", "40")
        self.tab.click("#run")
        self.tab.wait_for_function(f"({RESULT})?.report?.problem.seq_q === 40")

    def check(self):
        self.run("", "good")
        if self.page.lab:
            return
        for name in self.tab.evaluate("data.variants.map(({ name }) => name)"):
            for problem in PROBLEMS:
                self.run(f"variant={name}{problem}", "good")
        for broken in self.page.breaks:
            self.run(f"break={broken.id}", "bad", broken.lesson)
            self.run("&".join(f"{name}={value}" for name, value in broken.state.items() if name != "break"), "good")
        self.check_stop()


def main(*names):
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if not (sync_playwright and CHROMIUM and shutil.which("em++") and shutil.which("node")):
        print("playground: skipped: emscripten, node, Chromium or Playwright is missing")
        return 77
    wanted = [page for page in pages() if not names or page.name in names]
    subprocess.run([sys.executable, "-B", make.HERE / "make.py", *(page.name for page in wanted)], check=True, cwd=ROOT)
    failed = 0
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM)
        for page in wanted:
            visit = Visit(browser.new_page(), page, make.BUILD / "html")
            visit.check()
            failed += len(visit.problems)
            print("\n".join([f"playground: {page.name}: {len(visit.problems)} problems", *visit.problems]), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
