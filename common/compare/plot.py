"""Draws the plots of the pages again, docs/plots, of the rows that `compare --save`
wrote into docs/results: SVG for light and dark pages. Needs matplotlib; with the
version of docs/site/plots.txt the same rows give the same bytes."""

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Callable

from . import plot_style, rows
from .options import Parser
from .plot_style import ink, line_look
from .rows import Failure, grouped, size

try:
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure
except ImportError as missing:
    raise Failure(3, f"{missing}: python3 -m pip install matplotlib") from None

PEERS = {
    "plain": "torch plain",
    "memory_efficient": "torch mem.-efficient",
    "flash": "torch FA2",
    "flash3": "FA3",
    "cudnn": "torch cuDNN",
    "triton": "Triton",
}
DOCS, DEVICE = rows.ROOT / "docs", "nvidia_h200"


@dataclass(frozen=True)
class Plot:
    title: str
    note: str  # below the plot; {device} is filled in
    shows: Callable  # mark: is it in the plot?
    panels: dict  # title: mark: is it in this panel?
    y: str  # of a mark
    files: str  # of docs/results
    fastest: bool = False  # of a stage the step that is the fastest at the longest N, else the last


def speed(which):
    def shows(one):
        is_far_behind = one.series in ("peer_plain", "peer_memory_efficient")
        of_papers = one.batch * one.seq_q == 16384 and one.heads * one.head_dim == 2048
        return one.dtype == "fp16" and one.direction == which and of_papers and not is_far_behind

    return Plot(
        files="sweep_peers sweep16",  # what was run in turns comes last
        title=f"{which.capitalize()} pass: TFLOP/s against the length N, tensor cores",
        note="{device}, fp16, B·N = 16,384, H·d = 2,048; medians with a cold L2, of each stage the step that is fastest at the longest N.",
        shows=shows,
        panels={
            f"d = {d}, {'causal' if causal else 'no mask'}": lambda one, d=d, causal=causal: (one.head_dim, one.causal) == (d, causal)
            for d in (64, 128)
            for causal in (False, True)
        },
        y="tflops",
        fastest=True,
    )


PLOTS = {
    "tflops_forward": speed("forward"),
    "tflops_backward": speed("backward"),
    "memory": Plot(
        files="counted_problem sweep compare16 tensor_steps sweep16 sweep_peers",
        title="Extra memory of one head: N² in plain attention, N or nothing when fused",
        note="{device}, d = 64, causal; beyond Q, K, V, O and their gradients, of each stage the last step.\n"
        "Stages 01 to 07 in fp32, all others in 16 bits. Both axes logarithmic.",
        shows=lambda one: (
            (one.head_dim, one.causal) == (64, True)
            and (one.dtype != "fp32" or not one.is_peer)
            and one.variant not in ("relay", "divided")  # which are made for wider heads and for few
        ),
        panels={which: lambda one, which=which: one.direction == which for which in rows.PASSES},
        y="extra_bytes_of_a_head",
    ),
}


def is_plain(row):
    """Self-attention by a stage's own kernel (no `options` of chapter 09) or a peer, without options that change the work."""
    p = row.problem
    same = p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"]
    return same and not row.is_borrowed and row.variant != "options" and {name for name, _ in rows.options(p)} <= {"input", "scale", "seed"}


def mark(row):
    """A row as plots ask for it: its series, its step, its results."""
    p, stage = row.problem, row.stage[:2]
    one = SimpleNamespace(**p, variant=row.variant, is_peer=row.is_peer, device=row.device_name, ms=None, tflops=None)
    one.direction, one.series, one.step = row["pass"], f"peer_{row.variant}", PEERS.get(row.variant, row.variant)
    if not row.is_peer:
        one.series, one.step = stage, f"{stage} {row.variant}"
    heads, n = p["batch"] * p["heads"], p["seq_q"]
    if row.is_good and row.time:
        one.ms, one.tflops = row.time["median_ms"], (row.flops or 0) / row.time["median_ms"] / 1e9
    # Peers count L, which rows of stages count as an output. Whole bytes per row, because a counter of 4 bytes for all heads is none.
    known = row.is_good and "extra_memory_bytes" in row
    one.extra_bytes_of_a_head = (row.extra_memory_bytes // (heads * n) + 4 * (not row.is_peer)) * n if known else None
    return one


def marks_of(plot):
    """The marks that a plot shows, of the same problem the latest, stages in the order of the ladder, then peers."""

    def place(row):
        step = re.sub(r"\d+", lambda number: number[0].zfill(2), row.kernel or row.stage)  # 9_key_order before 10_lazy_maximum
        return row["pass"] == "backward", row.is_peer, step, [*PEERS, row.variant].index(row.variant)

    def problem(one):
        shape = () if plot.y.endswith("of_a_head") else (one.batch, one.heads)
        return one.step, one.direction, one.seq_q, one.head_dim, one.causal, one.dtype, *shape

    found = rows.read(*(DOCS / "results" / DEVICE / f"{file}.jsonl" for file in plot.files.split()))
    shown = [one for one in map(mark, sorted(filter(is_plain, found), key=place)) if plot.shows(one)]
    latest = {problem(one): one for one in shown}
    return [one for one in shown if latest[problem(one)] is one]


def chosen(marks, fastest):
    """One step per stage and peer: that which is fastest at the largest N, or the last."""
    best = sorted((one for one in marks if one.ms), key=lambda one: (-one.seq_q, one.ms)) if fastest else marks[::-1]
    steps = {}
    for one in best:
        steps.setdefault((one.series, one.direction), one.step)
    return [one for one in marks if steps.get((one.series, one.direction)) == one.step]


def figure(plot):
    """The picture as a matplotlib figure, its title and its note."""
    marks = marks_of(plot)
    note = plot.note.format(device=marks[0].device)
    drawn = Figure(layout="constrained")
    drawn.suptitle(plot.title, x=0.01, ha="left")
    drawn.supxlabel(note, x=0.01, ha="left", size=9, color=ink("dim"))
    high = len(plot.panels) // 2
    drawn.set_size_inches(600 / 72, (235 * high + 55) / 72)
    all_axes = drawn.subplots(high, 2, squeeze=False, sharey="row")
    for axes, (title, is_in) in zip(all_axes.flat, plot.panels.items()):
        known = [one for one in marks if is_in(one) and getattr(one, plot.y) is not None]
        part = sorted(chosen(known, plot.fastest), key=lambda one: one.seq_q)
        axes.set_title(title)
        axes.set_xscale("log", base=2)
        lengths = sorted({one.seq_q for one in part})
        axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in lengths])
        for step, line in grouped(part, lambda one: one.step).items():
            axes.plot([one.seq_q for one in line], [getattr(one, plot.y) for one in line], label=step, **line_look(line[0].series))
        axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1, 0.5))
    for row in all_axes:
        scale(row, plot.y)
    return drawn, plot.title, note


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


def main(arguments, _):
    Parser("compare plot", __doc__).parse_args(arguments)
    for name, plot in PLOTS.items():
        with rc_context({**rcParamsDefault, **plot_style.SETTINGS}):
            text = plot_style.svg(*figure(plot))
        path = DOCS / "plots" / DEVICE / f"{name}.svg"
        path.write_text(text, encoding="utf-8")
        print(path)
