#!/usr/bin/env python3
"""What a picture of a trace says of events that are known: stages by their loads, and where their phases begin and end. What a page says of
stamps of a GPU's clock that are known."""

import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import generate  # noqa: E402, F401  finds the packages
from tools import hopper_backward_pictures as backward  # noqa: E402
from tools import hopper_forward_pictures as pictures  # noqa: E402
from tools import hopper_stamps  # noqa: E402


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


# Clocks from each event to the next, 1000 together; the last 100 lead to the next visit.
PHASES = [10, 20, 30, 200, 40, 150, 60, 70, 80, 140, 100, 100]
# No product of a warpgroup is in flight before "Q", from "dP" to "dS", and after "dK".
IDLE = 10 + 150 + 100


def stamps(behind=0):
    """Of two warpgroups, the second one so many clocks behind."""
    found = []
    for visit in range(6):
        for late, who in zip((0, behind), hopper_stamps.CONSUMERS):
            clocks = [5000 + 1000 * visit + late + sum(PHASES[:at]) for at in range(len(PHASES))]
            found += [{"who": who, "visit": visit, "event": event, "clock": clock} for event, clock in zip(hopper_stamps.LOOP, clocks)]
    return found


class StampsOfAGpu(unittest.TestCase):
    def test_when_any_product_is_in_flight(self):
        self.assertAlmostEqual(hopper_stamps.Stamps(stamps()).share_in_flight(), 1 - IDLE / 1000)
        self.assertEqual(hopper_stamps.Stamps(stamps()).any_in_flight()[:3], [[5010, 5300], [5450, 5900], [6010, 6300]])
        # 120 behind, the second one covers all gaps but 30 of the one for dS.
        behind = hopper_stamps.Stamps(stamps(behind=120))
        self.assertEqual(behind.any_in_flight()[:3], [[5010, 5420], [5450, 6420], [6450, 7420]])
        self.assertAlmostEqual(behind.share_in_flight(), 1 - 4 * 30 / (4000 - 120))
        # 5 behind, and a product of the first one that ends later than the second one's.
        late = stamps(behind=5)
        late[hopper_stamps.LOOP.index("dP")]["clock"] = 5440
        self.assertEqual(hopper_stamps.Stamps(late).any_in_flight()[0], [5010, 5440])

    def test_the_parts_are_the_whole_visit(self):
        self.assertEqual([event for _, events, _ in hopper_stamps.PARTS for event in events], [*hopper_stamps.LOOP[2:], "start", "Q"])
        self.assertEqual([product for _, _, products in hopper_stamps.PARTS for product in products], list(hopper_stamps.PRODUCTS))

    def test_a_visit_that_is_not_whole_does_not_count(self):
        self.assertEqual(hopper_stamps.Stamps(stamps()[1:]).visits, [1, 2, 3, 4, 5])


if __name__ == "__main__":
    unittest.main()
