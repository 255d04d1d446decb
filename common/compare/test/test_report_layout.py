#!/usr/bin/env python3
"""report.py: in a browser, nothing of a page stands outside of it or over something else. Skipped without Chromium (exit code 77)."""

import html
import json
import shutil
import subprocess
import sys
import unittest

from cases import NAIVE, PEER, TILED, ReportCase, at
from made_rows import CPU, row

from html_report import page as pages

BROWSER = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")) if path), None)
LONG = "transposed and swizzled tiles, cp.async, exp2, masked tiles apart, and a few words more"
MEASURE = """
addEventListener("load", async () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, view = frame.contentWindow;
    const all = what => [...page.querySelectorAll(what)], cut = one => one.scrollWidth > one.clientWidth + 1;
    const sideways = () => page.documentElement.scrollWidth - page.documentElement.clientWidth;
    const images = () => all("figure img").map(one => Math.round(one.getBoundingClientRect().width));
    const isBox = table => view.getComputedStyle(table.querySelector("tbody")).display == "block";
    all("details").forEach(one => one.open = true);
    const before = {sideways: sideways(), small: images()};
    all("figure img").forEach(one => one.click());
    found[frame.width] = {
      ...before, large: images(), after: sideways(),
      hidden: all(".scroll").filter(cut).map(one => one.getAttribute("aria-labelledby")),
      covered: all("th small, td small").filter(cut).map(one => one.textContent),
      boxes: all(".scroll:not([aria-labelledby=kernel-files])").filter(isBox).map(one => one.className),
      type: Math.min(...all("td, th").map(one => parseFloat(view.getComputedStyle(one).fontSize))),
    };
  }
  document.body.textContent = JSON.stringify(found);
});
"""


class Layout(ReportCase):
    def measured(self, page, widths):
        """{width: what MEASURE found in a window of that width}"""
        frames = "".join(f'<iframe width="{width}" height="800" srcdoc="{html.escape(page)}"></iframe>' for width in widths)
        outer = self.path / "outer.html"
        outer.write_text(f"<!DOCTYPE html><meta charset=utf-8><script>{MEASURE}</script><body>{frames}</body>", encoding="utf-8")
        options = f"--headless --no-sandbox --disable-gpu --virtual-time-budget=20000 --dump-dom --user-data-dir={self.path / 'profile'}"
        command = [BROWSER, *options.split(), outer.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return json.loads(html.unescape(done.stdout.split("<body>")[1].split("</body>")[0]))

    def test_telephone_tablet_laptop(self):
        rows = [{**NAIVE, "idea": LONG, "sources": {"01_naive/kernel.cuh": "0123456789" * 4}}, TILED, PEER]
        rows += [row("06_fa2_forward", "bad", verdict="refused", message=LONG), row("07_fa2_backward", "two_kernels", 1.0, idea=LONG)]
        counts = {"device": CPU, "idea": LONG, "hbm_read_bytes": 1023 << 20}
        rows += [at(n, "03_online_softmax", "thread_per_row", **counts) for n in (256, 512, 1024, 2048)]
        rows = [{**one, "time": {**one["time"], "enqueue_ms": 0.0123}} if "time" in one else one for one in rows]  # one more column
        self.page(rows)
        svg = '<svg xmlns="http://www.w3.org/2000/svg" width="600pt" height="300pt" viewBox="0 0 600 300"><title>T</title></svg>'
        page = self.html.replace("</main>", f'<div class="plots">{pages.figure_of(svg, "p")}</div></main>')
        found = self.measured(page, (400, 800, 1400))
        for width, seen in found.items():
            with self.subTest(width):
                self.assertEqual((seen["sideways"], seen["hidden"], seen["covered"], seen["after"]), (0, [], [], 0))
                self.assertGreaterEqual(seen["type"], 12)
                self.assertLess(seen["small"][0], int(width))
                self.assertGreater(seen["large"][0], 800)  # a type of 9 points of 600 is 12 pixels
        self.assertEqual([set(seen["boxes"]) for seen in found.values()], [{"scroll narrow", "scroll wide"}, {"scroll wide"}, set()])


if __name__ == "__main__":
    if not BROWSER:
        print("skipped: there is no Chromium here")
        sys.exit(77)
    unittest.main()
