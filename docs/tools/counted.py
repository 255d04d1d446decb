"""Tables of what the simulator counted, beside the closed formulas. A difference is a mistake, and ends the program."""

import json

from rows.row import is_borrowed
from rows.text import describe

from . import costs
from .formatting import table
from .saved import NOTHING_SAVED, gpus, origin, rows_of


def agree(row, what, expected, counted):
    """Predictions are exact: a difference is a mistake in the chapter or in the kernel."""
    if expected != counted:
        name = f"{row['stage']} {row['variant']} {row['pass']}"
        raise SystemExit(f"{name}, {describe(row['problem'])}: {what}: predicted {expected}, counted {counted}")
    return f"{counted:,}"


def count_table(stage, direction, p, rows):
    """Predicted beside counted for one problem, a column for each variant."""
    tiles = rows[0].get("tiles")
    expected = costs.predicted(stage, direction, p, tiles, rows[0]["variant"])
    traffic = [row["counters"]["tensors"] for row in rows]
    for row, tensors in zip(rows, traffic):
        for name, moved in tensors.items():
            if name not in expected:
                agree(row, f"bytes of {name}", 0, moved["read_bytes"] + moved["written_bytes"])
    lines = []
    for name, elements in expected.items():
        for count, key, what in zip(elements, ["read_bytes", "written_bytes"], ["read", "written"]):
            counts = [agree(row, f"{name} {what}", 4 * count, t.get(name, {}).get(key, 0)) for row, t in zip(rows, traffic)]
            if count:
                lines.append([f"{name} {what}, bytes", f"{4 * count:,}"] + counts)
    total = 4 * sum(read + written for read, written in expected.values())
    lines.append(["**all bytes**"] + [f"**{total:,}**"] * (1 + len(rows)))
    sectors = [costs.predicted_sectors(stage, row["variant"], direction, p, tiles) for row in rows]
    if None not in sectors:
        counts = [agree(row, "sectors", expected, row["counters"]["sectors"]) for row, expected in zip(rows, sectors)]
        lines.append(["sectors of 32 bytes", " / ".join(dict.fromkeys(f"{expected:,}" for expected in sectors))] + counts)
    for counter in ["barriers", "warp_operations"]:
        if costs.predicted_events(stage, rows[0]["variant"], direction, p, tiles) is None:
            lines.append([counter.replace("_", " "), "–"] + [f"{row['counters'][counter]:,}" for row in rows])
            continue
        events = [costs.predicted_events(stage, row["variant"], direction, p, tiles)[counter] for row in rows]
        counts = [agree(row, counter, event, row["counters"][counter]) for row, event in zip(rows, events)]
        if any(events):
            lines.append([counter.replace("_", " "), " / ".join(dict.fromkeys(f"{event:,}" for event in events))] + counts)
    return table(["", "predicted"] + [f"counted, `{row['variant']}`" for row in rows], lines)


def bytes_of(stage, only=None):
    """A table for each pass (or one alone), saved problem, tile size, and set of variants that move the same bytes."""
    problems = {}
    for row in rows_of("cpu"):
        if row["stage"] == stage and "counters" in row and only in (None, row["pass"]):
            expected = costs.predicted(stage, row["pass"], row["problem"], row.get("tiles"), row["variant"])
            key = (row["pass"], json.dumps(row["problem"]), json.dumps(row.get("tiles")), json.dumps(expected))
            problems.setdefault(key, []).append(row)
    parts = []
    for (direction, problem, tiles, _), rows in problems.items():
        p = json.loads(problem)
        title = f"{direction.capitalize()}, {describe(p)}" + (", tiles {br} × {bc}".format_map(json.loads(tiles)) if tiles != "null" else "")
        body = f"{count_table(stage, direction, p, rows)}\n\n{origin(rows)}"
        # The first problem is to be read; the others stay closed until someone asks.
        first = all(json.loads(other) == p for _, other, *_ in list(problems)[: len(parts)])
        parts.append(f"{title}:\n\n{body}" if first else f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts) or NOTHING_SAVED


# Kernels whose sectors the GPU counts otherwise than the simulator. Chapter 02 says why.
COUNTED_OTHERWISE = [("07_fa2_backward", "two_kernels"), ("07_fa2_backward", "one_kernel")]


def sectors_checked():
    """The simulator's sectors beside the GPU's. They have to be equal, but for the kernels above."""
    lines, seen = [], []
    counted = {(row["stage"], row["variant"], row["pass"]): row for row in rows_of("cpu", "compare.json")}
    for device in gpus():
        for row in rows_of(device, "counted_problem.json"):
            simulated = counted.get((row["stage"], row["variant"], row["pass"]))
            if simulated is None or "profile" not in row or simulated["problem"] != row["problem"] or simulated.get("tiles") != row.get("tiles") or is_borrowed(row):
                continue
            on_gpu = int(sum(kernel["read_sectors"] + kernel["written_sectors"] for kernel in row["profile"]))
            here = simulated["counters"]["sectors"]
            if (row["stage"], row["variant"]) not in COUNTED_OTHERWISE:
                agree(row, "sectors", here, on_gpu)
            lines.append([row["stage"], f"`{row['variant']}`", row["pass"], f"{here:,}", f"{on_gpu:,}", f"{on_gpu - here:+,}" if on_gpu != here else "0"])
            seen.append(row)
    head = ["stage", "variant", "pass", "sectors, simulator", f"sectors, {seen[0]['device']['name']}" if seen else "", "difference"]
    return f"{table(head, lines)}\n\n{origin(seen)}" if seen else "*No profile saved yet.*"
