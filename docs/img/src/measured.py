"""Bars of chapters 01 to 05 and of the ladder: what was measured on an H200 next to the bounds, and the gradients of the row by hand. Of the
comparison: stage 08 over its rivals. Of the front page: the stages next to them."""

from math import exp, log
from statistics import geometric_mean

from common.compare import h200
from common.compare.peer_table import PEERS
from docs.tools.formatting import number
from docs.tools.saved import H200, newest
from docs.tools.steps import STEPS
from docs.tools.svg import Picture
from docs.tools.tensor_results import PASSES, RIVALS, front_rates, times_as_fast

SCORES = [1, 2, 4, 0]  # the running example
RATE = h200.FP32_FLOPS / 8  # at most, of products with two loads per multiply-add: (1.17)


def pairs(row):
    p = row["problem"]
    return p["batch"] * p["heads"] * p["seq_q"] * p["seq_k"]


def kernels(stage, *passes):
    """(name, row, [kernels]) of the profiled steps of a stage."""
    rows = newest(H200, "profile.jsonl", "compare.jsonl", stage=stage, having="profile")
    return [(row["variant"], row, row["profile"]) for row in rows if row["pass"] in passes]


def named(kernels):
    """(name, kernel) of a profile. The kernel of chapter 01 that runs twice computes dV first, then dK."""
    gradients = iter(("dV", "dK"))
    for kernel in kernels:
        name = kernel["kernel"]
        yield (f"{name}, {next(gradients)}" if name == "key_gradient_kernel" else name), kernel


RESULTS = {"scores": "s", "softmax": "p", "output": "o"}  # of the forward kernels
WORDS = {"scores": "S, scores", "softmax": "P, softmax", "output": "O, weighted sum"}


def kernels_01():
    """Each kernel of chapter 01, and the least time that (1.17) allows it."""
    p = Picture(720, "The time of each kernel of chapter 01 next to its bound: the row-wise kernels are farthest from theirs")
    y, left, scale = 12, 206, 80
    for of_pass in ("forward", "backward"):
        _, row, found = kernels("01_naive", of_pass)[0]
        p.label(12, y + 16, of_pass, anchor="start", bold=True)
        y += 30
        for name, kernel in named(found):
            rowwise = {"softmax_kernel": 2, "dS_kernel": 3}.get(name)
            bound = rowwise * 4 * pairs(row) / h200.HBM_BYTES_PER_SECOND if rowwise else 2 * pairs(row) * row["problem"]["head_dim"] / RATE
            ms, bound = kernel["time_us"] / 1e3, 1e3 * bound
            result = name.partition(", ")[2] or name.removesuffix("_kernel")
            p.note(left - 10, y + 18, WORDS.get(result, result), anchor="end")
            p.rect(left, y, scale * ms, 24, RESULTS.get(result, result.lower()))
            p.line(left + scale * bound, y - 3, left + scale * bound, y + 27, "strong")
            p.label(left + scale * ms + 8, y + 18, f"{ms:.2f} ms, {ms / bound:.1f} × bound", anchor="start")
            y += 35
        y += 8
    p.caption(
        "Bars: measured, the kernels of the stage, whose softmax gives a row to one thread. "
        "Strong lines: bounds, by an eighth of the peak or by HBM for row-wise kernels."
    )
    return p


def kernels_02():
    """Where the forward pass spends its time in chapters 01 and 02: a bar per step, its three kernels one after another."""
    p = Picture(
        720,
        "With a warp per row the softmax takes a seventeenth of the time, and the products take what they took",
        "ms of the three kernels",
    )
    stages, left, scale = ("01_naive", "02_safe_softmax"), 180, 74
    steps = [(f"{stage[:2]} {name}", found) for stage in stages for name, _, found in kernels(stage, "forward")]
    for at, (name, found) in enumerate(steps):
        x, y = left, 66 + 60 * at
        p.label(left - 12, y + 22, name, anchor="end")
        for kernel in found:
            wide = scale * kernel["time_us"] / 1e3
            what = kernel["kernel"].removesuffix("_kernel")
            p.rect(x, y, wide, 32, RESULTS[what])
            p.label(
                x + wide / 2, y - 5 if wide < 80 else y + 22, f"{WORDS[what][0]} {kernel['time_us'] / 1e3:.2f}"
            )  # above one that is narrow
            x += wide
    p.caption("S: the kernel for the scores, P: the softmax, O: the weighted sum; as the profiler sees them.")
    return p


def row_05():
    """The row by hand in the backward pass: P, P o dP, and dS, for dO = (1, 0, 0, 0)."""
    p = Picture(720, "Of the row 1, 2, 4, 0: the weights P, the gradient dP, and dS, whose four elements sum to zero")
    weights = [exp(s - max(SCORES)) for s in SCORES]
    weights = [w / sum(weights) for w in weights]
    d_p = [1.0, 0.0, 0.0, 0.0]
    mean = sum(w * x for w, x in zip(weights, d_p))
    d_s = [w * (x - mean) for w, x in zip(weights, d_p)]
    base, wide = 170, 46
    for left, name, values, high in [(10, "P", weights, 100), (246, "dP", d_p, 100), (482, "dS × 20", d_s, 2000)]:
        p.label(left + 112, 28, name, bold=True)
        p.line(left, base, left + 228, base)
        for key, x in enumerate(values):
            at, height = left + 6 + 56 * key, max(abs(x) * high, 1.5)
            if x:
                p.rect(at, base - height if x >= 0 else base, wide, height, "p" if name == "P" else "ds")
            text = f"{x:.4g}" if x in (0, 1) else f"{x:.4f}".replace("0.", ".", 1)
            p.label(at + wide / 2, base - height - 7 if x >= 0 else base + height + 18, text, 16)
            p.note(at + wide / 2, 290, f"key {key}", size=16)
    p.caption(f"D = {mean:.4f} is the mean of dP under the weights P. Key 0 gains, the others lose in proportion to their weights.")
    return p


def gains():
    """Each step of the ladder: the gain that was estimated, the ratio of the bounds, and the gain that was measured."""
    p = Picture(720, "The gain of each fp32 step over the step that it changes: estimated, by the bounds, and measured")
    left, top, scale = 236, 70, 194
    lines = (1, 1.5, 2, 3, 5, 10)

    def at(gain):
        return left + scale * log(gain)

    def diamond(x, y):
        p.polygon([(x - 8, y), (x, y - 8), (x + 8, y), (x, y + 8)], "c2")

    grid = len(p.parts)  # where the lines are drawn once their length is known
    p.note(at(3), 24, "times as fast as the step that it changes")
    for gain in lines:
        p.note(at(gain), top - 20, f"{gain:g}")
    y = top
    for direction in ("forward", "backward"):
        rows = {row.label: row["time"]["median_ms"] for row in newest(H200, "compare.jsonl", pass_=direction, having="time")}
        p.label(12, y + 16, direction, anchor="start", bold=True)
        y += 26
        for number_of_step, step in list(enumerate(STEPS[direction], 1))[1:]:
            if not {step.over, step.name} <= rows.keys():
                continue  # not measured yet
            gain = rows[step.over] / rows[step.name]
            p.label(36, y + 18, str(number_of_step), anchor="end")
            p.label(48, y + 18, f"{step.stage[:2]} {step.variant}", anchor="start")
            p.rect(min(at(gain), left), y + 3, max(abs(at(gain) - left), 1), 19, "c1")
            if gain < 0.99:
                p.label(at(max(1, step.bounds or 1, step.estimate or 1)) + 10, y + 18, f"{gain:.2f}", 16, "start")
            if step.bounds:
                p.line(at(step.bounds), y, at(step.bounds), y + 25, "strong")
            if step.estimate:
                diamond(at(step.estimate), y + 12)
            y += 29
        y += 8
    axis = len(p.parts)
    for gain in lines:
        p.line(at(gain), top - 14, at(gain), y - 4, "line" if gain == 1 else "thin")
    p.parts = p.parts[:grid] + p.parts[axis:] + p.parts[grid:axis]
    for x, name in ((30, "measured gain"), (240, "ratio of the bounds"), (500, "estimate")):
        p.label(x + 34, y + 30, name, anchor="start")
    p.rect(30, y + 16, 24, 17, "c1")
    p.line(258, y + 12, 258, y + 36, "strong")
    diamond(518, y + 24)
    return p


def rivals():
    """Stage 08 over its rivals on the twelve cells: a mark per problem, a line at the geometric mean."""
    p = Picture(720, "How many times as fast as cuDNN, FlashAttention-3 and FlashAttention-2 the steps of stage 08 are, on twelve problems")
    left, scale, y = 274, 907, 66

    def at(ratio):
        return left + scale * log(ratio)

    p.note(at(1.3), 22, "times as fast as the library")
    for ratio in (0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6):
        p.line(at(ratio), y - 14, at(ratio), y + 342, "line" if ratio == 1 else "thin")
        p.note(at(ratio), y - 20, f"{ratio:g}")
    for steps, last, peer in RIVALS:
        name = f"{steps} steps over {PEERS[peer].name}"
        p.rect(8, y + 1, 11.8 * len(name), 26, "bg")
        p.label(12, y + 19, name, 18, "start", bold=True)
        for direction in PASSES:
            ratios = times_as_fast(last, peer, direction)
            mean = geometric_mean(ratio for _, ratio in ratios)
            y += 36
            p.label(26, y + 18, direction, 18, "start")
            p.label(166, y + 18, f"{mean:.2f}", 18, "end", bold=True)
            for d, ratio in ratios:
                p.rect(at(ratio) - 6, y + (-1 if d == 64 else 13), 12, 12, "c1" if d == 64 else "c2")
            p.line(at(mean), y - 4, at(mean), y + 28, "strong")
        y += 46
    for x, kind, name in ((40, "c1", "d = 64"), (170, "c2", "d = 128")):
        p.rect(x, y + 5, 12, 12, kind)
        p.label(x + 22, y + 17, name, anchor="start")
    p.line(326, y - 2, 326, y + 24, "strong")
    p.label(338, y + 17, "geometric mean; right of 1: ours is faster", anchor="start")
    p.caption("fp16 on an H200; 16,384 tokens, H·d = 2,048; N\u00a0=\u00a01,024, 4,096 and 16,384; causal or not. Logarithmic.")
    return p


def stages():
    """The rates of the front page: the stages, then the libraries. One scale, and type that is large enough for a phone."""
    found, peers = front_rates()
    ours = [(f"{'/'.join(dict.fromkeys((line[0][:2], line[1][:2])))} {line[3]}", rows) for line, rows in found]
    theirs = sorted(((PEERS[name].name, rows) for name, rows in peers.items()), key=lambda one: one[1][0].tflops)
    p = Picture(560, "TFLOP/s of the stages on an H200, forward and backward, next to FlashAttention-2, cuDNN and FlashAttention-3")
    left, y = 240, 64
    scale = (p.width - left - 62) / max(row.tflops for _, rows in ours + theirs for row in rows)
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
                p.rect(left, y, scale * row.tflops, 20, kind)
                p.label(left + scale * row.tflops + 8, y + 16, number(row.tflops), 17, "start")
                y += 21
            y += 12
        y += 6
    return p


PICTURES = [kernels_01, kernels_02, row_05, gains, rivals, stages]
