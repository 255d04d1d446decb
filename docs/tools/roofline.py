"""The roofline: of attention as counted in the introduction, and where each saved stage sits, as a table and as
docs/img/roofline_stages.svg, made from docs/results/nvidia_h200."""

from math import cos, hypot, log2, pi, sin

from . import h200
from .fused_tables import BORROWED
from .formatting import problem_text, size, table
from .saved import origin, rows_of
from .svg import Picture

DEVICE = "nvidia_h200"


def introduction():
    """Section 4 of the introduction."""
    n, d = 4096, 64
    rows = []
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16", 2, h200.BF16_FLOPS)]:
        steps = [
            ("S = QKᵀ/√d", 2 * n * n * d, width * (2 * n * d + n * n)),
            ("P = softmax(S)", 3 * n * n, 2 * width * n * n),
            ("O = PV", 2 * n * n * d, width * (n * n + 2 * n * d)),
        ]
        fused = ("**fused**", sum(s[1] for s in steps), width * 4 * n * d)
        bound = 0.0
        for name, work, moved in steps + [fused]:
            # The softmax does not run on tensor cores, whatever its numbers' width.
            rate = h200.FP32_FLOPS if "softmax" in name else peak
            compute, memory = work / rate * 1e6, moved / h200.HBM_BYTES_PER_SECOND * 1e6
            if name != fused[0]:
                bound += max(compute, memory)
            limit = "memory" if memory > compute else "arithmetic"
            rows.append([dtype, name, f"{work / 1e9:.2f} G", size(moved), f"{work / moved:.1f}", f"{compute:.1f}", f"{memory:.1f}", limit])
        rows.insert(-1, [dtype, "three kernels", "", "", "", "", f"{bound:.1f} in all", ""])
    return table(["", "step", "FLOPs", "bytes", "FLOP/B", "arithmetic, µs", "memory, µs", "bound by"], rows)


def points():
    """[(number, row, bytes that crossed the border to HBM, FLOP per byte)] of the saved rows that have a profile, forward first."""
    found = []
    rows = [row for row in rows_of(DEVICE, "compare.json") if (row["stage"], row["pass"]) not in BORROWED]
    rows = [row for row in rows if row.get("profile") and "tflops" in row and row.get("check", {}).get("passed", False)]
    for row in sorted(rows, key=lambda row: (row["pass"] != "forward", row["stage"])):
        moved = sum(kernel["hbm_read_bytes"] + kernel["hbm_written_bytes"] for kernel in row["profile"])
        found.append((len(found) + 1, row, moved, row["flops"] / moved))
    return found


def roof(intensity):
    """(R.1)  In FLOP/s."""
    return min(h200.FP32_FLOPS, intensity * h200.HBM_BYTES_PER_SECOND)


UNITS = {"hbm_percent": "HBM", "l1_percent": "L1 and shared memory", "sm_percent": "issuing instructions"}


def busiest(row):
    """The kernel that takes longest, and the unit that is nearest to its peak while it runs."""
    kernel = max(row["profile"], key=lambda kernel: kernel["time_us"])
    unit = max(UNITS, key=lambda name: kernel.get(name, 0))
    share = kernel["time_us"] / sum(each["time_us"] for each in row["profile"])
    percent = kernel.get(unit, 0)
    limit = UNITS[unit] if percent >= 60 else "none near its peak: waiting"
    return [f"`{kernel['kernel']}`, {100 * share:.0f} %", f"{UNITS[unit]}, {percent:.0f} %", limit]


def stages_table():
    found = points()
    if not found:
        return "*No profile saved yet.*"
    lines = []
    for number, row, moved, intensity in found:
        lines.append(
            [number, row["pass"], row["stage"], f"`{row['variant']}`", size(moved), f"{intensity:.1f}", f"{roof(intensity) / 1e12:.0f}"]
            + [f"{row['tflops']:.1f}", f"{100 * row['tflops'] * 1e12 / roof(intensity):.0f}"]
            + busiest(row)
        )
    head = ["no.", "pass", "stage", "variant", "HBM bytes", "FLOP/B", "roof, TFLOP/s", "measured", "% of roof", "longest kernel", "busiest unit in it", "what holds it"]
    rows = [row for _, row, _, _ in found]
    problems = ", ".join(dict.fromkeys(problem_text(row["problem"]) for row in rows))
    return f"{rows[0]['device']['name']}, {problems}:\n\n{table(head, lines)}\n\n{origin(rows)}"


LEFT, TOP, WIDTH, HEIGHT = 70, 60, 760, 360
X_FROM, X_TO, Y_FROM, Y_TO = 1, 1024, 0.5, 128  # FLOP/B, TFLOP/s


def place(intensity, tflops):
    x = LEFT + WIDTH * log2(intensity / X_FROM) / log2(X_TO / X_FROM)
    y = TOP + HEIGHT - HEIGHT * log2(tflops / Y_FROM) / log2(Y_TO / Y_FROM)
    return x, y


def axes(p):
    value = X_FROM
    while value <= X_TO:
        x, _ = place(value, Y_FROM)
        p.line(x, TOP, x, TOP + HEIGHT, "thin")
        p.label(x, TOP + HEIGHT + 20, f"{value:g}", 12, kind="dim")
        value *= 2
    value = Y_FROM
    while value <= Y_TO:
        _, y = place(X_FROM, value)
        p.line(LEFT, y, LEFT + WIDTH, y, "thin")
        p.label(LEFT - 10, y + 4, f"{value:g}", 12, "end", "dim")
        value *= 2
    p.label(LEFT + WIDTH / 2, TOP + HEIGHT + 44, "FLOP per byte that crosses the border to HBM", 13, kind="dim")
    p.label(LEFT - 50, TOP - 14, "TFLOP/s", 13, "start", "dim")


def roofline_stages():
    p = Picture(880, 510, "Roofline of an H200 in fp32, with the stages")
    p.label(450, 28, f"{h200.NAME}, fp32: where the stages sit", 16, bold=True)
    axes(p)
    ridge = h200.FP32_FLOPS / h200.HBM_BYTES_PER_SECOND
    peak = h200.FP32_FLOPS / 1e12
    foot = Y_FROM * 1e12 / h200.HBM_BYTES_PER_SECOND
    start = max(foot, X_FROM)
    p.line(*place(start, start * h200.HBM_BYTES_PER_SECOND / 1e12), *place(ridge, peak), "strong")
    p.line(*place(ridge, peak), *place(X_TO, peak), "strong")
    p.label(place(200, peak)[0], place(200, peak)[1] - 10, f"fp32 peak, {peak:.0f} TFLOP/s", 13)
    p.label(place(4, 14)[0], place(4, 14)[1], f"HBM, {h200.HBM_BYTES_PER_SECOND / 1e12:.1f} TB/s", 13, "start")
    marks = [(number, row, *place(min(max(intensity, X_FROM), X_TO), max(row["tflops"], Y_FROM))) for number, row, _, intensity in points()]
    taken = [(x, y) for _, _, x, y in marks]
    around = [(cos(k * pi / 8), sin(k * pi / 8)) for k in (2, 14, 6, 10, 0, 8, 4, 12, 1, 15, 7, 9, 3, 13, 5, 11)]
    for number, row, x, y in marks:
        # The number goes to the first free place around the mark, with a line to it.
        free = ((x + r * u, y + r * v) for r in range(20, 120, 10) for u, v in around)
        x2, y2 = next((at for at in free if all(hypot(at[0] - u, at[1] - v) > 17 for u, v in taken)), (x, y))
        taken.append((x2, y2))
        p.line(x, y, x2, y2, "line")
        p.circle(x2, y2, 9, "bg")
        p.label(x2, y2 + 5, str(number), 13, bold=True)
    for _, row, x, y in marks:
        if row["pass"] == "forward":
            p.polygon([(x - 7, y), (x, y - 7), (x + 7, y), (x, y + 7)], "c1")
        else:
            p.rect(x - 6, y - 6, 12, 12, "c2")
    p.label(450, 496, "blue: forward, orange: backward; numbers as in the table. Useful FLOPs only: visible pairs.", 13, kind="dim")
    return p


PICTURES = [roofline_stages]
