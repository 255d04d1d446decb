"""How plots look: colours that follow the reader's light or dark mode, one per stage and peer, text that stays text, the same bytes every time."""

import io
import re
from html import escape

SMALL, NORMAL, LARGE = 9, 9.75, 12  # type, in points
LEFT = 10  # points to the left of titles
FONTS = "Helvetica,Arial,'DejaVu Sans',sans-serif"

# (light, dark, marker). Stages of one algorithm share a hue. Series that stand next to each other as bars differ in lightness too, for readers
# who do not tell red from green: by at least 15 in CIELAB.
COLOURS = {
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
    "peer_plain": ("#70767e", "#b6bec7", "o"),
    "peer_memory_efficient": ("#4d4400", "#f2e58a", "s"),
    "peer_flash": ("#d1242f", "#ff7b72", "^"),
    "peer_flash3": ("#9a3412", "#ffb077", "v"),
    "peer_cudnn": ("#1b1f24", "#f0f3f6", "D"),
    "peer_triton": ("#5a31d0", "#8f7bff", "<"),
    "other": ("#59636e", "#9198a1", "X"),
}
STAND_IN = "#7f01{:02x}"  # matplotlib draws with these; svg() puts the real colours in their place

SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "flash_steps",  # no random ids
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, and is wider than the readers' fonts
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "path.simplify": False,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.handlelength": 0.8,
    "legend.handleheight": 0.8,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.4,
}


def ink(name):
    """The colour of a series, or "fg", "dim", "grid", "bg"."""
    return STAND_IN.format(list(COLOURS).index(name if name in COLOURS else "other"))


def line_look(series):
    """Peers are dashed and hollow; the least has a line alone."""
    if series == "least":
        return {"color": ink("fg"), "linewidth": 2.4}
    look = {"marker": COLOURS.get(series, COLOURS["other"])[2], "markersize": 4.5, "color": ink(series), "linewidth": 1.4}
    return {**look, "markerfacecolor": ink("bg"), "linestyle": (0, (4, 2))} if series.startswith("peer") else look


def new_figure(height, plot, words):
    """With the plot's title at the top, its note, and its remark unless a word of it is not known."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(plot.width / 72, height / 72), dpi=72, facecolor=ink("bg"))
    remark = plot.remark if all(words[name] for name in re.findall(r"{(\w+)}", plot.remark)) else ""
    texts = ((16, plot.title, LARGE, "fg", "bold"), (34, plot.note, SMALL, "dim", None), (48, remark, SMALL, "fg", None))
    for top, text, size, colour, weight in texts:
        look = {"fontsize": size, "color": ink(colour), "weight": weight, "va": "center"}
        figure.text(LEFT / plot.width, 1 - top / height, text.format_map(words), **look)
    return figure


def add_panel(figure, left, top, width, height, title="", note="", grid="y"):
    """Axes at so many points from the left and the top, with a title, and perhaps a note, in the 28 points above."""
    all_of_it, whole = figure.get_figwidth() * 72, figure.get_figheight() * 72
    axes = figure.add_axes(
        [left / all_of_it, 1 - (top + height) / whole, width / all_of_it, height / whole], facecolor=ink("bg"), label=title
    )
    axes.spines[["left", "bottom"]].set_color(ink("dim"))
    axes.tick_params(which="both", color=ink("dim"), labelcolor=ink("dim"), length=3)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=ink("grid"), linewidth=0.6)
    write(axes, title, (0, height + (20 if note else 7)), size=NORMAL, weight="bold")
    write(axes, note, (0, height + 7), colour="dim")
    return axes


def write(axes, text, at, offset=None, size=SMALL, colour="fg", **more):
    """At a place in points of the panel, or so many points from a place on its axes."""
    place = {"xycoords": "axes points"} if offset is None else {"xytext": offset, "textcoords": "offset points"}
    axes.annotate(text, xy=at, fontsize=size, color=ink(colour), annotation_clip=False, **place, **more)


def pointer(axes, text, mark, at, colour, relpos, **more):
    """A label at a place in points of the panel, with a thread to its mark on the axes."""
    thread = {"arrowstyle": "-", "color": ink(colour), "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4, "relpos": relpos}
    look = {"va": "center", "fontsize": SMALL, "color": ink(colour), "annotation_clip": False, "arrowprops": thread, **more}
    axes.annotate(text, xy=mark, xytext=at, textcoords="axes points", **look)


def points_of(axes, x, y):
    """Where a place on the axes is, in points of the panel."""
    return axes.transData.transform((x, y)) - axes.bbox.p0  # at 72 pixels an inch


def spread(wanted, gap, low, high):
    """Places for labels near those that are wanted, in that order and `gap` apart: where two are too close, each moves half of the way."""
    order, places = sorted(range(len(wanted)), key=lambda i: wanted[i]), list(wanted)
    for _ in range(1000):
        for lower, upper in zip(order, order[1:]):
            push = max(0, gap - (places[upper] - places[lower])) / 2
            places[lower], places[upper] = places[lower] - push, places[upper] + push
        places = [min(max(place, low), high) for place in places]
    return places


def svg(figure):
    """The text of a file, with the note and the remark as its description."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", facecolor=figure.get_facecolor(), metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().decode()
    for name, (light, *_) in COLOURS.items():  # the first is for programs without var()
        text = re.sub(f"(fill|stroke): {ink(name)}", rf"\1: {light}; \1: var(--plot-{name})", text)
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", FONTS, text)
    title, note, remark = (escape(drawn.get_text()) for drawn in figure.texts)
    light, dark = ("".join(f"--plot-{name}:{colours[mode]};" for name, colours in COLOURS.items()) for mode in (0, 1))
    style = f"<style>:root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    opening, rest = text[text.index("<svg") + 4 :].split(">", 1)
    return f'<svg role="img"{opening}>\n <title>{title}</title>\n <desc>{f"{note} {remark}".strip()}</desc>\n {style}\n {rest}'
