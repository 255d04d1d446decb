"""The kinds of plots. Each is a function of a Plot, of the rows that it shows (of plot.table()) and of words for its note; it gives a figure."""

import re
import textwrap
from math import ceil, floor, log2, log10

from plot_style import LEFT, MARKERS, NORMAL, SMALL, add_panel, ink, line_look, new_figure, pointer, spread, write
from rows import size


class Unfit(Exception):
    """The rows do not suffice for a picture; the text says why."""


def chosen(rows, how):
    """Of each stage and peer one step: that which is fastest at the largest N, or the last."""
    best = rows[rows.ms.notna()].sort_values(["seq_q", "ms"], ascending=[False, True], kind="stable") if how == "fastest" else rows[::-1]
    best = best.drop_duplicates(["series", "pass"])
    return rows[(rows["pass"] + rows.label).isin(best["pass"] + best.label)]


# ---- bars over N, a panel for each width and mask ----------------------------------------------------------------------------


def bars(plot, rows, words):
    from matplotlib.patches import Patch

    panels = {title: speeds(rows.query(query), plot.passes) for title, query in plot.panels.items()}
    panels = {title: groups for title, groups in panels.items() if groups}
    if not panels:
        raise Unfit(f"no problem was timed in {' and '.join(plot.passes)}")
    labels = {}
    for series, (label, _) in (item for groups in panels.values() for item in groups.items()):
        labels[series] = label if labels.get(series, label) == label else series  # not the same step in all panels: their titles say which
    top, height, below = 94, 130, 50
    figure = new_figure(top + len(panels) * (height + below) - 22, plot, words)
    highest = max(
        value for groups in panels.values() for _, values in groups.values() for value in values.values() if isinstance(value, float)
    )
    for k, (title, groups) in enumerate(panels.items()):
        steps = [label for series, (label, _) in groups.items() if label != labels[series]]
        axes = add_panel(figure, 34, top + k * (height + below), plot.width - 42, height, ": ".join([title, *steps]))
        draw_bars(axes, [series for series in labels if series in groups], groups, highest)
    key = [Patch(facecolor=ink(series), label=label) for series, label in labels.items()]
    look = {"frameon": False, "labelcolor": ink("fg"), "fontsize": SMALL, "handlelength": 0.8, "handleheight": 0.8, "handletextpad": 0.5}
    place = (LEFT / plot.width, 1 - 45 / (figure.get_figheight() * 72))
    figure.legend(handles=key, ncols=len(key), loc="upper left", bbox_to_anchor=place, columnspacing=1.4, borderaxespad=0, **look)
    return figure


def speeds(rows, passes):
    """{series: (label, {N: TFLOP/s, or why there is none})}, at the lengths of the stages. Of two passes it is their FLOPs over the sum of
    their times; a stage that has one pass goes with the stage that has the other."""
    rows, groups = chosen(rows, "fastest"), {}
    lengths = sorted(rows[~rows.is_peer].seq_q.unique())
    bar = rows.series.replace({"05": "04", "07": "06"}) if len(passes) > 1 else rows.series
    for series, part in rows.groupby(bar, sort=False):
        values = {}
        for n, at in part.groupby("seq_q"):
            timed = at[at.ms.notna()]
            whole, why = len(timed) == len(passes), at[at.ms.isna()].absence
            values[n] = float(timed.flops.sum() / timed.ms.sum() / 1e9) if whole else next(iter(why), "")
        stages, variants = part.series.unique(), part.variant.unique()
        label = " + ".join(stages) if len(stages) > 1 else f"{series} {' + '.join(variants)}"
        if any(isinstance(values.get(n), float) for n in lengths):
            groups[series] = (part.step.iloc[0] if part.is_peer.any() else label, {n: values.get(n, "") for n in lengths})
    return groups


def draw_bars(axes, order, groups, highest):
    slots = len(order) + 1  # of a group, one of them empty
    lengths = list(next(iter(groups.values()))[1])
    for i, series in enumerate(order):
        for k, value in enumerate(groups[series][1].values()):
            x, place = k * slots + i, {"ha": "center", "va": "bottom"}
            if isinstance(value, float):
                axes.bar(x, value, width=0.86, color=ink(series))
                write(axes, f"{value:.{0 if value >= 10 else 1}f}", (x, value), (0, 2.5), **place)
            else:
                write(axes, value, (x, 0), (0, 2.5), colour="dim", rotation=90, **place)
    axes.set_xlim(-1, len(lengths) * slots - 1)
    axes.set_ylim(0, highest * 1.15)
    axes.set_xticks([k * slots + (len(order) - 1) / 2 for k in range(len(lengths))], [f"N = {n:,}" for n in lengths])
    axes.tick_params(axis="x", length=0)


# ---- lines against N, two panels next to each other --------------------------------------------------------------------------

PANEL, HEIGHT = 144, 176  # points; labels stand to the right of a panel


def lines(plot, rows, words):
    known, panels = rows[rows[plot.y].notna()], []
    for title, query in plot.panels.items():
        part = known.query(query)
        if part.seq_q.nunique() > 1:
            drawn = shared(part, plot.y) if plot.series == "all" else steps_of(chosen(part, plot.series), plot.y)
            panels.append(
                (title, drawn + steps_of(part.assign(series="least", step="must move"), plot.least), gaps(rows.query(query), drawn, plot))
            )
    if not panels:
        raise Unfit("no panel has two lengths")
    pairs = [panels[k : k + 2] for k in range(0, len(panels), 2)]
    heights = [HEIGHT + 58 + 11 * max(len(missing) for *_, missing in pair) for pair in pairs]
    figure = new_figure(78 + sum(heights) - 28, plot, words)
    for i, pair in enumerate(pairs):
        values = [value for _, drawn, _ in pair for *_, points in drawn for value in points.values()]
        for k, (title, drawn, missing) in enumerate(pair):
            axes = add_panel(figure, 50 + 300 * k, 78 + sum(heights[:i]), PANEL, HEIGHT, title, words["problem"], grid="both")
            draw_lines(axes, drawn, plot, values)
            for line, text in enumerate(missing):
                write(axes, text, (0, -25 - 11 * line), colour="dim")
    return figure


def steps_of(rows, y):
    """[(label, series, {N: value})]"""
    return (
        [
            (step, part.series.iloc[0], dict(zip(part.seq_q, part[y])))
            for step, part in rows.sort_values("seq_q").groupby("step", sort=False)
        ]
        if y
        else []
    )


def gaps(rows, drawn, plot):
    """Which of the lines' steps have no value at some lengths, and why."""
    rows = rows[rows[plot.y].isna() & rows.step.isin([step for step, *_ in drawn])]
    groups = rows.sort_values("seq_q").groupby(["step", "absence"], sort=False)
    return [f"{step}, N = {'; '.join(f'{n:,}' for n in part.seq_q)}: {why}" for (step, why), part in groups]


def shared(rows, y):
    """Steps with the same values wherever both were run share a line."""
    rows = rows.groupby("step").filter(lambda part: part.seq_q.nunique() > 1)
    found = []  # [{N: value}, rows of each step]
    for _, part in rows.groupby("step", sort=False):
        points = dict(sorted(zip(part.seq_q, part[y])))
        for known, sharing in found:
            both = known.keys() & points.keys()
            if len(both) > 1 and all(known[n] == points[n] for n in both):
                known.update(points)
                sharing.append(part.iloc[0])
                break
        else:
            found.append((points, [part.iloc[0]]))
    steps = rows.groupby("series").step.nunique()
    drawn = []
    for points, sharing in found:
        labels = []
        for series in dict.fromkeys(row.series for row in sharing):
            here = [row.step for row in sharing if row.series == series]
            whole = len(here) == steps[series] and not sharing[0].is_peer and series[0] == "0"
            labels += [series] if whole else [f"{series} ({len(here)} steps)"] if len(here) > 2 else here
        drawn.append((", ".join(labels), sharing[0].series, dict(sorted(points.items()))))
    return drawn


def draw_lines(axes, drawn, plot, values):
    """`values` of all panels that share this axis. Zero has a place of its own, a step below the lowest value."""
    positive = [value for value in values if value > 0] or [1]
    low, high = min(positive) / (2.5 if plot.guides else 1.25), max(positive) * 1.4
    zero = low / (high / low) ** 0.12 if 0 in values else None
    lengths = sorted({n for *_, points in drawn for n in points})
    axes.set(yscale="log", ylim=(zero / 1.3 if zero else low, high), xlim=(lengths[0] / 1.15, lengths[-1] * 1.15))
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in lengths])
    axes.set_yticks(*ticks(low, high, zero, plot.y))
    axes.minorticks_off()
    write(axes, "N", (-8, -13), colour="dim", ha="right")
    ends = []
    for label, (power, below) in plot.guides.items():
        for points in [points for _, series, points in drawn if series in below][:1]:
            n, value = next(iter(points.items()))
            x, y = [n, max(points)], [value / 2, value / 2 * (max(points) / n) ** power]
            axes.plot(x, y, color=ink("dim"), linewidth=0.9, linestyle=(0, (1, 2)), label=label)
            ends.append((x[-1], y[-1], label, "dim"))
    for label, series, points in drawn:
        y = [value or zero for value in points.values()]
        colour = "fg" if series == "least" else series
        axes.plot([*points], y, label=label, **({"color": ink("fg"), "linewidth": 2.4} if series == "least" else line_look(series)))
        ends.append((max(points), y[-1], label, colour))
    ends.sort(key=lambda end: -end[0])  # of two at one height the one that ends first is the upper, as the lines rise
    bottom, top = axes.get_ylim()
    texts = [label_lines(text) for _, _, text, _ in ends]
    wanted = [log10(y / bottom) * HEIGHT / log10(top / bottom) for (_, y, *_), text in zip(ends, texts) for _ in text]
    places = iter(spread(wanted, 11.5, 2, HEIGHT))  # of each line of each text
    for (x, y, _, colour), text in zip(ends, texts):
        middle = sum(next(places) for _ in text) / len(text)
        pointer(axes, "\n".join(text), (x, y), (PANEL + 11, middle), colour, (0, 0.5))


def label_lines(text):
    """As narrow as the space next to a panel, broken between names."""
    tied = re.sub("(?<!,) ", "\xa0", text)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(tied, 21, break_long_words=False, break_on_hyphens=False)]


def ticks(low, high, zero, y):
    if y == "ms":
        values = [factor * 10.0**k for k in range(floor(log10(low)), ceil(log10(high)) + 1) for factor in (1, 2, 5)]
        at = [value for value in values if low <= value <= high]
        names = [f"{value:g} ms" for value in at]
    else:
        step = next(step for step in (1, 2, 5, 10, 20, 40) if step >= (log2(high) - log2(low)) / 6)
        at = [2.0**k for k in range(ceil(log2(low)), floor(log2(high)) + 1) if k % step == 0]
        names = [size(value) for value in at]
    return ([zero, *at], ["0 B", *names]) if zero else (at, names)


# ---- horizontal bars, one per step -------------------------------------------------------------------------------------------


def steps(plot, rows, words):
    """A panel with names of its own for each query, or panels that share the names for columns of counts."""
    own = not set(plot.panels.values()) <= set(rows.columns)
    slot, names, room, gap = (12, 84, 28, 8) if plot.width < 500 else (15, 104, 46, 14)
    stages, peers, panels = rows[~rows.is_peer], rows[rows.is_peer], []
    for title, what in plot.panels.items():
        if own and len(part := stages.query(what)):
            marks = list(zip(peers.query(what).series, peers.query(what)[plot.y]))
            panels.append((title, entries(part, "group", "short", plot.y), marks))
        elif not own and rows[what].any():
            panels.append((title, entries(stages, "pass", "step", what), []))
    first, height = 66 + 14 * bool(plot.remark), slot * max(len(entry) for _, entry, _ in panels)
    figure = new_figure(first + height + LEFT, plot, words)
    width = (plot.width - LEFT - names * (len(panels) if own else 1) - gap * len(panels)) / len(panels)
    highest = [max([value or 0 for _, value, _ in entry] + [value for _, value in marks]) for _, entry, marks in panels]
    for k, (title, entry, marks) in enumerate(panels):
        axes = add_panel(figure, LEFT + names + k * (width + gap + names * own), first, width, height, grid=None)
        write(axes, title, (-names * own, height + 7), size=NORMAL, weight="bold")
        axes.set_axis_off()
        axes.set_ylim(height / slot, 0)
        axes.set_xlim(0, (max(highest) if own else highest[k]) * width / (width - room))  # for the number behind the longest bar
        for y, (text, value, series) in enumerate(entry, 1):
            if own or k == 0:
                write(
                    axes,
                    text,
                    (0, y - 0.5),
                    (-names + 6 * (value is not None), 0),
                    va="center",
                    weight="bold" if value is None else "normal",
                )
            if value is not None:
                axes.barh(y - 0.5, value, height=0.7, color=ink(series), label=text)
                ground = {"facecolor": ink("bg"), "edgecolor": "none", "pad": 0.5}  # in front of the dashed lines
                number = plot.number.format(value).rstrip(".")
                write(axes, number, (value, y - 0.5), (3, 0), colour="fg" if value else "dim", va="center", bbox=ground)
        top = next((y for y, (text, value, _) in enumerate(entry) if value is None and not text.endswith("fp32")), 0)
        for i, (series, value) in enumerate(sorted(marks, key=lambda mark: mark[1])):
            axes.plot([value, value], [top + 1, len(entry)], color=ink(series), linewidth=1, linestyle=(0, (3, 2)))
            text = f"{plot.lines[series]} {plot.number.format(value).rstrip('.')}"
            write(axes, text, (value, top + 0.5), (-12 if i else 5, 0), colour=series, va="center", ha="left" if i else "right")
    return figure


def entries(rows, heading, name, y):
    """[(text, value, series)] with a line that has no value above each group."""
    groups = rows[rows[y].notna()].groupby(heading, sort=False)
    return [line for text, part in groups for line in [(text, None, ""), *zip(part[name], part[y], part.series)]]


# ---- the roofline ------------------------------------------------------------------------------------------------------------


def roofline(plot, rows, words):
    gpu = rows.iloc[0]
    roofs = {name: sheet if "H200" in gpu.device else gpu[column] for name, (sheet, column) in plot.roofs.items()}
    slope = roofs.pop("HBM")
    peaks = {name: peak for name, peak in roofs.items() if ((rows.dtype == "fp32") == (name == "fp32")).any()}
    notes = [
        "FLOP for each byte that crosses the border to HBM",
        words["problem"],
        "Named: of each stage and pass the first step, and the fastest.",
    ]
    rows = rows.assign(x=rows.flops / rows.hbm)
    left, top, width, height = 40, 66, plot.width - 54, 400
    figure = new_figure(top + height + 44 + 13 * 3, plot, words)
    axes = add_panel(figure, left, top, width, height, grid="both")
    axes.set_xlabel("\n".join(notes), fontsize=SMALL, color=ink("dim"))
    write(axes, "TFLOP/s", (0, height + 6), colour="dim")
    x0, x1 = powers_of_two(axes, "x", [*rows.x / 1.2, *rows.x * 1.2, *(peak / slope for peak in peaks.values())])
    y0, y1 = powers_of_two(axes, "y", [*rows.tflops / 1.2, *peaks.values()])
    for name, peak in peaks.items():
        axes.plot([peak / slope, x1], [peak, peak], color=ink("fg"), linewidth=1.8)
        write(axes, f"{name}, {peak:.0f} TFLOP/s", (x1, peak), (0, 4), size=NORMAL, ha="right", va="bottom")
    start, ridge = max(x0, y0 / slope), max(peaks.values()) / slope
    axes.plot([start, ridge], [start * slope, ridge * slope], color=ink("fg"), linewidth=1.8)
    middle = (start * ridge) ** 0.5
    write(axes, f"HBM, {slope:g} TB/s", (middle, middle * slope), (-6, 4), size=NORMAL, ha="right", va="bottom")
    rows["right"] = width * (rows.x / x0).map(log10) / log10(x1 / x0)  # in points of the panel
    rows["up"] = height * (rows.tflops / y0).map(log10) / log10(y1 / y0)
    for which, side, ha in (("forward", 1, "left"), ("backward", -1, "right")):
        part = rows[rows["pass"] == which]
        for mark in part.itertuples():
            inside = ink("bg" if side < 0 else mark.series)
            look = {
                "marker": MARKERS.get(mark.series, "X"),
                "markersize": 7,
                "markerfacecolor": inside,
                "markeredgewidth": 1.6,
                "zorder": 4,
            }
            axes.plot([mark.x], [mark.tflops], color=ink(mark.series), linestyle="none", label=f"{mark.step}, {which}", **look)
        fastest = part.sort_values("tflops", ascending=False).drop_duplicates("series").index
        named = part[~part.series.duplicated() | part.index.isin(fastest)]
        for mark, y in zip(named.itertuples(), spread([*named.up], 12, 8, height - 8)):
            close = rows[(rows.right == mark.right) | ((rows.up - y).abs() < 10) & ((rows.right - mark.right).abs() < 60)]
            x = close.right.max() if side > 0 else close.right.min()  # beyond the marks next to it
            pointer(axes, mark.step, (mark.x, mark.tflops), (x + 14 * side, y), mark.series, ((1 - side) / 2, 0.5), ha=ha, zorder=5)
    return figure


def powers_of_two(axes, axis, values):
    """A scale from one that is not above the values to one that is not below them. Gives the two."""
    at = [2.0**k for k in range(floor(log2(min(values))), ceil(log2(max(values))) + 1)]
    scale = {"scale": "log", "ticks": at, "ticklabels": [f"{value:g}" for value in at], "lim": (at[0], at[-1])}
    axes.set(**{axis + name: value for name, value in scale.items()})
    axes.minorticks_off()
    return at[0], at[-1]
