#!/usr/bin/env python3
"""plot.py draws all pictures from made-up rows: what is in the files, and whether it stands at the right places. Skipped without matplotlib
(exit code 77)."""

import contextlib
import io
import itertools
import json
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock
from xml.etree import ElementTree

import made_rows as made
from cases import Case

import plot
from plots import style

SVG = "{http://www.w3.org/2000/svg}"


class Drawing:
    """A picture read back."""

    def __init__(self, text):
        self.text, self.root = text, ElementTree.fromstring(text)
        self.groups = {group.get("id"): group for group in self.root.iter(f"{SVG}g") if group.get("id")}
        self.texts = ["".join(element.itertext()) for element in self.root.iter(f"{SVG}text")]

    def line(self, name):
        """The corners of a line or bar: [(x, y)]"""
        path = self.groups[name].find(f".//{SVG}path").get("d")
        return [(float(x), float(y)) for x, y in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path)]

    def mark(self, name):
        use = self.groups[name].find(f".//{SVG}use")
        return float(use.get("x")), float(use.get("y"))

    def left_texts(self):
        """[(text, x, y)] of those that begin at a place."""
        for text in self.root.iter(f"{SVG}text"):
            if "middle" not in text.get("style") and "end" not in text.get("style"):
                moved = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform", ""))
                yield "".join(text.itertext()), *map(float, moved.groups() if moved else (text.get("x"), text.get("y")))

    def ticks(self, axis):
        """{label: place} of the ticks of the first panel, "x" or "y"."""
        found = {}
        for group in self.groups["axes_1"].iter(f"{SVG}g"):
            if re.fullmatch(axis + r"tick_\d+", group.get("id") or ""):
                label = "".join("".join(text.itertext()) for text in group.iter(f"{SVG}text"))
                found[label] = float(list(group.iter(f"{SVG}use"))[-1].get(axis))
        return found


def draw(name, rows):
    return Drawing(plot.svg(name, plot.select(rows, [name])[0][name]))


class Pictures(Case):
    @classmethod
    def setUpClass(cls):
        cls.drawn = {}
        with tempfile.TemporaryDirectory() as folder:
            for device, rows in (("gpu", made.gpu_rows()), ("cpu", made.cpu_rows())):
                file, out = pathlib.Path(folder) / f"{device}.json", io.StringIO()
                file.write_text(json.dumps(rows))
                with contextlib.redirect_stdout(out):
                    plot.main([str(file), "--out", folder])
                written = (pathlib.Path(line) for line in out.getvalue().splitlines() if line.endswith(".svg"))
                cls.drawn.update({f"{device} {path.stem}": Drawing(path.read_text()) for path in written})

    def close(self, a, b):
        self.assertAlmostEqual(a, b, delta=0.01)  # points, or a ratio

    def test_each_picture_is_a_file(self):
        names = {"gpu": set(plot.PLOTS) - {"bytes", "counts"}, "cpu": {"bytes", "counts", "memory"}}
        names = sorted(f"{device} {name}" for device, of_device in names.items() for name in of_device)
        self.assertEqual(sorted(self.drawn), names)

    def test_text_is_text_and_colours_follow_the_page(self):
        for name, drawing in self.drawn.items():
            with self.subTest(name):
                self.assertIn("prefers-color-scheme:dark", drawing.text)
                self.assertNotIn("7f01", drawing.text)  # no stand-in is left
                shapes = drawing.text[drawing.text.index("</style>") :]
                self.assertEqual(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})(?!; (?:fill|stroke): var)", shapes), [])
                self.assertEqual({colour for colour in re.findall(r"var\(--plot-(\w+)\)", shapes)} - set(style.COLOURS), set())
                self.assertTrue(drawing.root.find(f"{SVG}title").text)
                self.assertNotRegex(drawing.text, r"\d{4}-\d\d-\d\dT")  # no date
                for drawn in drawing.root.iter(f"{SVG}text"):
                    self.assertIn("fill", drawn.get("style"))

    def test_points_of_time_stand_at_their_values(self):
        drawing = self.drawn["gpu time"]
        x, y = drawing.ticks("x"), drawing.ticks("y")
        (x1, y1), (_, y2), (x4, y4) = drawing.line("line_fp32,_forward_01_naive")
        self.close(x1, x["1000"])
        self.close(x4, x["4000"])
        self.close(y1, y["1 ms"])
        self.close(y1 - y2, y2 - y4)  # a straight line, of slope N²
        self.close((y1 - y4) / (y["1 ms"] - y["10 ms"]), 1.20412)  # log10(16)
        self.assertEqual(len(drawing.line("line_fp32,_forward_04_thread_per_row")), 4)
        for label in ("01 naive", "06 warp_tiled", "torch FA2", "∝ N²", "01 naive, N = 8,000: no room"):
            self.assertIn(label, drawing.texts)

    def test_labels_do_not_cover_each_other(self):
        for name in ("gpu time", "gpu memory", "cpu bytes"):
            texts = list(self.drawn[name].left_texts())
            self.assertGreater(len(texts), 3)
            for (one, x, y), (other, x2, y2) in itertools.combinations(texts, 2):
                self.assertFalse(abs(x - x2) < 1 and abs(y - y2) < style.SMALL, f"{name}: {one}, {other} at {x}, {y}")

    def test_a_long_label_is_broken_between_names(self):
        rows = made.gpu_rows()
        for name in ("memory_efficient", "cudnn"):
            rows += [made.at(n, "peer", name, "forward", 1, extra_memory_bytes=0) for n in (1000, 2000)]
        texts = draw("memory", rows).texts
        first = texts.index("06, 08,")
        self.assertEqual(texts[first + 1 : first + 3], ["torch mem.-efficient,", "torch cuDNN"])

    def test_bars_are_as_high_as_their_values(self):
        drawing = self.drawn["gpu tflops_forward"]

        def height(name):
            ys = [y for _, y in drawing.line(f"bar_d_=_64,_no_mask_{name}_2000")]
            return max(ys) - min(ys)

        self.close(height("08_tuned") / height("torch_FA2"), 200 / 150)
        self.close(height("08_tuned") / height("torch_plain"), 200 / 40)
        y = drawing.ticks("y")
        self.close(height("08_tuned"), y["0"] - y["200"])
        self.assertEqual(drawing.texts.count("200"), 4)  # three bars and a tick
        self.assertEqual(drawing.texts.count("no room"), 1)

    def test_a_step_that_is_not_best_in_all_panels_stands_in_their_titles(self):
        rows = made.gpu_rows() + [made.at(2000, "08_tensor_cores", "mma", "forward", 1, dtype="fp16", causal=True)]
        texts = {"08", "d = 64, no mask: 08 tuned", "d = 64, causal: 08 mma"}  # the key, two titles
        self.assertLessEqual(texts, set(draw("tflops_forward", rows).texts))
        self.assertIn("08 tuned", self.drawn["gpu tflops_forward"].texts)

    def test_of_two_lines_that_end_at_one_height_the_shorter_has_the_upper_label(self):
        rows = [made.at(n, "04_fa1_forward", "thread_per_row", "forward", n / 1000, extra_memory_bytes=64 * n) for n in (1000, 2000)]
        rows += [made.at(n, "06_fa2_forward", "tuned", "forward", n / 1000, extra_memory_bytes=32 * n) for n in (1000, 2000, 4000)]
        heights = {text: y for text, _, y in draw("memory", rows).left_texts()}
        self.assertLess(heights["04"], heights["06"])

    def test_nothing_stands_at_zero_of_a_logarithmic_axis(self):
        drawing = self.drawn["gpu memory"]
        y = drawing.ticks("y")
        for _, at in drawing.line("line_forward_06,_08"):
            self.close(at, y["0 B"])
        (_, first), *_ = drawing.line("line_forward_01")
        self.assertLess(first, y["0 B"])

    def test_the_ladder_s_bars(self):
        drawing = self.drawn["gpu ladder"]
        ends = {name: sorted({x for x, _ in drawing.line(f"bar_forward_08,_fp16_{name}")}) for name in ("mma", "tuned")}
        length = {name: last - first for name, (first, last) in ends.items()}
        self.close(length["tuned"] / length["mma"], 2)
        self.assertTrue({"200", "FA2 150", "08, fp16"} <= set(drawing.texts))

    def test_marks_of_the_roofline(self):
        drawing = self.drawn["gpu roofline"]
        x, y = drawing.mark("mark_forward_06_warp_tiled")
        self.close(x, drawing.ticks("x")["64"])
        self.close(y, drawing.ticks("y")["32"])
        self.assertIn("fp32, 64 TFLOP/s", drawing.texts)
        self.assertIn("HBM's slope is not known for this GPU.", drawing.texts)

    def test_counts_are_written_out(self):
        self.assertIn("7,777,777", self.drawn["cpu counts"].texts)
        self.assertIn("No step has bank conflicts here.", self.drawn["cpu counts"].texts)
        self.assertNotIn("bank conflicts", self.drawn["cpu counts"].texts)
        picture = plot.select(made.cpu_rows(), ["counts"])[0]["counts"]
        picture.remark = ""
        height = float(re.search(r'height="([\d.]+)pt"', plot.svg("counts", picture))[1])
        self.close(float(self.drawn["cpu counts"].root.get("height")[:-2]) - height, 14)  # the remark has room of its own
        self.assertIn("must move", self.drawn["cpu bytes"].texts)

    def test_the_same_rows_give_the_same_file(self):
        again = draw("time", made.gpu_rows()).text
        self.assertEqual(again, self.drawn["gpu time"].text)
        self.assertTrue(again.startswith(plot.digest("time", plot.select(made.gpu_rows())[0]["time"])))

    def test_a_file_that_is_no_plot_is_known_before_anything_is_drawn(self):
        rows, picture = str(self.save(made.gpu_rows())), self.path / "time.svg"
        picture.write_text("<svg>my own</svg>")
        with mock.patch.object(plot, "svg", side_effect=AssertionError("drawn")), self.fails("time.svg exists and is not a plot of"):
            plot.main([rows, "--only", "memory,time", "--out", str(self.path)])
        self.assertEqual(picture.read_text(), "<svg>my own</svg>")
        picture.write_text(self.drawn["gpu memory"].text)
        with contextlib.redirect_stdout(io.StringIO()):
            plot.main([rows, "--only", "time", "--out", str(self.path)])
        self.assertEqual(picture.read_text(), self.drawn["gpu time"].text)
        self.assertEqual({path.name for path in self.path.iterdir()}, {"rows.json", "time.svg"})


if __name__ == "__main__":
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("skipped: matplotlib is not installed")
        sys.exit(77)
    unittest.main()
