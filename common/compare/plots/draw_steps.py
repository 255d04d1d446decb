"""Draws what steps.py selects."""

from .style import NORMAL, SMALL, WIDTH, add_panel, head, ink, name_in_file, new_figure

LEFT, TOP = 10, 66


def draw_ladder(picture):
    slot, between = 33, 30
    panels = picture.content["panels"]
    height = TOP + sum(len(panel["steps"]) * slot + between for panel in panels) - 14
    figure = new_figure(height, picture)
    highest = max(step["tflops"] for panel in panels for step in panel["steps"])
    ideas = 12 + 5.4 * max(len(step["label"]) for panel in panels for step in panel["steps"])  # points, where the second column starts
    top = TOP
    for panel in panels:
        count = len(panel["steps"])
        axes = add_panel(figure, LEFT, top, WIDTH - 2 * LEFT, count * slot, panel["title"], grid=None)
        axes.set_axis_off()
        axes.set_xlim(0, highest * 1.25)  # room for the number behind the longest bar
        axes.set_ylim(count * slot, 0)
        for i, step in enumerate(panel["steps"]):
            y = i * slot
            axes.text(0, y + 10, step["label"], fontsize=SMALL, weight="bold", color=ink("fg"), va="center")
            axes.text(highest * 1.25 * ideas / (WIDTH - 2 * LEFT), y + 10, step["idea"], fontsize=SMALL, color=ink("dim"), va="center")
            axes.barh(y + 22, step["tflops"], height=11, color=ink(step["series"]), gid=name_in_file("bar", panel["title"], step["label"]))
            gain = f", ×{step['gain']:.2f}" if step["gain"] else ""
            axes.annotate(f"{step['tflops']:.3g} TFLOP/s{gain}", xy=(step["tflops"], y + 22), xytext=(5, 0), textcoords="offset points",
                          va="center", fontsize=SMALL, color=ink("fg"))  # fmt: skip
        top += count * slot + between
    return figure


def draw_counts(picture):
    """The same steps in each panel, their names at the left alone."""
    steps, counts = picture.content["steps"], picture.content["counts"]
    slot, names, gap = 15, 104, 14
    rows = len(steps) + (2 if any(step["pass"] == "backward" for step in steps) else 1)  # a line of its own for each pass
    first = TOP + head(picture)
    figure = new_figure(first + rows * slot + 14, picture)
    width = (WIDTH - names - 2 * LEFT - (len(counts) - 1) * gap) / len(counts)
    lines, pass_before = [], None
    for step in steps:
        lines += [step["pass"]] * (step["pass"] != pass_before) + [step]
        pass_before = step["pass"]
    for k, (key, title) in enumerate(counts.items()):
        axes = add_panel(figure, LEFT + names + k * (width + gap), first, width, rows * slot, title, grid=None)
        axes.set_axis_off()
        axes.set_ylim(rows, 0)
        highest = max(step["counts"][key] for step in steps) or 1
        axes.set_xlim(0, highest * width / (width - 46))  # room for the longest number behind the longest bar
        for i, step in enumerate(lines):
            if isinstance(step, str):
                if k == 0:
                    axes.annotate(step, xy=(0, i + 0.5), xytext=(-names, 0), textcoords="offset points", va="center", fontsize=NORMAL, weight="bold", color=ink("fg"))
                continue
            value = step["counts"][key]
            axes.barh(i + 0.5, value, height=0.62, color=ink(step["series"]), gid=name_in_file("bar", step["pass"], step["label"], key))
            axes.annotate(f"{value:,}", xy=(value, i + 0.5), xytext=(4, 0), textcoords="offset points", va="center", fontsize=SMALL, color=ink("fg" if value else "dim"))
            if k == 0:
                axes.annotate(step["label"], xy=(0, i + 0.5), xytext=(-names, 0), textcoords="offset points", va="center", fontsize=SMALL, color=ink("fg"))
    return figure
