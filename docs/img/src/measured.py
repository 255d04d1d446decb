"""Bars of chapters 01 to 05 and of the ladder: what was measured on an H200 next to the bounds, and the gradients of the row by hand. Of the
comparison: stage 08 over its rivals. Of the front page: the stages next to them."""

from math import exp, log
from statistics import geometric_mean

from common.compare import h200
from docs.tools.formatting import number
from docs.tools.saved import H200, fastest, newest
from docs.tools.steps import STEPS
from docs.tools.svg import Picture
from docs.tools.tensor_results import CELLS, LAST, ON_HOPPER, PASSES, PEERS, front_rates
from docs.tools.tensor_results import saved as saved_cells

SCORES = [1, 2, 4, 0]  # the running example
RATE = h200.FP32_FLOPS / 8  # at most, of products with two loads per multiply-add: (1.17)


def pairs(row):
    p = row["problem"]
    return p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"]


def kernels(stage, *passes):
    """(name, row, [kernels]) of the profiled steps of a stage."""
    rows = newest(H200, "compare.jsonl", stage=stage, having="profile")
    return [(row["variant"], row, row["profile"]) for row in rows if row["pass"] in passes]


def named(kernels):
    """(name, kernel) of a profile. The kernel of chapter 01 that runs twice computes dV first, then dK."""
    gradients = iter(("dV", "dK"))
    for kernel in kernels:
        name = kernel["kernel"]
        yield (f"{name}, {next(gradients)}" if name == "key_gradient_kernel" else name), kernel


def kernels_01():
    """Each kernel of chapter 01, and the least time that (1.17) allows it."""
    p = Picture(820, 410, "The time of each kernel of chapter 01 next to its bound: the row-wise kernels are farthest from theirs")
    y, left, scale = 20, 190, 90
    for of_pass in ("forward", "backward"):
        _, row, found = kernels("01_naive", of_pass)[0]
        p.label(20, y + 14, of_pass, 15, "start", bold=True)
        y += 30
        for name, kernel in named(found):
            rowwise = {"softmax_kernel": 2, "dS_kernel": 3}.get(name)
            bound = rowwise * 4 * pairs(row) / h200.HBM_BYTES_PER_SECOND if rowwise else 2 * pairs(row) * row["problem"]["head_dim"] / RATE
            ms, bound = kernel["time_us"] / 1e3, 1e3 * bound
            p.note(left - 10, y + 15, name, anchor="end")
            p.rect(left, y, scale * ms, 22, "c2" if rowwise else "c1")
            p.line(left + scale * bound, y - 3, left + scale * bound, y + 25, "strong")
            p.label(left + scale * ms + 8, y + 15, f"{ms:.2f} ms, {ms / bound:.1f} times its bound", 13, "start")
            y += 33
        y += 8
    p.note(
        410,
        y + 12,
        "Bars are measured times (to scale), strong lines the bounds: an eighth of the peak for products, HBM for row-wise kernels.",
    )
    return p


def stacked(title, *stages):
    """A bar per step: its three kernels one after another."""
    steps = [(f"{stage[:2]} {name}", found) for stage in stages for name, _, found in kernels(stage, "forward")]
    p = Picture(820, 64 + 54 * len(steps), title)
    left, scale = 200, 78
    for at, (name, found) in enumerate(steps):
        x, y = left, 20 + 54 * at
        p.label(left - 12, y + 21, name, 14, "end")
        for kernel, kind in zip(found, ("c1", "c2", "c3")):
            wide = scale * kernel["time_us"] / 1e3
            p.rect(x, y, wide, 32, kind)
            what = kernel["kernel"].removesuffix("_kernel")
            narrow = wide < 80  # its label is above it
            p.label(x + wide / 2, y - 3 if narrow else y + 21, f"{what} {kernel['time_us'] / 1e3:.2f}", 13)
            x += wide
    p.note(410, 54 * len(steps) + 40, "The three kernels of the forward pass one after another, in ms, as the profiler sees them.")
    return p


def kernels_02():
    """Where the forward pass spends its time in chapters 01 and 02."""
    return stacked(
        "With a warp per row the softmax takes a seventeenth of the time, and the products take what they took",
        "01_naive",
        "02_safe_softmax",
    )


def bounds_04():
    """The best kernel of chapters 01 to 03 and the kernel of chapter 04: the bounds (1.17) and (4.8), and the times."""
    p = Picture(820, 280, "Bounds and times of plain attention and of FlashAttention-1, with 96 heads and with 8")
    clock, y, left, scale = h200.FP32_FLOPS / (h200.SMS * 256), 24, 180, 26
    for file in ("compare.jsonl", "few_heads.jsonl"):
        rows = newest(H200, file, direction="forward", having="time")
        plain = fastest(row for row in rows if row["stage"] < "04")
        fused = fastest(row for row in rows if row.label == "04_fa1_forward/tiled")
        problem = plain["problem"]
        heads, n, d = problem["batch"] * problem["heads"], problem["seq_q"], problem["head_dim"]
        waves = -(-heads // h200.SMS)
        bounds = [4 * pairs(plain) * d / RATE + 8 * pairs(plain) / h200.HBM_BYTES_PER_SECOND, waves * n * (n + 1) / 2 * 9 * d / 256 / clock]
        p.label(20, y + 4, f"{heads} heads, N = {n:,}", 15, "start", bold=True)
        for row, bound in zip((plain, fused), bounds):
            ms = row["time"]["median_ms"]
            y += 30
            p.note(left - 10, y + 15, "plain attention" if row is plain else "FlashAttention-1", anchor="end")
            p.rect(left, y, scale * ms, 22, "c2" if row is plain else "c3")
            p.line(left + scale * 1e3 * bound, y - 3, left + scale * 1e3 * bound, y + 25, "strong")
            missed = f"{number(ms)} ms, {ms / (1e3 * bound):.1f} × the bound {number(1e3 * bound)}"
            p.label(left + scale * ms + 8, y + 15, missed, 13, "start")
        y += 58
    p.note(410, y + 8, "Bars are measured times, the strong lines the bounds (1.17) and (4.8).")
    return p


def row_05():
    """The row by hand in the backward pass: P, P o dP, and dS, for dO = (1, 0, 0, 0)."""
    p = Picture(820, 312, "Of the row 1, 2, 4, 0: the weights P, the gradient dP, and dS, whose four elements sum to zero")
    weights = [exp(s - max(SCORES)) for s in SCORES]
    weights = [w / sum(weights) for w in weights]
    d_p = [1.0, 0.0, 0.0, 0.0]
    mean = sum(w * x for w, x in zip(weights, d_p))
    d_s = [w * (x - mean) for w, x in zip(weights, d_p)]
    base, wide = 160, 38
    for left, name, values, high in [(30, "P", weights, 100), (300, "dP", d_p, 100), (570, "dS, 20 times as tall", d_s, 2000)]:
        p.label(left + 110, 28, name, 15, bold=True)
        p.line(left, base, left + 220, base)
        for key, x in enumerate(values):
            at, height = left + 8 + 54 * key, max(abs(x) * high, 1.5)
            if x:
                p.rect(at, base - height if x >= 0 else base, wide, height, "c1" if x >= 0 else "c2")
            p.label(at + wide / 2, base - height - 7 if x >= 0 else base + height + 17, f"{x:.4g}" if x in (0, 1) else f"{x:.4f}", 13)
            p.note(at + wide / 2, 272, f"key {key}")
    p.note(410, 298, f"D = {mean:.4f} is the mean of dP under the weights P. Key 0 gains, the others lose in proportion to their weights.")
    return p


def gains():
    """Each step of the ladder: the gain that was estimated, the ratio of the bounds, and the gain that was measured."""
    p = Picture(820, 560, "The gain of each fp32 step over the step that it changes: estimated, by the bounds, and measured")
    left, top, bottom, scale = 250, 66, 504, 225

    def at(gain):
        return left + scale * log(gain)

    def diamond(x, y):
        p.polygon([(x - 7, y), (x, y - 7), (x + 7, y), (x, y + 7)], "c2")

    for gain in (1, 1.5, 2, 3, 5, 10):
        p.line(at(gain), top - 14, at(gain), bottom, "line" if gain == 1 else "thin")
        p.label(at(gain), top - 20, f"{gain:g}", 13, kind="dim")
    y = top
    for direction in ("forward", "backward"):
        rows = {
            row.label: row["time"]["median_ms"] for row in newest(H200, "compare.jsonl", "plain.jsonl", direction=direction, having="time")
        }
        p.label(20, y + 15, direction, 15, "start", bold=True)
        y += 24
        for number_of_step, step in list(enumerate(STEPS[direction], 1))[1:]:
            if not {step.over, step.name} <= rows.keys():
                continue  # not measured yet
            gain = rows[step.over] / rows[step.name]
            p.label(56, y + 15, str(number_of_step), 13, "end")
            p.label(70, y + 15, f"{step.stage[:2]} {step.variant}", 13, "start")
            p.rect(min(at(gain), left), y + 3, max(abs(at(gain) - left), 1), 16, "c1")
            if gain < 0.99:
                p.label(at(max(1, step.bounds or 1, step.estimate or 1)) + 10, y + 15, f"{gain:.2f}", 12, "start")
            if step.bounds:
                p.line(at(step.bounds), y, at(step.bounds), y + 22, "strong")
            if step.estimate:
                diamond(at(step.estimate), y + 11)
            y += 25
        y += 8
    for x, name in ((100, "measured gain"), (300, "ratio of the bounds"), (500, "estimate")):
        p.label(x + 30, 536, name, 13, "start")
    p.rect(100, 524, 22, 16, "c1")
    p.line(315, 521, 315, 543, "strong")
    diamond(515, 532)
    p.note(at(3), 22, "times as fast as the step that it changes (logarithmic)")
    return p


def rivals():
    """Stage 08 over its rivals on the twelve cells: a mark per problem, a line at the geometric mean."""
    p = Picture(
        820, 400, "How many times as fast as cuDNN, FlashAttention-3 and FlashAttention-2 the steps of stage 08 are, on twelve problems"
    )
    left, scale, y = 445, 1000, 66
    groups = [("Hopper steps over cuDNN", ON_HOPPER, "cudnn"), ("Hopper steps over FlashAttention-3", ON_HOPPER, "flash3")]
    groups += [("portable steps over FlashAttention-2", LAST, "flash")]

    def at(ratio):
        return left + scale * log(ratio)

    for ratio in (0.9, 1, 1.1, 1.2, 1.3, 1.4):
        p.line(at(ratio), y - 14, at(ratio), 330, "line" if ratio == 1 else "thin")
        p.label(at(ratio), y - 20, f"{ratio:g}", 13, kind="dim")
    for name, steps, peer in groups:
        p.label(20, y + 15, name, 14, "start", bold=True)
        found = saved_cells(steps)
        for direction in PASSES:
            cells = [(cell[0], found[(*cell, direction)]) for cell in CELLS]
            ratios = [(d, rows[0]["tflops"] / rows[PEERS.index(peer) + 1]["tflops"]) for d, rows in cells]
            mean = geometric_mean(ratio for _, ratio in ratios)
            y += 26
            p.label(130, y + 15, direction, 13, "end")
            p.label(200, y + 15, f"{mean:.2f}", 13, "end", bold=True)
            for d, ratio in ratios:
                p.rect(at(ratio) - 4, y + (3 if d == 64 else 12), 8, 8, "c1" if d == 64 else "c2")
            p.line(at(mean), y, at(mean), y + 22, "strong")
        y += 38
    for x, kind, name in ((120, "c1", "a problem with d = 64"), (330, "c2", "a problem with d = 128")):
        p.rect(x, 352, 8, 8, kind)
        p.label(x + 18, 361, name, 13, "start")
    p.line(550, 346, 550, 368, "strong")
    p.label(562, 361, "geometric mean", 13, "start")
    p.note(at(1.12), 22, "times as fast (logarithmic); to the right of 1 our step is faster")
    p.note(410, 388, "fp16, 16,384 tokens, H·d = 2,048; N = 1,024, 4,096 and 16,384; causal or not. NVIDIA H200.")
    return p


def stages():
    """The rates of the front page: the stages, then the libraries. One scale, and type that is large enough for a phone."""
    found, peers = front_rates()
    ours = [(f"{'/'.join(dict.fromkeys((line[0][:2], line[1][:2])))} {line[3]}", rows) for line, rows in found]
    names = {"flash": "FlashAttention-2", "cudnn": "cuDNN", "flash3": "FlashAttention-3"}
    theirs = sorted(((names[name], rows) for name, rows in peers.items()), key=lambda one: one[1][0]["tflops"])
    p = Picture(560, 592, "TFLOP/s of the stages on an H200, forward and backward, next to FlashAttention-2, cuDNN and FlashAttention-3")
    left, y = 240, 64
    scale = (p.width - left - 62) / max(row["tflops"] for _, rows in ours + theirs for row in rows)
    p.label(16, 32, "TFLOP/s on an H200", 20, "start", bold=True)
    for x, kind, which in ((left + 60, "c1", "forward"), (left + 185, "c2", "backward")):
        p.rect(x, 18, 16, 16, kind)
        p.label(x + 24, 32, which, 18, "start")
    for title, group in (("this repository; 01 to 07 in fp32, 08 in fp16", ours), ("libraries, in fp16", theirs)):
        p.label(16, y + 16, title, 18, "start", kind="dim")
        y += 30
        for name, rows in group:
            p.label(16, y + 27, name, 18, "start")
            for row, kind in zip(rows, ("c1", "c2")):
                p.rect(left, y, scale * row["tflops"], 20, kind)
                p.label(left + scale * row["tflops"] + 8, y + 16, number(row["tflops"]), 17, "start")
                y += 21
            y += 12
        y += 6
    return p


PICTURES = [kernels_01, kernels_02, bounds_04, row_05, gains, rivals, stages]
