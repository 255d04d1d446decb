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


def problems_of(page, tab):
    """In words"""
    problems, url = [], (make.BUILD / "html" / f"{page.name}.html").as_uri()
    tab.on("console", lambda message: message.type == "error" and problems.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: problems.append(f"script: {error}"))
    tab.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or problems.append(asked.url))

    def run(fragment, verdict, text=""):
        tab.goto("about:blank")  # an address that differs in its hash alone would not be loaded again
        tab.goto(f"{url}#{fragment}")
        tab.wait_for_function(RESULT, timeout=300_000)
        seen, named = tab.inner_text("#result"), tab.locator("#findings .message button").count()
        if named:
            tab.evaluate("element('findings').querySelector('.message button').click()")  # leads to a marked line
        marked = tab.locator("#listing .hit").count()
        if tab.get_attribute("#verdict", "class") != verdict or text not in seen or (named and not marked):
            problems.append(f"#{fragment}: not {verdict}, or without '{text}', or no marked lines: {seen[:400]}")

    run("", "good")
    for name in [] if page.lab else tab.evaluate("data.variants.map(({ name }) => name)"):
        for problem in PROBLEMS:
            run(f"variant={name}{problem}", "good")
    for broken in page.breaks:
        run(f"break={broken.id}", "bad", broken.lesson)
        run("&".join(f"{name}={value}" for name, value in broken.state.items() if name != "break"), "good")
    if not page.lab:
        tab.goto(f"{url}#N=1024")
        tab.click("#stop")
        tab.fill("[name=N]", "40")
        tab.click("#run")
        tab.wait_for_function(f"({RESULT})?.report?.problem.seq_q === 40")
    return problems


def main(*names):
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not (sync_playwright and chromium and shutil.which("em++") and shutil.which("node")):
        print("playground: skipped: emscripten, node, Chromium or Playwright is missing")
        return 77
    wanted = [page for page in pages() if not names or page.name in names]
    subprocess.run([sys.executable, "-B", make.HERE / "make.py", *(page.name for page in wanted)], check=True, cwd=ROOT)
    failed = 0
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium)
        for page in wanted:
            problems = problems_of(page, browser.new_page())
            failed += len(problems)
            print("\n".join([f"playground: {page.name}: {len(problems)} problems", *problems]), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
