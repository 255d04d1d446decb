"""What the rows teach: a few large figures, each with a sentence, computed from the rows; nothing is said that they do not carry."""

from rows.row import device_name, is_peer, label, moved_bytes, number, text
from rows.text import SIZES, size

from .columns import figure, gain
from .markup import join, tag
from .overview import blocks


def named(row):
    name = tag("code", label(row))
    return join(["plain attention (", name, ")"]) if row["stage"] == "01_naive" else name


def extra(row):
    return number(row, "extra_memory_bytes")


def median(row):
    return number(row, "time", "median_ms")


def faster(first, best):
    ratio, took = gain(median(first) / median(best)), f" takes {figure(median(best))} ms, "
    return ratio, join(["as fast: ", tag("code", label(best)), took, named(first), f" {figure(median(first))} ms"])


def fewer_bytes(first, best):
    """None where the rows do not count bytes, or where it has no fewer."""
    many, few = moved_bytes(first), moved_bytes(best)
    if not many or not few or many <= few:
        return None
    return gain(many / few), join(["fewer bytes: ", tag("code", label(best)), f" moves {size(few)}, ", named(first), f" {size(many)}"])


def least_bytes(best):
    least, moved = number(best, "compulsory_bytes"), moved_bytes(best)
    if not least or not moved:
        return None
    what = f"the least that any implementation must move, {size(least)}, is what "
    return gain(moved / least), join([what, tag("code", label(best)), " moves"])


def memory(first, best):
    """None where the two do not differ."""
    if extra(first) is None or extra(best) is None or extra(first) == extra(best):
        return None
    needs = "none" if extra(best) == 0 else size(extra(best))
    return needs, join(["of memory beside inputs and outputs for ", tag("code", label(best)), f"; {size(extra(first))} for ", named(first)])


def beside_peer(best, peer, which):
    if peer is None:
        return None
    took = f" is what {which} takes: {text(peer, 'idea') or peer['variant']}, {figure(median(peer))} ms"
    return gain(median(peer) / median(best)), join(["the time of ", tag("code", label(best)), took])


def same_algorithm(group):
    """Torch's FlashAttention-2, unless it is the fastest peer, which has a line of its own."""
    found = next((row for row in group.rows if is_peer(row) and row["variant"] == "flash" and group.cost(row)), None)
    return None if found is group.best(peers=True) else found


def of_group(group):
    """The figures of one problem and pass."""
    first, best, peer = group.first(), group.best() or group.first(), group.best(peers=True)
    if group.gpu:
        said = [faster(first, best), fewer_bytes(first, best), memory(first, best), beside_peer(best, peer, "the fastest peer"),
                beside_peer(best, same_algorithm(group), "the peer of the same algorithm")]  # fmt: skip
    else:
        said = [fewer_bytes(first, best), least_bytes(best), memory(first, best)]
    return [pair for pair in said if pair]


def chosen(found):
    """Of each device, dtype and pass the group with the most stages; of several the one with the most work."""
    best = {}
    for group in found:
        lines = sum(not is_peer(row) and group.cost(row) is not None for row in group.rows)
        if lines < 2:
            continue
        work = max((number(row, "flops") or 0 for row in group.rows), default=0)
        key = (group.gpu, group.problem["dtype"], group.which)
        if key not in best or best[key][0] < (lines, work):
            best[key] = ((lines, work), group)
    return [group for _, group in best.values()]


def longest_sweep(found):
    """The groups of the forward pass that differ in N alone; [] if there are no two."""
    longest = []
    for block in blocks(found):
        groups = [group for _, group in block if group.which == "forward" and group.problem["seq_q"] == group.problem["seq_k"]]
        others = {tuple(group.problem[key] for key in SIZES if not key.startswith("seq")) for group in groups}
        if len(others) == 1 and len(groups) > max(1, len(longest)):
            longest = groups
    return longest


def growth(found):
    """How memory grows with N: that of the stage where it grows most beside that where it grows least. None without a sweep of N."""
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
        return None
    short, long = min(needs[name]), max(needs[name])
    sentence = ["the memory beside inputs and outputs of ", tag("code", name), f" at {figure(long / short)} times the length: "
                f"{size(needs[name][short])} at N={short:,}, {size(needs[name][long])} at N={long:,}"]  # fmt: skip
    there = {other: sizes[long] for other, sizes in needs.items() if long in sizes and sizes[long] < needs[name][long]}
    if there:
        least = min(there, key=there.get)
        sentence += ["; ", tag("code", least), f" needs {'none' if there[least] == 0 else size(there[least])} there"]
    return gain(times(name)), join(sentence)


def card(title, pairs):
    lines = [tag("p", tag("b", big), " ", tag("span", sentence, ".")) for big, sentence in pairs]
    return tag("section", tag("h3", title), *lines, class_="card")


def section(found, chosen_groups):
    """None if the rows teach nothing: where fewer than two lines of a problem have run well."""
    several = len({device_name(group.rows[0]) for group in found}) > 1
    cards = [card(f"{device_name(group.rows[0])}: {group.title}" if several else group.title, pairs)
             for group in chosen_groups for pairs in [of_group(group)] if pairs]  # fmt: skip
    grown = growth(found)
    cards += [card("With the length of the sequence", [grown])] if grown else []
    return tag("div", *cards, class_="cards") if cards else None
