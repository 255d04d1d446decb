"""Where labels find room. Boxes are (left, low, right, high) in points."""

from math import cos, hypot, pi, sin


def spread(wanted, gap, low, high):
    """Places for labels that would stand at `wanted`: in the same order, at least `gap` apart, within low..high if they fit, and moved
    no more than that takes."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups = []  # labels that stand `gap` apart around their common middle: [where the first would be, how many]
    for i in order:
        groups.append((wanted[i], 1))
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * groups[-2][1] - 1e-9:
            (second, after), (first, before) = groups.pop(), groups.pop()
            groups.append(((first * before + (second - gap * before) * after) / (before + after), before + after))
    places = [first + k * gap for first, count in groups for k in range(count)]  # in that order
    for k in range(len(places)):
        places[k] = max(places[k], places[k - 1] + gap if k else low)
    for k in reversed(range(len(places))):
        places[k] = min(places[k], places[k + 1] - gap if k + 1 < len(places) else high)
    return [place for _, place in sorted(zip(order, places))]


def around(x, y, width, height):
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def covers(a, others):
    return any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in others)


def leader(start, end):
    """Boxes along the line from a label's middle to its mark, but not over the mark, which may lie close to others."""
    (x0, y0), (x1, y1) = start, end
    steps = max(1, round(hypot(x1 - x0, y1 - y0) / 2))
    points = [(x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps) for k in range(steps + 1)]
    return [around(x, y, 1, 1) for x, y in points if hypot(x - x1, y - y1) > 7]


def label_places(marks, taken, width, height):
    """The middles of the labels of marks [(x, y, width of the label)]. Who comes first has the best place and may leave none to another: of
    some orders, each begun at every mark, the one that places most, and those with the shortest leaders."""

    def cost(found):
        placed = [(mark, at) for mark, at in zip(marks, found) if at]
        leaders = sum(hypot(at[0] - x, at[1] - y) - wide / 2 for (x, y, wide), at in placed)
        return leaders + 100 * sum(beside_another(*one, marks) for one in placed) + 1000 * (len(marks) - len(placed))

    numbers, tried = range(len(marks)), []
    for key in (lambda k: -marks[k][1], lambda k: marks[k][1], lambda k: marks[k][0], lambda k: -marks[k][0]):
        order = sorted(numbers, key=key)
        tried += [in_order(marks, order[start:] + order[:start], taken, width, height) for start in numbers]
    return [at or (x, y + 14) for (x, y, _), at in zip(marks, min(tried, key=cost, default=[]))]


def beside_another(mark, at, marks):
    """Does a label stand at a mark that is not its own, and far from its own?"""
    x, y, wide = mark

    def gap(to):
        return hypot(max(0, abs(to[0] - at[0]) - wide / 2), max(0, abs(to[1] - at[1]) - 5.5))

    return any(gap(other) + 6 < gap(mark) for other in marks)


def in_order(marks, order, taken, width, height):
    """The middles of the labels if they are placed in this order; None where there is no place."""
    taken, leaders, found = list(taken), [], [None] * len(marks)

    def is_free(box, at, mark):
        """In the panel, over no label, mark, roof or leader of another label, and its own leader crosses no label, mark or roof."""
        inside = box[0] >= 2 and box[2] <= width and box[1] >= 2 and box[3] <= height
        crosses = covers(box, taken) or covers(box, leaders)
        return inside and not crosses and not any(covers(step, taken) for step in leader(at, mark))

    for k in order:
        x, y, wide = marks[k]
        for at in nearest(x, y, wide):
            box = around(*at, wide, 11)
            if is_free(box, at, (x, y)):
                found[k] = at
                taken.append(box)
                leaders += leader(at, (x, y))
                break
    return found


def nearest(x, y, wide):
    """The middles of places around (x, y), near ones first."""
    for far in range(0, 200, 6):
        for k in (0, 8, 1, 15, 7, 9, 4, 12, 2, 14, 6, 10, 3, 13, 5, 11):
            yield x + cos(k * pi / 8) * (10 + wide / 2 + far), y + sin(k * pi / 8) * (14 + far)
