#!/usr/bin/env python3
"""plot.py draws all pictures from made-up rows: what is in the files, and whether it stands at the right places. Skipped without matplotlib
(exit code 77)."""

import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import made_rows as made

import plot
from plots import style

SVG = "{http://www.w3.org/2000/svg}"


class Drawing:
    """A picture read back."""

    def __init__(self, path):
        self.text = path.read_text()
        self.root = ElementTree.fromstring(self.text)
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
        """[(x, y)] of the texts that begin at a place."""
        for text in self.root.iter(f"{SVG}text"):
            if "middle" not in text.get("style") and "end" not in text.get("style"):
                moved = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", text.get("transform", ""))
                yield tuple(map(float, moved.groups() if moved else (text.get("x"), text.get("y"))))

    def ticks(self, axis, number=1):
        """{label: place} of the ticks of a panel, "x" or "y"."""
        panel = self.groups[f"axes_{number}"]
        found = {}
        for group in panel.iter(f"{SVG}g"):
            if re.fullmatch(axis + r"tick_\d+", group.get("id") or ""):
                label = "".join("".join(text.itertext()) for text in group.iter(f"{SVG}text"))
                found[label] = float(list(group.iter(f"{SVG}use"))[-1].get(axis))
        return found


class Pictures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.drawn = {}
        for device, rows in (("gpu", made.gpu_rows()), ("cpu", made.cpu_rows())):
            file, out = cls.folder / f"{device}.json", io.StringIO()
            file.write_text(json.dumps(rows))
            with contextlib.redirect_stdout(out):
                plot.main([str(file), "--out", str(cls.folder / device)])
            written = [line for line in out.getvalue().splitlines() if line.endswith(".svg")]
            cls.drawn.update({f"{device} {pathlib.Path(path).stem}": Drawing(pathlib.Path(path)) for path in written})

    def close(self, a, b):
        self.assertAlmostEqual(a, b, delta=0.01)  # points, or a ratio

    def test_each_picture_is_a_file(self):
        names = {"gpu": set(plot.PLOTS) - {"bytes", "counts"}, "cpu": {"bytes", "counts", "memory"}}
        names = sorted(f"{device} {name}" for device, of_device in names.items() for name in of_device)
        self.assertEqual(sorted(self.drawn), names)
        self.assertEqual([path.name for path in self.folder.rglob("*.part")], [])

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
            places = list(self.drawn[name].left_texts())
            self.assertGreater(len(places), 3)
            for i, (x, y) in enumerate(places):
                for x2, y2 in places[i + 1 :]:
                    self.assertFalse(abs(x - x2) < 1 and abs(y - y2) < style.SMALL, f"{name}: two texts at {x}, {y}")

    def test_a_long_label_is_broken_between_names(self):
        rows = made.gpu_rows()
        for name in ("memory_efficient", "cudnn"):
            rows += [made.at(n, "peer", name, "forward", 1, extra_memory_bytes=0) for n in (1000, 2000)]
        path = self.folder / "memory.svg"
        path.write_text(plot.svg("memory", plot.select(rows, ["memory"])[0]["memory"]))
        drawing = Drawing(path)
        first = drawing.texts.index("06, 08,")
        self.assertEqual(drawing.texts[first + 1 : first + 3], ["torch mem.-efficient,", "torch cuDNN"])

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
        path = self.folder / "bars.svg"
        path.write_text(plot.svg("tflops_forward", plot.select(rows, ["tflops_forward"])[0]["tflops_forward"]))
        texts = Drawing(path).texts
        self.assertIn("08", texts)  # the key
        self.assertIn("d = 64, no mask: 08 tuned", texts)
        self.assertIn("d = 64, causal: 08 mma", texts)
        self.assertIn("08 tuned", self.drawn["gpu tflops_forward"].texts)

    def test_of_two_lines_that_end_at_one_height_the_shorter_has_the_upper_label(self):
        rows = [made.at(n, "04_fa1_forward", "thread_per_row", "forward", n / 1000, extra_memory_bytes=64 * n) for n in (1000, 2000)]
        rows += [made.at(n, "06_fa2_forward", "tuned", "forward", n / 1000, extra_memory_bytes=32 * n) for n in (1000, 2000, 4000)]
        path = self.folder / "ends.svg"
        path.write_text(plot.svg("memory", plot.select(rows, ["memory"])[0]["memory"]))
        drawing = Drawing(path)
        texts = [text for text in drawing.root.iter(f"{SVG}text") if "middle" not in text.get("style") and "end" not in text.get("style")]
        place = {"".join(text.itertext()): at for text, at in zip(texts, drawing.left_texts())}
        self.assertLess(place["04"][1], place["06"][1])

    def test_nothing_stands_at_zero_of_a_logarithmic_axis(self):
        drawing = self.drawn["gpu memory"]
        y = drawing.ticks("y")
        for _, at in drawing.line("line_forward_06,_08"):
            self.close(at, y["0 B"])
        (_, first), *_ = drawing.line("line_forward_01")
        self.assertLess(first, y["0 B"])

    def test_the_ladder_s_bars(self):
        drawing = self.drawn["gpu ladder"]
        length = {name: max(x for x, _ in drawing.line(f"bar_forward_08_{name},_fp16")) - 10 for name in ("mma", "tuned")}
        self.close(length["tuned"] / length["mma"], 2)
        self.assertIn("200 TFLOP/s, ×2.00", drawing.texts)
        self.assertIn("idea of tuned", drawing.texts)

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
        again = plot.svg("time", plot.select(made.gpu_rows(), ["time"])[0]["time"])
        self.assertEqual(again, self.drawn["gpu time"].text)
        self.assertTrue(again.startswith(plot.digest("time", plot.select(made.gpu_rows())[0]["time"])))

    def test_a_file_that_is_no_plot_is_known_before_anything_is_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "time.svg"
            picture.write_text("<svg>my own</svg>")
            with (
                mock.patch.object(plot, "svg", side_effect=AssertionError("drawn")),
                self.assertRaisesRegex(plot.Failure, "time.svg exists and is not a plot of"),
            ):
                plot.main([str(self.folder / "gpu.json"), "--only", "memory,time", "--out", folder])
            self.assertEqual((picture.read_text(), list(pathlib.Path(folder).iterdir())), ("<svg>my own</svg>", [picture]))
            picture.write_text(self.drawn["gpu memory"].text)
            with contextlib.redirect_stdout(io.StringIO()):
                plot.main([str(self.folder / "gpu.json"), "--only", "time", "--out", folder])
            self.assertEqual(picture.read_text(), self.drawn["gpu time"].text)


if __name__ == "__main__":
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("skipped: matplotlib is not installed")
        sys.exit(77)
    unittest.main()
