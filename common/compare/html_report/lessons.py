"""What the rows teach: a few large figures, each with a sentence, computed from the rows; nothing is said that they do not carry."""

from rows.row import grouped, is_peer, label, moved_bytes, number, text
from rows.text import SIZES, size

from .groups import cost, cost_text
from .markup import figure, gain, say, tag
from .overview import blocks
from .tables import memory_text


def extra(row):
    return number(row, "extra_memory_bytes")


def of_group(group):
    """[(figure, sentence)] of one problem and pass."""
    first, peer = group.first(), group.best(peers=True)
    best = (group.best() if group.gpu else (group.own() or [None])[-1]) or first  # few bytes alone make no step the best
    start, end = tag("code", label(first)), tag("code", label(best))
    start = say("plain attention ({})", start) if first["stage"] == "01_naive" else start
    said = []

    def add(figure, template, *parts):
        said.append((figure, say(template, *parts)))

    if group.gpu:
        add(gain(cost(first) / cost(best)), "as fast as {}: {} ms become {} ms in {}", start, cost_text(first), cost_text(best), end)
    many, few, least = moved_bytes(first), moved_bytes(best), number(best, "compulsory_bytes")
    if many and few and many > few:
        add(gain(many / few), "fewer bytes moved than {}: {} become {} in {}", start, size(many), size(few), end)
    if least and few and not group.gpu:
        must = "the bytes that any implementation must move: {} moves {}, and {} is the least"
        add(gain(few / least), must, end, size(few), size(least))
    if None not in (extra(first), extra(best)) and extra(first) != extra(best):
        add(size(extra(best)), "of memory beyond inputs and outputs in {}, where {} needs {}", end, start, size(extra(first)))
    if group.gpu:
        flash = next((row for row in group.rows if is_peer(row) and row["variant"] == "flash" and row is not peer), None)
        for other, which in ((peer, "the fastest peer"), (flash, "the peer of the same algorithm")):
            if other and cost(other):
                parts = which, text(other, "idea") or other["variant"], cost_text(other), cost_text(best), end
                add(gain(cost(other) / cost(best)), "as fast as {}, {}: {} ms there, {} ms in {}", *parts)
    return said


def chosen(found):
    """Of each device, dtype and pass the group with the most stages; of several the one with the most work."""

    def rank(group):
        stages = sum(not is_peer(row) and cost(row) is not None for row in group.rows)
        return stages, max(number(row, "flops") or 0 for row in group.rows)

    several = [group for group in found if rank(group)[0] > 1]
    alike = grouped(several, lambda group: (group.gpu, group.problem["dtype"], group.which))
    return [max(groups, key=rank) for groups in alike.values()]


def longest_sweep(found):
    """The groups of the forward pass that differ in N alone; [] if there are no two."""
    forward = [group for group in found if group.which == "forward" and group.problem["seq_q"] == group.problem["seq_k"]]
    others = [key for key in SIZES if not key.startswith("seq")]
    sweeps = (block for block in blocks(forward) if len({tuple(group.problem[key] for key in others) for group in block}) == 1)
    return max((block for block in sweeps if len(block) > 1), key=len, default=[])


def growth(found):
    """How memory grows with N: that of the stage where it grows most beside that where it grows least. [] without a sweep of N."""
    needs = {}  # label: {N: bytes}
    for group in longest_sweep(found):
        for row in group.rows:
            if cost(row) and extra(row) is not None and not is_peer(row):
                needs.setdefault(label(row), {})[group.problem["seq_q"]] = extra(row)

    def times(name):
        sizes = needs[name]
        return sizes[max(sizes)] / sizes[min(sizes)] if sizes[min(sizes)] else 1

    name = max(needs, key=times, default=None)
    if name is None or times(name) <= 1:
        return []
    short, long = min(needs[name]), max(needs[name])
    sizes = f"{size(needs[name][short])} at N={short:,}, {size(needs[name][long])} at N={long:,}"
    beside = "the extra memory for a sequence {} times as long: {} needs {}"
    sentence = say(beside, figure(long / short), tag("code", name), sizes)
    there = {other: sizes[long] for other, sizes in needs.items() if long in sizes and sizes[long] < needs[name][long]}
    if there:
        least = min(there, key=there.get)
        sentence = say("{}; {} needs {} at that length", sentence, tag("code", least), memory_text(there[least]))
    return [(gain(times(name)), sentence)]


def section(found, chosen_groups):
    """None if the rows teach nothing: where fewer than two lines of a problem have run well."""
    several = len({group.device for group in found}) > 1
    cards = [(f"{group.device}: {group.title}" if several else group.title, of_group(group)) for group in chosen_groups]
    cards.append(("With the length of the sequence", growth(found)))
    parts = []
    for title, said in cards:
        lines = [tag("p", tag("b", big), " ", tag("span", sentence, ".")) for big, sentence in said]
        parts += [tag("section", tag("h3", title), *lines, class_="card")] if lines else []
    return tag("div", *parts, class_="cards") if parts else None
