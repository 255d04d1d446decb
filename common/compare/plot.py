"""Draws saved rows of `compare --save` as SVG pictures for light and dark pages;
with --docs all pictures of docs/plots from docs/results.

A plot shows certain problems, named in plots.py; --where names others, such as
--where "head_dim == 64 and not causal", in columns of the rows. Writes
DIR/NAME.svg for each plot that the rows suffice for, and says of the others why
not. Needs matplotlib; with the version of docs/site/plots.txt the same rows
give the same bytes.
Exit codes: 0 good; 2 bad usage or input, or nothing to draw; 3 no matplotlib.
"""

import argparse
import math
import pathlib
from itertools import chain
from types import SimpleNamespace

from . import h200, plot_style, rows
from .options import Parser
from .plot_style import LEFT, NORMAL, SMALL, add_panel, ink, line_look, new_figure, pointer, points_of, spread, write
from .plots import COUNTS, PLOTS
from .rows import Failure, grouped, size

PEERS = {
    "plain": "torch plain",
    "memory_efficient": "torch mem.-efficient",
    "flash": "torch FA2",
    "flash3": "FA3",
    "cudnn": "torch cuDNN",
    "triton": "Triton",
}
RESULTS = ("ms", "tflops", "extra_bytes_of_a_head", "least_bytes_of_a_head", "counted_bytes_of_a_head", "short", "group")
STRETCH = 10  # of the bars of fp32 among steps; a line next to their heading says so
PANEL, HEIGHT = 144, 176  # of lines, in points; labels stand to the right of a panel


class Unfit(Exception):
    """The rows do not suffice for a picture; the text says why."""


# ---- what plots compare --------------------------------------------------------------------------------------------------------


def is_plain(row):
    """Self-attention by a stage's own kernel (no `options` of chapter 09) or a peer, without options that change the work."""
    p = row.problem
    same = p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"]
    return same and not row.is_borrowed and row.variant != "options" and {name for name, _ in rows.options(p)} <= {"input", "scale", "seed"}


def mark(row):
    """The columns of a row, which queries ask for: its series, its step, the heading of its group and its short name there, its results."""
    p, stage = row.problem, row.stage[:2]
    one = SimpleNamespace(**{**dict.fromkeys((*RESULTS, *COUNTS)), **p, **(row.counters or {})})
    for name in ("variant", "torch", "absence", "device", "device_name", "flops", "is_peer", "is_gpu"):
        setattr(one, name, getattr(row, name))
    one.direction, one.series, one.step = row["pass"], f"peer_{row.variant}", PEERS.get(row.variant, row.variant)
    if not row.is_peer:
        hopper = " Hopper" * ("hopper" in row.kernel)
        one.series, one.step, one.short, one.group = stage, f"{stage} {row.variant}", row.variant, f"{stage}{hopper}, {p['dtype']}"
    if stage <= "05":
        one.short, one.group = " ".join(row.stage.split("_")[:2]), f"01 to 05, {p['dtype']}"
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
    """The picture as a matplotlib figure. Unfit if the marks do not suffice."""
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
    zero = [title for title, what in plot.panels.items() if what in COUNTS and not any(getattr(one, what) for one in shown)]
    words = {"device": shown[0].device_name, "problem": plot.problem if where is None else where or "all rows"}
    words |= {"torch": ", ".join(dict.fromkeys(one.torch for one in shown if one.torch)), "zero": ", ".join(zero)}
    return {"bars": bars, "lines": lines, "steps": steps, "roofline": roofline}[plot.kind](plot, shown, words)


def chosen(marks, how):
    """Of each stage and peer one step: that which is fastest at the largest N, or the last."""
    best = sorted((one for one in marks if one.ms), key=lambda one: (-one.seq_q, one.ms)) if how == "fastest" else marks[::-1]
    steps = {}
    for one in best:
        steps.setdefault((one.series, one.direction), one.step)
    return [one for one in marks if steps.get((one.series, one.direction)) == one.step]


# ---- bars over N, a panel for each width and mask ------------------------------------------------------------------------------


def bars(plot, marks, words):
    from matplotlib.patches import Patch

    panels = [(title, speeds(query(marks, text), plot.passes)) for title, text in plot.panels.items()]
    panels = [(title, groups) for title, groups in panels if groups]
    if not panels:
        raise Unfit("no stage was timed in all passes")
    top, height, below, key = 94, 130, 50, {}
    highest = max(value for _, groups in panels for _, speed, _ in groups.values() for value in speed.values())
    drawn = new_figure(top + len(panels) * (height + below) - 22, plot, words)
    for k, (title, groups) in enumerate(panels):
        ours = ", ".join(steps for series, (steps, *_) in groups.items() if not series.startswith("peer"))
        axes = add_panel(drawn, 34, top + k * (height + below), plot.width - 42, height, f"{title}: {ours}")
        slots = len(groups) + 1  # of a length, one of them empty
        for i, (series, (steps, speed, why)) in enumerate(groups.items()):
            key[series] = Patch(facecolor=ink(series), label=steps if series.startswith("peer") else series)
            for x, (n, value) in zip(range(i, len(speed) * slots, slots), speed.items()):
                if value:
                    axes.bar(x, value, width=0.86, color=ink(series))
                    write(axes, f"{value:.{0 if value >= 10 else 1}f}", (x, value), (0, 2.5), ha="center", va="bottom")
                else:
                    write(axes, why[n], (x, 0), (0, 2.5), ha="center", va="bottom", colour="dim", rotation=90)
        axes.set_xlim(-1, len(speed) * slots - 1)
        axes.set_ylim(0, 1.15 * highest)
        axes.set_xticks([slot * slots + slots / 2 - 1 for slot in range(len(speed))], [f"N = {n:,}" for n in speed])
        axes.tick_params(axis="x", length=0)
    place = {"loc": "upper left", "bbox_to_anchor": (LEFT / plot.width, 1 - 45 / (drawn.get_figheight() * 72)), "borderaxespad": 0}
    drawn.legend(handles=[*key.values()], ncols=len(key), labelcolor=ink("fg"), **place)
    return drawn


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


def lines(plot, marks, words):
    panels = []
    for title, text in plot.panels.items():
        part = query(marks, text)
        known = [one for one in part if getattr(one, plot.y) is not None]
        if len({one.seq_q for one in known}) > 1:
            drawn = shared(known, plot.y) if plot.series == "all" else of_steps(chosen(known, plot.series), plot.y)
            names = [name for name, *_ in drawn]
            least = {one.seq_q: getattr(one, plot.least) for one in sorted(known, key=lambda one: one.seq_q)} if plot.least else {}
            absent = sorted(
                (one for one in part if one not in known and one.step in names), key=lambda one: (one.step, one.absence, one.seq_q)
            )
            gaps = grouped(absent, lambda one: (one.step, one.absence))
            gaps = [f"{step}, N = {'; '.join(f'{one.seq_q:,}' for one in of)}: {why}" for (step, why), of in gaps.items()]
            panels.append((title, drawn + [("must move", "least", least)] * bool(least), gaps))
    if not panels:
        raise Unfit("no panel has two lengths")
    height = HEIGHT + 58 + 11 * max(len(gaps) for *_, gaps in panels)
    whole = new_figure(50 + math.ceil(len(panels) / 2) * height, plot, words)
    for k, (title, drawn, gaps) in enumerate(panels):
        axes = add_panel(whole, 50 + 300 * (k % 2), 78 + k // 2 * height, PANEL, HEIGHT, title, words["problem"], grid="both")
        pair = panels[k // 2 * 2 : k // 2 * 2 + 2]  # which share an axis
        draw_lines(axes, drawn, plot, [value for _, drawn, _ in pair for *_, points in drawn for value in points.values()])
        write(axes, "\n".join(gaps), (0, -18), colour="dim", va="top")
    return whole


def of_steps(marks, y):
    """[(label, series, {N: value})]"""
    parts = grouped(sorted(marks, key=lambda one: one.seq_q), lambda one: one.step)
    return [(step, part[0].series, {one.seq_q: getattr(one, y) for one in part}) for step, part in parts.items()]


def shared(marks, y):
    """Steps with the same values wherever both were run share a line."""
    found = []  # [({N: value}, {series: its steps})]
    for step, series, points in of_steps(marks, y):
        for known, sharing in found:
            both = known.keys() & points.keys()
            if len(both) > 1 and all(known[n] == points[n] for n in both):
                known.update(points)
                sharing.setdefault(series, []).append(step)
                break
        else:
            found += [(points, {series: [step]})] * (len(points) > 1)

    def label(sharing):
        return ", ".join(f"{series} ({len(steps)} steps)" if len(steps) > 2 else ", ".join(steps) for series, steps in sharing.items())

    return [(label(sharing), next(iter(sharing)), dict(sorted(points.items()))) for points, sharing in found]


def draw_lines(axes, drawn, plot, values):
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
        axes.set_yscale("symlog", base=2, linthresh=low, linscale=math.log2(high / low) / 8)
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
        axes.plot([*points], [*points.values()], label=label, **line_look(series))
        ends.append((max(points), points[max(points)], label, "fg" if series == "least" else series))
    ends.sort(key=lambda end: -end[0])  # of two at one height the one that ends first is the upper, as the lines rise
    names = [label.split(", ") for _, _, label, _ in ends]
    wanted = [points_of(axes, x, y)[1] for (x, y, *_), text in zip(ends, names) for _ in text]
    places = iter(spread(wanted, 11.5, 2, HEIGHT - 6))  # of each name of each label
    for (x, y, _, colour), text in zip(ends, names):
        middle = sum(next(places) for _ in text) / len(text)
        pointer(axes, ",\n".join(text), (x, y), (PANEL + 11, middle), colour, (0, 0.5))


# ---- horizontal bars, one per step ---------------------------------------------------------------------------------------------


def steps(plot, marks, words):
    """A panel with names of its own for each query, or panels that share the names for columns of counts."""
    own = not set(plot.panels.values()) <= {*COUNTS}
    slot, names, room, gap = (12, 84, 28, 8) if plot.width < 500 else (15, 104, 46, 14)
    panels = [(title, query(marks, what), plot.y) if own else (title, marks, what) for title, what in plot.panels.items()]
    panels = [(title, part, entries(part, own, y), y) for title, part, y in panels if any(getattr(one, y) for one in part)]
    first, height = 66 + 14 * bool(plot.remark), slot * max(len(entry) for *_, entry, _ in panels)
    drawn = new_figure(first + height + LEFT, plot, words)
    width = (plot.width - LEFT - names * (len(panels) if own else 1) - gap * len(panels)) / len(panels)
    for k, (title, part, entry, y) in enumerate(panels):
        axes = add_panel(drawn, LEFT + names + k * (width + gap + names * own), first, width, height, grid=None)
        write(axes, title, (-names * own, height + 7), size=NORMAL, weight="bold")
        axes.set_axis_off()
        axes.set_ylim(height / slot - 0.5, -0.5)
        among = chain.from_iterable(other for _, other, *_ in panels) if own else part
        axes.set_xlim(0, max(getattr(one, y) or 0 for one in among) * width / (width - room))  # for the number behind the longest bar
        stretch = 1
        for at, (text, value, series) in enumerate(entry):
            if own and not series:  # a heading; bars of fp32 next to those of tensor cores would be too short to compare
                stretch = STRETCH if text.endswith("fp32") else 1
                if stretch > 1:
                    write(axes, f"bars at {stretch} × scale", (0, at), (0, 0), colour="dim", va="center")
            if own or k == 0:
                write(axes, text, (0, at), (6 * bool(series) - names, 0), va="center", weight="normal" if series else "bold")
            if series:
                bar = axes.barh(at, stretch * value, height=0.7, color=ink(series))
                ground = {"facecolor": ink("bg"), "edgecolor": "none", "pad": 0.5}  # in front of the dashed lines
                number = plot.number.format(value).rstrip(".")
                axes.bar_label(bar, [number], padding=3, fontsize=SMALL, color=ink("fg" if value else "dim"), bbox=ground)
        headings = [at for at, (text, _, series) in enumerate(entry) if not series and not text.endswith("fp32")] or [0]
        peers = sorted((one for one in part if one.series in plot.lines and getattr(one, y)), key=lambda one: getattr(one, y))
        for i, (series, value) in enumerate((one.series, getattr(one, y)) for one in peers):
            axes.plot([value, value], [headings[0] + 0.5, len(entry) - 0.5], color=ink(series), linewidth=1, linestyle=(0, (3, 2)))
            text, side = (
                f"{plot.lines[series]} {plot.number.format(value).rstrip('.')}",
                ((5, "right"), (-12, "left"), (3, "left"))[min(i, 2)],
            )
            at = headings[-1 if i > 1 else 0]  # two names fit beside one heading
            write(axes, text, (value, at), (side[0], 0), colour=series, va="center", ha=side[1])
    return drawn


def entries(marks, own, y):
    """[(text, value, series)] of the stages' steps, with a line without series above each group."""
    ours = [one for one in marks if getattr(one, y) is not None and not one.is_peer]
    groups = grouped(ours, lambda one: one.group if own else one.direction)
    return [
        line
        for text, part in groups.items()
        for line in [(text, None, ""), *((one.short if own else one.step, getattr(one, y), one.series) for one in part)]
    ]


# ---- the roofline --------------------------------------------------------------------------------------------------------------


def roofline(plot, marks, words):
    gpu = marks[0].device
    peaks = {"fp32": gpu.get("peak_fp32_tflops"), "16-bit tensor cores": gpu.get("peak_tensor16_tflops")}
    slope = gpu.get("peak_bytes_per_second", 0) / 1e12
    if gpu["name"] == "NVIDIA H200":  # by its data sheet
        peaks, slope = dict(zip(peaks, (h200.FP32_FLOPS / 1e12, h200.BF16_FLOPS / 1e12))), h200.HBM_BYTES_PER_SECOND / 1e12
    peaks = {name: peak for name, peak in peaks.items() if any((one.dtype == "fp32") == (name == "fp32") for one in marks)}
    if not slope or not all(peaks.values()):
        raise Unfit("the rows do not say what the device can do at most")
    notes = f"FLOP for each byte that crosses the border to HBM\n{words['problem']}\n"
    drawn = new_figure(549, plot, words)
    axes = add_panel(drawn, 40, 66, plot.width - 54, 400, grid="both")
    axes.set_xlabel(notes + "Named: of each stage and pass the first step, and the fastest.", fontsize=SMALL, color=ink("dim"))
    write(axes, "TFLOP/s", (0, 406), colour="dim")
    for one in marks:
        one.x = one.flops / one.profiled_bytes
    around = [one.x * factor for one in marks for factor in (1 / 1.2, 1.2)]
    x0, x1 = powers_of_two(axes, "x", [*around, *(peak / slope for peak in peaks.values())])
    y0, _ = powers_of_two(axes, "y", [*(one.tflops / 1.2 for one in marks), *peaks.values()])
    for name, peak in peaks.items():
        axes.plot([peak / slope, x1], [peak, peak], color=ink("fg"), linewidth=1.8)
        write(axes, f"{name}, {peak:.0f} TFLOP/s", (x1, peak), (0, 4), size=NORMAL, ha="right", va="bottom")
    start, ridge = max(x0, y0 / slope), max(peaks.values()) / slope
    axes.plot([start, ridge], [start * slope, ridge * slope], color=ink("fg"), linewidth=1.8)
    middle = (start * ridge) ** 0.5
    write(axes, f"HBM, {slope:g} TB/s", (middle, middle * slope), (-6, 4), size=NORMAL, ha="right", va="bottom")
    for one in marks:
        one.right, one.up = points_of(axes, one.x, one.tflops)
    for which, side, ha in (("forward", 1, "left"), ("backward", -1, "right")):
        part = [one for one in marks if one.direction == which]
        for one in part:
            look = {**line_look(one.series), "markersize": 7, "markeredgewidth": 1.6, "linestyle": "none", "zorder": 4}
            look["markerfacecolor"] = ink("bg" if side < 0 else one.series)
            axes.plot([one.x], [one.tflops], label=f"{one.step}, {which}", **look)
        stages = grouped(part, lambda one: one.series).values()
        kept = [one for of in stages for one in (of[0], max(of, key=lambda one: one.tflops))]
        named = [one for one in part if one in kept]
        for one, y in zip(named, spread([one.up for one in named], 12, 8, 392)):
            close = [other.right for other in marks if abs(other.up - y) < 10 and abs(other.right - one.right) < 60]
            x = max(close + [one.right]) if side > 0 else min(close + [one.right])  # beyond these marks
            pointer(axes, one.step, (one.x, one.tflops), (x + 14 * side, y), one.series, ((1 - side) / 2, 0.5), ha=ha, zorder=5)
    return drawn


def powers_of_two(axes, axis, values):
    """A scale from one that is not above the values to one that is not below them. Gives the two."""
    at = [2.0**k for k in range(math.floor(math.log2(min(values))), math.ceil(math.log2(max(values))) + 1)]
    scale = {"scale": "log", "ticks": at, "ticklabels": [f"{value:g}" for value in at], "lim": (at[0], at[-1])}
    axes.set(**{axis + name: value for name, value in scale.items()})
    axes.minorticks_off()
    return at[0], at[-1]


# ---- the program ---------------------------------------------------------------------------------------------------------------


def draw(names, sources, folder, where=None):
    """Writes the pictures and says which, and why others are not there."""
    try:
        import matplotlib
    except ImportError as error:
        raise Failure(3, f"{error}: python3 -m pip install matplotlib, or common/setup.sh --dev") from None
    marks, drawn = marks_of(rows.read(*sources)), 0
    try:
        query(marks, where)
    except Exception as error:  # of any kind, as the text is the user's
        raise Failure(2, f"--where is '{where}': {error}; columns: {', '.join(vars(marks[0]))}") from None
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **plot_style.SETTINGS}):
            try:
                text = plot_style.svg(figure(PLOTS[name], marks, where))
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
    parser = Parser("compare plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
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
