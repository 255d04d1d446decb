"""Tables of what the simulator counted, next to what the stages predict. A difference is a mistake, and ends the program."""

import json
from operator import itemgetter

from common.compare.rows import describe, grouped, size

from .formatting import details, step, table
from .saved import H200, newest, origin, section

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


def by_variant(rows):
    return [f"counted, `{row['variant']}`" for row in rows]


def count_table(rows):
    """For one problem, a column for each variant."""
    return table(["", "predicted", *by_variant(rows)], count_lines(rows))


def moved_bytes(stage, direction=None, variant=None):
    """A table for each pass (or one alone), saved problem, tile size, and set of variants that move the same bytes; or of one variant, in
    fp16, where a stage has many. The others are checked all the same."""

    def alike(row):
        traffic = [row["problem"], row.get("tiles"), row["predicted"]["tensors"]]
        return id(row) if variant else (row["pass"], *map(json.dumps, traffic))

    parts, shown = [], []
    for rows in grouped(newest("cpu", stage=stage, direction=direction, having="predicted"), alike).values():
        row, body = rows[0], f"{count_table(rows)}\n\n{origin(rows)}"
        if variant in (None, row["variant"]) and (variant is None or row["problem"]["dtype"] == "fp16"):
            tiles = ", tiles {br} × {bc}".format_map(row["tiles"]) if row.get("tiles") else ""
            title = f"{row['pass'].capitalize()}, {describe(row['problem'])}{tiles}"
            shown.append(row["problem"])
            parts.append(f"{title}:\n\n{body}" if row["problem"] == shown[0] else details(title, body))  # the first problem is to be read
    return "\n\n".join(parts)


def first_problem(*arguments):
    """Of moved_bytes the table that is to be read, without those to unfold."""
    return moved_bytes(*arguments).split("\n\n<details>")[0]


def changes(stage, before, direction):
    """Of first_problem the lines that are not as in an earlier stage, next to its predictions."""

    def predicted(rows):
        """{line: [the prediction, with the names of the variants where it differs, what was counted of each]}."""
        lines = {name: numbers for name, *numbers in count_lines(rows)}
        variants = [row["variant"] for row in rows]
        for name, (first, *counted) in lines.items():
            lines[name] = [", ".join(f"{n} `{variant}`" for n, variant in zip(counted, variants)) if " / " in first else first, *counted]
        return lines

    rows = newest("cpu", "compare.jsonl", stage=stage, direction=direction, having="predicted")
    older = newest("cpu", "compare.jsonl", stage=before, direction=direction, having="predicted")
    was = {name: numbers[0] for name, numbers in predicted(older).items()}
    lines = [[name, was.get(name, "–"), *numbers] for name, numbers in predicted(rows).items() if was.get(name) != numbers[0]]
    return section(f"{direction.capitalize()}, {{problem}}", ["", before, "predicted", *by_variant(rows)], lines, rows)


def one_step(stage, variant):
    """The table of one variant on the first saved problem."""
    row = next(row for row in newest("cpu", stage=stage, having="predicted") if row["variant"] == variant)
    tiles = ", tiles {br} × {bc}".format_map(row["tiles"]) if row.get("tiles") else ""
    return f"{row['pass'].capitalize()}, {describe(row['problem'])}{tiles}:\n\n{count_table([row])}\n\n{origin([row])}"


def traffic(row):
    tensors, counted = row["counters"]["tensors"], both_ways(row["counters"])
    square = sum(both_ways(tensors[name]) for name in ["S", "P", "dP", "dS"] if name in tensors)
    formula = agree(row, "bytes", both_ways(row["predicted"]), counted) if row.get("predicted") else "–"
    times = f"{counted / row['compulsory_bytes']:.1f}"
    return [row["stage"], step(row), f"{square:,}", formula, f"{counted:,}", times, size(row["extra_memory_bytes"])]


def all_stages():
    """Of docs/reference/io_complexity.md, on two problems: bytes of S, P and their gradients, all bytes, and the compulsory ones of (I.1)."""
    head = "stage | variant | N × N matrices, bytes | all, formula | all, counted | times compulsory | extra memory"
    parts = []
    for file in ["compare.jsonl", "io.jsonl"]:
        rows = sorted(newest("cpu", file), key=lambda row: (row["pass"] != "forward", row["stage"]))
        for name, some in grouped(rows, itemgetter("pass")).items():
            parts.append(section(f"{name.capitalize()}, {{problem}}", head, list(map(traffic, some)), some))
    return "\n\n".join(parts)


def repeats():
    """The steps of chapter 07 on a head without a mask: bytes by the formula and as counted, and atomic additions."""
    rows = newest("cpu", stage="07_fa2_backward", having="predicted")
    used = [row for row in rows if row["problem"]["seq_q"] == 1024 and not row["problem"]["causal"]]
    lines = []
    for row in used:
        formula, counted = map(both_ways, BOTH(row))
        counters = row["counters"]
        lines.append([step(row), f"{formula:,}", agree(row, "bytes", formula, counted)])
        lines[-1] += [f"{n:,}" for n in (both_ways(counters["tensors"]["dQ"]), counters["atomics"])]
    tiles = "{br} × {bc}".format_map(used[0]["tiles"])
    return section(f"{{problem}}, tiles {tiles}", "step | bytes by (7.7) | counted | of them dQ | atomic additions", lines, used)


def seen_by_gpu(row):
    """The sectors that the GPU's counters should show, by those of the simulator. They lack atomic additions, and have an eighth more of
    what cp.async copies to padded rows. docs/logbook/02_safe_softmax.md says why."""
    sectors = {name: tensor["read_sectors"] for name, tensor in row["counters"]["tensors"].items()}
    padded = added = 0
    if row["stage"] == "06_fa2_forward" and row["variant"] in ("vector_operands", "short_softmax", "tuned"):
        padded = sectors["K"]
    if row["stage"] == "06_fa2_forward" and row["variant"] == "async_copies":
        padded = sectors["K"] + sectors["V"]
    if row["stage"] == "07_fa2_backward":
        padded = sectors["Q"] + sectors["K"] + sectors["V"] + sectors["dO"] - sectors["O"]  # prepare_kernel reads O and dO by itself
        added = sectors.get("dQ", 0)
    return row["counters"]["sectors"] + padded // 8 - 2 * added


def sectors_checked():
    """The simulator's sectors next to the GPU's."""
    lines, seen = [], []
    counted = {(row["stage"], row["variant"], row["pass"]): row for row in newest("cpu", "compare.jsonl")}
    for row in newest(H200, "counted_problem.jsonl", having="profile"):
        simulated = counted.get((row["stage"], row["variant"], row["pass"]))
        if simulated is None or simulated["problem"] != row["problem"] or simulated.get("tiles") != row.get("tiles"):
            continue
        on_gpu = int(sum(kernel["read_sectors"] + kernel["written_sectors"] for kernel in row["profile"]))
        here = simulated["counters"]["sectors"]
        agree(row, "sectors on the GPU", seen_by_gpu(simulated), on_gpu)
        lines.append([row["stage"], step(row), row["pass"], f"{here:,}", f"{on_gpu:,}", f"{on_gpu - here:+,}" if on_gpu != here else "0"])
        seen.append(row)
    name = seen[0].device_name if seen else ""
    head = ["stage", "variant", "pass", "sectors, simulator", f"sectors, {name}", "difference"]
    return f"{table(head, lines)}\n\n{origin(seen)}" if seen else None
