"""The look of all pictures: colours that follow the reader's light or dark mode, one for each stage and each peer, and one size."""

import io
import re
from html import escape

WIDTH = 600  # points, which are 800 pixels: type of 9 points is as large as that of the other pictures
SMALL, NORMAL, LARGE = 9, 9.75, 12  # type, in points
FONTS = "Helvetica,Arial,'DejaVu Sans',sans-serif"

# name: (light, dark). Stages of one algorithm share a hue; the dark one is chosen for a dark ground, not inverted. Series that stand side by
# side as bars differ in lightness too, for readers who do not tell red from green: at least 15 apart in CIELAB, as they see it.
COLOURS = {
    "bg": ("#ffffff", "#0d1117"),
    "fg": ("#1f2328", "#e6edf3"),
    "dim": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#3d444d"),
    "01": ("#424a53", "#7d8894"),
    "02": ("#0b7a8f", "#56c7d9"),
    "03": ("#8250df", "#d2a8ff"),
    "04": ("#bc5a00", "#ff9d3d"),
    "05": ("#bc5a00", "#ff9d3d"),
    "06": ("#1f6fc4", "#58a6ff"),
    "07": ("#1f6fc4", "#58a6ff"),
    "08": ("#00805a", "#2ec98f"),
    "peer_plain": ("#70767e", "#b6bec7"),
    "peer_memory_efficient": ("#4d4400", "#f2e58a"),
    "peer_flash": ("#d1242f", "#ff7b72"),
    "peer_cudnn": ("#1b1f24", "#f0f3f6"),
    "peer_triton": ("#5a31d0", "#8f7bff"),
    "other": ("#59636e", "#9198a1"),
}
MARKERS = {"01": "o", "02": "s", "03": "^", "04": "D", "05": "D", "06": "v", "07": "v", "08": "P"}
MARKERS.update(peer_plain="o", peer_memory_efficient="s", peer_flash="^", peer_cudnn="D", peer_triton="<")
STAND_IN = "#7f01{:02x}"  # what matplotlib draws with; finish() puts the real colours in their place

SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "flash_steps",  # no random ids
    "font.family": ["DejaVu Sans"],  # comes with matplotlib and is wider than what readers see, so that places are kept free
    "text.parse_math": False,  # a $ is a $
    "font.size": NORMAL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "path.simplify": False,
}


def ink(name):
    """The colour of a series, or "fg", "dim", "grid", "bg"."""
    names = list(COLOURS)
    return STAND_IN.format(names.index(name if name in COLOURS else "other"))


def name_in_file(*words):
    """The id of a shape, by which a reader of the file (or a test) finds it."""
    return "_".join(str(word) for word in words).replace(" ", "_")


def marker(series):
    return MARKERS.get(series, "X")


def line_look(series):
    """Peers are dashed and hollow."""
    look = {"marker": marker(series), "markersize": 4.5, "color": ink(series), "linewidth": 1.4}
    return {**look, "markerfacecolor": ink("bg"), "linestyle": (0, (4, 2))} if series.startswith("peer") else look


def head(picture):
    """How many points the picture's remark takes under its note."""
    return 14 if picture.remark else 0


def new_figure(height, picture, width=WIDTH):
    """A figure of width x height points with the picture's title at the top, its note under it, then its remark."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72, facecolor=ink("bg"))
    figure.text(10 / width, 1 - 16 / height, picture.title, fontsize=LARGE, weight="bold", color=ink("fg"), va="center")
    figure.text(10 / width, 1 - 34 / height, picture.note, fontsize=SMALL, color=ink("dim"), va="center")
    figure.text(10 / width, 1 - 48 / height, picture.remark, fontsize=SMALL, color=ink("fg"), va="center")
    return figure


def add_panel(figure, left, top, width, height, title="", note="", grid="y"):
    """Axes at so many points from the left and the top; its title, and a note, stand in the 28 points above."""
    all_of_it, whole = figure.get_figwidth() * 72, figure.get_figheight() * 72
    axes = figure.add_axes([left / all_of_it, 1 - (top + height) / whole, width / all_of_it, height / whole], facecolor=ink("bg"))
    for side in ("left", "bottom"):
        axes.spines[side].set_color(ink("dim"))
    axes.tick_params(which="both", color=ink("dim"), labelcolor=ink("dim"), length=3)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=ink("grid"), linewidth=0.6)
    write(axes, title, (0, height + (20 if note else 7)), size=NORMAL, weight="bold")
    write(axes, note, (0, height + 7), colour="dim")
    return axes


def write(axes, text, at, offset=None, size=SMALL, colour="fg", **more):
    """At a place in points of the panel, or so many points beside a place on its axes."""
    place = {"xycoords": "axes points"} if offset is None else {"xytext": offset, "textcoords": "offset points"}
    axes.annotate(text, xy=at, fontsize=size, color=ink(colour), annotation_clip=False, **place, **more)


def pointer(axes, text, mark, at, colour, relpos=(0.5, 0.5), **more):
    """A label at a place in points of the panel, with a thread to its mark on the axes."""
    thread = {"arrowstyle": "-", "color": ink(colour), "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4, "relpos": relpos}
    more = {"va": "center", "fontsize": SMALL, "color": ink(colour), "annotation_clip": False, "arrowprops": thread, **more}
    axes.annotate(text, xy=mark, xytext=at, textcoords="axes points", **more)


def finish(figure, title, digest):
    """The SVG file: text as text, colours by name, a title for screen readers, what it was drawn from. The same for the same rows."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", facecolor=figure.get_facecolor(), metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue().decode()
    for name, (light, _) in COLOURS.items():  # the first is for programs without var()
        svg = re.sub(f"(fill|stroke): {ink(name)}", rf"\1: {light}; \1: var(--plot-{name})", svg)
    svg = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", FONTS, svg)
    light, dark = ("".join(f"--plot-{name}:{colours[mode]};" for name, colours in COLOURS.items()) for mode in (0, 1))
    head = f"<title>{escape(title)}</title>\n <style>:root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>\n "
    opening, rest = svg[svg.index("<svg") + 4 :].split(">", 1)
    return f'{digest}\n<svg role="img"{opening}>\n {head}{rest}'
