"""Of docs/reference/beyond_one_gpu.md: times of common/binding/time_ring.py between two GPUs."""

import csv

from rows import ROOT

from .formatting import number, table

SAVED = "docs/results/nvidia_h100_x2/ring.csv"


def shares():
    """Of one GPU's time over two, which each scheme reaches."""
    problems = {}
    with (ROOT / SAVED).open() as file:
        for row in csv.DictReader(file):
            problem = tuple(row[name] for name in ("tokens", "kv_heads", "causal", "pass"))
            problems.setdefault(problem, {"ideal": float(row["ideal_ms"])})[row["scheme"]] = float(row["ms"])
    lines = [
        [f"{int(tokens):,}", *rest, number(ms["ideal"]), *(number(ms["ideal"] / ms[scheme]) for scheme in ("ring", "zigzag"))]
        for (tokens, *rest), ms in problems.items()
    ]
    return table("tokens | key heads | causal | pass | ideal, ms | plain ring | zigzag", lines)
