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
from tools import hopper_stamps, hopper_stamps_pictures, saved  # noqa: E402


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


def stamps(behind=0, visits=6):
    """Of two warpgroups, the second one so many clocks behind, and some of the others."""
    found = []
    for visit in range(visits):
        for late, who in zip((0, behind), hopper_stamps.CONSUMERS):
            clocks = [5000 + 1000 * visit + late + sum(PHASES[:at]) for at in range(len(PHASES))]
            found += [[who, visit, event, clock] for event, clock in zip(hopper_stamps.LOOP, clocks)]
    found += [["producer", visit, f"empty_{tensor}", 1000 * visit] for visit in (7, 8) for tensor in ("Q", "dO")]
    found += [["producer", 9, "empty_Q", 8500], ["adder", 3, "full_dQ", 9000]]  # these visits have no more
    return found + [["adder", visit, event, 6000 + 1000 * visit + at] for visit in (1, 2) for event, at in (("full_dQ", 0), ("read", 300))]


class StampsOfAGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "hopper_stamps.json"

    def read(self, found, **said):
        problem = {"head_dim": 128, "seq_q": 4096, "causal": False, "dtype": "fp16", "batch": 4, "heads": 16}
        usual = {"device": "a GPU", "step": "bulk", "commit": "abc", "date": "2026-01-01", "problem": problem, "block": 1000}
        as_said = [dict(zip(("who", "visit", "event", "clock"), stamp)) for stamp in found]
        self.file.write_text(json.dumps(usual | {"clock_mhz": None} | said | {"stamps": as_said}))
        return hopper_stamps.Stamps(self.file)

    def part(self, found, **said):
        self.read(found, **said)
        with mock.patch.object(hopper_stamps, "FILE", self.file):
            return hopper_stamps.of_step_3()

    def test_means_of_the_visits_but_the_first_and_the_last(self):
        late = [[who, visit, event, clock + 77 * (visit == 5)] for who, visit, event, clock in stamps()]  # the fourth ends later by that
        found = self.read(late)
        self.assertEqual((found.visits, found.steady()), ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4]))
        expected = dict(zip([*hopper_stamps.LOOP[1:], "start"], PHASES))
        self.assertEqual(found.phases("warpgroup 1"), expected | {"start": 100 + 77 / 4})

    def test_what_is_in_flight_in_each_phase(self):
        products = {event: " ".join(hopper_stamps.in_flight(event)) for event in hopper_stamps.LOOP[1:]}
        before = {"Q": "", "dO": "S", "S": "S dP", "P": "dP", "dP": "dP", "dS": ""}
        after = {"barrier": "dV", "dV": "dV dQ", "dQ": "dQ dK", "stored": "dK", "dK": "dK"}
        self.assertEqual(products, before | after)

    def test_when_any_product_is_in_flight(self):
        self.assertAlmostEqual(self.read(stamps()).share_in_flight(), 1 - IDLE / 1000)
        self.assertEqual(self.read(stamps()).any_in_flight()[:3], [[5010, 5300], [5450, 5900], [6010, 6300]])
        # 120 behind, the second one covers all gaps but 30 of the one for dS.
        behind = self.read(stamps(behind=120))
        self.assertEqual(behind.any_in_flight()[:3], [[5010, 5420], [5450, 6420], [6450, 7420]])
        self.assertAlmostEqual(behind.share_in_flight(), 1 - 4 * 30 / (4000 - 120))
        # 5 behind, and a product of the first one that ends later than the second one's.
        late = [[*stamp[:3], 5440] if stamp[:3] == ["warpgroup 0", 0, "dP"] else stamp for stamp in stamps(behind=5)]
        self.assertEqual(self.read(late).any_in_flight()[0], [5010, 5440])

    def test_the_page(self):
        text = self.part(stamps(), clock_mhz=1600)
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|")][2:]
        self.assertEqual(lines[3], ["exponentials", "$`dP^T`$", "200", "200", "0.20"])
        self.assertEqual(lines[-1], ["**a visit**", "", "1,000", "1,000", "1.00"])
        self.assertIn("for 64 queries and 128 keys, take 2,560 clocks, a warpgroup's part of one of them 256; ", text)
        self.assertIn("what passes through shared memory takes 2,944, by the table", text)
        self.assertIn("A visit takes 1,000, or 625 ns at 1,600 MHz. So on average the tensor cores work at 2.56 of their full rate", text)
        self.assertIn("counts as in flight for 0.74 of the time.", text)
        self.assertIn("a GPU, `bulk`, B=4 H=16 N=4096 d=128 fp16, block 1,000, means of the visits 1 to 4:", text)
        self.assertIn("A visit takes 1,000. So", self.part(stamps()))

    def test_the_parts_of_a_visit(self):
        self.assertEqual([event for _, events, _ in hopper_stamps.PARTS for event in events], [*hopper_stamps.LOOP[2:], "start", "Q"])
        self.assertEqual([product for _, _, products in hopper_stamps.PARTS for product in products], list(hopper_stamps.PRODUCTS))
        self.read(stamps())
        with mock.patch.object(hopper_stamps, "FILE", self.file):
            lines = [line.split(" | ")[1:] for line in hopper_stamps.of_parts().split("\n")[2:]]
        self.assertEqual(lines[0], ["$`S^T`$, $`dP^T`$", "290", "1,024 |"])
        self.assertEqual([line[1] for line in lines[1:]], ["150", "450", "110"])

    def test_the_picture(self):
        text = hopper_stamps_pictures.draw(self.read(stamps(), clock_mhz=1600)).text()
        for said in ("tile 2", "tile 3", "dPᵀ: 270", "exp", "clocks", "nanoseconds", "any product"):
            self.assertIn(f">{said}</text>", text)
        self.assertNotIn(">tile 4</text>", text)  # it begins after those two
        self.assertEqual(text.count(">tile 9</text>"), 1)  # only Q of it has a stamp
        self.assertNotIn("nanoseconds", hopper_stamps_pictures.draw(self.read(stamps())).text())
        for who in ("producer", "adder"):  # a file may be without them
            hopper_stamps_pictures.draw(self.read([stamp for stamp in stamps() if stamp[0] != who]))

    def test_nothing_is_saved(self):
        with mock.patch.object(hopper_stamps, "FILE", self.file):
            self.assertEqual(hopper_stamps.of_step_3(), saved.NOTHING_SAVED)

    def test_stamps_that_the_loop_cannot_give(self):
        all_of = stamps()
        for wrong, why in [
            ([*all_of, ["adder", 1, "dQ", 1]], "'dQ' of 'adder' is no event of the loop"),
            ([*all_of, ["warp 3", 1, "dQ", 1]], "'dQ' of 'warp 3' is no event"),
            ([*all_of, all_of[0]], "two stamps of warpgroup 0, visit 0, 'start'"),
            ([*all_of, ["adder", 3, "read", 7999]], "adder comes to 'read' of visit 3 at 7999, before 'full_dQ' at 9000"),
            ([stamp for stamp in all_of if stamp[:3] != ["warpgroup 1", 3, "dQ"]], "it takes all stamps of both warpgroups"),
            (stamps(visits=3), "for four visits or more"),
        ]:
            with self.assertRaisesRegex(SystemExit, f"^docs/results/nvidia_h200/hopper_stamps.json: .*{why}"):
                self.read(wrong)
        self.assertEqual(self.read(all_of[1:]).visits, [1, 2, 3, 4, 5])  # begun in the middle of a visit


if __name__ == "__main__":
    unittest.main()
