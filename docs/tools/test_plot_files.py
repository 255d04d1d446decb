#!/usr/bin/env python3
"""Plots on pages: what docs/generate.py draws, finds stale, and shows."""

import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("docs", "common/compare", "common/compare/test")]
import made_rows as made

import plot
from tools import plot_files, saved


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results, self.plots = (pathlib.Path(folder.name) / "docs" / name for name in ("results", "plots"))
        (self.results / "gpu").mkdir(parents=True)
        for module, name, value in (
            (saved, "RESULTS", self.results),
            (plot_files, "RESULTS", self.results),
            (plot_files, "PLOTS", self.plots),
            (plot_files, "ROOT", pathlib.Path(folder.name)),
        ):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.save(made.gpu_rows())

    def save(self, rows):
        (self.results / "gpu" / "sweep.jsonl").write_text(json.dumps(rows))
        plot_files.saved.cache_clear()
        plot_files.selected.cache_clear()

    def stale(self):
        return {path.stem for path, _ in plot_files.stale()}

    def test_a_plot_is_stale_until_it_is_drawn_from_these_rows(self):
        every = self.stale()
        self.assertEqual(every, set(plot.select(made.gpu_rows())[0]))
        with mock.patch.object(plot, "svg", plot.digest):
            changed, wrong = plot_files.draw()
        self.assertEqual((len(changed), wrong, self.stale()), (len(every), [], set()))
        rows = made.gpu_rows()
        rows[0]["time"]["median_ms"] = 1.5
        self.save(rows)
        self.assertEqual(self.stale(), {"time", "tflops_forward_fp32"})
        with mock.patch.object(plot, "code_digest", lambda name: "another"):
            self.assertEqual(self.stale(), every)
        (self.plots / "gpu" / "old.svg").write_text("")
        self.assertIn("old.svg is stale; run docs/generate.py", "\n".join(plot_files.check()))

    def test_without_matplotlib_that_is_said(self):
        with mock.patch.object(plot, "svg", side_effect=ImportError("none here")):
            changed, wrong = plot_files.draw()
        self.assertEqual(changed, [])
        self.assertIn("matplotlib cannot be imported (none here): python3 -m pip install matplotlib", wrong[0])

    def test_a_page_shows_the_plot_and_its_rows(self):
        text = plot_files.picture("docs/page.md", "gpu", "time")
        self.assertRegex(
            text,
            r"\A!\[Time of a pass against the length N\. .*\]\(plots/gpu/time\.svg\)\n\nFrom `sweep.jsonl` of `docs/results/gpu`\. Saved on 2026-01-02 at",
        )
        self.assertIn("](docs/plots/gpu/time.svg)", plot_files.picture("README.md", "gpu", "time"))
        with mock.patch.object(plot_files.selected("gpu")[0]["time"], "remark", "And so on."):
            self.assertIn(" Both axes logarithmic. And so on.](", plot_files.picture("docs/page.md", "gpu", "time"))
        self.assertIn("is not saved yet: no row has bytes that the simulator counted", plot_files.picture("README.md", "gpu", "bytes"))
        with self.assertRaisesRegex(SystemExit, "README.md: there is no plot 'speed'"):
            plot_files.picture("README.md", "gpu", "speed")


if __name__ == "__main__":
    unittest.main()
