"""Tables of what the simulator counted, next to what the stages predict. A difference is a mistake, and ends the program."""

from operator import itemgetter

from common.compare.rows import describe, grouped

from .formatting import table
from .saved import newest, origin

BOTH = itemgetter("predicted", "counters")
EVENTS = {"sectors": "sectors of 32 bytes", "barriers": "barriers", "warp_operations": "warp operations"}
# Tensors in the order of the tables.
ORDER = {name: at for at, name in enumerate("Q K V bias S P O L l m dO D LD dP dS dQ dK dV".split())}


def agree(row, what, expected, counted):
    """Predictions are exact: a difference is a mistake in the chapter or in the kernel."""
    if expected != counted:
        name = f"{row['stage']} {row['variant']} {row['pass']}"
        raise SystemExit(f"{name}, {describe(row['problem'])}: {what}: predicted {expected}, counted {counted}")
    return f"{counted:,}"


def both_ways(moved):
    return moved["read_bytes"] + moved["written_bytes"]


def place(name):
    return ORDER.get(name.removesuffix("_padded").removeprefix("sum_"), len(ORDER))


def count_lines(rows):
    """For one problem: what is counted, the prediction, and a number for each variant. All of them predict the same bytes."""
    lines = []

    def line(what, numbers):
        cells = [agree(row, what, *both) for row, both in zip(rows, numbers)]
        if any(counted for _, counted in numbers):
            lines.append([what, " / ".join(dict.fromkeys(cells)), *cells])

    tensors = dict.fromkeys(name for row in rows for side in BOTH(row) for name in side["tensors"])
    for name in sorted(tensors, key=place):
        for way in ("read", "written"):
            of_rows = [[side["tensors"].get(name, {}).get(f"{way}_bytes", 0) for side in BOTH(row)] for row in rows]
            line(f"{name} {way}, bytes", of_rows)
    line("all bytes", [list(map(both_ways, BOTH(row))) for row in rows])
    lines[-1] = [f"**{cell}**" for cell in lines[-1]]
    for key, name in EVENTS.items():
        if all(row["predicted"].get(key) is not None for row in rows):
            line(name, [[side[key] for side in BOTH(row)] for row in rows])
    return lines


def count_table(rows):
    """For one problem, a column for each variant."""
    row = rows[0]
    tiles = ", tiles {br} × {bc}".format_map(row["tiles"]) if row.get("tiles") else ""
    title = f"{row['pass'].capitalize()}, {describe(row['problem'])}{tiles}"
    head = ["", "predicted", *(f"counted, `{row['variant']}`" for row in rows)]
    return f"{title}:\n\n{table(head, count_lines(rows))}\n\n{origin(rows)}"


def first_problem(stage, direction=None):
    """A stage's steps on the first saved problem, a table for each pass, or for one."""
    rows = newest("cpu", stage=stage, direction=direction, having="predicted")
    rows = [row for row in rows if row["problem"] == rows[0]["problem"]]
    return "\n\n".join(map(count_table, grouped(rows, itemgetter("pass")).values()))


def one_step(stage, variant):
    """The table of one variant on the first saved problem, in fp16 where a stage has 16 bits."""
    rows = newest("cpu", stage=stage, having="predicted")
    return count_table([next(row for row in rows if row["variant"] == variant and row["problem"]["dtype"] != "bf16")])
