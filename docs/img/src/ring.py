"""The pictures of docs/reference/beyond_one_gpu.md: where keys are in each step of a ring, and what two ranks do when, from
docs/results/cpu/ring_events.csv."""

import csv

from docs.tools.saved import RESULTS
from docs.tools.svg import Picture

from .lanes import Lanes

SHORTEST = 2  # ms: shorter bars would not be seen
COLOURS = {"waits": "c0", "merges": "c3"}


def events():
    """{(placement, pass, rank): [(what, begin, end)]}, without what is too short to see. Each computation has its number."""
    found = {}
    with open(RESULTS / "cpu" / "ring_events.csv", newline="") as file:
        for row in csv.DictReader(file):
            begin, end = float(row["begin_ms"]), float(row["end_ms"])
            if end - begin > SHORTEST:
                found.setdefault((row["placement"], row["pass"], int(row["rank"])), []).append((row["what"], begin, end))
    return found


def ring_ranks():
    """The forward pass: own keys, the other's keys, the merge."""
    of = {(placement, rank): bars for (placement, which, rank), bars in events().items() if which == "forward"}
    last = max(end for bars in of.values() for _, _, end in bars)
    drawing = Lanes("Two ranks, causal, forward: with plain placement rank 0 sees none of rank 1's keys", 0, last, left=70)
    for placement in ("plain", "zigzag"):
        drawing.p.label(8, drawing.y + 18, placement, 18, "start", bold=True)
        drawing.y += 28
        for rank in (0, 1):
            bars, step = [], 0
            for what, begin, end in of[placement, rank]:
                if what == "computes":
                    bars.append((begin, end, ("c1", "c2")[step], ("own keys", f"keys of rank {1 - rank}")[step]))
                    step += 1
                else:
                    bars.append((begin, end, COLOURS[what], what))
            drawing.lane(f"rank {rank}", bars)
        drawing.y += 6
    return drawing.finish(
        f"Two processes over gloo, 512 tokens in fp32 through the simulator; {last:,.0f} ms from left to right. The last bar is the merge."
    )


def ring_steps():
    """Four ranks: whose keys each has in which step."""
    ranks, left, top, cell = 4, 76, 84, (150, 48)
    p = Picture(
        720, "A ring of four ranks: queries stay, keys move on by one rank per step", "Queries stay, keys move on by one rank per step"
    )
    for rank in range(ranks):
        p.note(left + cell[0] * rank + 56, top - 14, f"rank {rank}: Q {rank}")
    for step in range(ranks):
        y = top + (cell[1] + 6) * step
        p.note(left - 10, y + 25, f"step {step}", anchor="end")
        for rank in range(ranks):
            x, keys = left + cell[0] * rank, (rank - step) % ranks
            p.box(x, y, cell[0] - 38, cell[1] - 10, f"c{1 + keys}", f"keys {keys}")
            if step + 1 < ranks:
                p.arrow(x + cell[0] - 38, y + 24, x + cell[0], y + cell[1] + 16)
    p.caption("Each move overlaps the computation of its step. The last rank's keys go on to rank 0.")
    return p


PICTURES = [ring_ranks, ring_steps]
