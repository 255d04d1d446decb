#!/usr/bin/env python3
"""report.py: hostile and damaged input, and that the page needs nothing but itself."""
import json
import unittest

from report_rows import NAIVE, PEER, REPORT, TILED, Case, problem, row

HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=\"y\">'&amp; \ud800\x00"


class Input(Case):
    def test_nothing_in_a_row_becomes_markup(self):
        hostile = row(HOSTILE, HOSTILE, 3.0, idea=HOSTILE, sources={HOSTILE: HOSTILE, "../../../etc/passwd": "0"}, commit=HOSTILE, date=HOSTILE)
        hostile["problem"].update(dtype=HOSTILE, bias=HOSTILE, layout=HOSTILE, input=HOSTILE)
        hostile["device"] = {"kind": "gpu", "name": HOSTILE, "sm": 90, "cuda": HOSTILE, "driver": HOSTILE}
        bad = {**hostile, "verdict": HOSTILE, "message": HOSTILE}
        numbers = row("06_fa2_forward", "odd", 3.0, tflops=HOSTILE, flops=10**400, extra_memory_bytes=[1], tiles=HOSTILE, counters=HOSTILE)
        page = self.page([hostile, bad, {**PEER, "torch": HOSTILE}, numbers], "--title", HOSTILE[:-2], "--command", HOSTILE[:-2])
        self.assertFalse({tag for tag, _, _ in page.attributes} - {"html", "meta", "nav", "a", "ul", "section", "div", "th", "td", "table",
                         "caption", "p", "span", "small", "summary", "h3", "dl", "details", "pre", "tr", "li"})  # fmt: skip
        self.assertFalse([key for _, key, _ in page.attributes if key.startswith("on")])
        self.assertNotIn("<script", self.html)
        self.assertIn("</td></table><script>alert(1)</script>", page.text)
        self.assertNotIn("\x00", self.html)
        self.assertNotIn("root:", page.text)

    def test_the_page_is_alone(self):
        page = self.page([NAIVE, TILED, PEER])
        for _, key, value in page.attributes:
            if key in ("src", "href", "style", "action", "srcset"):
                self.assertTrue(value.startswith(("#", "data:", "--share:")), (key, value))
        targets = {value for _, key, value in page.attributes if key == "id"}
        for _, key, value in page.attributes:
            if key == "href" or key == "aria-labelledby":
                self.assertIn(value.lstrip("#"), targets)
        style = self.html.split("<style>")[1].split("</style>")[0]
        for word in ("url(", "@import", "http"):
            self.assertNotIn(word, style)
        self.assertNotIn("://", self.html)
        self.assertIn(("meta", "content", "default-src 'none'; img-src data:; style-src 'unsafe-inline'"), page.attributes)
        self.assertNotIn(str(self.path), self.html)

    def test_bad_input_is_one_line_and_harms_nothing(self):
        good = self.save([NAIVE], "good.json")
        old = REPORT + "the old page"
        self.out.write_text(old)
        bad = {"": "damaged", "[": "damaged", "[]": "no rows", "{}": "no list", "[1]": "row 1: is no object", "[" * 100000: "damaged",
               json.dumps([{**NAIVE, "pass": "both"}]): "pass is", json.dumps([NAIVE, {**NAIVE, "stage": 7}]): "row 2: stage is 7",
               json.dumps([{**NAIVE, "problem": problem(heads="x")}]): 'problem.heads is "x"', "[NaN]": "NaN",
               json.dumps([{**NAIVE, "problem": problem(causal=1)}]): "problem.causal",
               json.dumps([{**NAIVE, "tune": {}}]): "is a choice of tile sizes",
               json.dumps([{"stage": "s", "variant": "v", "pass": "forward"}]): "no verdict"}  # fmt: skip
        for contents, part in bad.items():
            self.refused(part, self.save(contents, "bad.json"), "--out", self.out)
        (self.path / "bad.json").write_bytes(b"\xff\xfe[")
        self.refused("damaged", self.path / "bad.json", "--out", self.out)
        self.refused("cannot be read", self.path / "missing.json", "--out", self.out)
        self.refused("cannot be read", self.path, "--out", self.out)
        self.refused("required", good)
        self.refused("required", "--out", self.out)
        self.refused("unrecognized", good, "--out", self.out, "--titl", "x")
        self.refused("cannot be written", good, "--out", self.path / "no" / "out.html")
        self.refused("is not a report of this program", good, "--out", good)
        self.assertEqual(self.out.read_text(), old)
        self.page([TILED])
        self.assertIn("06_fa2_forward", self.html)
        self.page([NAIVE])  # one report replaces another
        self.assertNotIn("06_fa2_forward", self.html)
        self.assertEqual(json.loads(good.read_text()), [NAIVE])
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["bad.json", "good.json", "modules", "out.html", "rows.json"])


if __name__ == "__main__":
    unittest.main()
