"""Saved results, docs/results/DEVICE/*.jsonl, what can be said about their age, and tables of them."""

from common.compare.rows import ROOT, changed, describe, latest, read

from .formatting import table

RESULTS = ROOT / "docs" / "results"
H200 = "nvidia_h200"


def newest(device, *files, stage=None, pass_=None, having=None):
    """The rows of these files that have a field; of the same step, pass and problem the one saved last. Without those in more/, which are no
    steps."""
    found = [row for file in files for row in read(RESULTS / device / file) if having in (None, *row)]
    found = [row for row in found if "/more/" not in row.get("kernel", "")]
    return latest([row for row in found if stage in (None, row["stage"]) and pass_ in (None, row["pass"])])


def of_today(row):
    """False if the step's own file has gone since: then the name of its variant may be that of another step."""
    return all((ROOT / path).exists() for path in row.get("sources", {}) if path.startswith(f"{row['stage']}/"))


def fastest(rows):
    return min(rows, key=lambda row: row["time"]["median_ms"], default=None)


def section(title, head, lines, rows):
    """A table of rows below its title, and where they come from. None if there are no lines. A GPU's name comes first; a title may have
    the {pass} and the {problem} of the first row."""
    if not lines:
        return None
    first = rows[0]
    title = title.format_map({"pass": first["pass"], "problem": describe(first["problem"])})
    title = f"{first.device_name}, {title}" if first.is_gpu else title
    return f"{title}:\n\n{table(head, lines)}\n\n{origin(rows)}"


def changed_since(rows):
    """The kernel files that are no longer what they were when the rows were saved."""
    return sorted({path for row in rows for path in changed(row.get("sources", {}))})


def origin(rows):
    """When rows were saved, and whether a kernel has changed since; their commits stand in the rows."""
    days = sorted({row["date"][:10] for row in rows if "date" in row})
    text = "Saved without a date."
    if days:
        text = f"Saved on {days[0]}." if len(days) == 1 else f"Saved from {days[0]} to {days[-1]}."
    changed = [f"`{path}`" for path in changed_since(rows)]
    if changed:
        text += f" **Changed since:** {', '.join(changed) if len(changed) <= 2 else f'{len(changed)} kernel files'}."
    return text
