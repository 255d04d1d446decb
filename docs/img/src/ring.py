"""The pictures of docs/reference/beyond_one_gpu.md: where keys are in each step of a ring, and what two ranks do when, from
docs/results/cpu/ring_events.csv."""

import csv

from docs.tools.saved import RESULTS
from docs.tools.svg import Picture

from .lanes import LEFT, TEXT, Lanes

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
    drawing = Lanes("Two ranks under a causal mask, forward: with plain placement rank 0 sees none of rank 1's keys", 0, last)
    for placement in ("plain", "zigzag"):
        drawing.p.label(LEFT - 12, drawing.y + 15, placement, TEXT, "end", bold=True)
        drawing.y += 24
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
        12,
        40,
        f"Two processes over gloo, 512 tokens in fp32 through the simulator; {last:,.0f} ms from left to right. The last bar is the merge.",
    )


def ring_steps():
    """Four ranks: whose keys each has in which step."""
    ranks, left, top, cell = 4, 200, 82, (150, 44)
    p = Picture(900, 330, "A ring of four ranks: queries stay, keys move on by one rank per step")
    p.label(450, 28, p.title, 15, bold=True)
    for rank in range(ranks):
        p.note(left + cell[0] * rank + cell[0] / 2 - 20, top - 14, f"rank {rank}: queries {rank}", size=14)
    for step in range(ranks):
        y = top + (cell[1] + 10) * step
        p.note(left - 16, y + 22, f"step {step}", size=14, anchor="end")
        for rank in range(ranks):
            x, keys = left + cell[0] * rank, (rank - step) % ranks
            p.box(x, y, cell[0] - 40, cell[1] - 10, f"c{1 + keys}", f"keys {keys}", 14)
            if step + 1 < ranks:
                p.arrow(x + cell[0] - 40, y + 22, x + cell[0], y + cell[1] + 16)
                if rank + 1 == ranks:
                    p.note(x + cell[0] + 6, y + cell[1] + 20, "to rank 0", anchor="start")
    p.note(450, 312, "Each move overlaps the computation of its step. The last rank's keys go on to rank 0.", size=14)
    return p


PICTURES = [ring_ranks, ring_steps]
