"""Lines against N: time, extra memory, bytes. Two panels stand side by side, and each line is labelled at its end.

Which rows: plain ones, of the d and mask with the most lengths, then the most series, then no mask and the smaller d."""

import re
import textwrap
import typing
from dataclasses import dataclass
from math import ceil, floor, log2, log10

from rows import grouped, latest, size

from . import choose
from .choose import Picture, Unfit, length, lengths, median, name_of, series_of
from .labels import spread
from .style import add_panel, head, ink, line_look, name_in_file, new_figure, pointer, write

WORDS = {"fp32": "fp32", "fp16": "fp16, tensor cores", "bf16": "bf16, tensor cores"}
LEFT, PANEL, HEIGHT, LABELS, TOP, BELOW = 50, 144, 176, 106, 78, 58


@dataclass
class Lines:
    """Such a plot: a panel for each pass and, unless types share one, for each type."""

    title: str
    note: str  # of the picture; {device} may stand in it
    panel: str  # title of a panel: {type}, {words} about it, {which} pass
    value: typing.Callable  # what is drawn of a row, None if it has none
    unit: str
    content: typing.Callable  # of the rows of a panel and those of its problems that have no value: series, guides, gaps
    what: str  # the value in words
    types_apart: bool = True
    one_family: bool = False  # are batch and heads held, or B·N and H·d?

    def select(self, rows):
        rows = [row for row in rows if choose.is_plain(row)]
        kept = latest([row for row in rows if self.value(row) is not None])
        if not kept:
            raise Unfit(f"no row has {self.what}")
        types = choose.by_type(kept)
        types = types if self.types_apart else [("all", [row for _, members in types for row in members])]
        panels, used, note = [], [], self.note
        for dtype, members in types:
            held, others = "", []
            if self.one_family:
                members, family = choose.best_family(members, longest_slice)
                held, others = f"{family}, ", [row for row in rows if self.value(row) is None and family.has(row)]
            one = choose.best_slice(members)
            members = choose.without_neighbours(choose.of_slice(members, one))
            others = latest([row for row in choose.of_slice(others, one) if row["problem"]["dtype"] == dtype])
            shown = [which for which in choose.PASSES if len(lengths(row for row in members if row["pass"] == which)) > 1]
            for which in shown:
                mine, missing = ([row for row in some if row["pass"] == which] for some in (members, others))
                title, content = self.panel.format(type=dtype, words=WORDS.get(dtype), which=which), self.content(mine, missing)
                if content["series"]:
                    panels.append({"row": dtype, "title": title, "note": held + choose.slice_text(*one), **content})
                    used += mine
            note += "" if shown else f" {dtype}: only one length is saved."
        if not panels:
            raise Unfit(f"no problem has {self.what} at two lengths or more")
        content = {"unit": self.unit, "panels": panels}
        return Picture(self.title, note.format(device=choose.device_of(used)), content, used)

    def draw(self, picture):
        rows = list(grouped(picture.content["panels"], lambda panel: panel["row"]).values())
        heights = [HEIGHT + BELOW + 11 * max(len(panel["gaps"]) for panel in members) for members in rows]
        first = TOP + head(picture)
        figure = new_figure(first + sum(heights) - 28, picture)
        for i, members in enumerate(rows):
            limits = limits_of(members)
            for k, panel in enumerate(members):
                left, top = LEFT + k * (PANEL + LABELS + LEFT), first + sum(heights[:i])
                axes = add_panel(figure, left, top, PANEL, HEIGHT, panel["title"], panel["note"], grid="both")
                draw_panel(axes, panel, limits, picture.content["unit"])
        return figure


def longest_slice(rows):
    """Number of lengths of the (d, mask) with the most."""
    return max((len(lengths(members)) for members in grouped(rows, choose.slice_of).values()), default=0)


def points(rows, value):
    """[[N, value]] in the order of N."""
    return sorted([length(row), value(row)] for row in rows)


def of_variants(rows, value):
    """A line for the best variant of each stage."""
    best = choose.best_variants(rows)
    return [{"series": name, "label": name_of(members[0]), "points": points(members, value)} for name, members in best.items()]


def times(rows, missing):
    """Beside them a line with the slope of the FLOPs; under them which of the lines' variants could not be timed, and why."""
    series, gaps = of_variants(rows, median), []
    for line in series:
        known = {n for n, _ in line["points"]}
        absent = [row for row in sorted(missing, key=length) if name_of(row) == line["label"] and length(row) not in known]
        for why, members in grouped(absent, lambda row: row.absence).items():
            gaps.append(f"{line['label']}, N = {'; '.join(f'{length(row):,}' for row in members)}: {why}")
    work = {length(row): row["flops"] for row in rows}
    least = min(median(row) / row["flops"] for row in rows) * 0.6
    batches = {row["problem"]["batch"] for row in rows}
    tokens = {row["problem"]["batch"] * length(row) for row in rows}
    slope = "N²" if len(batches) == 1 else "N" if len(tokens) == 1 else "FLOPs"
    guide = {"label": f"∝ {slope}", "points": sorted([n, flops * least] for n, flops in work.items())}
    return {"series": series, "guides": [guide], "gaps": gaps}


def of_one_head(row, key):
    """A quantity that is proportional to B·H, for one head: so rows of any batch and any number of heads go together."""
    value = row.get(key)
    return None if value is None or value < 0 or not row.is_good else value / (row["problem"]["batch"] * row["problem"]["heads"])


def extra_memory(row):
    return of_one_head(row, "extra_memory_bytes")


def memory(rows, _):
    """Stages and steps that need the same wherever both were run share a line. A step that was run at one length alone has none."""
    variants = {name: members for name, members in grouped(rows, lambda row: row.label).items() if len(members) > 1}
    lines = []  # [{N: bytes}, a row of each variant]
    for members in variants.values():
        at = dict(points(members, extra_memory))
        for known, sharing in lines:
            both = known.keys() & at.keys()
            if len(both) > 1 and all(known[n] == at[n] for n in both):
                known.update(at)
                sharing.append(members[0])
                break
        else:
            lines.append((at, [members[0]]))
    series = []
    for at, members in lines:
        labels, here = {}, {row.label for row in members}
        for row in sorted(members, key=lambda row: (row["stage"] == "peer", row["stage"])):
            labels[together(row, here, variants)] = series_of(row)
        series.append({"series": next(iter(labels.values())), "label": ", ".join(labels), "points": sorted(map(list, at.items()))})
    guides = []
    whole = [line["points"] for line in series if line["points"][0][1] >= 1]  # not a head's share of one word for all
    for power, name in ((2, "∝ N²"), (1, "∝ N")):
        if like := [at for at in whole if grows_like(at, power)]:
            guides.append({"label": name, "points": [[n, value * 0.5] for n, value in min(like, key=lambda at: at[-1][1])]})
    return {"series": series, "guides": guides, "gaps": []}


def together(row, here, variants):
    """The name of a row's stage if all its variants are here, or three or more; else that of the variant."""
    all_of_stage = {one for one in variants if one.startswith(f"{row['stage']}/")}
    number = len(all_of_stage & here)
    if row["stage"] == "peer" or number < min(len(all_of_stage), 3):
        return name_of(row)
    return row["stage"][:2] if number == len(all_of_stage) else f"{row['stage'][:2]} ({number} steps)"


def grows_like(at, power):
    """Within a tenth."""
    (n, first), (m, last) = at[0], at[-1]
    return first > 0 and m > n and abs(last / first / (m / n) ** power - 1) < 0.1


def moved_bytes(row):
    """As the simulator counted them."""
    read, written = of_one_head(row, "hbm_read_bytes"), of_one_head(row, "hbm_written_bytes")
    return None if read is None or written is None or "counters" not in row else read + written or None


def moved(rows, _):
    """Beside them the least that any implementation moves."""
    series = of_variants(rows, moved_bytes)
    least = {length(row): of_one_head(row, "compulsory_bytes") for row in rows}
    if None not in least.values():
        series.append({"series": "least", "label": "must move", "points": sorted(map(list, least.items()))})
    return {"series": series, "guides": [], "gaps": []}


# ---- drawing ---------------------------------------------------------------------------------------------------------------


def limits_of(panels):
    """(lowest, highest) of all panels of a row, and the place of zero, if there is a zero: a step under the lowest."""
    values = [value for panel in panels for line in panel["series"] + panel["guides"] for _, value in line["points"]]
    positive = [value for value in values if value > 0] or [1]
    low, high = min(positive) / 1.25, max(positive) * 1.25
    zero = low / (high / low) ** 0.12 if 0 in values else None
    return low, high * (high / low) ** 0.04, zero  # so that the highest mark is whole


def draw_panel(axes, panel, limits, unit):
    low, high, zero = limits
    axes.set_yscale("log")
    axes.set_ylim(zero / 1.3 if zero else low, high)
    values = sorted({n for line in panel["series"] for n, _ in line["points"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else f"{n}" for n in values])
    axes.set_xlim(values[0] / 1.15, values[-1] * 1.15)
    write(axes, "N", (-8, -13), colour="dim", ha="right")
    for i, text in enumerate(panel["gaps"]):
        write(axes, text, (0, -25 - 11 * i), colour="dim")
    ticks(axes, low, high, zero, unit)
    ends = []
    for guide in panel["guides"]:
        x, y = zip(*guide["points"])
        axes.plot(x, y, color=ink("dim"), linewidth=0.9, linestyle=(0, (1, 2)))
        ends.append((x[-1], y[-1], guide["label"], "dim"))
    for line in panel["series"]:
        x, y = zip(*((n, value or zero) for n, value in line["points"]))
        if line["series"] == "least":
            axes.plot(x, y, color=ink("fg"), linewidth=2.4, solid_capstyle="round")
        else:
            axes.plot(x, y, gid=name_in_file("line", panel["title"], line["label"]), **line_look(line["series"]))
        ends.append((x[-1], y[-1], line["label"], "fg" if line["series"] == "least" else line["series"]))
    ends.sort(key=lambda end: -end[0])  # of two at one height the one that ends first is the upper, as the lines rise
    low, high = axes.get_ylim()
    texts = [label_lines(text) for _, _, text, _ in ends]
    wanted = [log10(y / low) * HEIGHT / log10(high / low) for (_, y, *_), text in zip(ends, texts) for _ in text]
    places = iter(spread(wanted, 11.5, 2, HEIGHT))  # of each line of each text
    for (x, y, _, colour), text in zip(ends, texts):
        middle = sum(next(places) for _ in text) / len(text)
        pointer(axes, "\n".join(text), (x, y), (PANEL + 11, middle), colour, relpos=(0, 0.5))


def label_lines(text):
    """As narrow as the space beside a panel, broken between names."""
    tied = re.sub("(?<!,) ", "\xa0", text)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(tied, 21, break_long_words=False, break_on_hyphens=False)]


def ticks(axes, low, high, zero, unit):
    if unit == "bytes":
        step = next(step for step in (1, 2, 5, 10, 20) if step >= (log2(high) - log2(low)) / 6)
        at = [2.0**k for k in range(ceil(log2(low)), floor(log2(high)) + 1) if k % step == 0]
        names = [size(value) for value in at]
    else:
        values = [factor * 10.0**k for k in range(floor(log10(low)), ceil(log10(high)) + 1) for factor in (1, 2, 5)]
        tens, every = ([value for value in some if low <= value <= high] for some in (values[::3], values))
        at = tens if len(tens) > 2 else every
        names = [f"{value:g} ms" for value in at]
    if zero:
        at, names = [zero, *at], ["0 B", *names]
    axes.set_yticks(at, names)
    axes.minorticks_off()
