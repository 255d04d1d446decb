"""Draws saved rows of `compare --save` as SVG pictures for light and dark pages;
with --docs all pictures of docs/plots from docs/results.

A plot shows certain problems, named in plots.py; --where names others, such as
--where "head_dim == 64 and not causal", in columns of the rows. Writes
DIR/NAME.svg for each plot that the rows suffice for, and says of the others why
not. Needs matplotlib; with the version of docs/site/plots.txt the same rows
give the same bytes.
Exit codes: 0 good; 2 bad usage or input, or nothing to draw; 3 no matplotlib.
"""

import math
import pathlib
from types import SimpleNamespace

from . import h200, plot_style, rows
from .options import Parser
from .plot_style import ink, line_look, spread
from .plots import COUNTS, PLOTS
from .rows import Failure, grouped, size, three_digits

try:
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator
except ImportError as missing:
    raise Failure(3, f"{missing}: python3 -m pip install matplotlib, or common/setup.sh --dev") from None

PEERS = {
    "plain": "torch plain",
    "memory_efficient": "torch mem.-efficient",
    "flash": "torch FA2",
    "flash3": "FA3",
    "cudnn": "torch cuDNN",
    "triton": "Triton",
}
RESULTS = ("ms", "tflops", "extra_bytes_of_a_head", "least_bytes_of_a_head", "counted_bytes_of_a_head")


class Unfit(Exception):
    """The rows do not suffice for a picture; the text says why."""


# ---- what plots compare --------------------------------------------------------------------------------------------------------


def is_plain(row):
    """Self-attention by a stage's own kernel (no `options` of chapter 09) or a peer, without options that change the work."""
    p = row.problem
    same = p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"]
    return same and not row.is_borrowed and row.variant != "options" and {name for name, _ in rows.options(p)} <= {"input", "scale", "seed"}


def mark(row):
    """The columns of a row, which queries ask for: its series, its step, its results."""
    p, stage = row.problem, row.stage[:2]
    one = SimpleNamespace(**{**dict.fromkeys((*RESULTS, *COUNTS)), **p, **(row.counters or {})})
    for name in ("variant", "torch", "absence", "device", "device_name", "flops", "is_peer", "is_gpu"):
        setattr(one, name, getattr(row, name))
    one.direction, one.series, one.step = row["pass"], f"peer_{row.variant}", PEERS.get(row.variant, row.variant)
    if not row.is_peer:
        one.series, one.step = stage, f"{stage} {row.variant}"
    one.profiled_bytes = sum(kernel[f"hbm_{way}_bytes"] for kernel in row.profile or () for way in ("read", "written"))
    heads, n = p["batch"] * p["heads"], p["seq_q"]
    if row.is_good and row.time:
        one.ms, one.tflops = row.time["median_ms"], (row.flops or 0) / row.time["median_ms"] / 1e9
    if row.is_good and "extra_memory_bytes" in row:
        # Peers count L, which rows of stages count as an output. Whole bytes per row, because a counter of 4 bytes for all heads is none.
        one.extra_bytes_of_a_head = (row.extra_memory_bytes // (heads * n) + 4 * (not row.is_peer)) * n
    if row.is_good and one.sectors is not None:
        one.least_bytes_of_a_head, one.counted_bytes_of_a_head = row.compulsory_bytes / heads, row.moved_bytes / heads
    return one


def marks_of(found):
    """The marks of the rows that plots compare, stages in the order of the ladder, then peers."""

    def place(row):
        return row["pass"] == "backward", row.is_peer, row.kernel or row.stage, [*PEERS, row.variant].index(row.variant)

    marks = list(map(mark, sorted(filter(is_plain, found), key=place)))
    devices = sorted({one.device_name for one in marks})
    if len(devices) != 1:
        raise Failure(2, f"the rows are of {' and '.join(devices) or 'no self-attention'}; allowed: self-attention on one device")
    return marks


def query(marks, *texts):
    return [one for one in marks if all(eval(text, {"__builtins__": {}}, vars(one)) for text in texts if text)]


def figure(plot, marks, where=None):
    """The picture as a matplotlib figure, its title and its note. Unfit if the marks do not suffice."""
    where_words = plot.where if where is None else where
    shown = query(marks, plot.rows, where_words)
    if not any(getattr(one, plot.y) is not None and not one.is_peer for one in shown):
        raise Unfit(f"no row has {' and '.join(filter(None, [plot.y, where_words]))}; --where names other problems")

    def place(one):
        return one.step, one.direction, one.seq_q if plot.kind in ("bars", "lines") else None

    def problem(one):
        return *place(one), one.seq_q, one.head_dim, one.causal, one.dtype, *[one.batch, one.heads] * (not plot.y.endswith("of_a_head"))

    latest = {problem(one): one for one in shown}
    shown = [one for one in shown if latest[problem(one)] is one]
    for title, what in plot.panels.items():
        part = shown if what in COUNTS else query(shown, what)
        if len({*map(place, part)}) < len(part):
            raise Unfit(f"its panel '{title}' has one place for several problems of a step; --where chooses")
    note = plot.note.format(device=shown[0].device_name, problem=plot.problem if where is None else where or "all rows")
    drawn = Figure(layout="constrained")
    drawn.suptitle(plot.title, x=0.01, ha="left")
    drawn.supxlabel(note, x=0.01, ha="left", size=9, color=ink("dim"))
    {"bars": bars, "lines": lines, "steps": steps, "roofline": roofline}[plot.kind](plot, shown, drawn)
    return drawn, plot.title, note


def panels_in(drawn, height, count, columns, **more):
    """The axes of so many panels of a figure, row by row, which take so many points together."""
    drawn.set_size_inches(600 / 72, (height + 55) / 72)
    found = drawn.subplots(math.ceil(count / columns), columns, squeeze=False, **more)
    for axes in found.flat[count:]:
        axes.remove()
    return found


def chosen(marks, how):
    """One step per stage and peer: that which is fastest at the largest N, or the last."""
    best = sorted((one for one in marks if one.ms), key=lambda one: (-one.seq_q, one.ms)) if how == "fastest" else marks[::-1]
    steps = {}
    for one in best:
        steps.setdefault((one.series, one.direction), one.step)
    return [one for one in marks if steps.get((one.series, one.direction)) == one.step]


# ---- bars over N, a panel for each width and mask ------------------------------------------------------------------------------


def bars(plot, marks, drawn):
    panels = [(title, speeds(query(marks, text), plot.passes)) for title, text in plot.panels.items()]
    panels = [(title, groups) for title, groups in panels if groups]
    if not panels:
        raise Unfit("no stage was timed in all passes")
    all_axes = panels_in(drawn, 150 * len(panels), len(panels), 1, sharey=True)
    for axes, (title, groups) in zip(all_axes.flat, panels):
        ours = ", ".join(steps for series, (steps, *_) in groups.items() if not series.startswith("peer"))
        axes.set_title(f"{title}: {ours}")
        slots = len(groups) + 1  # each length has one that is empty
        for i, (series, (steps, speed, why)) in enumerate(groups.items()):
            name = steps if series.startswith("peer") else series
            drawn_bars = axes.bar([n * slots + i for n in range(len(speed))], speed.values(), 0.86, color=ink(series), label=name)
            axes.bar_label(drawn_bars, [f"{value:.{0 if value >= 10 else 1}f}" if value else "" for value in speed.values()], padding=1)
            for n, (length, value) in enumerate(speed.items()):
                if not value:
                    axes.text(n * slots + i, 0, f" {why[length]}", ha="center", rotation=90, color=ink("dim"))
        axes.grid(axis="x", visible=False)
        axes.tick_params(axis="x", length=0)
        axes.set_xticks([n * slots + slots / 2 - 1 for n in range(len(speed))], [f"N = {n:,}" for n in speed])
        axes.margins(y=0.15)
    found = {name: bar for axes in all_axes.flat for bar, name in zip(*axes.get_legend_handles_labels())}
    all_axes[0, 0].legend(found.values(), found, ncols=len(found), loc="lower left", bbox_to_anchor=(-0.03, 1.15), borderaxespad=0)


def speeds(marks, passes):
    """{series: (its steps, {N: TFLOP/s or 0}, {N: why there is none})}, at the lengths of the stages. Of two passes it is their FLOPs over the
    sum of their times."""
    marks, groups = chosen(marks, "fastest"), {}
    lengths = sorted({one.seq_q for one in marks if not one.is_peer})
    for series, part in grouped(marks, lambda one: one.series).items():
        of_length = {n: [one for one in part if one.seq_q == n] for n in lengths}
        timed = {n: [one for one in of if one.ms] for n, of in of_length.items()}
        speed = {n: sum(one.flops for one in of) / sum(one.ms for one in of) / 1e9 if len(of) >= passes else 0 for n, of in timed.items()}
        why = {n: next((one.absence for one in of if not one.ms), "") for n, of in of_length.items()}
        if any(speed.values()):
            groups[series] = " + ".join(dict.fromkeys(one.step for one in part)), speed, why
    return groups


# ---- lines against N, two panels next to each other ----------------------------------------------------------------------------


def lines(plot, marks, drawn):
    panels = []
    for title, text in plot.panels.items():
        part = query(marks, text)
        known = [one for one in part if getattr(one, plot.y) is not None]
        if len({one.seq_q for one in known}) > 1:
            found = of_steps(chosen(known, plot.series), plot.y)
            if plot.least:
                found.append(
                    ("must move", "least", {one.seq_q: getattr(one, plot.least) for one in sorted(known, key=lambda one: one.seq_q)})
                )
            absent = [one for one in part if one not in known and one.step in [name for name, *_ in found]]
            gaps = grouped(sorted(absent, key=lambda one: one.seq_q), lambda one: (one.step, one.absence))
            gaps = [f"{step}, N = {'; '.join(f'{one.seq_q:,}' for one in of)}: {why}" for (step, why), of in gaps.items()]
            panels.append((title, found, gaps))
    if not panels:
        raise Unfit("no panel has two lengths")
    all_axes = panels_in(drawn, 235 * math.ceil(len(panels) / 2), len(panels), 2, sharey="row")
    labels = []
    for axes, (title, found, gaps) in zip(all_axes.flat, panels):
        axes.set_title(title)
        axes.set_xlabel("\n".join(["N", *gaps]))
        labels.append((axes, draw_lines(axes, found, plot)))
    for row in all_axes:
        scale(row, plot.y)
    for _ in range(2):  # labels in their places change the room for the axes
        drawn.draw_without_rendering()
        for axes, ends in labels:
            for text, y in zip(ends, heights(axes, ends)):
                x, at = axes.transData.transform(text.xy)
                text.xyann = axes.bbox.x1 - x + 12, y - at


def heights(axes, texts):
    """Where labels go that would stand upon each other."""
    return spread([axes.transData.transform(text.xy)[1] for text in texts], 11.5, axes.bbox.y0 + 2, axes.bbox.y1)


def of_steps(marks, y):
    """[(label, series, {N: value})]"""
    parts = grouped(sorted(marks, key=lambda one: one.seq_q), lambda one: one.step)
    return [(step, part[0].series, {one.seq_q: getattr(one, y) for one in part}) for step, part in parts.items()]


def draw_lines(axes, found, plot):
    """The labels of the lines at their ends, and of the guides."""
    ends = []
    for label, (power, below) in plot.guides.items():
        for points in [points for _, series, points in found if series in below][:1]:
            n, last = min(points), max(points)
            y = points[n] / 2 * (last / n) ** power
            axes.plot([n, last], [points[n] / 2, y], color=ink("dim"), linewidth=0.9, linestyle=(0, (1, 2)))
            ends.append((last, y, label, "dim"))
    for label, series, points in found:
        axes.plot([*points], [*points.values()], **line_look(series))
        ends.append((max(points), points[max(points)], label, "fg" if series == "least" else series))
    ends.sort(key=lambda end: -end[0])  # where two end at one height, the shorter line is the upper one, as lines rise
    lengths = sorted({n for *_, points in found for n in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in lengths])
    return [plot_style.label(axes, text, (x, y), (12, 0), colour) for x, y, text, colour in ends]


def scale(row, y):
    """The axis of a row of panels: of time, or of bytes, where zero stands a step below the lowest value."""
    axes, values = row[0], [value for axes in row for line in axes.lines for value in line.get_ydata()]
    if y == "ms":
        axes.set_yscale("log")
        axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g} ms")
    else:
        low, high = min(value for value in values if value > 0) / 2, 2 * max(values)
        axes.set_yscale("symlog", base=2, linthresh=low, linscale=math.log2(high / low) / 8)
        axes.set_ylim(-low / 10 if 0 in values else low, high)
        base = 1024 if high / low > 2**20 else 4
        at = [0] * (0 in values) + [base**k for k in range(20) if low <= base**k <= high]
        axes.set_yticks(at, map(size, at))
    for axes in row:
        axes.minorticks_off()


# ---- horizontal bars, one per step ---------------------------------------------------------------------------------------------


def steps(plot, marks, drawn):
    """Panels of one column with names of their own, two in a row, or of columns of counts, which share the names."""
    are_counts = {*plot.panels.values()} <= {*COUNTS}
    panels = [(title, marks, what) if are_counts else (title, query(marks, what), plot.y) for title, what in plot.panels.items()]
    panels = [(title, [one for one in part if getattr(one, y) is not None], y) for title, part, y in panels]
    panels = [(title, part, y) for title, part, y in panels if part]
    columns = len(panels) if are_counts else 2
    heights = [max(len(part) for _, part, _ in panels[k : k + columns]) for k in range(0, len(panels), columns)]
    all_axes = panels_in(drawn, 13 * sum(heights) + 30 * len(heights), len(panels), columns, sharey=are_counts, height_ratios=heights)
    for k, (axes, (title, part, y)) in enumerate(zip(all_axes.flat, panels)):
        axes.set_title(title)
        values = [getattr(one, y) for one in part]
        found = axes.barh(range(len(part)), values, 0.7, color=[ink(one.series) for one in part])
        axes.bar_label(found, [f"{value:,}" if are_counts else three_digits(value) for value in values], padding=3)
        names = [one.step + " backward" * (are_counts and one.direction == "backward") for one in part]
        axes.set_yticks(range(len(part)), names)
        axes.set_ylim(heights[k // columns] - 0.5, -0.5)
        axes.set_xlim(0, 1.3 * max(*values, 1))  # leaves room behind the longest bar
        axes.grid(visible=False)
        axes.xaxis.set_visible(False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0, labelcolor=ink("fg"))


# ---- the roofline --------------------------------------------------------------------------------------------------------------


def roofline(plot, marks, drawn):
    gpu = marks[0].device
    peaks = {"fp32": gpu.get("peak_fp32_tflops"), "16-bit tensor cores": gpu.get("peak_tensor16_tflops")}
    slope = gpu.get("peak_bytes_per_second", 0) / 1e12
    if gpu["name"] == "NVIDIA H200":  # by its data sheet
        peaks, slope = dict(zip(peaks, (h200.FP32_FLOPS / 1e12, h200.BF16_FLOPS / 1e12))), h200.HBM_BYTES_PER_SECOND / 1e12
    peaks = {name: peak for name, peak in peaks.items() if any((one.dtype == "fp32") == (name == "fp32") for one in marks)}
    if not slope or not all(peaks.values()):
        raise Unfit("the rows do not say what the device can do at most")
    ((axes,),) = panels_in(drawn, 470, 1, 1)
    axes.set(xscale="log", yscale="log", xlabel="FLOP for each byte that crosses the border to HBM", ylabel="TFLOP/s")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set(major_locator=LogLocator(2), minor_locator=NullLocator(), major_formatter="{x:g}")
    named = {1: [], -1: []}
    for which, side in (("forward", 1), ("backward", -1)):
        part = [one for one in marks if one.direction == which]
        for one in part:
            one.x = one.flops / one.profiled_bytes
            look = {**line_look(one.series), "markersize": 7, "markeredgewidth": 1.6, "linestyle": "none"}
            axes.plot(one.x, one.tflops, **{**look, "markerfacecolor": ink("bg" if side < 0 else one.series)})
        for of in grouped(part, lambda one: one.series).values():
            for one in {id(one): one for one in (of[0], max(of, key=lambda one: one.tflops))}.values():
                named[side].append(plot_style.label(axes, one.step, (one.x, one.tflops), (14 * side, 0), one.series))
    (x0, x1), low = axes.get_xlim(), axes.get_ylim()[0]
    for name, peak in peaks.items():
        axes.plot([peak / slope, x1], [peak, peak], color=ink("fg"), linewidth=1.8)
        axes.text(x1, peak * 1.05, f"{name}, {peak:.0f} TFLOP/s", ha="right")
    start, ridge = max(x0, low / slope), max(peaks.values()) / slope
    axes.plot([start, ridge], [start * slope, ridge * slope], color=ink("fg"), linewidth=1.8)
    middle = (start * ridge) ** 0.5
    axes.text(middle / 1.1, middle * slope * 1.1, f"HBM, {slope:g} TB/s", ha="right")
    axes.set_xlim(x0, x1)
    drawn.draw_without_rendering()
    at = [axes.transData.transform((one.x, one.tflops)) for one in marks]
    for side, texts in named.items():
        for text, y in zip(texts, heights(axes, texts)):
            x, up = axes.transData.transform(text.xy)
            beside = [right for right, height in at if abs(height - y) < 10 and abs(right - x) < 60]  # marks that the name would cover
            text.xyann = (max if side > 0 else min)(beside + [x]) - x + 14 * side, y - up


# ---- the program ---------------------------------------------------------------------------------------------------------------


def draw(names, sources, folder, where=None):
    """Writes the pictures and says which, and why others are not there."""
    marks, drawn = marks_of(rows.read(*sources)), 0
    try:
        query(marks, where)
    except Exception as error:  # of any kind, as the text is the user's
        raise Failure(2, f"--where is '{where}': {error}; columns: {', '.join(vars(marks[0]))}") from None
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with rc_context({**rcParamsDefault, **plot_style.SETTINGS}):
            try:
                text = plot_style.svg(*figure(PLOTS[name], marks, where))
            except Unfit as unfit:
                print(f"no {name}: {unfit}")
                continue
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
        print(folder / f"{name}.svg")
        drawn += 1
    if not drawn:
        raise Failure(2, "nothing to draw: the rows do not suffice")


def of_docs(name):
    """(the picture of docs/plots, the files of its rows)"""
    plot, docs = PLOTS[name], rows.ROOT / "docs"
    return docs / "plots" / plot.device / f"{name}.svg", [docs / "results" / plot.device / f"{file}.jsonl" for file in plot.files.split()]


def main(arguments, _):
    parser = Parser("compare plot", __doc__)
    parser.add_argument("rows", nargs="*", metavar="ROWS")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*PLOTS], metavar="NAME,...")
    parser.add_argument("--where", metavar="QUERY")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args(arguments)
    if options.docs == bool(options.rows or options.out or options.where) or bool(options.rows) != bool(options.out):
        parser.error("needs ROWS and --out, or --docs alone")
    if unknown := [name for name in options.only if name not in PLOTS]:
        parser.error(f"--only names '{unknown[0]}'; allowed: {', '.join(PLOTS)}")
    if options.rows:
        draw(options.only, options.rows, options.out, options.where)
    for name in options.only if options.docs else []:
        file, sources = of_docs(name)
        draw([name], sources, file.parent)
