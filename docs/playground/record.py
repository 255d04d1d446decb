#!/usr/bin/env python3
"""Records docs/img/race_light.gif and race_dark.gif, the front page's picture: a barrier is deleted in the editor of common/try.sh 01 --serve, and
the race appears. In a copy of the project, whose kernel it edits.

record.py [FOLDER]   FOLDER: where the pictures go instead of docs/img

Needs Chromium and python3 -m pip install playwright pillow. What the page shows is the page's own; the script only hides its form and its counts,
and adds the captions and the pointer.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from PIL import Image
    from playwright.sync_api import sync_playwright
except ImportError as error:
    sys.exit(f"record: {error.name} is missing: python3 -m pip install playwright pillow")

ROOT = Path(__file__).resolve().parents[2]
COLOURS = 128
LOOK = """
header, form, #counts, #told > :not(:first-child), #files button:not([aria-current="true"]) { display: none; }
body { overflow: hidden; padding: 0 10px; }
main { display: flex; flex-direction: column; gap: 8px; }
#caption { font-size: 23px; font-weight: 700; padding: 6px 2px 0; }
#code { display: grid; grid-template-columns: auto 1fr; }
#files button { color: var(--text); font: 600 14px/1.5 "DejaVu Sans Mono", monospace; padding: 8px 12px; }
#saving { flex-direction: row-reverse; padding: 5px 8px; }
#saving button { padding: 3px 14px; }
#editor { font-size: 11.8px; grid-column: 1 / 3; height: 356px; line-height: 16px; margin-right: 12px; }
#editor textarea { outline: 0; overflow: hidden; }
textarea::selection { background: #ffb84d; color: #000; }
#result { order: 2; }
#verdict:not(:empty) { align-items: baseline; display: flex; gap: 14px; margin: 0 0 6px; padding: 3px 12px; }
#verdict strong { font-size: 21px; white-space: nowrap; }
#verdict.bad { background: var(--hit); }
.message { font-size: 14px; line-height: 1.35; }
.message button { border: 0; background: none; font-weight: 700; padding: 0; }
#pointer { left: 0; pointer-events: none; position: fixed; top: 0; width: 22px; z-index: 9; }
"""
SETUP = """
document.querySelector("main").prepend(make("div", "", { id: "caption" }));
document.body.append(make("div", "", { id: "pointer", innerHTML: `<svg viewBox="0 0 16 24" xmlns="http://www.w3.org/2000/svg">
  <path d="M1 1v18l4.5-4 3 7 3-1.3-3-7H15z" fill="#fff" stroke="#000" stroke-width="1.4"/></svg>` }));
const area = document.querySelector("#editor textarea"), line = parseFloat(getComputedStyle(area).lineHeight);
const start = area.value.indexOf("    __syncthreads();\\n    for"), first = area.value.indexOf("  tile[threadIdx.y]");
const topOf = (at) => (area.value.slice(0, at).split("\\n").length - 1) * line;
const settle = () => { area.scrollTop = topOf(first) + 4; scrollTo(0, 0); };
const middle = ({ left, top, width, height }) => [left + width / 2, top + height / 2];
area.focus({ preventScroll: true });
settle();
"""


class Recorder:
    def __init__(self, page):
        self.page, self.frames = page, []  # [(PNG, milliseconds)]

    def take(self, milliseconds):
        self.page.evaluate("settle()")
        self.frames.append((self.page.screenshot(), milliseconds))

    def caption(self, text):
        self.page.evaluate("(text) => { element('caption').textContent = text; }", text)

    def point(self, x, y):
        self.page.evaluate(f"element('pointer').style.transform = 'translate({x}px, {y}px)'")

    def move(self, start, end, steps=4):
        for n in range(1, steps + 1):
            self.point(*(a + (b - a) * n / steps for a, b in zip(start, end)))
            self.take(70)

    def until(self, verdict):
        self.page.locator("#verdict strong", has_text=verdict).wait_for(timeout=120_000)
        self.page.wait_for_timeout(300)  # the listing's marks

    def record(self, url):
        self.page.goto(url, timeout=600_000)  # builds first
        self.until("Right, without a race")
        self.page.locator("#files button", has_text="products.cuh").click()
        self.page.add_style_tag(content=LOOK)
        self.page.add_script_tag(content=SETUP)
        barrier = [300, self.page.evaluate("area.getBoundingClientRect().top + 10 + topOf(start) - topOf(first)")]
        save = self.page.evaluate("middle(document.querySelector('#saving button').getBoundingClientRect())")
        self.point(560, 420)
        self.caption("CUDA on your CPU: right, without a race")
        self.take(1600)
        self.caption("1. Delete a barrier")
        self.move((560, 420), barrier)
        self.page.evaluate("area.setSelectionRange(start + 4, start + 20)")
        self.take(1100)
        self.page.evaluate("area.setRangeText('', start, start + 21, 'start'), area.dispatchEvent(new Event('input'))")
        self.take(900)
        self.caption("2. Save and run")
        self.move(barrier, save)
        self.take(500)
        self.page.locator("#saving button").first.click()
        self.until("Running")
        self.take(900)
        self.until("Race")
        self.caption("3. Two threads collide. Both lines are named")
        self.take(4200)


def gif(frames, path):
    """With one palette for all and no dithering, so that what stands still costs nothing."""
    images = [Image.open(io.BytesIO(png)).convert("RGB") for png, _ in frames]
    width, height = images[0].size
    every = Image.new("RGB", (width, len(images) * height))
    for n, image in enumerate(images):
        every.paste(image, (0, n * height))
    palette = every.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)  # a small red text keeps its red
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    first.save(path, save_all=True, append_images=others, duration=[each for _, each in frames], loop=0, optimize=False)
    print(f"{path}: {path.stat().st_size:,} bytes, {sum(each for _, each in frames) / 1000:.1f} s")


def main(folder):
    if not folder.is_dir():
        sys.exit(f"record: FOLDER is {folder}, which is no folder")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory(prefix="flash_record_") as scratch, sync_playwright() as play:
        root = Path(shutil.copytree(ROOT, f"{scratch}/project", ignore=shutil.ignore_patterns("build*", ".*")))
        kernel, command = root / "01_naive/products.cuh", [root / "common/try.sh", "01", "--serve"]
        text, settings = kernel.read_text(), {**os.environ, "CCACHE_DISABLE": "1"}
        server = subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://127.0.0.1:\d+/\S+/", server.stdout.readline())
            if not url:
                sys.exit("record: common/try.sh 01 --serve does not start")
            for theme in ("light", "dark"):
                kernel.write_text(text)
                browser = play.chromium.launch(executable_path=chromium)
                look = {"viewport": {"width": 700, "height": 563}, "device_scale_factor": 1.75, "color_scheme": theme}
                recorder = Recorder(browser.new_page(**look))
                recorder.record(f"{url[0]}#variant=naive&pass=forward")
                browser.close()
                gif(recorder.frames, folder / f"race_{theme}.gif")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "docs/img")
