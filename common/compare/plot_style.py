"""How plots look: colours that follow the reader's light or dark mode, one per stage and peer, text that stays text, the same bytes every time."""

import io
import re
from html import escape

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


def ink(name):
    """The colour of a series, or "fg", "dim", "grid", "bg": matplotlib draws with stand-ins; svg() puts the real colours in their place."""
    return f"#7f01{list(COLOURS).index(name if name in COLOURS else 'other'):02x}"


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


def line_look(series):
    """Peers are dashed and hollow."""
    look = {"marker": COLOURS.get(series, COLOURS["other"])[2], "markersize": 4.5, "color": ink(series), "linewidth": 1.4}
    return {**look, "markerfacecolor": ink("bg"), "linestyle": (0, (4, 2))} if series.startswith("peer") else look


def svg(figure, title, note):
    """The text of a file, with the note as its description."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().decode()
    for name, (light, *_) in COLOURS.items():  # the first is for programs without var()
        text = re.sub(f"(fill|stroke): {ink(name)}", rf"\1: {light}; \1: var(--plot-{name})", text)
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", FONTS, text)  # matplotlib's, which is wider than the readers' fonts
    light, dark = ("".join(f"--plot-{name}:{colours[mode]};" for name, colours in COLOURS.items()) for mode in (0, 1))
    style = f"<style>:root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    description = " ".join(note.split())
    opening, rest = text[text.index("<svg") + 4 :].split(">", 1)
    return f'<svg role="img"{opening}>\n <title>{escape(title)}</title>\n <desc>{escape(description)}</desc>\n {style}\n {rest}'
