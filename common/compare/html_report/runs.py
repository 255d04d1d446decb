"""Runs side by side: what several files say of the same lines, with a column for each file."""

from pathlib import Path

from rows.row import device_name, is_good, is_gpu, label, latest, place, problem_key, text
from rows.text import short_commit

from .groups import Group, cost, cost_text
from .markup import Cell, Head, gain, join, part, table, tag
from .tables import name_cell, why_absent

UNFOLDED = 4  # comparisons; if there are more, they are folded


def shared(rows):
    """[{line: {file: row}}] of each problem and pass that two files or more have lines of; GPU and simulator apart."""
    found = {}
    for index in dict.fromkeys(row["file"] for row in rows):
        for row in latest([row for row in rows if row["file"] == index and row.get("problem")], by_tiles=True):
            key = is_gpu(row), problem_key(row["problem"]), row["pass"]
            found.setdefault(key, {}).setdefault(label(row), {})[index] = row
    both = [{name: runs for name, runs in lines.items() if len(runs) > 1} for lines in found.values()]
    return [lines for lines in both if lines]


def run_head(rows, name):
    """The file, and what its rows in this table have in common."""
    origin = {(device_name(row), text(row, "date")[:10], short_commit(row)) for row in rows}
    said = " ".join(next(iter(origin))) if len(origin) == 1 else ", ".join(dict.fromkeys(map(device_name, rows)))
    return Head(name, said)


def run_cell(row, first):
    """What a row is judged by, and its gain over that of the first file."""
    if row is None:
        return Cell()
    if not is_good(row):
        return Cell(why_absent(row))
    return Cell(cost_text(row), gain(cost(first) / cost(row)) if cost(first) and cost(row) and first is not row else None)


def comparison(lines, names, id, folded):
    """What several files say of the same kernels and problem, be it on two machines or before and after a change."""
    group = Group([row for runs in lines.values() for row in runs.values()])
    files = sorted({row["file"] for row in group.rows})
    heads = [run_head([row for row in group.rows if row["file"] == one], names[one]) for one in files]
    body = []
    for runs in sorted(lines.values(), key=lambda runs: place(next(iter(runs.values())))):
        first = runs[min(runs)]
        body.append((name_cell(first), [run_cell(runs.get(one), first) for one in files], None))
    what = f"{'Median time in ms' if group.gpu else 'Bytes moved'}; in small print the gain over the first file."
    content = table(group.title, id, [Head("stage/variant", kind=None), *heads], body)
    return part(group.title, id, join([tag("p", what, class_="caption"), content]), folded)


def section(rows, names):
    """None where no two files have a line in common. `names`: of the files; the last folder is told where that tells them apart."""
    ends = [Path(name).name for name in names]
    names = [end if ends.count(end) == 1 else str(Path(*Path(name).parts[-2:])) for end, name in zip(ends, names)]
    found = shared(rows)
    parts = (comparison(lines, names, f"run-{index}", len(found) > UNFOLDED) for index, lines in enumerate(found, start=1))
    return join(parts) if found else None
