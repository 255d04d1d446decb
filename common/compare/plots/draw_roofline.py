"""Draws what roofline.py selects: labels at the marks, in the first free place around each."""

from math import cos, hypot, log10, pi, sin

from .style import NORMAL, SMALL, WIDTH, add_panel, ink, marker, name_in_file, new_figure

LEFT, TOP, HEIGHT, BELOW = 40, 66, 400, 44
PANEL = WIDTH - LEFT - 14


def power_of_two_beyond(value, up):
    power = 1.0
    while power < value:
        power *= 2
    while power > value:
        power /= 2
    return power * 2 if up else power


def draw(picture):
    content = picture.content
    marks, peaks, bandwidth = content["marks"], content["peaks"], content["bandwidth"]
    figure = new_figure(TOP + HEIGHT + BELOW + 13 * len(content["notes"]), picture)
    axes = add_panel(figure, LEFT, TOP, PANEL, HEIGHT, grid="both")
    tops = list(peaks.values()) + [mark["y"] for mark in marks]
    ridges = [peak / bandwidth for peak in peaks.values()] if bandwidth else []
    x0, x1 = power_of_two_beyond(min(mark["x"] for mark in marks) / 1.2, False), power_of_two_beyond(max([mark["x"] for mark in marks] + ridges) * 1.2, True)
    y0, y1 = power_of_two_beyond(min(mark["y"] for mark in marks) / 1.2, False), power_of_two_beyond(max(tops), True)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlim(x0, x1)
    axes.set_ylim(y0, y1)
    for axis, low, high in ((axes.xaxis, x0, x1), (axes.yaxis, y0, y1)):
        at = [low]
        while at[-1] < high:
            at.append(at[-1] * 2)
        axis.set_ticks(at)
        axis.set_ticklabels([f"{value:g}" for value in at])
    axes.minorticks_off()
    axes.set_xlabel("\n".join(["FLOP for each byte that crosses the border to HBM", *content["notes"]]), fontsize=SMALL, color=ink("dim"))
    axes.annotate("TFLOP/s", xy=(0, HEIGHT + 6), xycoords="axes points", fontsize=SMALL, color=ink("dim"))

    def place(x, y):
        """In points of the panel."""
        return PANEL * log10(x / x0) / log10(x1 / x0), HEIGHT * log10(y / y0) / log10(y1 / y0)

    taken = [box_around(*place(mark["x"], mark["y"]), 9, 9) for mark in marks]
    taken += draw_roofs(axes, peaks, bandwidth, (x0, x1, y0), place)
    for mark in marks:
        hollow = mark["pass"] == "backward"
        axes.plot([mark["x"]], [mark["y"]], marker=marker(mark["series"]), markersize=7, color=ink(mark["series"]), linestyle="none",
                  markerfacecolor=ink("bg") if hollow else ink(mark["series"]), markeredgewidth=1.6, gid=name_in_file("mark", mark["pass"], mark["label"]), zorder=4)  # fmt: skip
    places = label_places([(*place(mark["x"], mark["y"]), 4.9 * len(mark["label"]) + 4) for mark in marks], taken)
    for mark, at in zip(marks, places):
        axes.annotate(mark["label"], xy=(mark["x"], mark["y"]), xytext=at, textcoords="axes points", ha="center", va="center", fontsize=SMALL,
                      color=ink(mark["series"]), zorder=5,
                      arrowprops={"arrowstyle": "-", "color": ink(mark["series"]), "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4})  # fmt: skip
    return figure


def draw_roofs(axes, peaks, bandwidth, limits, place):
    """Peaks and slope; gives the boxes of their labels."""
    x0, x1, y0 = limits
    boxes = []
    for unit, peak in peaks.items():
        axes.plot([max(x0, peak / bandwidth) if bandwidth else x0, x1], [peak, peak], color=ink("fg"), linewidth=1.8)
        text = f"{unit}, {peak:.0f} TFLOP/s"
        right, y = place(x1, peak)
        axes.annotate(text, xy=(right, y + 4), xycoords="axes points", ha="right", va="bottom", fontsize=NORMAL, color=ink("fg"))
        boxes.append(box_around(right - 2.6 * len(text), y + 8, 5.2 * len(text), 16))
    if bandwidth:
        start, ridge = max(x0, y0 / bandwidth), max(peaks.values()) / bandwidth
        axes.plot([start, ridge], [start * bandwidth, ridge * bandwidth], color=ink("fg"), linewidth=1.8)
        (xa, ya), (xb, yb) = place(start, start * bandwidth), place(ridge, ridge * bandwidth)
        steps = 60
        boxes += [box_around(xa + (xb - xa) * k / steps, ya + (yb - ya) * k / steps, 4, 8) for k in range(steps + 1)]
        middle = (start * ridge) ** 0.5
        x, y = place(middle, middle * bandwidth)
        text = f"HBM, {bandwidth:g} TB/s"
        axes.annotate(text, xy=(x - 6, y + 4), xycoords="axes points", ha="right", va="bottom", fontsize=NORMAL, color=ink("fg"))
        boxes.append(box_around(x - 6 - 2.6 * len(text), y + 10, 5.2 * len(text), 14))
    return boxes


def box_around(x, y, width, height):
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def leader(start, end):
    """Boxes along the line from a label's middle to its mark, but not over the mark, which may lie close to others."""
    (x0, y0), (x1, y1) = start, end
    steps = max(1, round(hypot(x1 - x0, y1 - y0) / 2))
    points = [(x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps) for k in range(steps + 1)]
    return [box_around(x, y, 1, 1) for x, y in points if hypot(x - x1, y - y1) > 7]


def covers(box, others):
    return any(overlap(box, other) for other in others)


def label_places(marks, taken):
    """The middles of the labels of marks [(x, y, width of the label)]. Who comes first has the best place and may leave none to another: of
    some orders, each begun at every mark, the one that places most, and those with the shortest leaders."""
    best = None
    for key in (lambda k: -marks[k][1], lambda k: marks[k][1], lambda k: marks[k][0], lambda k: -marks[k][0]):
        order = sorted(range(len(marks)), key=key)
        for start in range(len(marks)):
            found = in_order(marks, order[start:] + order[:start], taken)
            cost = sum(1000 if at is None else hypot(at[0] - x, at[1] - y) - wide / 2 for (x, y, wide), at in zip(marks, found))
            if best is None or cost < best[0]:
                best = cost, found
    return [at or (x, y + 14) for (x, y, _), at in zip(marks, best[1])] if best else []


def in_order(marks, order, taken):
    """The middles of the labels if they are placed in this order; None where there is no place."""
    taken, leaders, found = list(taken), [], [None] * len(marks)
    for k in order:
        x, y, wide = marks[k]
        at = found[k] = free_place(x, y, wide, taken, leaders)
        if at:
            taken.append(box_around(*at, wide, 11))
            leaders.append(leader(at, (x, y)))
    return found


def free_place(x, y, wide, taken, leaders):
    """The middle of a label: the nearest place around (x, y), in the panel, where it covers no label, mark, roof or leader of another
    label, and where its own leader crosses no label, mark or roof. None if there is none."""
    for far in range(0, 200, 6):
        for k in (0, 8, 1, 15, 7, 9, 4, 12, 2, 14, 6, 10, 3, 13, 5, 11):
            u, v = cos(k * pi / 8), sin(k * pi / 8)
            box = box_around(x + u * (10 + wide / 2 + far), y + v * (14 + far), wide, 11)
            middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
            inside = box[0] >= 2 and box[2] <= PANEL and box[1] >= 2 and box[3] <= HEIGHT
            if not inside or covers(box, taken) or any(covers(box, line) for line in leaders):
                continue
            if not any(covers(step, taken) for step in leader(middle, (x, y))):
                return middle
    return None
