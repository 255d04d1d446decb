#!/usr/bin/env python3
"""Records docs/img/race_light.gif and race_dark.gif, the front page's picture: a barrier is deleted in the editor of common/try.sh 01 --serve, and
the race appears. In a copy of the project, whose kernel it edits.

record.py [FOLDER]   FOLDER: where the pictures go instead of docs/img

Needs Chromium, and Pillow to put its screenshots into one file: python3 -m pip install pillow. Nothing else needs Pillow. What the page shows is
the page's own; the script only hides its form and its counts, and adds the captions and the pointer.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chromium import PROGRAM, Chromium

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/testing"))
from scratch import Copy  # noqa: E402

WIDTH, HEIGHT, SCALE = 700, 546, 1.75
TOP = "  tile[threadIdx.y]"  # how the first line that the editor shows begins
BARRIER = "    __syncthreads();\n    for"  # its line and what follows
COLOURS = 64
LOOK = """
header, form, #counts, #told > :not(:first-child) { display: none; }
body { overflow: hidden; padding: 0 10px; }
main { display: flex; flex-direction: column; gap: 8px; }
#caption { font-size: 23px; font-weight: 700; padding: 6px 2px 0; }
#code { display: grid; grid-template-columns: auto 1fr; }
#files { overflow: hidden; }
#files button:not([aria-current="true"]) { display: none; }
#files button { color: var(--text); font: 600 14px/1.5 "DejaVu Sans Mono", monospace; padding: 8px 12px; }
#saving { flex-direction: row-reverse; padding: 5px 8px; }
#saving button { padding: 3px 14px; }
#editor { font-size: 13px; grid-column: 1 / 3; height: 339px; line-height: 16px; }
#editor textarea { outline: 0; overflow: hidden; }
textarea::selection { background: #ffb84d; color: #000; }
#result { order: 2; }
#verdict:not(:empty) { align-items: baseline; display: flex; gap: 14px; margin: 0 0 6px; padding: 3px 12px; }
#verdict strong { font-size: 21px; white-space: nowrap; }
#verdict.bad { background: var(--hit); }
.message { font-size: 14px; line-height: 1.35; }
.message button { border: 0; background: none; font-weight: 700; padding: 0; }
#pointer { left: 0; position: fixed; top: 0; width: 22px; z-index: 9; }
"""
POINTER = (
    '<svg viewBox="0 0 16 24" xmlns="http://www.w3.org/2000/svg"><path d="M1 1v18l4.5-4 3 7 3-1.3-3-7H15z" fill="#fff" stroke="#000" '
    'stroke-width="1.4"/></svg>'
)
SETUP = f"""
document.head.append(make("style", {json.dumps(LOOK)}));
document.querySelector("main").prepend(make("div", "…", {{ id: "caption" }}));
document.body.append(make("div", "", {{ id: "pointer", innerHTML: {json.dumps(POINTER)} }}));
const area = document.querySelector("#editor textarea"), button = document.querySelector("#saving button");
area.focus({{ preventScroll: true }});
const caption = (text) => {{ element("caption").textContent = text; }};
const point = (x, y) => {{ element("pointer").style.transform = `translate(${{x}}px, ${{y}}px)`; }};
const topOf = (line) => (line - 1) * parseFloat(getComputedStyle(area).lineHeight);
const lineAt = (at) => area.value.slice(0, at).split("\\n").length;
const first = lineAt(area.value.indexOf({json.dumps(TOP)})), start = area.value.indexOf({json.dumps(BARRIER)});
const settle = () => {{ area.scrollTop = topOf(first) + 4; scrollTo(0, 0); }};
const under = area.getBoundingClientRect().top + 2 + topOf(lineAt(start)) - topOf(first);
settle();
"""
VERDICT = "document.querySelector('#verdict strong')?.textContent"


class Recorder:
    def __init__(self, browser):
        self.browser, self.frames = browser, []  # [(PNG, milliseconds)]

    def do(self, *scripts):
        for script in scripts:
            self.browser.value(script)

    def take(self, milliseconds):
        self.do("settle()")
        shot = self.browser.ask("Page.captureScreenshot", format="png")["data"]
        self.frames.append((base64.b64decode(shot), milliseconds))

    def until(self, verdict):
        if not self.browser.wait(f"{VERDICT}.startsWith('{verdict}')", 60):
            raise SystemExit(f"record: the page says {self.browser.value(VERDICT)!r}, not {verdict!r}")
        time.sleep(0.3)  # the listing's marks

    def move(self, start, end, steps=4):
        for n in range(1, steps + 1):
            self.do("point({}, {})".format(*(a + (b - a) * n / steps for a, b in zip(start, end))))
            self.take(70)

    def record(self, url, theme):
        self.browser.look(WIDTH, HEIGHT, theme)
        metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": SCALE, "mobile": False}
        self.browser.ask("Emulation.setDeviceMetricsOverride", **metrics)
        self.browser.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        self.browser.open(url)
        self.until("Right, without a race")
        self.do(SETUP)
        barrier = [300, self.browser.value("under") + 8]
        save = self.browser.value(
            "(({ left, top, width, height }) => [left + width / 2, top + height / 2])(button.getBoundingClientRect())"
        )
        self.do("point(560, 420)", "caption('CUDA on your CPU: right, without a race')")
        self.take(1600)
        self.do("caption('1. Delete a barrier')")
        self.move((560, 420), barrier)
        self.do("area.setSelectionRange(start + 4, start + 20)")
        self.take(1100)
        self.do(
            f"area.setRangeText('', start, start + {len(BARRIER.splitlines()[0]) + 1}, 'start')", "area.dispatchEvent(new Event('input'))"
        )
        self.take(900)
        self.do("caption('2. Save and run')")
        self.move(barrier, save)
        self.take(500)
        self.do("button.click()")
        self.browser.wait(f"{VERDICT} === 'Running …'", 5)
        self.take(900)
        self.until("Race")
        self.do("caption('3. Two threads collide. Both lines are named')")
        self.take(4200)


def reduced(images):
    """With one palette for all and no dithering, so that what stands still costs nothing. Large areas keep their colours."""
    from PIL import Image

    def mapped(image):
        return image.quantize(palette=palette, dither=Image.Dither.NONE)

    width, height = images[0].size
    every, areas = Image.new("RGB", (width, len(images) * height)), Image.new("RGB", (COLOURS // 2, 1))
    for n, image in enumerate(images):
        every.paste(image, (0, n * height))
    areas.putdata([colour for _, colour in sorted(every.getcolors(1 << 24))[-COLOURS // 2 :]])
    others = every.quantize(COLOURS - COLOURS // 2, method=Image.Quantize.MAXCOVERAGE).getpalette()
    palette, colours = Image.new("P", (1, 1)), [*areas.tobytes(), *others]
    palette.putpalette(colours)
    frames = [mapped(image) for image in images]
    for n, index in enumerate(mapped(areas).tobytes()):  # which need not be n: Pillow compares in steps of a few shades
        colours[3 * index : 3 * index + 3] = areas.tobytes()[3 * n : 3 * n + 3]
    for frame in frames:
        frame.putpalette(colours)
    return frames


def gif(frames, path):
    from PIL import Image

    first, *others = reduced([Image.open(io.BytesIO(png)).convert("RGB") for png, _ in frames])
    first.save(path, save_all=True, append_images=others, duration=[each for _, each in frames], loop=0, optimize=False)
    print(f"{path}: {path.stat().st_size:,} bytes, {sum(each for _, each in frames) / 1000:.1f} s")


def record(root, folder):
    kernel = root / "01_naive/kernel.cuh"
    text = kernel.read_text()
    server = subprocess.Popen(
        [root / "common/try.sh", "01", "--serve"],
        env={**os.environ, "CCACHE_DISABLE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = re.search(r"http://127.0.0.1:\d+/\S+/", server.stdout.readline())
        if not url:
            raise SystemExit("record: common/try.sh 01 --serve does not start")
        for theme in ("light", "dark"):
            kernel.write_text(text)
            with Chromium(url[0]) as browser:
                recorder = Recorder(browser)
                recorder.record(f"{url[0]}#variant=naive&pass=forward", theme)
            gif(recorder.frames, folder / f"race_{theme}.gif")
    finally:
        server.terminate()
        server.wait()


def main(arguments):
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise SystemExit("record: Pillow is missing: python3 -m pip install pillow") from None
    if not PROGRAM:
        raise SystemExit("record: Chromium is missing")
    folder = Path(arguments[0] if arguments else ROOT / "docs/img").resolve()
    if not folder.is_dir():
        raise SystemExit(f"record: FOLDER is {folder}, which is no folder")
    with tempfile.TemporaryDirectory(prefix="flash_record_") as scratch:
        copy = Copy(Path(scratch) / "project")
        record(copy.folder, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
