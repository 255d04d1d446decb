#!/usr/bin/env python3
"""report.py: the page as such. It needs nothing but itself, input cannot harm it, links lead somewhere, all of it can be read."""

import base64
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from cases import NAIVE, PEER, ROOT, TILED, Page, ReportCase
from made_rows import CPU, row

import report
from html_report import page as pages
from rows.files import REPORT

HOSTILE = '</td></table><script>alert(1)</script><img src=x onerror="y">\'&amp; \ud800\x00'
STYLE = (ROOT / "common" / "compare" / "html_report" / "style.css").read_text()


class Input(ReportCase):
    def test_nothing_in_a_row_becomes_markup(self):
        sources = {HOSTILE: HOSTILE, "../../../etc/passwd": "0"}
        hostile = row(HOSTILE, HOSTILE, 3.0, idea=HOSTILE, sources=sources, commit=HOSTILE, date=HOSTILE)
        hostile["problem"].update(dtype=HOSTILE, bias=HOSTILE, layout=HOSTILE, input=HOSTILE)
        hostile["device"] = {"kind": "gpu", "name": HOSTILE, "sm": 90, "cuda": HOSTILE, "driver": HOSTILE}
        bad = {**hostile, "verdict": HOSTILE, "message": HOSTILE}
        numbers = row("06_fa2_forward", "odd", 3.0, tflops=HOSTILE, flops=10**400, extra_memory_bytes=[1], tiles=HOSTILE, counters=HOSTILE)
        page = self.page([hostile, bad, {**PEER, "torch": HOSTILE}, numbers], "--title", HOSTILE[:-2], "--command", HOSTILE[:-2])
        expected = "html meta nav a ul section div th td table caption p span small summary h3 dl details pre tr li"
        self.assertEqual({tag for tag, _, _ in page.attributes} - {*expected.split()}, set())
        self.assertEqual([key for _, key, _ in page.attributes if key.startswith("on")], [])
        self.says(page, "</td></table><script>alert(1)</script>")
        for part in ("<script", "\x00", "root:"):
            self.assertNotIn(part, self.html)

    def test_bad_input_is_one_line_and_harms_nothing(self):
        good, bad = self.save([NAIVE], "good.json"), self.save("[")
        self.out.write_text(REPORT + "the old page")
        done = subprocess.run([sys.executable, "-B", report.__file__, bad, "--out", self.out], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "^report: .*rows.json' is damaged or no JSON.*\n$")
        for part, *arguments in (
            ("required", good),
            ("required", "--out", self.out),
            ("unrecognized", good, "--out", self.out, "--titl", "x"),
            ("is not a report of this program", good, "--out", good),
            *(("begins with https://", good, "--out", self.out, "--docs", bad) for bad in ("javascript:alert(1)", "docs", "https://a b")),
        ):
            with self.fails(part):
                report.main([*map(str, arguments)])
        self.assertEqual((json.loads(good.read_text()), self.out.read_text()), ([NAIVE], REPORT + "the old page"))
        self.page([TILED])
        self.assertIn("06_fa2_forward", self.html)
        self.page([NAIVE])  # one report replaces another
        self.assertNotIn("06_fa2_forward", self.html)
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["good.json", "out.html", "rows.json"])


class Itself(ReportCase):
    def links(self, page):
        return [value for tag, key, value in page.attributes if (tag, key) == ("a", "href") and not value.startswith("#")]

    def images(self, page):
        data = (value.removeprefix("data:image/svg+xml;base64,") for _, key, value in page.attributes if key == "src")
        return [base64.b64decode(image).decode() for image in data]

    def test_the_page_is_alone(self):
        page = self.page([NAIVE, TILED, PEER])
        for _, key, value in page.attributes:
            if key in ("src", "href", "style", "action", "srcset"):
                self.assertTrue(value.startswith(("#", "data:", "--share:")), (key, value))
        targets = {value for _, key, value in page.attributes if key == "id"}
        self.assertEqual({value.lstrip("#") for _, key, value in page.attributes if key in ("href", "aria-labelledby")} - targets, set())
        for word in ("url(", "@import", "http"):
            self.assertNotIn(word, STYLE)
        self.assertNotIn("://", self.html)
        self.assertIn(("meta", "content", "default-src 'none'; img-src data:; style-src 'unsafe-inline'"), page.attributes)
        self.assertNotIn(str(self.path), self.html)

    def test_a_stage_leads_to_its_chapter(self):
        page = self.page([NAIVE, TILED, PEER, row("09_mine", "own", 1.0)])
        for stage, title in (("01_naive", "Naive attention"), ("06_fa2_forward", "FlashAttention-2, forward")):
            self.assertIn(("a", "href", f"#chapter-{stage}"), page.attributes)
            self.assertIn(("li", "id", f"chapter-{stage}"), page.attributes)
            self.says(page, f"{title}: docs/{stage}.md")
        self.assertNotIn("chapter-09_mine", self.html)
        self.assertNotIn("docs/02_safe_softmax.md", page.text)  # no row is of it
        self.assertEqual(self.links(page), [])  # outside the project no link would outlive a copy

    def test_a_stage_of_several_chapters_leads_to_the_first(self):
        page = self.page([row("08_tensor_cores", "tuned", 1.0)])
        forward = "Tensor cores, forward: docs/08_tensor_cores.md"
        rest = ("Hopper, backward: docs/08_hopper_backward.md", "Tensor cores, backward: docs/08_tensor_cores_backward.md")
        self.assertTrue(all(forward in page.text and page.text.index(forward) < page.text.index(other) for other in rest))
        self.assertEqual(sum(key == "id" and value == "chapter-08_tensor_cores" for _, key, value in page.attributes), 1)

    def test_inside_the_project_and_with_an_address_chapters_are_links(self):
        for address in ("https://example.org/docs", "https://example.org/docs/"):
            self.assertEqual(self.links(self.page([TILED], "--docs", address)), ["https://example.org/docs/06_fa2_forward.md"])
        with tempfile.TemporaryDirectory(dir=ROOT) as folder:
            self.out = Path(folder) / "report.html"
            self.assertEqual(self.links(self.page([TILED])), ["../docs/06_fa2_forward.md"])

    def test_plots(self):
        """Those of each device, and why there are no others. A click makes one larger."""

        def select(rows):
            (name,) = {row["device"]["name"] for row in rows}
            return {"memory": name}, {"time": "too few <lengths>"}

        def svg(name, picture):
            return f'<svg><title>N &lt; "M" of {picture}</title></svg>'

        def plots(select, matplotlib=sys):
            with mock.patch.dict(sys.modules, matplotlib=matplotlib), mock.patch.multiple(pages.plot, select=select, svg=svg):
                return Page(f"<body>{pages.plots([NAIVE, TILED, row('01_naive', 'naive', device=CPU)])}</body>")

        page = plots(select)
        self.assertEqual(self.images(page), [svg("", "Test GPU"), svg("", "Test CPU")])
        self.assertIn(("img", "alt", 'Plot: N < "M" of Test GPU. The figures are in the tables.'), page.attributes)
        box = [("type", "checkbox"), ("id", "plot-1"), ("class", "unseen"), ("aria-label", 'Larger: N < "M" of Test GPU')]
        self.assertEqual([(key, value) for tag, key, value in page.attributes if tag == "input"][:4], box)
        self.assertIn(("label", "for", "plot-1"), page.attributes)
        self.assertIn(":checked + label img { width:", STYLE)
        self.says(page, "no time: too few <lengths>")
        self.says(plots(mock.Mock(side_effect=KeyError("x"))), "plot.py fails: KeyError: 'x'")
        self.says(plots(select, None), "matplotlib is not installed")

    def test_saved_results(self):
        """The rows that the project shows make a page, with matplotlib one with plots."""
        names = ("compare", "tensor", "tensor_cores", "peers", "peers16")
        for device in (ROOT / "docs" / "results").iterdir():
            files = [path for path in (device / f"{name}.json" for name in names) if path.exists()]
            if files:
                self.says(self.report(*files), "08_tensor_cores/")
        with mock.patch.dict(sys.modules):
            del sys.modules["matplotlib"]
            if not importlib.util.find_spec("matplotlib"):
                self.skipTest("matplotlib is not installed: no plots")
            page = self.report(ROOT / "docs" / "results" / "cpu" / "compare.json")
        self.assertTrue(any("warp operations" in plot and "prefers-color-scheme" in plot for plot in self.images(page)))
        self.says(page, "What could not be drawn")

    def test_contrast(self):
        """Text can be read: 4.5 to 1 on whatever it stands, light and dark."""

        def light(colour):
            parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
            parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
            return 0.05 + 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        blocks = re.findall(r":root \{([^}]*--ground[^}]*)\}", STYLE)
        palettes = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in blocks]
        self.assertEqual(len(palettes), 2)
        pairs = [("text", ground) for ground in ("ground", "raised", "bar", "peer-bar", "notice")] + [("dim", "raised")]
        pairs += [(text, "ground") for text in ("dim", "link", "bad", "good", "warn")]
        for palette in palettes:
            for pair in pairs:
                dark, bright = sorted(light(palette[name]) for name in pair)
                self.assertGreaterEqual(bright / dark, 4.5, pair)


if __name__ == "__main__":
    unittest.main()
