#!/usr/bin/env python3
"""Opens each page of the playground in a browser, from the disk: every kernel counts as its native program does, every lab prints the same, every mistake is told
with the words that the course promises, in time, and without an error on the console. A static server does as well as the disk.

test_playground.py BROWSER BUILD [PAGE...]   BROWSER: Chromium or Firefox; BUILD: a native build folder. Exit code 77: something is missing.
"""

import functools
import http.server
import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import chromium  # noqa: E402
import firefox  # noqa: E402
import make  # noqa: E402
from kernels import LAB, ROOT, labs, pages  # noqa: E402

BROWSERS = {
    "Chromium": (chromium.Chromium, {"chromium": chromium.PROGRAM}),
    "Firefox": (firefox.Firefox, {"firefox": firefox.PROGRAM, "marionette_driver": firefox.DRIVER}),
}
FIRST = 3  # seconds to the first verdict
LAST = 120  # to any
SEEN = "(({{ top, bottom }}) => top > -1 && bottom < innerHeight + 1)({}.getBoundingClientRect())"
TOO_WIDE = "document.documentElement.scrollWidth > innerWidth"
COMPARED = ("predicted", "counters", "threads", "tiles", "problem", "extra_memory_bytes")
FINISHED = "window.finished && element('stop').disabled && window.finished"


def differences(got, wanted, path=""):
    """["counters.barriers is 9, not 8"]"""
    if isinstance(got, dict) and isinstance(wanted, dict):
        return [text for key in sorted({*got, *wanted}) for text in differences(got.get(key), wanted.get(key), f"{path}.{key}".lstrip("."))]
    return [] if got == wanted else [f"{path} is {got}, not {wanted}"]


class Visit:
    def __init__(self, browser, folder, page, native):
        self.browser, self.page, self.native = browser, page, native
        self.url = (folder / f"{page.name}.html").as_uri()
        self.slowest = 0

    def run(self, fragment):
        """What the page finds when it is opened with this hash."""
        began = time.monotonic()
        self.browser.open(f"{self.url}#{fragment}")
        finished = self.browser.wait(FINISHED, LAST)
        assert finished, f"#{fragment}: no verdict in {LAST} s: {self.browser.value('document.body.innerText')[:2000]}"
        self.slowest = max(self.slowest, time.monotonic() - began)
        return finished

    def first(self):
        """Seconds from the start of loading the page to its first verdict: by the clock, or the processor time of all threads, whichever is less, since
        the clock says little where others are at work. What the browser still does to start is over by then."""
        began, before = self.browser.seconds(), -1
        while began - before > 0.05:
            time.sleep(0.5)
            began, before = self.browser.seconds(), began
        clock = time.monotonic()
        self.run("")
        return min(self.browser.seconds() - began, time.monotonic() - clock)

    def check_counts(self, variant, fragment):
        finished = self.run(fragment)
        arguments = self.browser.value(f"argumentsOf(state(), {json.dumps(variant)})")
        done = subprocess.run([self.native, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"{self.native.name} {' '.join(arguments)}: {done.stderr}"
        wanted = json.loads(done.stdout)
        of_page, of_native = ({part: report.get(part) for part in COMPARED} for report in (finished["report"], wanted))
        assert of_page == of_native, f"{variant}: other than in {self.native.name}, {'; '.join(differences(of_page, of_native)[:5])}"
        assert self.browser.value("element('verdict').className") == "good", f"{variant}: the verdict is not good"

    def check_lab(self, argument):
        """It prints what the native program does."""
        finished = self.run(f"arguments={argument}")
        done = subprocess.run([self.native, *filter(None, [argument])], capture_output=True, text=True)
        assert finished["result"]["out"] == done.stdout, f"it prints {finished['result']}, {self.native.name} {done.stdout}"
        assert done.returncode == 0 and self.browser.value("element('verdict').className") == "good", "the verdict is not good"
        marked = self.browser.value("element('listing').querySelectorAll('.hit').length")
        assert bool(marked) == (f"{self.page.kernels[0]}:" in done.stdout), f"{marked} lines are marked"

    def check_break(self, broken):
        finished = self.run(f"break={broken.id}")
        options = self.browser.value(f"argumentsOf(state(), {json.dumps(broken.variant)})")
        told = make.told(broken, options, finished["result"], lambda: finished["usual"])
        assert make.promised(broken) in told, f"{broken.id}: it says '{told}', not '{broken.says}'"
        assert self.browser.value("element('told').innerText").strip().endswith(broken.lesson), f"{broken.id}: the lesson is missing"
        assert not self.browser.value("element('verdict').className === 'good'"), f"{broken.id}: the verdict is good"
        assert self.browser.value(SEEN.format("element('verdict')")), f"{broken.id}: the verdict is out of sight"
        places = self.browser.value("element('told').querySelectorAll('.message button').length")
        named = self.browser.value("element('told').querySelectorAll('button').length")
        assert named == places, f"{broken.id}: {named - places} places are named outside of messages, whose lines are marked"
        self.browser.value("element('told').querySelector('.message button')?.click(), 0")
        hits = self.browser.value("element('listing').querySelectorAll('.hit').length")
        assert bool(places) == bool(hits), f"{broken.id}: {places} places are named, {hits} lines are marked"
        led_to = "element('listing').querySelector(`[data-line='${element('told').querySelector('.message button').innerText.split(':').pop()}']`)"
        seen = not hits or self.browser.value(SEEN.format(led_to))
        assert seen, f"{broken.id}: the line that a message's first button leads to is out of sight"
        changed = self.browser.value("open(broken().file), element('listing').querySelectorAll('.come, .go').length")
        assert changed, f"{broken.id}: the listing does not show the mistake"

    def check_stop(self):
        """A run that takes too long ends when the reader says so, and the next one is as good as ever."""
        self.browser.open(f"{self.url}#N=1024")
        self.browser.wait("!element('stop').disabled", LAST)
        self.browser.value("element('stop').click()")
        assert self.browser.value("element('verdict').innerText").startswith("Stopped")
        self.browser.value("form.elements.N.value = 40, form.requestSubmit()")
        assert self.browser.wait(FINISHED, LAST)["report"]["problem"]["seq_q"] == 40

    def check_looks(self):
        backgrounds = set()
        for theme in ("light", "dark"):
            for width in (400, 1280):
                self.browser.look(width, 900, theme)
                assert not self.browser.value(TOO_WIDE), f"wider than {width} px, {theme}"
            backgrounds.add(self.browser.value("getComputedStyle(document.body).backgroundColor"))
        assert len(backgrounds) == 2, "both themes look alike"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def check_served(page, folder, native, browser_class):
    """A page that comes from a static server runs as one from the disk, and asks for nothing else."""
    asked = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), asked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        with browser_class(address) as browser:
            visit = Visit(browser, folder, page, native)
            visit.url = f"{address}{page.name}.html"
            visit.check_break(page.breaks[0])
            assert not browser.problems, f"from a server: {browser.problems}"
        server.shutdown()


def first_verdict(browser_class, *visited):
    """In a browser of its own, which has compiled nothing yet."""
    with browser_class() as browser:
        return Visit(browser, *visited).first()


def check(page, folder, native, browser_class):
    """The seconds to the first verdict and to the last one."""
    first = min(first_verdict(browser_class, folder, page, native) for _ in range(2))  # processor time grows when others are at work
    with browser_class() as browser:
        visit = Visit(browser, folder, page, native)
        visit.run("")
        assert first < FIRST, f"the first verdict takes {first:.1f} s"
        browser.value("take({break: data.breaks[0].id}), take({}), 0")
        assert browser.value("form.querySelector('[name=break]:checked').value") == "", "a mistake stays when nothing is to be broken"
        visit.check_looks()
        for argument in ["", *browser.value("data.arguments")] if page.stage == LAB else []:
            visit.check_lab(argument)
        for variant in browser.value("data.variants") if page.stage != LAB else []:
            for fragment in (
                f"variant={variant['name']}",
                f"variant={variant['name']}&N=33&keys=70&d=24&heads=2&kv=1&mask=causal&order=reverse",
            ):
                visit.check_counts(variant["name"], fragment)
        for broken in page.breaks:
            visit.check_break(broken)
        if page.stage != LAB:  # a lab ends before anyone could stop it
            visit.check_stop()
        assert not browser.problems, "\n".join(browser.problems)
    check_served(page, folder, native, browser_class)
    return first, visit.slowest


def missing(needed, native, wanted):
    needed = needed | {name: shutil.which(name) for name in ("em++", "node")}
    return [name for name, there in needed.items() if not there] + [
        str(native / page.native) for page in wanted if not (native / page.native).exists()
    ]


def main(name, build, *names):
    browser_class, needed = BROWSERS[name]
    wanted = [page for page in (*pages(), *labs()) if not names or page.name in names]
    native = Path(build).resolve() / "bin"
    if lacks := missing(needed, native, wanted):
        print(f"playground: skipped, {', '.join(lacks)} is missing")
        return 77
    folder = make.BUILD / "html"
    subprocess.run([sys.executable, "-B", HERE / "make.py", *(page.name for page in wanted)], check=True, cwd=ROOT)
    failed = 0
    for page in wanted:
        try:
            first, slowest = check(page, folder, native / page.native, browser_class)
            print(f"playground: {page.name} is right, first verdict after {first:.1f} s, slowest {slowest:.1f} s", flush=True)
        except AssertionError as error:
            failed = 1
            print(f"playground: {page.name}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
