"""What a picture of a trace says of events that are known: stages by their loads, and where their phases begin and end. And when
products are in flight by stamps of a GPU's clock, that a loop's picture has the order of its code, that colours can be told apart and text can be read."""

import itertools
import json
import pathlib
import re
import tempfile
import unittest
from unittest import mock

from docs.img.src import hopper_backward as backward
from docs.img.src import hopper_forward as pictures
from docs.img.src import hopper_stamps, pipelines
from docs.tools.svg import COLOURS


def event(what, warp, **numbers):
    return {"event": what, "warp": warp, **numbers}


def load(barrier, phase, to, tensor):
    return event("load", 4, barrier=barrier, phase=phase, to=to, bytes=1024, tensor=tensor)


# Two boxes of Q on barrier 0; K in stages 1 and 3 with the empty barriers 2 and 4; then stage 1 again.
EVENTS = [load(0, 0, 4096, "Q"), load(0, 0, 5120, "Q")]
for full, empty, phase, to in [(1, 2, 0, 0), (3, 4, 0, 1024), (1, 2, 1, 0)]:
    EVENTS += [
        event("waited", 4, barrier=empty, phase=phase - 1),
        load(full, phase, to, "K"),
        event("phase ends", 4, barrier=full, phase=phase),
    ]
EVENTS += [event("wgmma", 0, product=0, n=64, a=4096, b=0), event("wgmma waited", 0, products=1)]


class Traces(unittest.TestCase):
    def test_stages(self):
        found = [(s.name, s.full, s.empty, s.begin, s.end) for s in pictures.stages_of(EVENTS)]
        self.assertEqual(found, [("Q", 0, None, 4096, 6144), ("K0", 1, 2, 0, 1024), ("K1", 3, 4, 1024, 2048)])

    def test_two_tensors_on_one_barrier(self):
        found = [(s.name, s.full, s.begin, s.end) for s in pictures.stages_of([load(0, 0, 0, "K"), load(0, 0, 4096, "Q")])]
        self.assertEqual(found, [("K", 0, 0, 1024), ("Q", 0, 4096, 5120)])

    def test_phases(self):
        line = pictures.Timeline(EVENTS, producer=4)
        self.assertEqual(line.events[line.phase_ends(1, 1)], event("phase ends", 4, barrier=1, phase=1))
        self.assertEqual(line.phase_ends(2, 0), len(line.events))  # nobody has given the stage back

    def test_a_trace_without_the_kernel(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [{"trace": "flash-steps"}, {"kernel": "one", "blocks": 1, "threads": 32}, EVENTS[0], {"kernel": "two"}, *EVENTS]
            (pathlib.Path(folder) / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
            with mock.patch.object(pictures, "TRACES", pathlib.Path(folder)):
                self.assertEqual(pictures.events_of("a.jsonl", "one"), EVENTS[:1])
                self.assertEqual(pictures.events_of("a.jsonl", "two"), EVENTS)
                with self.assertRaisesRegex(
                    SystemExit, "^docs/results/cpu/traces/a.jsonl has no events of a kernel 'three'; run docs/save"
                ):
                    pictures.events_of("a.jsonl", "three")

    def test_the_five_products_of_a_visit(self):
        tiles = ["K", "V", "Q", "dO"]
        loads = [load(barrier, 0, 1024 * barrier, tensor) for barrier, tensor in enumerate(tiles)]
        dS, place = 8192, {tensor: 1024 * barrier for barrier, tensor in enumerate(tiles)}
        operands = [(place["K"], "Q"), (place["V"], "dO"), (backward.REGISTERS, "dO"), (dS, "K"), (backward.REGISTERS, "Q")]
        products = [event("wgmma", 3, product=at, a=left, b=place[right]) for at, (left, right) in enumerate(operands)]
        waits = [event("wgmma wait", 0, products=5), event("wgmma waited", 0, products=5)]
        lanes, end = backward.lanes_of(loads + products + waits)
        self.assertEqual((list(lanes), end), ([0], 7))
        self.assertEqual(
            [(kind, first, last) for kind, first, last, _ in lanes[0][1:]], [(p, at, 6) for at, p in enumerate(backward.PRODUCTS)]
        )


class StampsOfAGpu(unittest.TestCase):
    def test_when_any_product_is_in_flight(self):
        steps = [0, 10, 30, 60, 260, 300, 450, 510, 580, 660, 800, 900]  # of a visit, from its start on
        for behind, merged in [(0, [[5010, 5300], [5450, 5900]]), (120, [[5010, 5420], [5450, 6020]])]:
            visits = {
                who: dict(zip(hopper_stamps.LOOP, (5000 + late + at for at in steps)))
                for who, late in zip(hopper_stamps.CONSUMERS, (0, behind))
            }
            self.assertEqual(hopper_stamps.any_in_flight({who: {0: at} for who, at in visits.items()}), merged)


class OrderOfALoop(unittest.TestCase):
    def test_calls_that_come_in_another_order_are_refused(self):
        with mock.patch.object(pipelines, "source", return_value=["wait();", "for (;;) {", "  load();", "  wait();", "}"]):
            pipelines.in_order("a.cuh", "for (", ["load()", "wait()"])
            with self.assertRaisesRegex(SystemExit, r"the loop of a.cuh has no 'load\(\)' at this place"):
                pipelines.in_order("a.cuh", "for (", ["wait()", "load()"])


SEEN_BY = {  # linear RGB as eyes without one kind of cones see it: Machado, Oliveira and Fernandes 2009, severity 1.0
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def linear(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(*colours):
    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(linear, colours))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, eyes):
    r, g, b = (min(1, max(0, sum(k * c for k, c in zip(row, linear(colour))))) for row in SEEN_BY[eyes])
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


class Colours(unittest.TestCase):
    def test_text_is_legible_in_both_modes(self):
        for kind, (light, _, dark, _) in COLOURS.items():
            self.assertGreater(min(contrast(light, "#1f2328"), contrast(dark, "#e6edf3")), 4.5, kind)

    def test_matrices_and_levels_differ_for_all_eyes(self):
        groups = [("q", "k", "v", "o", "s", "c0", "hit"), ("reg", "smem", "l2", "hbm"), *((m, f"d{m}") for m in "qkvos")]
        for group, mode, eyes in itertools.product(groups, (0, 2), SEEN_BY):
            for one, other in itertools.combinations(group, 2):
                difference = sum((a - b) ** 2 for a, b in zip(lab(COLOURS[one][mode], eyes), lab(COLOURS[other][mode], eyes))) ** 0.5
                self.assertGreater(difference, 8, (one, other, mode, eyes))

    def test_text_is_large_enough_at_400_pixels(self):
        for path in sorted((pathlib.Path(__file__).parents[1]).glob("*.svg")):
            text = path.read_text()
            smallest = min(map(float, re.findall(r'font-size="([0-9.]+)"', text)))
            self.assertGreater(400 * smallest / float(re.search(r'viewBox="0 0 ([0-9.]+)', text)[1]), 8, path.name)


if __name__ == "__main__":
    unittest.main()
