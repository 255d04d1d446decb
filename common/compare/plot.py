"""Draws saved rows of `compare --save` as SVG pictures for light and dark pages;
with --docs those in docs/plots again, of docs/results.

A plot shows certain problems, named in plots.py; --where names others, such as
--where "head_dim == 64 and not causal", in columns of the rows. Writes
DIR/NAME.svg for each plot that the rows suffice for, and says of the others why
not. Needs matplotlib; with the version of docs/site/plots.txt the same rows
give the same bytes.
Exit codes: 0 good; 2 bad usage or input, or nothing to draw; 3 no matplotlib.
"""

import math
import pathlib
import re
from types import SimpleNamespace

from . import plot_style, rows
from .options import Parser
from .plot_style import ink, line_look
from .plots import PLOTS
from .rows import Failure, grouped, size

try:
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure
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
DOCS, DEVICE = rows.ROOT / "docs", "nvidia_h200"
RESULTS = ("ms", "tflops", "extra_bytes_of_a_head", "least_bytes_of_a_head", "counted_bytes_of_a_head", "sectors")


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
    one = SimpleNamespace(**{**dict.fromkeys(RESULTS), **p, **(row.counters or {})})
    for name in ("variant", "torch", "device_name", "flops", "is_peer", "is_gpu"):
        setattr(one, name, getattr(row, name))
    one.direction, one.series, one.step = row["pass"], f"peer_{row.variant}", PEERS.get(row.variant, row.variant)
    if not row.is_peer:
        one.series, one.step = stage, f"{stage} {row.variant}"
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
        step = re.sub(r"\d+", lambda number: number[0].zfill(2), row.kernel or row.stage)  # 9_key_order before 10_lazy_maximum
        return row["pass"] == "backward", row.is_peer, step, [*PEERS, row.variant].index(row.variant)

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
        return one.step, one.direction, one.seq_q

    def problem(one):
        return *place(one), one.seq_q, one.head_dim, one.causal, one.dtype, *[one.batch, one.heads] * (not plot.y.endswith("of_a_head"))

    latest = {problem(one): one for one in shown}
    shown = [one for one in shown if latest[problem(one)] is one]
    for title, what in plot.panels.items():
        part = query(shown, what)
        if len({*map(place, part)}) < len(part):
            raise Unfit(f"its panel '{title}' has one place for several problems of a step; --where chooses")
    note = plot.note.format(device=shown[0].device_name, problem=plot.problem if where is None else where or "all rows")
    drawn = Figure(layout="constrained")
    drawn.suptitle(plot.title, x=0.01, ha="left")
    drawn.supxlabel(note, x=0.01, ha="left", size=9, color=ink("dim"))
    lines(plot, shown, drawn)
    return drawn, plot.title, note


def chosen(marks, how):
    """One step per stage and peer: that which is fastest at the largest N, or the last."""
    best = sorted((one for one in marks if one.ms), key=lambda one: (-one.seq_q, one.ms)) if how == "fastest" else marks[::-1]
    steps = {}
    for one in best:
        steps.setdefault((one.series, one.direction), one.step)
    return [one for one in marks if steps.get((one.series, one.direction)) == one.step]


# ---- lines against N, two panels next to each other ----------------------------------------------------------------------------


def lines(plot, marks, drawn):
    panels = []
    for title, text in plot.panels.items():
        known = [one for one in query(marks, text) if getattr(one, plot.y) is not None]
        if len({one.seq_q for one in known}) > 1:
            panels.append((title, sorted(chosen(known, plot.series), key=lambda one: one.seq_q)))
    if not panels:
        raise Unfit("no panel has two lengths")
    high = math.ceil(len(panels) / 2)
    drawn.set_size_inches(600 / 72, (235 * high + 55) / 72)
    all_axes = drawn.subplots(high, 2, squeeze=False, sharey="row")
    for axes in all_axes.flat[len(panels) :]:
        axes.remove()
    for axes, (title, part) in zip(all_axes.flat, panels):
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        lengths = sorted({one.seq_q for one in part})
        axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in lengths])
        for step, line in grouped(part, lambda one: one.step).items():
            axes.plot([one.seq_q for one in line], [getattr(one, plot.y) for one in line], label=step, **line_look(line[0].series))
        if plot.least:
            least = {one.seq_q: getattr(one, plot.least) for one in part}
            axes.plot([*least], [*least.values()], label="must move", color=ink("fg"), linewidth=2.4)
        axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1, 0.5))
    for row in all_axes:
        scale(row, plot.y)


def scale(row, y):
    """The axis of a row of panels: of speed, or of bytes, where zero stands a step below the lowest value."""
    axes, values = row[0], [value for axes in row for line in axes.lines for value in line.get_ydata()]
    if y == "tflops":
        axes.set_ylim(0)
    else:
        low, high = min(value for value in values if value > 0) / 2, 2 * max(values)
        axes.set_yscale("symlog", base=2, linthresh=low, linscale=math.log2(high / low) / 8)
        axes.set_ylim(-low / 10 if 0 in values else low, high)
        base = 1024 if high / low > 2**20 else 4
        at = [0] * (0 in values) + [base**k for k in range(20) if low <= base**k <= high]
        axes.set_yticks(at, map(size, at))
    for axes in row:
        axes.minorticks_off()


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


def main(arguments, _):
    parser = Parser("compare plot", __doc__)
    parser.add_argument("rows", nargs="*", metavar="ROWS")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--where", metavar="QUERY")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args(arguments)
    if options.docs == bool(options.rows or options.out or options.where) or bool(options.rows) != bool(options.out):
        parser.error("needs ROWS and --out, or --docs alone")
    if options.rows:
        draw(PLOTS, options.rows, options.out, options.where)
    for name, plot in PLOTS.items() if options.docs else ():
        if files := plot.files.split():
            draw([name], [DOCS / "results" / DEVICE / f"{file}.jsonl" for file in files], DOCS / "plots" / DEVICE)
