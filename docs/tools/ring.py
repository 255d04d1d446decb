"""Of docs/reference/beyond_one_gpu.md: times of common/binding/time_ring.py between GPUs, and what counting predicts."""

import csv

from common.compare.rows import ROOT

from .formatting import number, table

SAVED = ROOT / "docs" / "results" / "nvidia_h200_x4"
SCHEMES = ("zigzag", "ring", "ulysses", "torch, cuDNN", "torch, flash")
D, HEADS, MEASURED = 128, 32, 131072  # tokens at which one GPU was timed
PASSES = ("forward", "forward and backward")


def rows(file):
    with (SAVED / file).open() as lines:
        return list(csv.DictReader(lines))


def problems(file="ring.csv"):
    """{(GPUs, tokens, key heads, causal, pass): {scheme or "ideal": ms}}"""
    found = {}
    for row in rows(file):
        problem = int(row["gpus"]), int(row["tokens"]), int(row["kv_heads"]), row["causal"], row["pass"]
        found.setdefault(problem, {"ideal": float(row["ideal_ms"])})[row["scheme"]] = float(row["ms"])
    return dict(sorted(found.items(), key=lambda item: item[0][:3]))


def pairs(found, cell):
    """[(problem without its pass, "of forward / of both")], where either may be missing."""
    for problem in dict.fromkeys(problem[:-1] for problem in found):
        cells = [cell(found[(*problem, which)]) if (*problem, which) in found else None for which in PASSES]
        yield problem, " / ".join(map(number, cells)) if any(cells) else "–"


def first_columns(gpus, tokens, kv_heads, causal):
    return [gpus, f"{tokens:,}", kv_heads, causal]


def shares():
    """Of one GPU's time over the number of GPUs, which each scheme reaches, with the prediction for zigzag."""
    model, found = Model(), problems()
    columns = [dict(pairs(found, lambda ms: ms["ideal"])), dict(pairs({p: model.share(p, ms["ideal"]) for p, ms in found.items()}, float))]
    columns += [dict(pairs(found, lambda ms, s=s: ms["ideal"] / ms[s] if s in ms else None)) for s in SCHEMES]
    lines = [[*first_columns(*problem), *(column[problem] for column in columns)] for problem in columns[0]]
    names = ["zigzag, predicted", "zigzag", "plain ring", "Ulysses", "torch, cuDNN", "torch, flash"]
    return table(["GPUs", "tokens", "key heads", "causal", "ideal, ms", *names], lines)


def weak():
    """Each GPU keeps its rows while others join: its work grows by their number, and so would an ideal time."""
    found = {}
    for row in rows("ring.csv"):
        if row["scheme"] == "zigzag" and row["share_ms"]:
            gpus = int(row["gpus"])
            problem = gpus, int(row["tokens"]) // gpus, row["kv_heads"], row["causal"], row["pass"]
            found[problem] = gpus * float(row["share_ms"]) / float(row["ms"])
    return table("GPUs | tokens per GPU | key heads | causal | zigzag", [[*first_columns(*p), both] for p, both in pairs(found, float)])


class Model:
    """Times in ms, of a rank of `ranks`. Everything grows with the rows but a kernel, which grows with their square."""

    def __init__(self):
        parts = {row["part"]: row for row in rows("ring_parts.csv")}  # the last has most rows or bytes
        self.merge = {size: float(parts[name]["ms"]) / int(parts[name]["rows"]) for size, name in ((2, "merge 16 bits"), (4, "merge fp32"))}
        self.memory, self.link = (int(parts[name]["bytes"]) / float(parts[name]["ms"]) for name in ("merge fp32", "link"))  # bytes per ms
        self.moves = sorted((int(row["bytes"]), float(row["ms"])) for row in rows("ring_parts.csv") if row["part"] == "link")
        smallest = self.moves[0][1]
        python = min(
            float(row["ring_ms"]) - float(row["kernel_ms"])
            for row in rows("ring_world_1.csv")
            if (row["tokens"], row["calls"]) == ("8192", "1")
        )
        self.start = float(parts["agreement"]["ms"]) + smallest + python
        found = problems()
        self.one_gpu = {problem[2:]: problem[0] * ms["ideal"] for problem, ms in found.items() if problem[:2] == (4, MEASURED)}

    def ideal(self, ranks, tokens, *problem):
        return self.one_gpu[problem] * (tokens / MEASURED) ** 2 / ranks

    def forward(self, ranks, tokens, kv_heads, causal):
        n, size = tokens // ranks, 2 if ranks == 2 else 4
        step = self.ideal(ranks, tokens, kv_heads, causal, "forward") / ranks
        conversions = 0 if ranks == 2 else 2 * self.addition(n * HEADS, 2)  # to fp32 and back
        return self.start + step + (ranks - 1) * (max(step, self.move(n, kv_heads, 2)) + self.merge[size] * n * HEADS) + conversions

    def both(self, ranks, tokens, kv_heads, causal):
        n, size = tokens // ranks, 2 if ranks == 2 else 4
        backward = [self.ideal(ranks, tokens, kv_heads, causal, of) for of in ("forward and backward", "forward")]
        step = (backward[0] - backward[1]) / ranks
        hidden = max(step, self.move(n, kv_heads, 2), (ranks > 2) * (self.move(n, kv_heads, 2) + self.move(n, kv_heads, size)))
        additions = (ranks - 1) * self.addition(n * (HEADS + 2 * kv_heads), size)
        return self.forward(ranks, tokens, kv_heads, causal) + step + (ranks - 1) * hidden + additions + self.move(n, kv_heads, size)

    def addition(self, count, size):
        """To rows of so many bytes per element: two reads and a write."""
        return 3 * size * count * D / self.memory

    def move(self, n, kv_heads, size):
        """Two tensors of keys to the next rank: a line between the two sizes measured around it, beyond the largest at its rate."""
        count = 2 * n * kv_heads * D * size
        for (below, least), (above, most) in zip(self.moves, self.moves[1:]):
            if count <= above:
                return least + (most - least) * (count - below) / (above - below)
        return count / self.link

    def time(self, ranks, tokens, kv_heads, causal, which):
        return (self.forward if which == "forward" else self.both)(ranks, tokens, kv_heads, causal)

    def share(self, problem, ideal):
        """Of a measured problem, where one GPU's time is that of this length."""
        return ideal / (self.time(*problem) + ideal - self.ideal(*problem))

    def efficiency(self, ranks, tokens, *problem):
        return self.ideal(ranks, tokens, *problem) / self.time(ranks, tokens, *problem)


def counted(ranks=8, kv_heads=8, causal="yes"):
    """The terms of a forward pass by zigzag, for a long and a short sequence."""
    model, columns = Model(), []
    for tokens in (MEASURED, MEASURED // 4):
        n, ideal = tokens // ranks, model.ideal(ranks, tokens, kv_heads, causal, "forward")
        step, move, conversions = ideal / ranks, model.move(n, kv_heads, 2), 2 * model.addition(n * HEADS, 2)
        terms = [(ranks - 1) * max(0, move - step), (ranks - 1) * model.merge[4] * n * HEADS, conversions, model.start]
        total = model.forward(ranks, tokens, kv_heads, causal)
        columns.append([*(number(ms) if ms else "0" for ms in (step, move, ideal, *terms, total)), f"**{ideal / total:.2f}**"])
    names = ["a step", "a move", f"{ranks} steps, which is the ideal time", f"{ranks - 1} moves, the part that no step hides"]
    names += [f"{ranks - 1} merges", "O to fp32 and back", "start of the call", "sum of the five rows above", "ideal over sum"]
    return table(f"ms | {MEASURED:,} tokens | {MEASURED // 4:,} tokens", [list(line) for line in zip(names, *columns)])


def predicted(ranks=8):
    """Under a causal mask, zigzag; of numbers of GPUs that were not timed."""
    model, lines = Model(), []
    for tokens in (1 << 15, 1 << 17, 1 << 20):
        for kv_heads in (8, 32):
            cells = [number(model.efficiency(ranks, tokens, kv_heads, "yes", which)) for which in PASSES]
            lines.append([f"{tokens:,}", kv_heads, *cells])
    return table(f"tokens on {ranks} GPUs | key heads | forward | forward and backward", lines)


def alone():
    """A ring of one rank, next to the kernels alone."""
    found = {(int(row["tokens"]), row["calls"], row["causal"], row["pass"]): row for row in rows("ring_world_1.csv")}
    kernels, ring, more = (
        dict(pairs(found, cell))
        for cell in (
            lambda row: float(row["kernel_ms"]),
            lambda row: float(row["ring_ms"]),
            lambda row: 100 * (float(row["ring_ms"]) / float(row["kernel_ms"]) - 1),
        )
    )
    lines = [[f"{p[0]:,}", *p[1:], kernels[p], ring[p], more[p]] for p in kernels]
    return table("tokens | calls in a row | causal | kernels, ms | ring of one, ms | more, %", lines)


def left_out():
    """What zigzag takes under a causal mask without some of its parts."""
    found = problems("ring_without.csv")
    names = [
        "ideal",
        *(f"zigzag without {parts}" for parts in ("moves and sums", "moves", "sums")),
        "zigzag",
        "zigzag without kernels and sums",
    ]
    columns = [dict(pairs(found, lambda ms, name=name: ms[name])) for name in names]
    lines = [[f"{p[1]:,}", p[2], *(column[p] for column in columns)] for p in columns[0]]
    return table("tokens | key heads | ideal | kernels | kernels and sums | kernels and moves | all | moves", lines)


def merges():
    """One merge's share of a forward pass under a causal mask, 8 key heads."""
    lines = []
    for gpus, tokens, part in ((4, 32768, "merge fp32"), (2, 131072, "merge 16 bits")):
        ideal = problems()[gpus, tokens, 8, "yes", "forward"]["ideal"]
        for row in rows("ring_parts.csv"):
            if row["part"] == part and int(row["rows"]) == tokens // gpus * HEADS:
                ms = float(row["ms"])
                lines.append([gpus, f"{tokens:,}", part.removeprefix("merge "), number(ms), f"{100 * ms / ideal:.1f} %"])
    return table("GPUs | tokens | O in | ms | of the ideal time", lines)
