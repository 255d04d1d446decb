"""The roofline: where each step sits under the roofs of its GPU.

Steps whose rows have a profile (common/profile_gpu.py): bytes that crossed the border to HBM. Of each type and pass the problem with the most
such steps; of several the larger. The roofs of an H200 are those of h200.py. Of other GPUs the peaks follow from the rows'
percent_of_peak, and the slope of HBM is left out."""

from math import floor, log2, log10

from rows import grouped, latest

from . import h200
from .choose import Picture, Unfit, by_file, by_type, device_of, median, name_of, series_of, size_of, tflops
from .labels import spread
from .style import NORMAL, SMALL, WIDTH, add_panel, ink, marker, name_in_file, new_figure, pointer, write

UNITS = {"fp32": "fp32", "fp16": "16-bit tensor cores", "bf16": "16-bit tensor cores"}
LEFT, TOP, HEIGHT, BELOW = 40, 66, 400, 44
PANEL = WIDTH - LEFT - 14


def hbm_bytes(row):
    """Of all kernels of the pass; None without a profile."""
    kernels = row.get("profile")
    if not isinstance(kernels, list) or not kernels:
        return None
    moved = [kernel.get(key) for kernel in kernels for key in ("hbm_read_bytes", "hbm_written_bytes")]
    return None if None in moved or not sum(moved) else sum(moved)


def profiled(rows):
    """The rows that the picture and the table of docs/roofline.md show, forward first."""
    rows = latest([row for row in rows if row.verdict == "ok" and median(row) and hbm_bytes(row) and not row.is_peer])
    chosen = []
    for _, members in by_type(rows):
        for of_pass in grouped(members, lambda row: row["pass"]).values():
            groups = grouped(of_pass, size_of)
            chosen += groups[max(groups, key=lambda size: (len(groups[size]), size.work))]
    return sorted(chosen, key=lambda row: (row["pass"] != "forward", *by_file(row)))


def intensity(row):
    """FLOP for each byte between the chip and HBM."""
    return row["flops"] / hbm_bytes(row)


def roofs(rows):
    """({unit: peak in TFLOP/s}, TB/s of HBM or None) of the rows' GPU."""
    if "H200" in device_of(rows):
        peaks = {"fp32": h200.FP32_FLOPS / 1e12, "16-bit tensor cores": h200.BF16_FLOPS / 1e12}
        units = {UNITS[row["problem"]["dtype"]] for row in rows}
        return {unit: peak for unit, peak in peaks.items() if unit in units}, h200.HBM_BYTES_PER_SECOND / 1e12
    known = [row for row in rows if row.get("percent_of_peak")]
    return {UNITS[row["problem"]["dtype"]]: 100 * tflops(row) / row["percent_of_peak"] for row in known}, None


class Roofline:
    def select(self, rows):
        chosen = profiled(rows)
        if not chosen:
            raise Unfit("no row has a profile with bytes of HBM (common/profile_gpu.py)")
        peaks, bandwidth = roofs(chosen)
        marks, notes = [], []
        steps = grouped(chosen, lambda row: (row["stage"], row["pass"])).values()
        named = [row for of_stage in steps for row in (of_stage[0], max(of_stage, key=tflops))]  # all names would cover each other
        for row in chosen:
            mark = {"series": series_of(row), "label": name_of(row), "pass": row["pass"], "x": intensity(row), "y": tflops(row)}
            marks.append(mark | {"named": row in named})
            notes.append(f"{'fp32' if row['problem']['dtype'] == 'fp32' else '08'}: {size_of(row)}")
        notes.append("Named: of each stage and pass the first step, and the fastest.")
        notes += [] if bandwidth else ["HBM's slope is not known for this GPU."]
        content = {"marks": marks, "peaks": peaks, "bandwidth": bandwidth, "notes": list(dict.fromkeys(notes))}
        note = f"{device_of(chosen)}. Filled: forward, hollow: backward. Useful FLOPs only, HBM bytes as the profiler counts them."
        return Picture("Roofline: where the steps sit, and what is above them", f"{note} Both axes logarithmic.", content, chosen)

    def draw(self, picture):
        """Labels stand beside their marks, those of forward passes at the right, so far apart that all can be read."""
        marks, peaks, bandwidth, notes = (picture.content[key] for key in ("marks", "peaks", "bandwidth", "notes"))
        figure = new_figure(TOP + HEIGHT + BELOW + 13 * len(notes), picture)
        axes = add_panel(figure, LEFT, TOP, PANEL, HEIGHT, grid="both")
        ridges = [peak / bandwidth for peak in peaks.values()] if bandwidth else []
        at_x, at_y = [mark["x"] for mark in marks], [mark["y"] for mark in marks]
        x0, x1 = set_scale(axes, "x", min(at_x) / 1.2, max(at_x + ridges) * 1.2)
        y0, y1 = set_scale(axes, "y", min(at_y) / 1.2, max([*peaks.values(), *at_y]))
        axes.set_xlabel("\n".join(["FLOP for each byte that crosses the border to HBM", *notes]), fontsize=SMALL, color=ink("dim"))
        write(axes, "TFLOP/s", (0, HEIGHT + 6), colour="dim")

        def place(x, y):
            """In points of the panel."""
            return PANEL * log10(x / x0) / log10(x1 / x0), HEIGHT * log10(y / y0) / log10(y1 / y0)

        draw_roofs(axes, peaks, bandwidth, (x0, x1, y0), place)
        everything = [place(mark["x"], mark["y"]) for mark in marks]
        for mark in marks:
            inside = ink("bg" if mark["pass"] == "backward" else mark["series"])
            look = {"marker": marker(mark["series"]), "markersize": 7, "markerfacecolor": inside, "markeredgewidth": 1.6}
            name = name_in_file("mark", mark["pass"], mark["label"])
            axes.plot([mark["x"]], [mark["y"]], color=ink(mark["series"]), linestyle="none", gid=name, zorder=4, **look)
        for direction, side in (("forward", 1), ("backward", -1)):
            named = [mark for mark in marks if mark["pass"] == direction and mark["named"]]
            places = [place(mark["x"], mark["y"]) for mark in named]
            for mark, (x, _), y in zip(named, places, spread([y for _, y in places], 12, 8, HEIGHT - 8)):
                x += side * max(
                    side * (other - x) for other, high in everything if other == x or (abs(high - y) < 10 and abs(other - x) < 60)
                )
                ha, relpos = ("left", (0, 0.5)) if side > 0 else ("right", (1, 0.5))
                pointer(axes, mark["label"], (mark["x"], mark["y"]), (x + 14 * side, y), mark["series"], relpos, ha=ha, zorder=5)
        return figure


def set_scale(axes, axis, low, high):
    """ "x" or "y": all powers of two from one that is not above `low` to one above `high`. Gives the two."""
    at = [2.0**k for k in range(floor(log2(low)), floor(log2(high)) + 2)]
    scale = {"scale": "log", "ticks": at, "ticklabels": [f"{value:g}" for value in at], "lim": (at[0], at[-1])}
    axes.set(**{axis + name: value for name, value in scale.items()})
    axes.minorticks_off()
    return at[0], at[-1]


def draw_roofs(axes, peaks, bandwidth, limits, place):
    x0, x1, y0 = limits
    for unit, peak in peaks.items():
        axes.plot([max(x0, peak / bandwidth) if bandwidth else x0, x1], [peak, peak], color=ink("fg"), linewidth=1.8)
        right, y = place(x1, peak)
        write(axes, f"{unit}, {peak:.0f} TFLOP/s", (right, y + 4), size=NORMAL, ha="right", va="bottom")
    if bandwidth:
        start, ridge = max(x0, y0 / bandwidth), max(peaks.values()) / bandwidth
        axes.plot([start, ridge], [start * bandwidth, ridge * bandwidth], color=ink("fg"), linewidth=1.8)
        (xa, ya), (xb, yb) = place(start, start * bandwidth), place(ridge, ridge * bandwidth)
        write(axes, f"HBM, {bandwidth:g} TB/s", ((xa + xb) / 2 - 6, (ya + yb) / 2 + 4), size=NORMAL, ha="right", va="bottom")
