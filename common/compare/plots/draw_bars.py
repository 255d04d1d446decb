"""Draws what bars.py selects."""

from .style import NORMAL, SMALL, WIDTH, add_panel, ink, name_in_file, new_figure

LEFT, RIGHT, BETWEEN, TOP, HEIGHT, BELOW = 34, 8, 40, 94, 130, 50
FEW = 18  # bars of a panel that find room in half of the width


def draw(picture):
    panels = picture.content["panels"]
    most = max((len(panel["series"]) + 1) * len(panel["lengths"]) for panel in panels)
    columns = 2 if most <= FEW and len(panels) > 1 else 1
    width = (WIDTH - RIGHT - LEFT - (columns - 1) * BETWEEN) / columns
    rows = -(-len(panels) // columns)
    figure = new_figure(TOP + rows * (HEIGHT + BELOW) - 22, picture)
    names = key(figure, panels)
    highest = max(value for panel in panels for line in panel["series"] for value in line["values"] if isinstance(value, float))
    for i, panel in enumerate(panels):
        left, top = LEFT + i % columns * (width + BETWEEN), TOP + i // columns * (HEIGHT + BELOW)
        draw_panel(add_panel(figure, left, top, width, HEIGHT, panel["title"]), panel, list(names), width, highest)
    return figure


def key(figure, panels):
    """The names in the order of the bars, in one line over all panels. {series: label}"""
    names = {}
    for panel in panels:
        for line in panel["series"]:
            known = names.setdefault(line["series"], line["label"])
            if known != line["label"]:
                names[line["series"]] = line["series"] if "+" not in known else known  # not the same step in all panels
    height, x = figure.get_figheight() * 72, 10
    for series, text in names.items():
        figure.text(x / WIDTH, 1 - 56 / height, "■", fontsize=NORMAL + 2, color=ink(series), va="center")
        figure.text((x + 13) / WIDTH, 1 - 56 / height, text, fontsize=SMALL, color=ink("fg"), va="center")
        x += 13 + 4.9 * len(text) + 14
    return names


def draw_panel(axes, panel, names, width, highest):
    present = [name for name in names if any(line["series"] == name for line in panel["series"])]
    bar = width / (len(panel["lengths"]) * (len(present) + 1))  # points
    upright = any(bar < 5.5 * len(number(value)) for line in panel["series"] for value in line["values"] if isinstance(value, float))
    for line in panel["series"]:
        for group, value in enumerate(line["values"]):
            x = group * (len(present) + 1) + present.index(line["series"])
            if isinstance(value, float):
                axes.bar(x, value, width=0.86, color=ink(line["series"]), gid=name_in_file("bar", panel["title"], line["label"], panel["lengths"][group]))
            axes.annotate(number(value), xy=(x, value if isinstance(value, float) else 0), xytext=(0, 2.5), textcoords="offset points", ha="center",
                          va="bottom", fontsize=SMALL, color=ink("dim" if isinstance(value, str) else "fg"), rotation=90 if upright or isinstance(value, str) else 0)  # fmt: skip
    axes.set_xlim(-1, len(panel["lengths"]) * (len(present) + 1) - 1)
    axes.set_ylim(0, highest * 1.15)
    axes.set_xticks([group * (len(present) + 1) + (len(present) - 1) / 2 for group in range(len(panel["lengths"]))])
    axes.set_xticklabels([f"N = {n:,}" for n in panel["lengths"]])
    axes.tick_params(axis="x", length=0)


def number(value):
    """What stands on a bar, or in its place."""
    return value or "" if not isinstance(value, float) else f"{value:.0f}" if value >= 10 else f"{value:.1f}"
