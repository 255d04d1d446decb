"""Draws the content that lines.py selects: two panels side by side, each line labelled at its end."""

from math import ceil, floor, log2, log10

from rows.text import size

from .style import SMALL, add_panel, head, ink, lengths_axis, line_look, name_in_file, new_figure, spread

LEFT, PANEL, HEIGHT, LABELS, TOP, BELOW = 50, 152, 176, 98, 78, 58


def draw(picture):
    panels = picture.content["panels"]
    rows = {}
    for panel in panels:
        rows.setdefault(panel["row"], []).append(panel)
    heights = [HEIGHT + BELOW + 11 * max(len(panel["gaps"]) for panel in members) for members in rows.values()]
    first = TOP + head(picture)
    figure = new_figure(first + sum(heights) - 28, picture)
    for i, members in enumerate(rows.values()):
        limits = limits_of(members)
        for k, panel in enumerate(members):
            left, top = LEFT + k * (PANEL + LABELS + LEFT), first + sum(heights[:i])
            axes = add_panel(figure, left, top, PANEL, HEIGHT, panel["title"], panel["note"], grid="both")
            draw_panel(axes, panel, limits, picture.content["unit"])
    return figure


def limits_of(panels):
    """(lowest, highest) of all panels of a row, and the place of zero, if there is a zero: a step under the lowest."""
    values = [value for panel in panels for line in panel["series"] for _, value in line["points"]]
    values += [value for panel in panels for line in panel["guides"] for _, value in line["points"]]
    positive = [value for value in values if value > 0] or [1]
    low, high = min(positive) / 1.25, max(positive) * 1.25
    zero = low / (high / low) ** 0.12 if 0 in values else None
    return low, high * (high / low) ** 0.04, zero  # so that the highest mark is whole


def draw_panel(axes, panel, limits, unit):
    low, high, zero = limits
    axes.set_yscale("log")
    axes.set_ylim(zero / 1.3 if zero else low, high)
    values = sorted({n for line in panel["series"] for n, _ in line["points"]})
    lengths_axis(axes, values)
    axes.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    axes.annotate("N", xy=(-8, -13), xycoords="axes points", ha="right", fontsize=SMALL, color=ink("dim"), annotation_clip=False)
    for i, text in enumerate(panel["gaps"]):
        axes.annotate(text, xy=(0, -25 - 11 * i), xycoords="axes points", fontsize=SMALL, color=ink("dim"), annotation_clip=False)
    ticks(axes, low, high, zero, unit)
    ends = []
    for guide in panel["guides"]:
        x, y = zip(*guide["points"])
        axes.plot(x, y, color=ink("dim"), linewidth=0.9, linestyle=(0, (1, 2)))
        ends.append((x[-1], y[-1], guide["label"], "dim"))
    for line in panel["series"]:
        x, y = zip(*((n, value or zero) for n, value in line["points"]))
        if line["series"] == "least":
            axes.plot(x, y, color=ink("fg"), linewidth=2.4, solid_capstyle="round")
        else:
            axes.plot(x, y, gid=name_in_file("line", panel["title"], line["label"]), **line_look(line["series"]))
        ends.append((x[-1], y[-1], line["label"], "fg" if line["series"] == "least" else line["series"]))
    label_ends(axes, ends)


def ticks(axes, low, high, zero, unit):
    if unit == "bytes":
        step = max(1, ceil((log2(high) - log2(low)) / 6))
        step = next(s for s in (1, 2, 5, 10, 20) if s >= step)
        at = [2.0**k for k in range(ceil(log2(low)), floor(log2(high)) + 1) if k % step == 0]
        names = [size(value) for value in at]
    else:
        at = [10.0**k for k in range(ceil(log10(low)), floor(log10(high)) + 1)]
        if len(at) < 3:
            at = sorted(at + [f * 10.0**k for k in range(floor(log10(low)), ceil(log10(high)) + 1) for f in (2, 5) if low <= f * 10.0**k <= high])
        names = [f"{value:g} ms" for value in at]
    if zero:
        at, names = [zero, *at], ["0 B", *names]
    axes.set_yticks(at)
    axes.set_yticklabels(names)
    axes.minorticks_off()


def label_ends(axes, ends):
    """Labels to the right of the panel, pushed apart, each with a thread to its line's end."""
    low, high = axes.get_ylim()
    per_point = HEIGHT / log10(high / low)
    wanted = [log10(y / low) * per_point for _, y, *_ in ends]
    places = spread(wanted, 11.5, 2, HEIGHT)
    for (x, y, text, colour), place in zip(ends, places):
        axes.annotate(text, xy=(x, y), xytext=(PANEL + 11, place), textcoords="axes points", va="center", fontsize=SMALL, color=ink(colour),
                      annotation_clip=False, arrowprops={"arrowstyle": "-", "color": ink(colour), "linewidth": 0.6, "shrinkA": 0,
                      "shrinkB": 4, "relpos": (0, 0.5)})  # fmt: skip
