"""Of docs/reference/beyond_one_gpu.md: times of common/binding/time_ring.py between two GPUs, and what counting predicts."""

import csv

from rows import ROOT

from .formatting import number, table

SAVED = ROOT / "docs" / "results" / "nvidia_h100_x2"
SCHEMES = ("ring", "zigzag", "ulysses", "torch, cuDNN", "torch, flash")
LINK = 329e6  # bytes per ms and direction: an all-reduce of 1 GiB between two H100s, by NCCL
D, HEADS, MEASURED = 128, 32, 131072  # tokens at which one GPU was timed


def rows(file):
    with (SAVED / file).open() as lines:
        return list(csv.DictReader(lines))


def problems():
    """{(tokens, key heads, causal, pass): {scheme or "ideal": ms}}"""
    found = {}
    for row in rows("ring.csv"):
        problem = int(row["tokens"]), int(row["kv_heads"]), row["causal"], row["pass"]
        found.setdefault(problem, {"ideal": float(row["ideal_ms"])})[row["scheme"]] = float(row["ms"])
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1])))


PASSES = ("forward", "forward and backward")


def pairs(found, cell):
    """[(problem without its pass, "of forward / of both")], where either may be missing."""
    for problem in dict.fromkeys(problem[:3] for problem in found):
        cells = [cell(found[(*problem, which)], which) if (*problem, which) in found else None for which in PASSES]
        yield problem, " / ".join(map(number, cells)) if any(cells) else "–"


def first_columns(tokens, kv_heads, causal):
    return [f"{tokens:,}", kv_heads, causal]


def shares():
    """Of one GPU's time over two, which each scheme reaches."""
    columns = [dict(pairs(problems(), lambda ms, _, s=s: ms["ideal"] / ms[s] if s in ms else None)) for s in SCHEMES]
    ideal = dict(pairs(problems(), lambda ms, _: ms["ideal"]))
    lines = [[*first_columns(*problem), ideal[problem], *(column[problem] for column in columns)] for problem in ideal]
    return table("tokens | key heads | causal | ideal, ms | plain ring | zigzag | Ulysses | torch, cuDNN | torch, flash", lines)


def weak():
    """Each GPU keeps its rows while a second one joins: its work doubles, and so would an ideal time."""
    found = {}
    for row in sorted(rows("ring.csv"), key=lambda row: int(row["tokens"])):
        if row["scheme"] == "zigzag" and row["share_ms"]:
            found[int(row["tokens"]) // 2, row["kv_heads"], row["causal"], row["pass"]] = 2 * float(row["share_ms"]) / float(row["ms"])
    return table("tokens per GPU | key heads | causal | zigzag", [[*first_columns(*p), both] for p, both in pairs(found, lambda x, _: x)])


class Model:
    """Times in ms, of a rank of `ranks`. Everything grows with the rows but a kernel, which grows with their square."""

    def __init__(self, merge="merge 16 bits"):
        parts = {}
        for row in rows("ring_parts.csv"):
            parts[row["part"]] = float(row["ms"]), float(row["rows"] or 1)  # the last has most rows
        self.per_row = {part: ms / count for part, (ms, count) in parts.items()}
        self.start = self.per_row["agreement"] + self.per_row["first launch"]
        self.merge = merge
        self.one_gpu = {problem[1:]: 2 * ms["ideal"] for problem, ms in problems().items() if problem[0] == MEASURED}

    def ideal(self, ranks, tokens, *problem):
        return self.one_gpu[problem] * (tokens / MEASURED) ** 2 / ranks

    def forward(self, ranks, tokens, kv_heads, causal):
        n = tokens // ranks
        step = self.ideal(ranks, tokens, kv_heads, causal, "forward") / ranks
        merge = (self.per_row[self.merge] if ranks == 2 else self.per_row["merge fp32"]) * n * HEADS
        conversions = 0 if ranks == 2 else 2 * self.per_row["add 16 bits"] * n * HEADS  # to fp32 and back
        return self.start + step + (ranks - 1) * (max(step, self.move(n, kv_heads, 2)) + merge) + conversions

    def both(self, ranks, tokens, kv_heads, causal):
        n = tokens // ranks
        size = 2 if ranks == 2 else 4
        backward = [self.ideal(ranks, tokens, kv_heads, causal, of) for of in ("forward and backward", "forward")]
        step = (backward[0] - backward[1]) / ranks
        hidden = max(step, self.move(n, kv_heads, 2), (ranks > 2) * (self.move(n, kv_heads, 2) + self.move(n, kv_heads, size)))
        additions = (ranks - 1) * size / 2 * self.per_row["add 16 bits"] * n * (HEADS + 2 * kv_heads)
        return self.forward(ranks, tokens, kv_heads, causal) + step + (ranks - 1) * hidden + additions + self.move(n, kv_heads, size)

    def move(self, n, kv_heads, size):
        """Two tensors of keys to the next rank."""
        return 2 * n * kv_heads * D * size / LINK

    def time(self, ranks, tokens, kv_heads, causal, which):
        return (self.forward if which == "forward" else self.both)(ranks, tokens, kv_heads, causal)

    def share(self, ms):
        """Of a measured problem, two ranks: one GPU's time is that of this length."""
        tokens, *problem = ms["problem"]
        return ms["ideal"] / (self.time(2, tokens, *problem) + ms["ideal"] - self.ideal(2, tokens, *problem))

    def efficiency(self, ranks, tokens, *problem):
        return self.ideal(ranks, tokens, *problem) / self.time(ranks, tokens, *problem)


def beside():
    """Predicted and measured, zigzag between two GPUs: with the merge of that run, and with the merge of today."""
    models = Model("merge 16 bits, loads and stores in turns"), Model()
    found = {problem: ms for problem, ms in problems().items() if "zigzag" in ms}
    columns = [dict(pairs({p: ms | {"problem": p} for p, ms in found.items()}, lambda ms, _, m=model: m.share(ms))) for model in models]
    columns.insert(1, dict(pairs(found, lambda ms, _: ms["ideal"] / ms["zigzag"])))
    lines = [[*first_columns(*problem), *(column[problem] for column in columns)] for problem in columns[1]]
    return table("tokens | key heads | causal | predicted | measured | predicted, merge of today", lines)


def predicted():
    """Under a causal mask, zigzag."""
    model, lines = Model(), []
    for tokens in (1 << 15, 1 << 17, 1 << 18, 1 << 20):
        for kv_heads in (8, 32):
            cells = [
                number(model.efficiency(ranks, tokens, kv_heads, "yes", which))
                for which in ("forward", "forward and backward")
                for ranks in (2, 4, 8)
            ]
            lines.append([f"{tokens:,}", kv_heads, *cells])
    heads = [f"{name} on {ranks} GPUs" for name in ("forward", "both passes") for ranks in (2, 4, 8)]
    return table(" | ".join(["tokens", "key heads", *heads]), lines)


def alone():
    """A ring of one rank, next to the kernels alone."""
    found = {(int(row["tokens"]), 8, row["causal"], row["pass"]): row for row in rows("ring_world_1.csv")}
    kernels, ring, more = (
        dict(pairs(found, cell))
        for cell in (
            lambda row, _: float(row["kernel_ms"]),
            lambda row, _: float(row["ring_ms"]),
            lambda row, _: 100 * (float(row["ring_ms"]) / float(row["kernel_ms"]) - 1),
        )
    )
    lines = [[f"{p[0]:,}", p[2], kernels[p], ring[p], more[p]] for p in kernels]
    return table("tokens | causal | kernels, ms | ring of one, ms | more, %", lines)


def merges():
    """The merge's share of a ring of two, forward under a causal mask."""
    lines = []
    for tokens, rows_of_rank in ((32768, 524288), (131072, 2097152)):
        ideal = problems()[tokens, 8, "yes", "forward"]["ideal"]
        for row in rows("ring_parts.csv"):
            if row["part"].startswith("merge") and int(row["rows"]) == rows_of_rank:
                ms = float(row["ms"])
                lines.append([f"{tokens:,}", row["part"].removeprefix("merge "), number(ms), f"{100 * ms / ideal:.1f} %"])
    return table("tokens | O in | ms | of the ideal time", lines)
