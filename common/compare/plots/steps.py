"""Horizontal bars, one per step: the ladder of all stages from times, the counts of all stages from the simulator."""

from math import log2

from rows import grouped, latest, three_digits

from .choose import PASSES, Picture, Unfit, by_file, device_of, is_plain, median, most_steps, name_of, series_of, size_of, tflops
from .style import NORMAL, WIDTH, add_panel, head, ink, name_in_file, new_figure, write

STAGES = {"forward": ("01", "02", "03", "04", "06", "08"), "backward": ("01", "05", "07", "08")}
EARLY = ("01", "02", "03", "04", "05")  # one bar each
COUNTS = {
    "sectors": "sectors of 32 bytes",
    "barriers": "barriers",
    "warp_operations": "warp operations",
    "bank_conflicts": "bank conflicts",
}
LEFT, TOP = 10, 66


class Ladder:
    """The steps of all stages, on the problem on which the most were timed; of several the one with N nearest to 4,096, as in chapter 08, then
    with a mask, as on the front page, then with the most work, then with the larger d. A page narrower than WIDTH leaves its type large enough
    to read."""

    LINES = {"flash": "FA2", "cudnn": "cuDNN"}  # peers

    def select(self, rows):
        rows = latest([row for row in rows if is_plain(row) and median(row)])
        steps = sorted((row for row in rows if series_of(row) in STAGES[row["pass"]]), key=by_file)
        if all(series_of(row) in EARLY for row in steps):
            raise Unfit("no step of stages 06 to 08 was timed")
        late = [row for row in steps if series_of(row) not in EARLY]
        size, chosen = most_steps(late, lambda of: -abs(log2(of.n / 4096)), lambda of: of.causal, lambda of: of.work, lambda of: of.d)
        chosen = [row for row in steps if size_of(row) == size and (series_of(row) in EARLY or row in chosen)]
        if len(chosen) < 2:
            raise Unfit("no two steps were timed on the same problem")
        types = {row["problem"]["dtype"] for row in chosen}
        peers = [
            row
            for row in rows
            if row.is_peer and row["variant"] in self.LINES and size_of(row) == size and row["problem"]["dtype"] in types
        ]
        panels = []
        for which in PASSES:
            groups = grouped([row for row in chosen if row["pass"] == which], group_of)
            groups = {name: [[short_name(row), tflops(row)] for row in members] for name, members in groups.items()}
            lines = [[series_of(row), self.LINES[row["variant"]], tflops(row)] for row in peers if row["pass"] == which]
            panels += [{"title": which, "groups": groups, "lines": sorted(lines, key=lambda line: line[2])}] if groups else []
        note = f"{device_of(chosen)}, {size}; cold L2."
        remark = f"Dashed: FlashAttention-2 and cuDNN of torch {peers[0].get('torch', '')}." if peers else ""
        return Picture("The ladder: TFLOP/s of every step", note, {"panels": panels}, chosen + peers, remark)

    def draw(self, picture):
        slot, width, names = 12, 400, 84  # points; the names of a panel stand beside its bars
        panels = picture.content["panels"]
        columns = [[line for name, steps in panel["groups"].items() for line in ([name, None], *steps)] for panel in panels]
        bars, height = width / 2 - names - LEFT, slot * max(map(len, columns))
        most = (
            max(value or 0 for column in [*columns, *(panel["lines"] for panel in panels)] for *_, value in column) * 1.35
        )  # with its number
        figure = new_figure(TOP + head(picture) + height + LEFT, picture, width)
        for k, (panel, column) in enumerate(zip(panels, columns)):
            axes = add_panel(figure, LEFT + names + k * width / 2, TOP + head(picture), bars, height, grid=None)
            axes.set_axis_off()
            axes.set_xlim(0, most)
            axes.set_ylim(height / slot, 0)
            write(axes, panel["title"], (-names, height + 7), size=NORMAL, weight="bold")
            for y, (name, value) in enumerate(column):
                if value is None:
                    group = name
                    write(axes, group, (0, y + 0.5), (-names, 0), va="center", weight="bold")
                    continue
                write(axes, name, (0, y + 0.5), (-names + 6, 0), va="center")
                axes.barh(
                    y + 0.5,
                    value,
                    height=0.7,
                    color=ink((name if name[0] == "0" else group)[:2]),
                    gid=name_in_file("bar", panel["title"], group, name),
                )
                ground = {"facecolor": ink("bg"), "edgecolor": "none", "pad": 0.5}  # in front of the dashed lines
                write(axes, three_digits(value), (value, y + 0.5), (3, 0), va="center", bbox=ground)
            first = next((y for y, (name, value) in enumerate(column) if value is None and not name.endswith("fp32")), 0)
            for i, (series, name, value) in enumerate(panel["lines"]):
                axes.plot([value, value], [first + 1, len(column)], color=ink(series), linewidth=1, linestyle=(0, (3, 2)))
                look = {"ha": "right"} if i == 0 else {"ha": "left"}
                write(axes, f"{name} {three_digits(value)}", (value, first + 0.5), (-12 if i else 5, 0), colour=series, va="center", **look)
        return figure


def short_name(row):
    return " ".join(row["stage"].split("_")[:2]) if series_of(row) in EARLY else row["variant"]


def group_of(row):
    """Steps under one heading: "08 Hopper, fp16"."""
    stage = "to 05" if series_of(row) in EARLY else series_of(row)
    return f"{stage}{' Hopper' * ('hopper' in row.get('kernel', ''))}, {row['problem']['dtype']}"


class Counts:
    """What the simulator counted, on the problem on which the most steps were; of several the largest, then the one without a mask. A panel
    for each count, and the same steps in all of them."""

    def select(self, rows):
        rows = [row for row in rows if is_plain(row) and row.is_good and all(key in row.get("counters", {}) for key in COUNTS)]
        if not rows:
            raise Unfit("no row has counters of the CPU simulator")
        size, chosen = most_steps(latest(rows), lambda of: of.work, lambda of: not of.causal)
        shown = {key: title for key, title in COUNTS.items() if any(row["counters"][key] for row in chosen)} or COUNTS
        steps = []
        for row in sorted(chosen, key=lambda row: row["pass"] == "backward"):
            counts = {key: row["counters"][key] for key in shown}
            steps.append({"series": series_of(row), "label": name_of(row), "pass": row["pass"], "counts": counts})
        note = f"{size}; stages 01 to 07 in fp32, 08 in 16 bits. Exact counts of the CPU simulator, not times."
        zero = ", ".join(title for key, title in COUNTS.items() if key not in shown)
        remark = f"No step has {zero} here." if zero else ""
        return Picture("What the steps do on one problem, counted", note, {"steps": steps, "counts": shown}, chosen, remark)

    def draw(self, picture):
        steps, counts = picture.content["steps"], picture.content["counts"]
        slot, names, gap = 15, 104, 14
        lines = []  # steps, and the pass before its first step
        for step in steps:
            lines += [step] if step["pass"] in lines else [step["pass"], step]
        first, height = TOP + head(picture), len(lines) * slot
        figure = new_figure(first + height + 14, picture)
        width = (WIDTH - names - 2 * LEFT - (len(counts) - 1) * gap) / len(counts)
        for k, (key, title) in enumerate(counts.items()):
            axes = add_panel(figure, LEFT + names + k * (width + gap), first, width, height, title, grid=None)
            axes.set_axis_off()
            axes.set_ylim(len(lines), 0)
            highest = max(step["counts"][key] for step in steps) or 1
            axes.set_xlim(0, highest * width / (width - 46))  # room for the longest number behind the longest bar
            for y, step in enumerate(lines):
                look = {"size": NORMAL, "weight": "bold"} if step in PASSES else {}
                if not look:
                    value, name = step["counts"][key], name_in_file("bar", step["pass"], step["label"], key)
                    axes.barh(y + 0.5, value, height=0.62, color=ink(step["series"]), gid=name)
                    write(axes, f"{value:,}", (value, y + 0.5), (4, 0), colour="fg" if value else "dim", va="center")
                if k == 0:
                    write(axes, step if look else step["label"], (0, y + 0.5), (-names, 0), va="center", **look)
        return figure
