"""Stage 08 beside torch's FlashAttention-2 and cuDNN, on chapter 08, the comparison and the front page: tensor_cores.json and peers16.json
of common/check_gpu.sh."""

import math

from .formatting import shown
from .saved import age, newest, of_each_gpu, of_today, section
from .tensor_bounds import HOPPER

LENGTHS = (1024, 4096, 16384)
CELLS = [(d, length, causal, "fp16") for d in (64, 128) for length in LENGTHS for causal in (False, True)]
PEERS = ("flash", "cudnn")
PASSES = ("forward", "backward")
NONE = [None, None, None]


def key(row):
    p = row["problem"]
    return p["head_dim"], p["seq_q"], p["causal"], p["dtype"], row["pass"]


def saved(device):
    """{(d, N, mask, type, pass): [the last step's row, FlashAttention-2's, cuDNN's]} of the problems that the last step has a time of."""
    ours = {key(row): row for row in newest(device, "tensor_cores.json", having="time")}  # steps stand in the order of their numbers
    found = {at: [row, None, None] for at, row in ours.items()}
    for row in newest(device, "peers16.json", having="time"):
        beside = ours.get(key(row))
        if row["variant"] in PEERS and beside and all(row["problem"][n] == beside["problem"][n] for n in ("batch", "heads")):
            found[key(row)][PEERS.index(row["variant"]) + 1] = row
    return found


def speed(row):
    return shown(row and row["tflops"], ".0f")


def ratio(mine, other):
    return mine["tflops"] / other["tflops"] if mine and other else None


def geometric_mean(ratios):
    known = [one for one in ratios if one is not None]
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}" if known else "–"


HEAD = ["d", "N", "mask", *(f"{which} {name}" for which in PASSES for name in ("here", "FA2", "here / FA2", "cuDNN"))]


def line(rows, *problem):
    cells = []
    for which in PASSES:
        mine, flash, cudnn = rows.get((*problem, which), NONE)
        cells += [speed(mine), speed(flash), shown(ratio(mine, flash), ".2f"), speed(cudnn)]
    return [problem[0], f"{problem[1]:,}", "causal" if problem[2] else "no", *cells]


@of_each_gpu
def cells(device):
    """TFLOP/s of the twelve cells."""
    rows = saved(device)
    used = [row for at, (row, _, _) in rows.items() if at[:4] in CELLS]
    lines = [line(rows, *cell) for cell in CELLS]
    means = [geometric_mean(ratio(*rows.get((*cell, which), NONE)[:2]) for cell in CELLS) for which in PASSES]
    lines.append(["", "", "geometric mean", "", "", f"**{means[0]}**", "", "", "", f"**{means[1]}**", ""])
    torch = ", ".join(sorted({row["torch"] for of_problem in rows.values() for row in of_problem[1:] if row}))
    beside = f"; torch {torch} in the same run" if torch else ""
    return section(f"TFLOP/s, fp16, 16,384 tokens, H·d = 2,048{beside}", HEAD, lines, used) if used else None


@of_each_gpu
def summary(device):
    """The twelve cells in two sentences, for the front page; of GPUs that have all of them."""
    rows = saved(device)
    of_pass = {which: [rows.get((*cell, which), NONE) for cell in CELLS] for which in PASSES}
    if not all(row for which in PASSES for of_cell in of_pass[which] for row in of_cell):
        return None
    flash = {which: [ratio(mine, other) for mine, other, _ in of_pass[which]] for which in PASSES}
    cudnn = {which: [ratio(mine, other) for mine, _, other in of_pass[which]] for which in PASSES}
    ends = {which: f"{min(flash[which]):.2f} to {max(flash[which]):.2f}" for which in PASSES}
    used = [mine for which in PASSES for mine, _, _ in of_pass[which]]
    times = {which: f"**{geometric_mean(flash[which])} times**" for which in PASSES}
    where = f"{used[0]['device']['name']}; 16,384 tokens; N from {LENGTHS[0]:,} to {LENGTHS[-1]:,}, d of 64 and 128"
    return (
        f"On {len(CELLS)} larger problems in fp16 ({where}, with and without a mask), stage 08 has {times['forward']} the rate of torch's "
        f"FlashAttention-2 in the forward pass ({ends['forward']}) and {times['backward']} in the backward pass ({ends['backward']}; "
        f"geometric means). It has {geometric_mean(cudnn['forward'])} and {geometric_mean(cudnn['backward'])} times the rate of cuDNN, "
        f"which uses instructions that Hopper alone has; the stages do without, and so run on older GPUs too. {age(used)}"
    )


@of_each_gpu
def others(device):
    """The other problems: other widths, bf16, odd shapes."""
    rows = saved(device)
    problems = sorted({at[:4] for at in rows} - set(CELLS), key=lambda p: (p[3], p[1], p[0], p[2]))
    lines = [[*line(rows, *p)[:3], p[3], *line(rows, *p)[3:]] for p in problems]
    used = [row for at, (row, _, _) in rows.items() if at[:4] in problems]
    return section("TFLOP/s, about 16,384 tokens and H·d = 2,048", [*HEAD[:3], "dtype", *HEAD[3:]], lines, used)


@of_each_gpu
def steps(device, which, *names):
    """Steps of one pass at N = 4096: TFLOP/s, and how many times as fast as the step before. Those of chapter 08, or the named ones, if the
    last of these is saved."""
    columns = [(d, causal) for d in (64, 128) for causal in (False, True)]
    speeds = {}
    for row in newest(device, "tensor_cores.json", direction=which, having="time"):
        d, length, causal, dtype, _ = key(row)
        if of_today(row) and length == 4096 and dtype == "fp16" and (d, causal) in columns:
            speeds.setdefault(row["variant"], {})[d, causal] = row
    if names and names[-1] not in speeds:
        return None
    speeds = {name: at for name, at in speeds.items() if name in names or not names and name not in HOPPER}
    lines = []
    for before, (variant, at) in zip([{}, *speeds.values()], speeds.items()):
        gains = [ratio(at.get(column), before.get(column)) for column in columns]
        lines.append([f"`{variant}`", *(speed(at.get(c)) + (f" (× {gain:.2f})" if gain else "") for c, gain in zip(columns, gains))])
    used = [row for at in speeds.values() for row in at.values()]
    head = ["step", *(f"d = {d}{', causal' if causal else ''}" for d, causal in columns)]
    return section("{pass}, TFLOP/s at N = 4,096, fp16", head, lines, used)
