"""Runs side by side: what several files say of the same kernel and problem, be it on two machines or before and after a change."""

from pathlib import Path

from rows.row import device_name, is_good, is_gpu, label, latest, place, problem_key, text
from rows.text import short_commit, size

from .columns import DASH, cell, figure, gain
from .groups import Group
from .markup import join, tag
from .overview import why_absent
from .tables import name_cell

UNFOLDED = 4


def shared(rows):
    """[{line: {file: row}}] of each problem and pass that two files or more have lines of; GPU and simulator apart."""
    found = {}
    for index in dict.fromkeys(row["file"] for row in rows):
        for row in latest([row for row in rows if row["file"] == index and row.get("problem")], by_tiles=True):
            key = is_gpu(row), problem_key(row["problem"]), row["pass"]
            found.setdefault(key, {}).setdefault(label(row), {})[index] = row
    both = [{name: runs for name, runs in lines.items() if len(runs) > 1} for lines in found.values()]
    return [lines for lines in both if lines]


def column_head(index, rows, names):
    """What is told of the rows that a file has in this table."""
    origin = {(device_name(row), text(row, "date")[:10], short_commit(row)) for row in rows}
    said = " ".join(next(iter(origin))) if len(origin) == 1 else ", ".join(dict.fromkeys(map(device_name, rows)))
    return tag("th", names[index], tag("small", said), scope="col", class_="number")


def figures(row, first, title):
    """Of a row, and its gain over that of the first file."""
    if row is None:
        return cell(title, DASH)
    cost = Group([row]).cost(row)
    if cost is None:
        return cell(title, DASH if is_good(row) else why_absent(row))
    over = Group([first]).cost(first)
    return cell(title, figure(cost) if is_gpu(row) else size(cost), gain(over / cost) if over and cost and first is not row else None)


def table(lines, names, index):
    rows = [row for runs in lines.values() for row in runs.values()]
    files = sorted({row["file"] for row in rows})
    title, name = Group(rows).title, f"run-{index}"
    what = "Median time in ms" if is_gpu(rows[0]) else "Bytes moved"
    body = []
    for runs in sorted(lines.values(), key=lambda runs: place(next(iter(runs.values())))):
        first = runs[min(runs)]
        body.append(tag("tr", name_cell(first), *(figures(runs.get(one), first, names[one]) for one in files)))
    heads = [column_head(one, [row for row in rows if row["file"] == one], names) for one in files]
    grid = tag("table", tag("caption", title, class_="unseen"), tag("thead", tag("tr", tag("th", "stage/variant", scope="col"), *heads)), tag("tbody", *body))
    box = tag("div", grid, class_="scroll narrow", role="region", aria_labelledby=name, tabindex="0")
    return title, name, join([tag("p", f"{what}; in small print the gain over the first file.", class_="caption"), box])


def short(names):
    """Names of files without their folders, or with the last one where that tells them apart."""
    ends = [Path(name).name for name in names]
    return [end if ends.count(end) == 1 else str(Path(*Path(name).parts[-2:])) for end, name in zip(ends, names)]


def section(rows, names):
    """None where no two files have a line in common. `names`: of the files."""
    names = short(names)
    found = [table(lines, names, index) for index, lines in enumerate(shared(rows), start=1)]
    parts = []
    for title, name, content in found:
        heading = tag("h4" if len(found) > UNFOLDED else "h3", title, id=name)
        fold = len(found) > UNFOLDED
        parts.append(tag("details", tag("summary", heading), content) if fold else tag("section", heading, content))
    return join(parts) if parts else None
