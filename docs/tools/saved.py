"""Saved results: docs/results/DEVICE/*.json and *.txt, and what can be said about their age."""

import textwrap

from rows.files import ROOT, blob_id
from rows.read import contents
from rows.row import latest
from rows.text import short_commit

RESULTS = ROOT / "docs" / "results"
NOTHING_SAVED = "*Nothing saved yet.*"


def rows_of(device, files="*.json"):
    """The saved rows of a device, in the order of files and rows. Sweeps are for plots: they come only by their names."""
    rows = []
    for path in sorted((RESULTS / device).glob(files)):
        if files == "*.json" and path.name.startswith("sweep"):
            continue
        found = contents(path)
        rows += found.get("rows", []) if isinstance(found, dict) else found
    return [row for row in rows if "problem" in row]  # a run that failed to give a report has none


def of_this_step(row):
    """False if the step's own file has gone since: then the name of its variant may be that of another step."""
    return all((ROOT / path).exists() for path in row.get("sources", {}) if path.startswith(f"{row['stage']}/"))


def newest_rows(device, *files):
    """The rows of some files; of the same step, pass and problem in several the one saved last."""
    return latest([row for file in files for row in rows_of(device, file)])


def gpus():
    return sorted(p.name for p in RESULTS.glob("*") if p.is_dir() and p.name != "cpu")


def saved_text(device, name, width=None):
    """What a program printed; lines of prose are wrapped at `width`, tables (two spaces between cells) are left alone."""
    path = RESULTS / device / f"{name}.txt"
    if not path.exists():
        return NOTHING_SAVED
    lines = path.read_text().strip().split("\n")
    if width:
        lines = [line if "  " in line else textwrap.fill(line, width) for line in lines]
    return "\n".join(["```text", *lines, "```"])


def changed_since(rows):
    """The kernel files that are no longer what they were when the rows were saved."""
    return sorted(
        {
            path
            for row in rows
            for path, saved in row.get("sources", {}).items()
            if saved and not ((ROOT / path).exists() and blob_id(ROOT / path) == saved)
        }
    )


def age(rows):
    """For the front page: the day, and the stages of which a kernel has changed since."""
    changed = sorted({path.split("/")[0] for path in changed_since(rows)})
    since = f" Kernels of {', '.join(changed)} have changed since." if changed else ""
    return f"Saved on {max(row['date'][:10] for row in rows)}.{since}"


def origin(rows):
    """Where rows come from, and whether a kernel has changed since."""
    commits = sorted({(row.get("date", "")[:10], short_commit(row)) for row in rows})
    text = "Saved " + ", ".join(f"on {date} at commit `{commit}`" for date, commit in commits) + "."
    changed = changed_since(rows)
    if changed:
        text += " **Changed since:** " + ", ".join(f"`{path}`" for path in changed) + "."
    return text
