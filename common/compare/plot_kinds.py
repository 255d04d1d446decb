"""The kinds of plots. Each is a function of a Plot, of the rows that it shows (of plot.table()) and of words for its note; it gives a figure."""

from math import ceil, floor, log2

from plot_style import LEFT, NORMAL, SMALL, add_panel, ink, line_look, marker, new_figure, pointer, points_of, spread, write
from rows import size


class Unfit(Exception):
    """The rows do not suffice for a picture; the text says why."""


def chosen(rows, how):
    """Of each stage and peer one step: that which is fastest at the largest N, or the last."""
    best = rows[rows.ms.notna()].sort_values(["seq_q", "ms"], ascending=[False, True]) if how == "fastest" else rows[::-1]
    best = best.drop_duplicates(["series", "pass"])
    return rows[(rows["pass"] + rows.label).isin(best["pass"] + best.label)]


# ---- bars over N, a panel for each width and mask ----------------------------------------------------------------------------


def bars(plot, rows, words):
    from matplotlib.patches import Patch

    panels = [(title, speeds(rows.query(query), plot.passes)) for title, query in plot.panels.items()]
    panels = [(title, groups) for title, groups in panels if groups]
    if not panels:
        raise Unfit("no stage was timed in all passes")
    top, height, below, key = 94, 130, 50, {}
    ours = [", ".join(steps for series, (steps, *_) in groups.items() if not series.startswith("peer")) for _, groups in panels]
    is_same = len(set(ours)) == 1 and not {",", "+"} & set(ours[0])  # then the key names the step, and the panels need not
    figure = new_figure(top + len(panels) * (height + below) - 22, plot, words)
    for k, (title, groups) in enumerate(panels):
        axes = add_panel(figure, 34, top + k * (height + below), plot.width - 42, height, title if is_same else f"{title}: {ours[k]}")
        slots = len(groups) + 1  # of a length, one of them empty
        for i, (series, (steps, speed, why)) in enumerate(groups.items()):
            key[series] = Patch(facecolor=ink(series), label=steps if is_same or series.startswith("peer") else series)
            for x, value, text in zip(range(i, len(speed) * slots, slots), speed, why):
                y, look = 0, {"colour": "dim", "rotation": 90}
                if value > 0:
                    axes.bar(x, value, width=0.86, color=ink(series))
                    text, y, look = f"{value:.{0 if value >= 10 else 1}f}", value, {}
                write(axes, text, (x, y), (0, 2.5), ha="center", va="bottom", **look)
        axes.set_xlim(-1, len(speed) * slots - 1)
        axes.set_ylim(0, 1.15 * max(speed.max() for _, groups in panels for _, speed, _ in groups.values()))
        axes.set_xticks([slot * slots + slots / 2 - 1 for slot in range(len(speed))], [f"N = {n:,}" for n in speed.index])
        axes.tick_params(axis="x", length=0)
    look = {"frameon": False, "labelcolor": ink("fg"), "fontsize": SMALL, "handlelength": 0.8, "handleheight": 0.8, "handletextpad": 0.5}
    place = {"loc": "upper left", "bbox_to_anchor": (LEFT / plot.width, 1 - 45 / (figure.get_figheight() * 72)), "borderaxespad": 0}
    figure.legend(handles=[*key.values()], ncols=len(key), columnspacing=1.4, **look, **place)
    return figure


def speeds(rows, passes):
    """{series: (its steps, TFLOP/s of each N, why there is none)}, at the lengths of the stages. Of two passes it is their FLOPs over the sum
    of their times."""
    rows, groups = chosen(rows, "fastest"), {}
    lengths = sorted(rows[~rows.is_peer].seq_q.unique())
    for series, part in rows.groupby("series", sort=False):
        of_length = part.groupby("seq_q")
        speed = (of_length.flops.sum() / of_length.ms.sum(min_count=passes) / 1e9).reindex(lengths)
        why = part[part.ms.isna()].groupby("seq_q").absence.first().reindex(lengths).fillna("")
        if speed.notna().any():
            groups[series] = " + ".join(part.step.unique()), speed, why
    return groups


# ---- lines against N, two panels next to each other --------------------------------------------------------------------------

PANEL, HEIGHT = 144, 176  # points; labels stand to the right of a panel


def lines(plot, rows, words):
    panels = []
    for title, query in plot.panels.items():
        part = rows.query(query)
        known = part[part[plot.y].notna()]
        if known.seq_q.nunique() > 1:
            drawn = shared(known, plot.y) if plot.series == "all" else of_steps(chosen(known, plot.series), plot.y)
            least = of_steps(known.assign(series="least", step="must move"), plot.least) if plot.least else []
            absent = part[part[plot.y].isna() & part.step.isin([step for step, *_ in drawn])].sort_values("seq_q")
            gaps = [
                f"{step}, N = {'; '.join(f'{n:,}' for n in of.seq_q)}: {why}" for (step, why), of in absent.groupby(["step", "absence"])
            ]
            panels.append((title, drawn + least, gaps))
    if not panels:
        raise Unfit("no panel has two lengths")
    height = HEIGHT + 58 + 11 * max(len(gaps) for *_, gaps in panels)
    figure = new_figure(50 + ceil(len(panels) / 2) * height, plot, words)
    for k, (title, drawn, gaps) in enumerate(panels):
        axes = add_panel(figure, 50 + 300 * (k % 2), 78 + k // 2 * height, PANEL, HEIGHT, title, words["problem"], grid="both")
        pair = panels[k // 2 * 2 : k // 2 * 2 + 2]
        draw_lines(axes, drawn, plot, [value for _, drawn, _ in pair for *_, points in drawn for value in points.values()])
        write(axes, "\n".join(gaps), (0, -18), colour="dim", va="top")
    return figure


def of_steps(rows, y):
    """[(label, series, {N: value})]"""
    parts = rows.sort_values("seq_q", kind="stable").groupby("step", sort=False)
    return [(step, part.series.iloc[0], dict(zip(part.seq_q, part[y]))) for step, part in parts]


def shared(rows, y):
    """Steps with the same values wherever both were run share a line."""
    found = []  # [({N: value}, {series: its steps})]
    for step, series, points in of_steps(rows, y):
        for known, sharing in found:
            both = known.keys() & points.keys()
            if len(both) > 1 and all(known[n] == points[n] for n in both):
                known.update(points)
                sharing.setdefault(series, []).append(step)
                break
        else:
            found += [(points, {series: [step]})] * (len(points) > 1)
    labels = [
        ", ".join(f"{series} ({len(steps)} steps)" if len(steps) > 2 else ", ".join(steps) for series, steps in sharing.items())
        for _, sharing in found
    ]
    return [(label, next(iter(sharing)), dict(sorted(points.items()))) for label, (points, sharing) in zip(labels, found)]


def draw_lines(axes, drawn, plot, values):
    """`values` of all panels that share this axis."""
    from matplotlib.ticker import LogLocator

    low = min(value for value in values if value > 0) / (2.5 if plot.guides else 1.25)
    high, lengths = max(values) * (max(values) / low) ** 0.04, sorted({n for *_, points in drawn for n in points})
    axes.set_xscale("log", base=2)
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * 1.15)
    axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in lengths])
    if plot.y == "ms":
        axes.set(yscale="log", ylim=(low, high))
        axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g} ms")
    else:  # zero stands a step below the lowest value
        axes.set_yscale("symlog", base=2, linthresh=low, linscale=log2(high / low) / 8)
        axes.set_ylim(-low / 10 if 0 in values else low, high)
        base = 1024 if high / low > 2**20 else 4
        at = [0] * (0 in values) + [base**k for k in range(20) if low <= base**k <= high]
        axes.set_yticks(at, map(size, at))
    axes.minorticks_off()
    write(axes, "N", (-8, -13), colour="dim", ha="right")
    ends = []  # (x, y, label, colour)
    for label, (power, below) in plot.guides.items():
        for points in [points for _, series, points in drawn if series in below][:1]:
            n, last = min(points), max(points)
            x, y = [n, last], [points[n] / 2, points[n] / 2 * (last / n) ** power]
            axes.plot(x, y, color=ink("dim"), linewidth=0.9, linestyle=(0, (1, 2)), label=label)
            ends.append((last, y[-1], label, "dim"))
    for label, series, points in drawn:
        colour, least = ("fg", {"color": ink("fg"), "linewidth": 2.4}) if series == "least" else (series, {})
        axes.plot([*points], [*points.values()], label=label, **(least or line_look(series)))
        ends.append((max(points), points[max(points)], label, colour))
    ends.sort(key=lambda end: -end[0])  # of two at one height the one that ends first is the upper, as the lines rise
    names = [label.split(", ") for _, _, label, _ in ends]
    wanted = [points_of(axes, x, y)[1] for (x, y, *_), text in zip(ends, names) for _ in text]
    places = iter(spread(wanted, 11.5, 2, HEIGHT - 6))  # of each name of each label
    for (x, y, _, colour), text in zip(ends, names):
        middle = sum(next(places) for _ in text) / len(text)
        pointer(axes, ",\n".join(text), (x, y), (PANEL + 11, middle), colour, (0, 0.5))


# ---- horizontal bars, one per step -------------------------------------------------------------------------------------------


STRETCH = 10  # of the bars of fp32; a line next to their heading says so


def steps(plot, rows, words):
    """A panel with names of its own for each query, or panels that share the names for columns of counts."""
    own = not set(plot.panels.values()) <= set(rows.columns)
    slot, names, room, gap = (12, 84, 28, 8) if plot.width < 500 else (15, 104, 46, 14)
    panels = [(title, rows.query(what), plot.y) if own else (title, rows, what) for title, what in plot.panels.items()]
    panels = [(title, part, entries(part, "group" if own else "pass", y), y) for title, part, y in panels if part[y].any()]
    first, height = 66 + 14 * bool(plot.remark), slot * max(len(entry) for *_, entry, _ in panels)
    figure = new_figure(first + height + LEFT, plot, words)
    width = (plot.width - LEFT - names * (len(panels) if own else 1) - gap * len(panels)) / len(panels)
    for k, (title, part, entry, y) in enumerate(panels):
        axes = add_panel(figure, LEFT + names + k * (width + gap + names * own), first, width, height, grid=None)
        write(axes, title, (-names * own, height + 7), size=NORMAL, weight="bold")
        axes.set_axis_off()
        axes.set_ylim(height / slot - 0.5, -0.5)
        highest = max(other[column].max() for _, other, _, column in panels) if own else part[y].max()
        axes.set_xlim(0, highest * width / (width - room))  # for the number behind the longest bar
        stretch = 1
        for at, (text, value, series) in enumerate(entry):
            if own and not series:  # a heading; bars of fp32 next to those of tensor cores would be too short to compare
                stretch = STRETCH if text.endswith("fp32") else 1
                if stretch > 1:
                    write(axes, f"bars at {stretch} × scale", (0, at), (0, 0), colour="dim", va="center")
            if own or k == 0:
                write(axes, text, (0, at), (6 * bool(series) - names, 0), va="center", weight="normal" if series else "bold")
            if series:
                drawn = axes.barh(at, stretch * value, height=0.7, color=ink(series))
                ground = {"facecolor": ink("bg"), "edgecolor": "none", "pad": 0.5}  # in front of the dashed lines
                number = plot.number.format(value).rstrip(".")
                axes.bar_label(drawn, [number], padding=3, fontsize=SMALL, color=ink("fg" if value else "dim"), bbox=ground)
        headings = [at for at, (text, _, series) in enumerate(entry) if not series and not text.endswith("fp32")] or [0]
        peers = part[part.series.isin(plot.lines)].sort_values(y)
        for i, (series, value) in enumerate(zip(peers.series, peers[y])):
            axes.plot([value, value], [headings[0] + 0.5, len(entry) - 0.5], color=ink(series), linewidth=1, linestyle=(0, (3, 2)))
            text, side = (
                f"{plot.lines[series]} {plot.number.format(value).rstrip('.')}",
                ((5, "right"), (-12, "left"), (3, "left"))[min(i, 2)],
            )
            at = headings[-1 if i > 1 else 0]  # two names fit beside one heading
            write(axes, text, (value, at), (side[0], 0), colour=series, va="center", ha=side[1])
    return figure


def entries(rows, heading, y):
    """[(text, value, series)] of the stages' steps, with a line without series above each group."""
    rows = rows[rows[y].notna() & ~rows.is_peer]
    name = "step" if heading == "pass" else "short"
    groups = rows.groupby(heading, sort=False)
    return [line for text, part in groups for line in [(text, None, ""), *zip(part[name], part[y], part.series)]]


# ---- the roofline ------------------------------------------------------------------------------------------------------------


def roofline(plot, rows, words):
    gpu, rows = rows.iloc[0], rows.assign(x=rows.flops / rows.profiled_bytes)
    roofs = {name: sheet if gpu.device == "NVIDIA H200" else gpu[column] for name, (sheet, column) in plot.roofs.items()}
    slope = roofs.pop("HBM")
    peaks = {name: peak for name, peak in roofs.items() if ((rows.dtype == "fp32") == (name == "fp32")).any()}
    notes = [
        "FLOP for each byte that crosses the border to HBM",
        words["problem"],
        "Named: of each stage and pass the first step, and the fastest.",
    ]
    figure = new_figure(549, plot, words)
    axes = add_panel(figure, 40, 66, plot.width - 54, 400, grid="both")
    axes.set_xlabel("\n".join(notes), fontsize=SMALL, color=ink("dim"))
    write(axes, "TFLOP/s", (0, 406), colour="dim")
    x0, x1 = powers_of_two(axes, "x", [*rows.x / 1.2, *rows.x * 1.2, *(peak / slope for peak in peaks.values())])
    y0, _ = powers_of_two(axes, "y", [*rows.tflops / 1.2, *peaks.values()])
    for name, peak in peaks.items():
        axes.plot([peak / slope, x1], [peak, peak], color=ink("fg"), linewidth=1.8)
        write(axes, f"{name}, {peak:.0f} TFLOP/s", (x1, peak), (0, 4), size=NORMAL, ha="right", va="bottom")
    start, ridge = max(x0, y0 / slope), max(peaks.values()) / slope
    axes.plot([start, ridge], [start * slope, ridge * slope], color=ink("fg"), linewidth=1.8)
    middle = (start * ridge) ** 0.5
    write(axes, f"HBM, {slope:g} TB/s", (middle, middle * slope), (-6, 4), size=NORMAL, ha="right", va="bottom")
    rows[["right", "up"]] = [points_of(axes, *mark) for mark in zip(rows.x, rows.tflops)]
    for which, side, ha in (("forward", 1, "left"), ("backward", -1, "right")):
        part = rows[rows["pass"] == which]
        for mark in part.itertuples():
            look = {"marker": marker(mark.series), "markersize": 7, "markeredgewidth": 1.6, "linestyle": "none", "zorder": 4}
            inside = ink("bg" if side < 0 else mark.series)
            axes.plot([mark.x], [mark.tflops], color=ink(mark.series), markerfacecolor=inside, label=f"{mark.step}, {which}", **look)
        fastest = part.sort_values("tflops", ascending=False).drop_duplicates("series").index
        named = part[~part.series.duplicated() | part.index.isin(fastest)]
        for mark, y in zip(named.itertuples(), spread([*named.up], 12, 8, 392)):
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
