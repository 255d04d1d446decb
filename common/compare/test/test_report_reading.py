#!/usr/bin/env python3
"""report.py: what helps to read a page: chapters, answers, titles in narrow tables, larger plots, runs side by side."""
import base64
import os
import tempfile
import unittest
from pathlib import Path

from report_rows import CPU, GPU, NAIVE, PEER, SCRIPT, TILED, Case, Page, row

from html_report import page as pages

ROOT = SCRIPT.parents[2]


class Reading(Case):
    def links(self, page):
        return [value for tag, key, value in page.attributes if (tag, key) == ("a", "href") and not value.startswith("#")]

    def test_a_stage_leads_to_its_chapter(self):
        page = self.page([NAIVE, TILED, PEER, row("09_mine", "own", 1.0)])
        for stage, title in (("01_naive", "Naive attention"), ("06_fa2_forward", "FlashAttention-2, forward")):
            self.assertIn(("a", "href", f"#chapter-{stage}"), page.attributes)
            self.assertIn(("li", "id", f"chapter-{stage}"), page.attributes)
            self.assertIn(f"{title}: docs/{stage}.md", page.text)
        self.assertNotIn("chapter-09_mine", self.html)
        self.assertNotIn("docs/02_safe_softmax.md", page.text)  # no row is of it
        self.assertEqual(self.links(page), [])  # outside the project no link would outlive a copy

    def test_inside_the_project_and_with_an_address_chapters_are_links(self):
        with tempfile.TemporaryDirectory(dir=ROOT) as folder:
            out = Path(folder) / "report.html"
            self.assertEqual(self.run_report(self.save([TILED]), "--out", out).returncode, 0)
            links = self.links(Page(out.read_text()))
            self.assertEqual(links, ["../docs/06_fa2_forward.md"])
            self.assertTrue((out.parent / links[0]).is_file())
        for address in ("https://example.org/docs", "https://example.org/docs/"):
            self.assertEqual(self.links(self.page([TILED], "--docs", address)), ["https://example.org/docs/06_fa2_forward.md"])
        for address in ("javascript:alert(1)", "docs", "https://a b"):
            self.refused("begins with https://", self.save([TILED]), "--out", self.path / "new.html", "--docs", address)

    def test_why_fa2_reads_more(self):
        def page(first, second, **more):
            return self.page([NAIVE, row("04_fa1_forward", "thread_per_row", device=CPU, hbm_read_bytes=first << 10, hbm_written_bytes=99 << 10),
                              row("06_fa2_forward", "loop_order", device=CPU, hbm_read_bytes=1 << 30),
                              row("06_fa2_forward", "warp_tiled", device=CPU, hbm_read_bytes=second << 10, tiles={"br": 64, "bc": 32}, **more)]).text  # fmt: skip

        text = page(585, 768)
        self.assertIn("Why FA-2 reads more than FA-1 here (768 KiB against 585 KiB; written: 1 MiB against 99 KiB)", text)
        self.assertIn("for each tile of queries, here of 64, and takes", text)
        self.assertNotIn("Why FA-2", page(585, 585))
        self.assertIn("Why FA-2", page(585, 700, verdict="WRONG"))  # then the step before it, which reads most
        self.assertNotIn("Why FA-2", self.page([NAIVE, TILED]).text)

    def test_each_figure_can_stand_under_its_title(self):
        """Where a table is too wide, a cell shows its data-title, since the head of its column is gone."""
        sizes = [{"seq_q": n, "seq_k": n, "batch": 2048 // n} for n in (128, 256)]
        rows = [NAIVE, TILED, PEER, row("06_fa2_forward", "bad", verdict="refused", message="no"), row("01_naive", "naive", device=CPU)]
        rows += [row("04_fa1_forward", "swept", 1.0, sizes=one) for one in sizes]
        page = self.page(rows)
        heads = 0
        for line, titles in zip(page.lines, page.titles):
            if line[0] == "stage/variant":
                head, heads = [title.replace(" ", "") for title in line[1:]], heads + 1
            elif len(titles) < len(head) + 1:
                self.assertEqual(titles, [None, None, "verdict"])  # a reason in place of figures
            else:
                for title, shown in zip(head, titles[1:]):
                    self.assertTrue(title.startswith(shown.replace(" ", "")), (title, shown))
        self.assertEqual(heads, 5)  # an overview and four tables

    def test_a_plot_can_be_enlarged(self):
        svg = '<svg xmlns="http://www.w3.org/2000/svg"><title>Bytes &lt; all</title></svg>'
        page = Page(pages.figure_of(svg, "plot-7"))
        self.assertIn(("input", "type", "checkbox"), page.attributes)
        self.assertIn(("input", "id", "plot-7"), page.attributes)
        self.assertIn(("label", "for", "plot-7"), page.attributes)
        self.assertIn(("input", "aria-label", "Larger: Bytes < all"), page.attributes)
        self.assertIn(("img", "src", "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()), page.attributes)
        style = (SCRIPT.parent / "html_report" / "style.css").read_text()
        self.assertIn(":checked + label img { width:", style)

    def test_two_machines_side_by_side(self):
        other = {**GPU, "name": "Other GPU"}
        slower = row("06_fa2_forward", "tiled", 8.0, device=other, date="2026-02-03T00:00:00Z")
        refused = row("01_naive", "naive", device=other, verdict="cannot run", message="not enough memory")
        files = self.save([NAIVE, TILED, row("04_fa1_forward", "alone", 3.0)], "a.json"), self.save([refused, slower], "b.json")
        self.assertEqual(self.run_report(*files, "--out", self.out).returncode, 0)
        page = Page(self.out.read_text())
        head = next(index for index, line in enumerate(page.lines) if line[1].startswith("a.json"))
        self.assertEqual(page.lines[head], ["stage/variant", "a.jsonTest GPU 2026-01-02 1234567890ab", "b.jsonOther GPU"])  # its rows are of two days
        self.assertEqual([line[1:] for line in page.lines[head + 1 : head + 3]], [["8", "no room"], ["2", "80.25 ×"]])
        self.assertFalse(page.lines[head + 3][0].startswith("04"))  # in one file alone
        self.assertIn("Test GPU: Forward, B=2", page.text)  # which device the lesson is of

    def test_before_and_after_a_change(self):
        before = row("06_fa2_forward", "tiled", device=CPU)
        after = {**before, "hbm_read_bytes": 1 << 20, "date": "2026-01-03T00:00:00Z", "commit": "f" * 40}
        for folder, rows in (("one", [before]), ("two", [after])):
            (self.path / folder).mkdir()
            self.save(rows, f"{folder}/rows.json")
        done = self.run_report(self.path / "one" / "rows.json", self.path / "two" / "rows.json", "--out", self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = Page(self.out.read_text())
        self.assertEqual(page.lines[0], ["stage/variant", f"{os.path.join('one', 'rows.json')}CPU simulator 2026-01-02 1234567890ab",
                                         f"{os.path.join('two', 'rows.json')}CPU simulator 2026-01-03 ffffffffffff"])  # fmt: skip
        self.assertEqual(page.lines[1][1:], ["4 MiB", "2 MiB2 ×"])
        self.assertIn("Bytes moved; in small print the gain over the first file.", page.text)
        self.assertNotIn("Runs side by side", self.page([before, after]).text)  # one file is one run


if __name__ == "__main__":
    unittest.main()
