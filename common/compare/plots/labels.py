"""Where labels find room."""


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
