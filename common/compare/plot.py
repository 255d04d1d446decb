"""Draws the plots of the pages again, docs/plots, of the rows that `compare --save`
wrote into docs/results: SVG for light and dark pages. Needs matplotlib; with the
version of docs/site/plots.txt the same rows give the same bytes."""

import io
import math
import re
from html import escape

from . import rows
from .options import Parser
from .peer_table import PEERS
from .rows import Failure, bytes_text, grouped

try:
    from matplotlib import rc_context, rcParamsDefault
    from matplotlib.figure import Figure
except ImportError as error:
    missing = error
else:
    missing = None

DOCS, DEVICE = rows.ROOT / "docs", "nvidia_h200"
COLOURS = {  # (light, dark, marker). Stages of one algorithm share a hue.
    "bg": ("#ffffff", "#0d1117", ""),
    "fg": ("#1f2328", "#e6edf3", ""),
    "dim": ("#59636e", "#9198a1", ""),
    "grid": ("#d1d9e0", "#3d444d", ""),
    "01": ("#424a53", "#7d8894", "o"),
    "02": ("#0b7a8f", "#56c7d9", "s"),
    "03": ("#8250df", "#d2a8ff", "^"),
    "04": ("#bc5a00", "#ff9d3d", "D"),
    "05": ("#bc5a00", "#ff9d3d", "D"),
    "06": ("#1f6fc4", "#58a6ff", "v"),
    "07": ("#1f6fc4", "#58a6ff", "v"),
    "08": ("#00805a", "#2ec98f", "P"),
    **{f"peer_{variant}": peer.colours for variant, peer in PEERS.items()},
}


def ink(name):
    """The colour of a series, or of "fg", "dim", "grid", "bg": matplotlib draws with stand-ins; svg() puts the real colours in their place."""
    return f"#7f01{list(COLOURS).index(name):02x}"


SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "flash_steps",  # no random ids
    "font.size": 9,
    "figure.facecolor": ink("bg"),
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "text.color": ink("fg"),
    "axes.facecolor": ink("bg"),
    "axes.edgecolor": ink("dim"),
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": ink("grid"),
    "grid.linewidth": 0.6,
    "xtick.color": ink("dim"),
    "ytick.color": ink("dim"),
    "legend.frameon": False,
}


def series(row):
    return f"peer_{row.variant}" if row.is_peer else row.stage[:2]


def step(row):
    return PEERS[row.variant].short if row.is_peer else f"{row.stage[:2]} {row.variant}"


def extra_bytes_of_a_head(row):
    """Peers count L, which rows of stages count as an output. Whole bytes per row, because a counter of 4 bytes for all heads is none."""
    p = row.problem
    L = 0 if row.is_peer else 4
    return (row.extra_memory_bytes // (p["batch"] * p["heads"] * p["seq_q"]) + L) * p["seq_q"]


def to_draw(files, takes):
    """Rows of self-attention by a step of the ladder or a peer, of the same step and problem the newest: stages in order, then peers."""

    def is_shown(row):
        p = row.problem
        is_plain = p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"] and {*dict(rows.unusual(p))} <= {"input", "scale", "seed"}
        return row.is_good and is_plain and "/more/" not in (row.kernel or "") and takes(row, **p)

    def place(row):
        return row["pass"] == "backward", row.is_peer, rows.ladder_order(row.kernel or row.stage), [*PEERS, row.variant].index(row.variant)

    found = rows.read(*(DOCS / "results" / DEVICE / f"{file}.jsonl" for file in files.split()))
    shown = sorted(filter(is_shown, found), key=place)
    return [*{(step(row), row["pass"], *map(row.problem.get, ("seq_q", "head_dim", "causal", "dtype"))): row for row in shown}.values()]


def draw(axes, title, all_rows, y):
    """One of the panels: a line per series, of each stage the last step."""
    last = {series(row): step(row) for row in all_rows}.values()
    all_rows = [row for row in all_rows if step(row) in last]
    axes.set_title(title)
    axes.set_xscale("log", base=2)
    lengths = sorted({row.problem["seq_q"] for row in all_rows})
    axes.set_xticks(lengths, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in lengths])
    for name, line in grouped(sorted(all_rows, key=lambda row: row.problem["seq_q"]), step).items():
        kind = series(line[0])
        look = {"marker": COLOURS[kind][2], "markersize": 4.5, "color": ink(kind), "linewidth": 1.4}
        if line[0].is_peer:
            look |= {"markerfacecolor": ink("bg"), "linestyle": (0, (4, 2))}
        axes.plot([row.problem["seq_q"] for row in line], [y(row) for row in line], label=name, **look)
    axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1, 0.5))


def figure(title, note, panels):
    """A figure of two columns of panels, and their axes"""
    drawn = Figure(layout="constrained")
    drawn.suptitle(title, x=0.01, ha="left")
    drawn.supxlabel(note, x=0.01, ha="left", size=9, color=ink("dim"))
    drawn.set_size_inches(600 / 72, (235 * (panels // 2) + 55) / 72)
    return drawn, drawn.subplots(panels // 2, 2, squeeze=False, sharey="row")


def speed(pass_):
    """Rates of several days are not compared."""

    def takes(row, batch, heads, seq_q, head_dim, dtype, **_):
        is_far_behind = row.variant in ("plain", "memory_efficient")
        return row["pass"] == pass_ and dtype == "fp16" and batch * seq_q == 16384 and heads * head_dim == 2048 and not is_far_behind

    found = to_draw("sweep_peers sweep16", takes)  # what was run in turns comes last
    title = f"{pass_.capitalize()} pass: TFLOP/s against the length N, tensor cores"
    note = f"{found[0].device_name}, fp16, B·N = 16,384, H·d = 2,048; medians with a cold L2, of each stage the last step."
    drawn, axes = figure(title, note, 4)
    for panel, (d, causal) in zip(axes.flat, ((d, causal) for d in (64, 128) for causal in (False, True))):
        part = [row for row in found if (row.problem["head_dim"], row.problem["causal"]) == (d, causal)]
        draw(panel, f"d = {d}, {'causal' if causal else 'no mask'}", part, lambda row: row.tflops)
    for left, _ in axes:
        left.set_ylim(0)
    return drawn, title, note


def memory():
    """Zero stands below the lowest value."""

    def takes(row, head_dim, causal, dtype, **_):
        return (head_dim, causal) == (64, True) and "extra_memory_bytes" in row and (dtype != "fp32" or not row.is_peer)

    found = to_draw("counted_problem sweep compare16 tensor_steps sweep16 sweep_peers", takes)
    title = "Extra memory of one head: N² in plain attention, N or nothing when fused"
    note = f"""{found[0].device_name}, d = 64, causal; beyond Q, K, V, O and their gradients, of each stage the last step.
Stages 01 to 07 in fp32, all others in 16 bits. Both axes logarithmic."""
    drawn, ((*axes,),) = figure(title, note, 2)
    for panel, pass_ in zip(axes, rows.PASSES):
        draw(panel, pass_, [row for row in found if row["pass"] == pass_], extra_bytes_of_a_head)
    values = [value for panel in axes for line in panel.lines for value in line.get_ydata()]
    low, high = min(filter(None, values)) / 2, 2 * max(values)
    axes[0].set_yscale("symlog", base=2, linthresh=low, linscale=math.log2(high / low) / 8)
    axes[0].set_ylim(-low / 10, high)
    at = [0, *(1024**k for k in range(5) if low <= 1024**k <= high)]
    axes[0].set_yticks(at, map(bytes_text, at))
    for panel in axes:
        panel.minorticks_off()
    return drawn, title, note


def svg(figure, title, note):
    """The text of a file, with the note as its description."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().decode()
    for name, (light, *_) in COLOURS.items():  # the first is for programs without var()
        text = re.sub(f"(fill|stroke): {ink(name)}", rf"\1: {light}; \1: var(--plot-{name})", text)
    # matplotlib's is wider than the readers' fonts
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "Helvetica,Arial,'DejaVu Sans',sans-serif", text)
    light, dark = ("".join(f"--plot-{name}:{colours[mode]};" for name, colours in COLOURS.items()) for mode in (0, 1))
    style = f"<style>:root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    opening, rest = text[text.index("<svg") + 4 :].split(">", 1)
    return f'<svg role="img"{opening}>\n <title>{escape(title)}</title>\n <desc>{escape(" ".join(note.split()))}</desc>\n {style}\n {rest}'


def main(arguments, _):
    Parser("compare plot", __doc__).parse_args(arguments)
    if missing:
        raise Failure(3, f"{missing}: python3 -m pip install matplotlib")
    for name, plot in {**{f"tflops_{pass_}": lambda pass_=pass_: speed(pass_) for pass_ in rows.PASSES}, "memory": memory}.items():
        with rc_context({**rcParamsDefault, **SETTINGS}):
            text = svg(*plot())
        path = DOCS / "plots" / DEVICE / f"{name}.svg"
        path.write_text(text, encoding="utf-8")
        print(path)
