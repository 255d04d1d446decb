"""Horizontal bars, one for each step: the ladder of stages 06 to 08 from times, the counts of all stages from the simulator."""

from math import log2

from . import choose
from .choose import Unfit, device_of, is_good, is_plain, is_timed, latest, name_of, number, series_of, tflops
from .picture import Picture

LADDER = {"forward": ("06", "08"), "backward": ("07", "08")}
COUNTS = {"sectors": "sectors of 32 bytes", "barriers": "barriers", "warp_operations": "warp operations", "bank_conflicts": "bank conflicts"}


def problem(row):
    """What steps in fp32 and in 16 bits have in common."""
    p = row["problem"]
    return p["batch"], p["heads"], p["seq_q"], p["head_dim"], bool(p.get("causal"))


def work(of):
    """What the FLOPs are proportional to, without a mask."""
    batch, heads, n, d, _ = of
    return batch * heads * n * n * d


def problem_text(of):
    batch, heads, n, d, causal = of
    return f"B = {batch}, H = {heads}, N = {n:,}, {choose.slice_text(d, causal)}"


def in_order(rows):
    """Steps by stage and by the number of their kernel's file, as they stand in the rows; fp32 and one 16-bit type."""
    return sorted((row for _, members in choose.by_type(rows) for row in members), key=lambda row: row["stage"])


def ladder(rows):
    """The problem on which the most steps were timed; of several the one without a mask, then with N nearest to 4,096, as in chapter 08, then
    with the most work, then with the smaller d."""
    rows = [row for row in rows if is_plain(row["problem"]) and is_timed(row) and series_of(row) in LADDER.get(row["pass"], ())]
    rows = latest(rows)
    if not rows:
        raise Unfit("no step of stages 06 to 08 was timed")
    groups = {}
    for row in rows:
        groups.setdefault(problem(row), []).append(row)
    best = max(groups, key=lambda of: (len(in_order(groups[of])), not of[4], -abs(log2(of[2] / 4096)), work(of), -of[3]))
    chosen = in_order(groups[best])
    if len(chosen) < 2:
        raise Unfit("no two steps of stages 06 to 08 were timed on the same problem")
    panels = []
    for direction in LADDER:
        steps, before = [], None
        for row in (row for row in chosen if row["pass"] == direction):
            speed = tflops(row)
            steps.append({"series": series_of(row), "label": f"{name_of(row)}, {row['problem']['dtype']}", "idea": row.get("idea", ""),
                          "tflops": speed, "gain": speed / before if before else None})  # fmt: skip
            before = speed
        if steps:
            panels.append({"title": direction, "steps": steps})
    note = f"{device_of(chosen)}, {problem_text(best)}; medians with a cold L2. ×: gain over the step before."
    return Picture("The ladder: TFLOP/s of each step of stages 06 to 08", note, {"panels": panels}, chosen)


def counts(rows):
    """The problem on which the most steps were counted; of several the largest, then the one without a mask."""
    rows = latest([row for row in rows if is_plain(row["problem"]) and is_good(row) and all(number(row, "counters", key) is not None for key in COUNTS)])
    if not rows:
        raise Unfit("no row has counters of the CPU simulator")
    groups = {}
    for row in rows:
        groups.setdefault(problem(row), []).append(row)
    best = max(groups, key=lambda of: (len(in_order(groups[of])), work(of), not of[4]))
    chosen = in_order(groups[best])
    shown = {key: title for key, title in COUNTS.items() if any(row["counters"][key] for row in chosen)} or COUNTS
    steps = [
        {"series": series_of(row), "label": name_of(row), "pass": direction, "counts": {key: row["counters"][key] for key in shown}}
        for direction in ("forward", "backward")
        for row in chosen
        if row["pass"] == direction
    ]
    note = f"{problem_text(best)}; stages 01 to 07 in fp32, 08 in 16 bits. Exact counts of the CPU simulator, not times."
    zero = ", ".join(title for key, title in COUNTS.items() if key not in shown)
    return Picture("What the steps do on one problem, counted", note, {"steps": steps, "counts": shown}, chosen, f"No step has {zero} here." if zero else "")
