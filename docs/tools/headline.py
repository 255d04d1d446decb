"""The headline ratios: how many times as fast as plain attention the stages are, by medians of synchronised times, and what a clock that
does not wait for the GPU would have said. From compare.json and compare16.json, and torch's rows of the same problem."""

import json

from rows.row import is_borrowed
from rows.text import describe

from .formatting import number, table
from .saved import ROOT, gpus, origin, rows_of

STAGES = ("04", "05", "06", "07", "08")
NOT_TIMED = "*No times saved yet.*"
NOT_CLOCKED = "*What a clock on the host reads that does not wait for the GPU (`enqueue_ms`) is not saved yet: the rows are older than that field.*"


def shape(row):
    """The problem without its type, which 08 does not share with the others."""
    return {name: value for name, value in row["problem"].items() if name not in ("dtype", "scale", "seed")}


def fastest(rows):
    return min(rows, key=lambda row: row["time"]["median_ms"], default=None)


def lineup(device, direction):
    """(01_naive, {dtype: plain torch}, the best step of each stage) on the problem of compare.json; None where nothing is saved."""
    rows = [row for file in ("compare.json", "compare16.json") for row in rows_of(device, file) if row["pass"] == direction and "time" in row]
    naive = fastest([row for row in rows if row["stage"] == "01_naive"])
    if naive is None:
        return None
    rows = [row for row in rows if shape(row) == shape(naive) and not is_borrowed(row)]
    torch = {}
    for file in ("peers.json", "peers16.json", "sweep_peers.json"):
        for row in rows_of(device, file):
            if row["pass"] == direction and row["variant"] == "plain" and "time" in row and shape(row) == shape(naive):
                torch.setdefault(row["problem"]["dtype"], row)
    stages = [fastest([row for row in rows if row["stage"].startswith(prefix)]) for prefix in STAGES]
    return naive, torch, [row for row in stages if row]


def times(above, below, field, of=None):
    """above / below by one field of `time`, or of two."""
    above, below = (above or {}).get("time", {}).get(field), (below or {}).get("time", {}).get(of or field)
    ratio = above / below if above and below else None
    return "–" if ratio is None else f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 100 else f"{ratio:,.0f}"


def for_each_gpu(direction, lines_of):
    """The table that lines_of(naive, torch, stages) gives as (head, lines), for each GPU with a problem to show."""
    parts = []
    for device in gpus():
        found = lineup(device, direction)
        head, lines = lines_of(*found) if found else ([], [])
        if lines:
            naive, torch, stages = found
            problem = describe(naive["problem"]).rsplit(" ", 1)[0]
            text = f"{naive['device']['name']}, {direction}, {problem}:\n\n{table(head, lines)}\n\n{origin([naive, *torch.values(), *stages])}"
            missing = sorted({row["problem"]["dtype"] for row in [naive, *stages]} - set(torch))
            parts.append(text + "".join(f" Plain torch in {dtype} on this problem is not saved yet." for dtype in missing))
    return "\n\n".join(parts)


def headline(direction):
    """Measured: medians of times that end when the GPU has finished."""

    def lines_of(naive, torch, stages):
        def line(name, row):
            plain = torch.get(row["problem"]["dtype"])
            return [name, row["problem"]["dtype"], number(row["time"]["median_ms"]), times(naive, row, "median_ms"), times(plain, row, "median_ms")]

        lines = [line("01_naive", naive)] + [line("torch, plain", row) for row in torch.values()]
        lines += [line(f"**{row['stage']}** `{row['variant']}`", row) for row in stages]
        return ["", "type", "ms, median", "times as fast as 01_naive", "times as fast as plain torch, same type"], lines

    return for_each_gpu(direction, lines_of) or NOT_TIMED


def claimed():
    """The same ratios of both passes by a clock on the host that does not wait."""

    def lines_of(naive, torch, stages):
        if not any(row["time"].get("enqueue_ms") for row in [naive, *torch.values(), *stages]):
            return [], []

        def ratios(above, row):
            return [times(above, row, "median_ms"), times(above, row, "enqueue_ms"), times(above, row, "first_enqueue_ms", "enqueue_ms")]

        def line(name, row):
            readings = [row["time"].get(field) for field in ("median_ms", "enqueue_ms", "first_enqueue_ms")]
            return [name, *(number(float(ms)) if ms else "–" for ms in readings), *ratios(torch.get(row["problem"]["dtype"]), row), *ratios(naive, row)]

        lines = [line("01_naive", naive)] + [line(f"torch, plain, {dtype}", row) for dtype, row in torch.items()]
        lines += [line(f"**{row['stage']}** `{row['variant']}`", row) for row in stages]
        head = ["", "ms, true", "by the host's clock", "its first call"]
        for plain in ("torch", "01_naive"):
            head += [f"over {plain}, true", "by the host's clock", "and with its first call"]
        return head, lines

    return "\n\n".join(filter(None, (for_each_gpu(direction, lines_of) for direction in ("forward", "backward")))) or NOT_CLOCKED


def starting_point():
    """What docs/headline.json says of a starting point, beside the saved times of plain torch."""
    said = json.loads((ROOT / "docs" / "headline.json").read_text())
    lines = []
    for direction, of in said["ms"].items():
        found = [lineup(device, direction) for device in gpus()]
        torch = next((one[1].get("fp32") for one in found if one and one[0]["device"]["name"] == said["device"]), None)
        for name, ms in of.items():
            ratio = f"{ms / torch['time']['median_ms']:.0f} times as long" if torch else "–"
            lines.append([direction, name, number(ms), number(torch["time"]["median_ms"]) if torch else "–", ratio])
    head = ["pass", "its kernels for", "ms", "plain torch, ms", "so they take"]
    return (
        f"Claimed, from one run of a profiler without warm-up: **{said['claimed']} times** as fast as plain attention. The same comparison with "
        f"synchronisation: about **{said['synchronised']}**. And on {said['device']}, the problem above in fp32, timed as everything on this page:"
        f"\n\n{table(head, lines)}"
    )
