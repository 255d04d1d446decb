#!/usr/bin/env python3
"""Records docs/img/race_light.gif and race_dark.gif, the front page's picture: a barrier is deleted in the editor of common/try.sh 01 --serve, and
the race appears. In a copy of the project, whose kernel it edits; the script hides the page's form and counts, and adds the captions. Needs
Chromium and python3 -m pip install playwright pillow.
"""

import io
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
LOOK = """
header, form, #counts, #told > :not(:first-child), #files button:not([aria-current="true"]) { display: none; }
body { overflow: hidden; padding: 0 10px; }
main { display: flex; flex-direction: column; gap: 8px; }
#caption { font-size: 23px; font-weight: 700; padding: 6px 2px 0; }
#code { display: grid; grid-template-columns: auto 1fr; }
#saving { flex-direction: row-reverse; padding: 5px 8px; }
#editor { font-size: 11.8px; grid-column: 1 / 3; height: 356px; line-height: 16px; }
#editor textarea { outline: 0; overflow: hidden; }
textarea::selection { background: #ffb84d; color: #000; }
#result { order: 2; }
#verdict:not(:empty) { align-items: baseline; display: flex; gap: 14px; margin: 0 0 6px; padding: 3px 12px; }
#verdict strong { white-space: nowrap; }
#verdict.bad { background: var(--hit); }
.message { line-height: 1.35; }
"""
SETUP = """
document.querySelector("main").prepend(make("div", "", { id: "caption" }));
const area = document.querySelector("#editor textarea"), line = parseFloat(getComputedStyle(area).lineHeight);
const start = area.value.indexOf("    __syncthreads();\\n    for"), first = area.value.indexOf("  tile[threadIdx.y]");
area.focus({ preventScroll: true });
"""
SETTLE = "area.scrollTop = (area.value.slice(0, first).split('\\n').length - 1) * line + 4, scrollTo(0, 0)"


def record(page, url):
    """[(picture, milliseconds)]"""
    frames = []

    def take(caption, milliseconds):
        page.evaluate("(text) => { element('caption').textContent = text; }", caption)
        page.evaluate(SETTLE)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        # A small red text keeps its red, and what stands still costs little.
        frames.append((picture.quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE), milliseconds))

    def until(verdict):
        page.locator("#verdict strong", has_text=verdict).wait_for(timeout=600_000)
        page.wait_for_timeout(300)  # the listing's marks

    page.goto(url, timeout=600_000)
    until("Right, without a race")
    page.locator("#files button", has_text="products.cuh").click()
    page.add_style_tag(content=LOOK)
    page.add_script_tag(content=SETUP)
    take("CUDA on your CPU: right, without a race", 1600)
    page.evaluate("area.setSelectionRange(start + 4, start + 20)")
    take("1. Delete a barrier", 1400)
    page.evaluate("area.setRangeText('', start, start + 21, 'start'), area.dispatchEvent(new Event('input'))")
    take("1. Delete a barrier", 900)
    page.keyboard.press("Control+s")
    until("Running")
    take("2. Save and run", 1400)
    until("Race")
    take("3. Two threads collide. Both lines are named", 4200)
    return frames


def main():
    with tempfile.TemporaryDirectory(prefix="flash_record_") as scratch, sync_playwright() as play:
        root = Path(shutil.copytree(ROOT, f"{scratch}/project", ignore=shutil.ignore_patterns("build*", ".*")))
        kernel, command = root / "01_naive/products.cuh", [root / "common/try.sh", "01", "--serve"]
        text, browser = kernel.read_text(), play.chromium.launch(executable_path=shutil.which("chromium") or shutil.which("google-chrome"))
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
            try:
                url = re.search(r"http://127.0.0.1:\d+/\S+/", server.stdout.readline())[0]
                for theme in ("light", "dark"):
                    kernel.write_text(text)
                    page = browser.new_page(viewport={"width": 700, "height": 563}, device_scale_factor=1.75, color_scheme=theme)
                    (first, *others), durations = zip(*record(page, f"{url}#variant=naive&pass=forward"))
                    first.save(ROOT / f"docs/img/race_{theme}.gif", save_all=True, append_images=others, duration=durations, loop=0)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
