"""The plots of plot.py, drawn from the rows and put into the page as data."""

import base64
import html
import re

import plot
from plots.choose import Unfit
from rows.row import device_name

from .markup import join, tag


def drawn(rows):
    """([(name, SVG)] of the plots, [why there are no others]) of the rows of one device."""
    try:
        pictures, reasons = plot.select(rows)
        return [(name, plot.svg(name, picture)) for name, picture in pictures.items()], [f"no {name}: {why}" for name, why in reasons.items()]
    except Unfit as unfit:
        return [], [str(unfit)]
    except Exception as error:  # rows may be damaged in more ways than plots know: the tables are worth having without them
        return [], [f"plot.py fails: {type(error).__name__}: {error}"]


def figure_of(svg, name):
    """Seen, it has a title of its own; told, it has that one too. A box that is checked by a click on the picture makes it large."""
    found = re.search(r"<title>(.*?)</title>", svg, re.DOTALL)
    title = html.unescape(found[1].strip()) if found else name
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
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
        pictures, reasons = drawn([row for row in rows if device_name(row) == device])
        parts += [figure_of(svg, f"plot-{len(parts) + index}") for index, (_, svg) in enumerate(pictures, start=1)]
        missing += reasons
    hint = tag("p", "A click on a plot enlarges it; another click restores it.", class_="caption hint") if parts else None
    grid = tag("div", *parts, class_="plots") if parts else tag("p", "Nothing can be drawn from these rows.")
    why = tag("details", tag("summary", "What could not be drawn"), tag("ul", *(tag("li", line) for line in missing))) if missing else None
    return join([hint, grid, why])
