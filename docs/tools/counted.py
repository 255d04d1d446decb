"""Tables of what the simulator counted, beside what the stages predict. A difference is a mistake, and ends the program."""

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


# Tensors in the order of the tables.
ORDER = {name: at for at, name in enumerate("Q K V bias S P O L l m dO D LD dP dS dQ dK dV".split())}


def predicted(row):
    """{tensor: (read, written)} in bytes, as the stage predicts it; a tensor that it leaves out is not moved. {} if it has no formula."""
    tensors = (row.get("predicted") or {}).get("tensors", {})
    names = sorted(tensors, key=lambda name: ORDER.get(name.removesuffix("_padded").removeprefix("sum_"), len(ORDER)))
    return {name: (tensors[name]["read_bytes"], tensors[name]["written_bytes"]) for name in names}


def moved_lines(rows):
    """Lines of a table: a tensor's bytes, predicted and as each row counted them."""
    expected = predicted(rows[0])
    counted = [{name: (t["read_bytes"], t["written_bytes"]) for name, t in row["counters"]["tensors"].items()} for row in rows]
    lines = []
    for name in list(expected or counted[0]):
        for at, what in enumerate(["read", "written"]):
            counts = [of_row.pop(name, (0, 0)) if at else of_row.get(name, (0, 0)) for of_row in counted]
            if expected:
                cells = [agree(row, f"{name} {what}", expected[name][at], count[at]) for row, count in zip(rows, counts)]
            else:
                cells = [f"{count[at]:,}" for count in counts]
            if any(count[at] for count in counts):
                lines.append([f"{name} {what}, bytes", f"{expected[name][at]:,}" if expected else "–"] + cells)
    for row, left in zip(rows, counted):
        for name, both in left.items():
            agree(row, f"bytes of {name}", 0, sum(both))
    total = sum(map(sum, expected.values()))
    sums = [row["counters"]["read_bytes"] + row["counters"]["written_bytes"] for row in rows]
    lines.append(["**all bytes**", f"**{total:,}**" if expected else "–"] + [f"**{counted:,}**" for counted in sums])
    return lines


def count_table(rows):
    """Predicted beside counted for one problem, a column for each variant."""
    lines = moved_lines(rows)
    known = bool(predicted(rows[0]))
    sectors = [costs.predicted_sectors(row) for row in rows] if known else [None]
    if None not in sectors:
        counts = [agree(row, "sectors", expected, row["counters"]["sectors"]) for row, expected in zip(rows, sectors)]
        lines.append(["sectors of 32 bytes", " / ".join(dict.fromkeys(f"{expected:,}" for expected in sectors))] + counts)
    for counter in ["barriers", "warp_operations"]:
        if not known:
            lines.append([counter.replace("_", " "), "–"] + [f"{row['counters'][counter]:,}" for row in rows])
            continue
        events = [costs.predicted_events(row)[counter] for row in rows]
        counts = [agree(row, counter, event, row["counters"][counter]) for row, event in zip(rows, events)]
        if any(events):
            lines.append([counter.replace("_", " "), " / ".join(dict.fromkeys(f"{event:,}" for event in events))] + counts)
    return table(["", "predicted"] + [f"counted, `{row['variant']}`" for row in rows], lines)


def bytes_of(stage, only=None):
    """A table for each pass (or one alone), saved problem, tile size, and set of variants that move the same bytes."""
    problems = {}
    for row in rows_of("cpu"):
        if row["stage"] == stage and "counters" in row and only in (None, row["pass"]):
            key = (row["pass"], json.dumps(row["problem"]), json.dumps(row.get("tiles")), json.dumps(row.get("predicted") or row["variant"]))
            problems.setdefault(key, []).append(row)
    parts = []
    for (direction, problem, tiles, _), rows in problems.items():
        p = json.loads(problem)
        title = f"{direction.capitalize()}, {describe(p)}" + (", tiles {br} × {bc}".format_map(json.loads(tiles)) if tiles != "null" else "")
        body = f"{count_table(rows)}\n\n{origin(rows)}"
        # The first problem is to be read; the others stay closed until someone asks.
        first = all(json.loads(other) == p for _, other, *_ in list(problems)[: len(parts)])
        parts.append(f"{title}:\n\n{body}" if first else f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts) or NOTHING_SAVED


# Kernels whose sectors the GPU counts otherwise than the simulator. Chapter 02 says why.
COUNTED_OTHERWISE = {"06_fa2_forward": ("async_copies", "short_softmax", "tuned"), "07_fa2_backward": ("two_kernels", "one_kernel")}


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
            if row["variant"] not in COUNTED_OTHERWISE.get(row["stage"], ()):
                agree(row, "sectors", here, on_gpu)
            lines.append([row["stage"], f"`{row['variant']}`", row["pass"], f"{here:,}", f"{on_gpu:,}", f"{on_gpu - here:+,}" if on_gpu != here else "0"])
            seen.append(row)
    head = ["stage", "variant", "pass", "sectors, simulator", f"sectors, {seen[0]['device']['name']}" if seen else "", "difference"]
    return f"{table(head, lines)}\n\n{origin(seen)}" if seen else "*No profile saved yet.*"
