"""Horizontal bars, one for each step: the ladder of stages 06 to 08 from times, the counts of all stages from the simulator."""

from math import log2

from rows.row import is_good, latest, number
from rows.text import three_digits

from .choose import PASSES, Picture, Unfit, by_file, device_of, is_plain, median, most_steps, name_of, series_of, tflops
from .style import NORMAL, SMALL, WIDTH, add_panel, head, ink, name_in_file, new_figure, write

STAGES = {"forward": ("06", "08"), "backward": ("07", "08")}
COUNTS = {
    "sectors": "sectors of 32 bytes",
    "barriers": "barriers",
    "warp_operations": "warp operations",
    "bank_conflicts": "bank conflicts",
}
LEFT, TOP = 10, 66


class Ladder:
    """Steps of stages 06 to 08, on the problem on which the most were timed; of several the one without a mask, then with N nearest to 4,096,
    as in chapter 08, then with the most work, then with the smaller d."""

    def select(self, rows):
        rows = latest([row for row in rows if is_plain(row) and median(row) and series_of(row) in STAGES[row["pass"]]])
        rows.sort(key=by_file)
        if not rows:
            raise Unfit("no step of stages 06 to 08 was timed")
        size, chosen = most_steps(rows, lambda of: not of.causal, lambda of: -abs(log2(of.n / 4096)), lambda of: of.work, lambda of: -of.d)
        if len(chosen) < 2:
            raise Unfit("no two steps of stages 06 to 08 were timed on the same problem")
        panels = []
        for which in PASSES:
            steps = []
            for row in (row for row in chosen if row["pass"] == which):
                step = {"series": series_of(row), "label": f"{name_of(row)}, {row['problem']['dtype']}", "idea": row.get("idea", "")}
                steps.append({**step, "tflops": tflops(row), "gain": tflops(row) / steps[-1]["tflops"] if steps else None})
            panels += [{"title": which, "steps": steps}] if steps else []
        note = f"{device_of(chosen)}, {size}; medians with a cold L2. ×: gain over the step before."
        return Picture("The ladder: TFLOP/s of each step of stages 06 to 08", note, {"panels": panels}, chosen)

    def draw(self, picture):
        slot, between = 33, 30
        panels = picture.content["panels"]
        figure = new_figure(TOP + sum(len(panel["steps"]) * slot + between for panel in panels) - 14, picture)
        steps = [step for panel in panels for step in panel["steps"]]
        most = max(step["tflops"] for step in steps) * 1.25  # room for the number behind the longest bar
        ideas = 12 + 5.4 * max(len(step["label"]) for step in steps)  # points, where the second column starts
        top = TOP
        for panel in panels:
            height = len(panel["steps"]) * slot
            axes = add_panel(figure, LEFT, top, WIDTH - 2 * LEFT, height, panel["title"], grid=None)
            axes.set_axis_off()
            axes.set_xlim(0, most)
            axes.set_ylim(height, 0)
            for i, step in enumerate(panel["steps"]):
                y, value, gain = i * slot, step["tflops"], step["gain"]
                axes.text(0, y + 10, step["label"], fontsize=SMALL, weight="bold", color=ink("fg"), va="center")
                axes.text(most * ideas / (WIDTH - 2 * LEFT), y + 10, step["idea"], fontsize=SMALL, color=ink("dim"), va="center")
                axes.barh(y + 22, value, height=11, color=ink(step["series"]), gid=name_in_file("bar", panel["title"], step["label"]))
                write(axes, f"{three_digits(value)} TFLOP/s" + (f", ×{gain:.2f}" if gain else ""), (value, y + 22), (5, 0), va="center")
            top += height + between
        return figure


class Counts:
    """What the simulator counted, on the problem on which the most steps were; of several the largest, then the one without a mask. A panel
    for each count, and the same steps in all of them."""

    def select(self, rows):
        rows = [row for row in rows if is_plain(row) and is_good(row) and all(number(row, "counters", key) is not None for key in COUNTS)]
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
