"""Of docs/comparison.md: how many times as fast as plain attention the stages are, by medians of synchronised times, and what a clock that
does not wait for the GPU would have said. From compare.jsonl and compare16.jsonl, and torch's rows of the same problem."""

import json

from rows import ROOT, describe

from .formatting import ms, number, shown, step, table
from .saved import fastest, gpus, newest, of_each_gpu, section


def shape(row):
    """The problem without its type, which 08 does not share with the others."""
    return {name: value for name, value in row["problem"].items() if name not in ("dtype", "scale", "seed")}


def lineup(device, direction):
    """(01_naive, {dtype: plain torch}, the best step of each stage) on the problem of compare.jsonl; None where nothing is saved."""
    rows = newest(device, "compare.jsonl", "compare16.jsonl", direction=direction, having="time")
    naive = fastest(row for row in rows if row["stage"] == "01_naive")
    if naive is None:
        return None
    plain = newest(device, "peers.jsonl", "peers16.jsonl", "sweep_peers.jsonl", direction=direction, having="time")
    torch = {row["problem"]["dtype"]: row for row in plain if row["variant"] == "plain" and shape(row) == shape(naive)}
    rows = [row for row in rows if shape(row) == shape(naive)]
    best = (fastest(row for row in rows if row["stage"].startswith(prefix)) for prefix in ("04", "05", "06", "07", "08"))
    return naive, torch, [row for row in best if row]


def times(above, below, field, of=None):
    """above / below by one field of `time`, or of two."""
    above, below = (above or {}).get("time", {}).get(field), (below or {}).get("time", {}).get(of or field)
    ratio = above / below if above and below else None
    return shown(ratio, ".2f" if ratio is None or ratio < 1 else ".1f" if ratio < 100 else ",.0f")


def of_lineup(device, direction, head, cells):
    """A line of cells(row, naive, plain torch in its type) for each of them; None where nothing is saved."""
    found = lineup(device, direction)
    if not found:
        return None
    naive, torch, stages = found
    named = [("01_naive", naive), *((f"torch, plain, {dtype}", row) for dtype, row in torch.items())]
    named += [(f"**{row['stage']}** {step(row)}", row) for row in stages]
    lines = [[name, *cells(row, naive, torch.get(row["problem"]["dtype"]))] for name, row in named]
    problem, used = describe(naive["problem"]).rsplit(" ", 1)[0], [row for _, row in named]
    text = section(f"{direction}, {problem}", head, lines, used)
    missing = sorted({row["problem"]["dtype"] for row in used} - set(torch))
    return text + "".join(f" Plain torch in {dtype} on this problem is not saved yet." for dtype in missing)


@of_each_gpu
def measured(device, direction):
    """Medians of times that end when the GPU has finished."""

    def cells(row, naive, plain):
        return [row["problem"]["dtype"], ms(row), times(naive, row, "median_ms"), times(plain, row, "median_ms")]

    head = " | type | ms, median | times as fast as 01_naive | times as fast as plain torch, same type"
    return of_lineup(device, direction, head, cells)


@of_each_gpu
def claimed(device):
    """The same ratios of both passes by a clock on the host that does not wait."""

    def cells(row, naive, plain):
        readings = [row["time"].get(field) for field in ("median_ms", "enqueue_ms", "first_enqueue_ms")]
        line = [number(reading and float(reading)) for reading in readings]
        for above in (plain, naive):
            line += [times(above, row, "median_ms"), times(above, row, "enqueue_ms"), times(above, row, "first_enqueue_ms", "enqueue_ms")]
        return line

    head = " | ms, true | by the host's clock | its first call"
    for plain in ("torch", "01_naive"):
        head += f" | over {plain}, true | by the host's clock | and with its first call"
    return "\n\n".join(filter(None, (of_lineup(device, direction, head, cells) for direction in ("forward", "backward"))))


def starting_point():
    """What docs/headline.json says of a starting point, beside the saved times of plain torch."""
    saying = json.loads((ROOT / "docs" / "headline.json").read_text())
    lines = []
    for direction, of in saying["ms"].items():
        found = [lineup(device, direction) for device in gpus()]
        torch = next((one[1].get("fp32") for one in found if one and one[0]["device"]["name"] == saying["device"]), None)
        for name, time in of.items():
            longer = f"{time / torch['time']['median_ms']:.0f} times as long" if torch else "–"
            lines.append([direction, name, number(time), ms(torch), longer])
    return (
        f"Claimed, from one run of a profiler without warm-up: **{saying['claimed']} times** as fast as plain attention. The same "
        f"comparison with synchronisation: about **{saying['synchronised']}**. And on {saying['device']}, the problem above in fp32, timed "
        f"as everything on this page:\n\n{table('pass | its kernels for | ms | plain torch, ms | so they take', lines)}"
    )
