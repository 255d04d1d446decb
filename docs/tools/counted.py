"""Tables of what the simulator counted, beside what the stages predict. A difference is a mistake, and ends the program."""

import importlib
import json

from rows import describe, grouped

from .formatting import details, step, table
from .saved import NOTHING_SAVED, newest, of_each_gpu, origin


def chapter(stage):
    """The module of a stage's chapter, which may have events(row), sectors(row, moved) and least_ms(row): no program says these."""
    return importlib.import_module("tools.naive" if stage < "04" else f"tools.{stage[3:]}")


def agree(row, what, expected, counted):
    """Predictions are exact: a difference is a mistake in the chapter or in the kernel."""
    if expected != counted:
        name = f"{row['stage']} {row['variant']} {row['pass']}"
        raise SystemExit(f"{name}, {describe(row['problem'])}: {what}: predicted {expected}, counted {counted}")
    return f"{counted:,}"


# Tensors in the order of the tables.
ORDER = {name: at for at, name in enumerate("Q K V bias S P O L l m dO D LD dP dS dQ dK dV".split())}


def moved(tensors):
    """{tensor: (bytes read, written)}"""
    names = sorted(tensors, key=lambda name: ORDER.get(name.removesuffix("_padded").removeprefix("sum_"), len(ORDER)))
    return {name: (tensors[name]["read_bytes"], tensors[name]["written_bytes"]) for name in names}


def predicted_sectors(row):
    """Of 32 bytes, where rows start on sector boundaries; None elsewhere, and for stages that predict none."""
    p = row["problem"]
    if p["seq_k"] % 8 or p["head_dim"] % 8 or p["seq_q"] % 32 or p["bias"] != "none" or not hasattr(chapter(row["stage"]), "sectors"):
        return None
    elements = {name: (read // 4, written // 4) for name, (read, written) in moved(row["predicted"]["tensors"]).items()}
    return chapter(row["stage"]).sectors(row, elements)


def count_table(rows):
    """Predicted beside counted for one problem, a column for each variant. All of them predict the same bytes, or have no formula."""
    known = rows[0]["predicted"] is not None
    expected = moved(rows[0]["predicted"]["tensors"]) if known else {}
    counted = [moved(row["counters"]["tensors"]) for row in rows]
    lines = []

    def line(what, predictions, counts):
        if known:
            cells = [agree(row, what, prediction, count) for row, prediction, count in zip(rows, predictions, counts)]
        else:
            cells = [f"{count:,}" for count in counts]
        if any(counts):
            lines.append([what, " / ".join(dict.fromkeys(cells)) if known else "–", *cells])

    for name in dict.fromkeys([*expected, *(name for of_row in counted for name in of_row)]):
        for at, what in enumerate(["read", "written"]):
            counts = [of_row.get(name, (0, 0))[at] for of_row in counted]
            line(f"{name} {what}, bytes", [expected.get(name, (0, 0))[at]] * len(rows), counts)
    all_counted = [row["counters"]["read_bytes"] + row["counters"]["written_bytes"] for row in rows]
    line("all bytes", [sum(map(sum, expected.values()))] * len(rows), all_counted)
    lines[-1] = [f"**{cell}**" for cell in lines[-1]]
    sectors = [predicted_sectors(row) for row in rows] if known else [None]
    if None not in sectors:
        line("sectors of 32 bytes", sectors, [row["counters"]["sectors"] for row in rows])
    if known and hasattr(chapter(rows[0]["stage"]), "events"):
        events = [chapter(row["stage"]).events(row) for row in rows]
        for counter in ["barriers", "warp_operations"]:
            line(counter.replace("_", " "), [event[counter] for event in events], [row["counters"][counter] for row in rows])
    return table(["", "predicted"] + [f"counted, `{row['variant']}`" for row in rows], lines)


def moved_bytes(stage, direction=None, variant=None):
    """A table for each pass (or one alone), saved problem, tile size, and set of variants that move the same bytes; or of one variant, in
    fp16, where a stage has many. The others are checked all the same."""

    def alike(row):
        return id(row) if variant else (row["pass"], *(json.dumps(row.get(name)) for name in ("problem", "tiles", "predicted")))

    parts, shown = [], []
    for rows in grouped(newest("cpu", stage=stage, direction=direction, having="predicted"), alike).values():
        row, body = rows[0], f"{count_table(rows)}\n\n{origin(rows)}"
        if variant in (None, row["variant"]) and (variant is None or row["problem"]["dtype"] == "fp16"):
            tiles = ", tiles {br} × {bc}".format_map(row["tiles"]) if row.get("tiles") else ""
            title = f"{row['pass'].capitalize()}, {describe(row['problem'])}{tiles}"
            shown.append(row["problem"])
            parts.append(f"{title}:\n\n{body}" if row["problem"] == shown[0] else details(title, body))  # the first problem is to be read
    return "\n\n".join(parts) or NOTHING_SAVED


def seen_by_gpu(row):
    """The sectors that the GPU's counters should show, by those of the simulator. They lack atomic additions, and have an eighth more of
    what cp.async copies to padded rows. Chapter 02 says why."""
    sectors = {name: tensor["read_sectors"] for name, tensor in row["counters"]["tensors"].items()}
    padded = added = 0
    if row["stage"] == "06_fa2_forward" and row["variant"] in ("async_copies", "short_softmax", "tuned"):
        padded = sectors["K"]
    if row["stage"] == "07_fa2_backward":
        padded = sectors["Q"] + sectors["K"] + sectors["V"] + sectors["dO"] - sectors["O"]  # prepare_kernel reads O and dO by itself
        added = sectors.get("dQ", 0)
    return row["counters"]["sectors"] + padded // 8 - 2 * added


@of_each_gpu
def sectors_checked(device):
    """The simulator's sectors beside the GPU's."""
    lines, seen = [], []
    counted = {(row["stage"], row["variant"], row["pass"]): row for row in newest("cpu", "compare.jsonl")}
    for row in newest(device, "counted_problem.jsonl", having="profile"):
        simulated = counted.get((row["stage"], row["variant"], row["pass"]))
        if simulated is None or simulated["problem"] != row["problem"] or simulated.get("tiles") != row.get("tiles"):
            continue
        on_gpu = int(sum(kernel["read_sectors"] + kernel["written_sectors"] for kernel in row["profile"]))
        here = simulated["counters"]["sectors"]
        agree(row, "sectors on the GPU", seen_by_gpu(simulated), on_gpu)
        lines.append([row["stage"], step(row), row["pass"], f"{here:,}", f"{on_gpu:,}", f"{on_gpu - here:+,}" if on_gpu != here else "0"])
        seen.append(row)
    name = seen[0]["device"]["name"] if seen else ""
    head = ["stage", "variant", "pass", "sectors, simulator", f"sectors, {name}", "difference"]
    return f"{table(head, lines)}\n\n{origin(seen)}" if seen else None
