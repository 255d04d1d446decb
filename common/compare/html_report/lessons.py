"""What the rows teach: a few large figures, each with a sentence, computed from the rows; nothing is said that they do not carry."""

from rows.row import is_peer, label, moved_bytes, number, text
from rows.text import SIZES, size

from .markup import figure, gain, join, tag
from .overview import blocks
from .tables import memory_text


def code(row):
    name = tag("code", label(row))
    return join(["plain attention (", name, ")"]) if row["stage"] == "01_naive" else name


def extra(row):
    return number(row, "extra_memory_bytes")


def median(row):
    return number(row, "time", "median_ms")


def faster(first, best):
    took = [tag("code", label(best)), f" takes {figure(median(best))} ms, ", code(first), f" {figure(median(first))} ms"]
    return gain(median(first) / median(best)), ["as fast: ", *took]


def fewer_bytes(first, best):
    """None where the rows do not count bytes, or where it has no fewer."""
    many, few = moved_bytes(first), moved_bytes(best)
    if many and few and many > few:
        return gain(many / few), ["fewer bytes: ", tag("code", label(best)), f" moves {size(few)}, ", code(first), f" {size(many)}"]


def least_bytes(best):
    least, moved = number(best, "compulsory_bytes"), moved_bytes(best)
    if least and moved:
        what = f"the least that any implementation must move, {size(least)}, is what "
        return gain(moved / least), [what, tag("code", label(best)), " moves"]


def memory(first, best):
    """None where the two do not differ."""
    if extra(first) is not None and extra(best) is not None and extra(first) != extra(best):
        beside = ["of memory beside inputs and outputs for ", tag("code", label(best)), f"; {size(extra(first))} for ", code(first)]
        return memory_text(extra(best)), beside


def beside_peer(best, peer, which):
    if peer is not None:
        took = f" is what {which} takes: {text(peer, 'idea') or peer['variant']}, {figure(median(peer))} ms"
        return gain(median(peer) / median(best)), ["the time of ", tag("code", label(best)), took]


def of_group(group):
    """The figures of one problem and pass."""
    first, best, peer = group.first(), group.best() or group.first(), group.best(peers=True)
    if not group.gpu:
        return [fewer_bytes(first, best), least_bytes(best), memory(first, best)]
    flash = next((row for row in group.rows if is_peer(row) and row["variant"] == "flash" and group.cost(row)), None)
    same = None if flash is peer else flash  # it has a line of its own already
    peers = [beside_peer(best, peer, "the fastest peer"), beside_peer(best, same, "the peer of the same algorithm")]
    return [faster(first, best), fewer_bytes(first, best), memory(first, best), *peers]


def chosen(found):
    """Of each device, dtype and pass the group with the most stages; of several the one with the most work."""
    best = {}
    for group in found:
        lines = sum(not is_peer(row) and group.cost(row) is not None for row in group.rows)
        if lines > 1:
            rank = lines, max((number(row, "flops") or 0 for row in group.rows), default=0)
            before = best.setdefault((group.gpu, group.problem["dtype"], group.which), (rank, group))
            if before[0] < rank:
                best[group.gpu, group.problem["dtype"], group.which] = rank, group
    return [group for _, group in best.values()]


def longest_sweep(found):
    """The groups of the forward pass that differ in N alone; [] if there are no two."""
    longest = []
    for block in blocks(found):
        groups = [group for group in block if group.which == "forward" and group.problem["seq_q"] == group.problem["seq_k"]]
        others = {tuple(group.problem[key] for key in SIZES if not key.startswith("seq")) for group in groups}
        if len(others) == 1 and len(groups) > max(1, len(longest)):
            longest = groups
    return longest


def growth(found):
    """How memory grows with N: that of the stage where it grows most beside that where it grows least. [] without a sweep of N."""
    needs = {}  # label: {N: bytes}
    for group in longest_sweep(found):
        for row in group.rows:
            if group.cost(row) and extra(row) is not None and not is_peer(row):
                needs.setdefault(label(row), {})[group.problem["seq_q"]] = extra(row)

    def times(name):
        sizes = needs[name]
        return sizes[max(sizes)] / sizes[min(sizes)] if sizes[min(sizes)] else 1

    name = max(needs, key=times, default=None)
    if name is None or times(name) <= 1:
        return []
    short, long = min(needs[name]), max(needs[name])
    at_both = f"{size(needs[name][short])} at N={short:,}, {size(needs[name][long])} at N={long:,}"
    sentence = ["the memory beside inputs and outputs of ", tag("code", name), f" at {figure(long / short)} times the length: {at_both}"]
    there = {other: sizes[long] for other, sizes in needs.items() if long in sizes and sizes[long] < needs[name][long]}
    if there:
        least = min(there, key=there.get)
        sentence += ["; ", tag("code", least), f" needs {memory_text(there[least])} there"]
    return [(gain(times(name)), sentence)]


def section(found, chosen_groups):
    """None if the rows teach nothing: where fewer than two lines of a problem have run well."""
    several = len({group.device for group in found}) > 1
    cards = [(f"{group.device}: {group.title}" if several else group.title, of_group(group)) for group in chosen_groups]
    cards.append(("With the length of the sequence", growth(found)))
    parts = []
    for title, said in cards:
        lines = [tag("p", tag("b", big), " ", tag("span", *sentence, ".")) for big, sentence in filter(None, said)]
        parts += [tag("section", tag("h3", title), *lines, class_="card")] if lines else []
    return tag("div", *parts, class_="cards") if parts else None
