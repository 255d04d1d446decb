"""Groups of bars over N, as the FlashAttention papers show speed: TFLOP/s, a panel for each width and mask.

Which problems: plain ones; of these the family (batch and heads fixed, or B·N and H·d) with the most cells (d, mask, N), and at most two
widths, those with the most cells. In 16 bits stage 08's best step and the peers, in fp32 stages 04 to 07, plain attention of stage 01 and
the peers. The best step is the one that is fastest at the largest N of a panel. forward+backward is 3.5 times the forward FLOPs over the sum
of both medians, a stage that has no backward pass with the stage that has it."""

from dataclasses import dataclass

from rows import grouped, latest

from . import choose
from .choose import Picture, Unfit, length, lengths, median, series_of, slice_of
from .style import NORMAL, SMALL, WIDTH, add_panel, ink, name_in_file, new_figure, write

PARTNERS = {"04": "05", "06": "07"}  # the stage with the backward pass
WORDS = {("forward",): "forward pass", ("backward",): "backward pass", ("forward", "backward"): "forward and backward pass together"}
LEFT, RIGHT, BETWEEN, TOP, HEIGHT, BELOW = 34, 8, 40, 94, 130, 50
FEW = 18  # bars of a panel that find room in half of the width


@dataclass
class Bars:
    """Such a plot, of one pass or of both together."""

    passes: tuple
    fp32: bool

    def is_about(self, row):
        stages = ("01", "04", "05", "06", "07") if self.fp32 else ("08",)
        return choose.is_plain(row) and row["pass"] in self.passes and (row.is_peer or series_of(row) in stages)

    def select(self, rows):
        rows = [row for row in rows if row["problem"]["dtype"] == "fp32"] if self.fp32 else choose.sixteen_bit(rows)
        rows = [row for row in rows if self.is_about(row)]
        timed, words = latest([row for row in rows if median(row)]), WORDS[self.passes]
        if {row["pass"] for row in timed if not row.is_peer} != set(self.passes):
            raise Unfit(f"no {words} of a stage was timed in {'fp32' if self.fp32 else 'fp16 or bf16'}")
        timed, family = choose.best_family(timed, cells)
        of_width = grouped(timed, lambda row: slice_of(row)[0])
        widths = sorted(of_width, key=lambda d: (-cells(of_width[d]), d != 64, d != 128, d))[:2]
        untimed = latest([row for row in rows if not median(row) and family.has(row)])
        used = [row for row in timed if slice_of(row)[0] in widths]
        slices = sorted(set(map(slice_of, used)))
        panels = [self.panel(choose.slice_text(*one), choose.of_slice(used, one), choose.of_slice(untimed, one)) for one in slices]
        panels = [panel for panel in panels if panel["series"]]
        if not panels:
            raise Unfit(f"no problem has times of the {words}")
        note = f"{choose.device_of(used)}, {timed[0]['problem']['dtype']}, {family}; medians with a cold L2, of each stage the best step."
        title = f"{words.capitalize()}: TFLOP/s against the length N, {'fp32' if self.fp32 else 'tensor cores'}"
        return Picture(title, note, {"panels": panels}, used)

    def panel(self, title, rows, untimed):
        """{"lengths", "series": [{"series", "label", "values": TFLOP/s or why there is none, or None, for each length}]}: the lengths that a
        stage was run on."""
        shown = lengths([row for row in rows + untimed if not row.is_peer])
        of_pass = [choose.best_variants([row for row in rows if row["pass"] == which]) for which in self.passes]
        why = {(length(row), series_of(row), row["pass"]): row.absence for row in reversed(untimed)}
        series = []
        for name in {**of_pass[0], **of_pass[-1]}:
            names = [name, PARTNERS.get(name, name)][: len(self.passes)]
            parts = [best.get(one, []) for best, one in zip(of_pass, names)]
            values = []
            for n in shown:
                gaps = (why[(n, *part)] for part in zip(names, self.passes) if (n, *part) in why)
                values.append(speed([row for part in parts for row in part if length(row) == n], len(parts)) or next(gaps, None))
            if any(isinstance(value, float) for value in values):
                series.append({"series": name, "label": label(names, parts), "values": values})
        return {"title": title, "lengths": shown, "series": series}

    def draw(self, picture):
        panels = picture.content["panels"]
        most = max((len(panel["series"]) + 1) * len(panel["lengths"]) for panel in panels)
        columns = 2 if most <= FEW and len(panels) > 1 else 1
        width = (WIDTH - RIGHT - LEFT - (columns - 1) * BETWEEN) / columns
        rows = -(-len(panels) // columns)
        figure = new_figure(TOP + rows * (HEIGHT + BELOW) - 22, picture)
        names = key(figure, panels)
        highest = max(max(speeds(panel)) for panel in panels)
        for i, panel in enumerate(panels):
            left, top = LEFT + i % columns * (width + BETWEEN), TOP + i // columns * (HEIGHT + BELOW)
            steps = [line["label"] for line in panel["series"] if line["label"] != names[line["series"]]]  # that the key does not say
            axes = add_panel(figure, left, top, width, HEIGHT, ": ".join([panel["title"], *steps]))
            draw_panel(axes, panel, list(names), width, highest)
        return figure


def cells(rows):
    return len({(slice_of(row), length(row)) for row in rows})


def speed(rows, passes):
    """Of all passes at one length; None if one is missing."""
    if len(rows) != passes:
        return None
    return choose.tflops(rows[0]) if passes == 1 else sum(row["flops"] for row in rows) / sum(map(median, rows)) / 1e9


def label(names, parts):
    if names[0].startswith("peer"):
        return choose.name_of(parts[0][0])
    if len(set(names)) == 2:
        return " + ".join(names)
    return f"{names[0]} {' + '.join(dict.fromkeys(part[0]['variant'] for part in parts))}"


# ---- drawing ---------------------------------------------------------------------------------------------------------------


def key(figure, panels):
    """The names in the order of the bars, in one line over all panels. {series: label}"""
    names = {}
    for line in (line for panel in panels for line in panel["series"]):
        known = names.setdefault(line["series"], line["label"])
        if known != line["label"]:
            names[line["series"]] = line["series"]  # not the same step in all panels: their titles say which
    height, x = figure.get_figheight() * 72, 10
    for series, text in names.items():
        figure.text(x / WIDTH, 1 - 56 / height, "■", fontsize=NORMAL + 2, color=ink(series), va="center")
        figure.text((x + 13) / WIDTH, 1 - 56 / height, text, fontsize=SMALL, color=ink("fg"), va="center")
        x += 13 + 4.9 * len(text) + 14
    return names


def speeds(panel):
    return [value for line in panel["series"] for value in line["values"] if isinstance(value, float)]


def draw_panel(axes, panel, names, width, highest):
    present = [name for name in names if any(line["series"] == name for line in panel["series"])]
    slots = len(present) + 1  # of a group, one of them empty
    bar = width / (len(panel["lengths"]) * slots)  # points
    upright = any(bar < 5.5 * len(number(value)) for value in speeds(panel))
    for line in panel["series"]:
        for group, (n, value) in enumerate(zip(panel["lengths"], line["values"])):
            x, place = group * slots + present.index(line["series"]), {"ha": "center", "va": "bottom"}
            if isinstance(value, float):
                axes.bar(x, value, width=0.86, color=ink(line["series"]), gid=name_in_file("bar", panel["title"], line["label"], n))
                write(axes, number(value), (x, value), (0, 2.5), rotation=90 if upright else 0, **place)
            elif value:  # why there is no bar
                write(axes, value, (x, 0), (0, 2.5), colour="dim", rotation=90, **place)
    groups = range(len(panel["lengths"]))
    axes.set_xlim(-1, len(groups) * slots - 1)
    axes.set_ylim(0, highest * 1.15)
    axes.set_xticks([group * slots + (len(present) - 1) / 2 for group in groups], [f"N = {n:,}" for n in panel["lengths"]])
    axes.tick_params(axis="x", length=0)


def number(speed):
    return f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"
