"""The plots of plot.py, drawn from the rows and put into the page as data."""

import base64
import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rows.row import device_name

from .markup import join, tag

PLOT = Path(__file__).resolve().parent.parent / "plot.py"
MINUTES = 4


def plot_device(rows, folder):
    """([paths of the plots], [what plot.py says of those that it could not draw]) of the rows of one device."""
    saved = folder / "rows.json"
    saved.write_text(json.dumps(rows), encoding="utf-8")
    command = [sys.executable, "-B", str(PLOT), str(saved), "--out", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        return [], [f"plot.py was stopped after {MINUTES} minutes"]
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    drawn = [line for line in lines if Path(line).parent == folder and Path(line).is_file()]
    failed = done.stderr.strip().splitlines()[-1:] if done.returncode != 0 and not drawn else []
    said = [line for line in lines if line not in drawn] or failed
    return [Path(line) for line in drawn], [line.replace(str(saved), "the rows").replace(str(folder), "") for line in said]


def figure_of(path, name):
    """Seen, it has a title of its own; told, it has that one too. A box that is checked by a click on the picture makes it large."""
    data = path.read_bytes()
    found = re.search(r"<title>(.*?)</title>", data.decode("utf-8", "replace"), re.DOTALL)
    title = html.unescape(found[1].strip()) if found else path.stem
    source = "data:image/svg+xml;base64," + base64.b64encode(data).decode()
    picture = tag("img", src=source, alt=f"Plot: {title}. The figures are in the tables.")
    return tag("figure", tag("input", type="checkbox", id=name, class_="unseen", aria_label=f"Larger: {title}"), tag("label", picture, for_=name))


def section(rows):
    """The plots, or a sentence that says how to get them."""
    try:
        import matplotlib  # noqa: F401  (plot.py needs it)
    except ImportError:
        return tag("p", "There are no plots here, since matplotlib is not installed. ", tag("code", "python3 -m pip install matplotlib"),
                   " installs it, and so does ", tag("code", "common/setup.sh --dev"), " as root; then make this page again. The tables are "
                   "complete without it.")  # fmt: skip
    parts, missing = [], []
    for device in dict.fromkeys(device_name(row) for row in rows if row.get("problem")):
        with tempfile.TemporaryDirectory(prefix="flash_report_") as folder:
            paths, lines = plot_device([row for row in rows if device_name(row) == device], Path(folder).resolve())
            parts += [figure_of(path, f"plot-{len(parts) + index}") for index, path in enumerate(paths, start=1)]
            missing += lines
    hint = tag("p", "A click on a plot enlarges it; another click restores it.", class_="caption hint") if parts else None
    grid = tag("div", *parts, class_="plots") if parts else tag("p", "Nothing can be drawn from these rows.")
    why = tag("details", tag("summary", "What could not be drawn"), tag("ul", *(tag("li", line) for line in missing))) if missing else None
    return join([hint, grid, why])
