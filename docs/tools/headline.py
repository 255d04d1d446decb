"""Of docs/reference/comparison.md: how many times as fast as plain torch the stages are, and what a clock that does not wait for the GPU would have
said. From compare.jsonl and compare16.jsonl, and torch's rows of the same problem."""

from common.compare.rows import describe

from .formatting import number, shown, step
from .saved import H200, fastest, newest, section


def shape(row):
    """The problem without its type, which 08 does not share with the others."""
    return {name: value for name, value in row["problem"].items() if name not in ("dtype", "scale", "seed")}


def lineup(direction):
    """(01_naive, {dtype: plain torch}, the best step of each stage) on the problem of compare.jsonl."""
    rows = newest(H200, "compare.jsonl", "compare16.jsonl", direction=direction, having="time")
    naive = fastest(row for row in rows if row["stage"] == "01_naive")
    plain = newest(H200, "peers.jsonl", "peers16.jsonl", "sweep_peers.jsonl", direction=direction, having="time")
    torch = {row["problem"]["dtype"]: row for row in plain if row["variant"] == "plain" and shape(row) == shape(naive)}
    rows = [row for row in rows if shape(row) == shape(naive)]
    best = (fastest(row for row in rows if row["stage"].startswith(prefix)) for prefix in ("04", "05", "06", "07", "08"))
    return naive, torch, [row for row in best if row]


def times(above, below, field, of=None):
    """above / below by one field of `time`, or of two."""
    above, below = (above or {}).get("time", {}).get(field), (below or {}).get("time", {}).get(of or field)
    ratio = above / below if above and below else None
    return shown(ratio, ".2f" if ratio is None or ratio < 1 else ".1f" if ratio < 100 else ",.0f")


def of_lineup(direction, head, cells):
    """A line of cells(row, naive, plain torch in its type) for each of them."""
    naive, torch, stages = lineup(direction)
    named = [("01_naive", naive), *((f"torch, plain, {dtype}", row) for dtype, row in torch.items())]
    named += [(f"**{row['stage']}** {step(row)}", row) for row in stages]
    lines = [[name, *cells(row, naive, torch.get(row["problem"]["dtype"]))] for name, row in named]
    problem, used = describe(naive["problem"]).rsplit(" ", 1)[0], [row for _, row in named]
    return section(f"{direction}, {problem}", head, lines, used)


def claimed(direction):
    """The same ratios over plain torch by a clock on the host that does not wait."""

    def cells(row, naive, plain):
        readings = [row["time"].get(field) for field in ("median_ms", "enqueue_ms", "first_enqueue_ms")]
        ratios = [times(plain, row, *fields) for fields in (["median_ms"], ["enqueue_ms"], ["first_enqueue_ms", "enqueue_ms"])]
        return [*(number(reading and float(reading)) for reading in readings), *ratios]

    head = " | ms, true | host's clock, ms | its first call, ms | over plain torch, true | by the host's clock | with torch's first call"
    return of_lineup(direction, head, cells)
