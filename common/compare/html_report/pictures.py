"""The plots of plot.py, drawn from the rows and put into the page as data."""

import base64
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .markup import join, tag
from .rows import device_name

PLOT = Path(__file__).resolve().parent.parent / "plot.py"
MINUTES = 5
# name: (title, what it shows)
PLOTS = {
    "time": ("Time against N", "Median time of each stage and peer against the sequence length, both axes logarithmic."),
    "tflops_forward": ("TFLOP/s, forward", "TFLOP/s of the forward pass against the sequence length, by head dimension and mask."),
    "tflops_backward": ("TFLOP/s, backward", "TFLOP/s of the backward pass against the sequence length, by head dimension and mask."),
    "tflops_both": ("TFLOP/s, forward and backward", "TFLOP/s of both passes together against the sequence length, by head dimension and mask."),
    "ladder": ("The steps", "TFLOP/s of each step of the later stages, with the gain over the step before."),
    "roofline": ("Roofline", "TFLOP/s of each stage against its FLOPs per byte of HBM, below the peaks of the device."),
    "memory": ("Extra memory against N", "Memory beside inputs and outputs against the sequence length: N² against N."),
    "bytes": ("Bytes moved against N", "Bytes that each stage moves against the sequence length, beside the least that must move."),
    "counts": ("Counts", "Barriers, warp operations, sectors and bank conflicts of each stage."),
}


def plot_device(rows, folder):
    """([paths of the plots], [lines of plot.py that say why one is missing]) of the rows of one device."""
    saved = folder / "rows.json"
    saved.write_text(json.dumps(rows), encoding="utf-8")
    command = [sys.executable, "-B", str(PLOT), str(saved), "--out", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        return [], [f"plot.py was stopped after {MINUTES} minutes"]
    known = list(PLOTS)
    paths = sorted(folder.glob("*.svg"), key=lambda path: (known.index(path.stem) if path.stem in known else len(known), path.stem))
    said = [line.strip().replace(str(folder) + "/", "") for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return paths, [line for line in said if not any(path.name in line for path in paths)]


def figure_of(path, device):
    title, shown = PLOTS.get(path.stem, (path.stem, "A plot of the rows."))
    data = "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()
    caption = tag("figcaption", tag("b", title), f". {shown} {device}.")
    return tag("figure", tag("img", src=data, alt=f"{title}: {shown} The tables have the figures."), caption)


def section(rows):
    """The plots, or a sentence that says how to get them."""
    if not PLOT.exists() or importlib.util.find_spec("matplotlib") is None:
        return tag("p", "There are no plots here, since matplotlib is not installed. ", tag("code", "common/setup.sh --dev"), " installs it; then make "
                   "this page again. The tables above are complete without it.")  # fmt: skip
    parts, missing = [], []
    for device in dict.fromkeys(device_name(row) for row in rows if row.get("problem")):
        with tempfile.TemporaryDirectory(prefix="flash_report_") as folder:
            paths, lines = plot_device([row for row in rows if device_name(row) == device], Path(folder))
            parts += [figure_of(path, device) for path in paths]
            missing += lines
    grid = tag("div", *parts, class_="plots") if parts else tag("p", "Nothing can be drawn from these rows.")
    why = tag("details", tag("summary", "Plots that these rows do not suffice for"), tag("ul", *(tag("li", line) for line in missing))) if missing else None
    return join([grid, why])
