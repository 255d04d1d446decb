"""Stage 08 beside torch's FlashAttention-2 and cuDNN, on chapter 08, the comparison and the front page: tensor_cores.json and peers16.json of
common/check_gpu.sh."""

import math

from .formatting import shown, table
from .saved import age, newest, of_each_gpu, of_today, section

LENGTHS = (1024, 4096, 16384)
CELLS = [(d, length, causal, "fp16") for d in (64, 128) for length in LENGTHS for causal in (False, True)]
PASSES = ("forward", "backward")


def key(row):
    p = row["problem"]
    return p["head_dim"], p["seq_q"], p["causal"], p["dtype"], row["pass"]


def saved(device):
    """(ours, peers): of each problem and pass the row of the last step, and {peer: row}."""
    ours = {key(row): row for row in newest(device, "tensor_cores.json", having="time")}  # steps stand in the order of their numbers
    peers = {}
    for row in newest(device, "peers16.json", having="time"):
        beside = ours.get(key(row), row)
        if all(row["problem"][size] == beside["problem"][size] for size in ("batch", "heads")):
            peers.setdefault(key(row), {})[row["variant"]] = row
    return ours, peers


def speed(row):
    return "–" if row is None else f"{row['tflops']:.0f}"


def ratio(mine, other):
    return mine["tflops"] / other["tflops"] if mine and other else None


def geometric_mean(ratios):
    known = [one for one in ratios if one is not None]
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}" if known else "–"


HEAD = ["d", "N", "mask", *(f"{which} {name}" for which in PASSES for name in ("here", "FA2", "here / FA2", "cuDNN"))]


def line(ours, peers, d, length, causal, dtype):
    cells = []
    for which in PASSES:
        at = (d, length, causal, dtype, which)
        mine, flash, cudnn = ours.get(at), peers.get(at, {}).get("flash"), peers.get(at, {}).get("cudnn")
        cells += [speed(mine), speed(flash), shown(ratio(mine, flash), ".2f"), speed(cudnn)]
    return [d, f"{length:,}", "causal" if causal else "no", *cells]


@of_each_gpu
def cells(device):
    """TFLOP/s of the twelve cells."""
    ours, peers = saved(device)
    if not ours:
        return None
    rows = [line(ours, peers, *cell) for cell in CELLS]
    means = [
        geometric_mean(ratio(ours.get((*cell, which)), peers.get((*cell, which), {}).get("flash")) for cell in CELLS) for which in PASSES
    ]
    rows.append(["", "", "geometric mean", "", "", f"**{means[0]}**", "", "", "", f"**{means[1]}**", ""])
    torch = ", ".join(sorted({row["torch"] for of_problem in peers.values() for row in of_problem.values()}))
    beside = f"; torch {torch} in the same run" if torch else ""
    used = [row for at, row in ours.items() if at[:4] in CELLS]
    return section(f"TFLOP/s, fp16, 16,384 tokens, H·d = 2,048{beside}", HEAD, rows, used)


@of_each_gpu
def summary(device):
    """The twelve cells in two sentences, for the front page; of GPUs that have all of them."""
    ours, peers = saved(device)
    at = {which: [(*cell, which) for cell in CELLS] for which in PASSES}
    if not all(one in ours and {"flash", "cudnn"} <= set(peers.get(one, {})) for which in PASSES for one in at[which]):
        return None
    ratios = {(which, name): [ratio(ours[one], peers[one][name]) for one in at[which]] for which in PASSES for name in ("flash", "cudnn")}
    mean = {of: geometric_mean(found) for of, found in ratios.items()}
    ends = {which: f"{min(ratios[which, 'flash']):.2f} to {max(ratios[which, 'flash']):.2f}" for which in PASSES}
    used = [ours[one] for which in PASSES for one in at[which]]
    return (
        f"On {len(CELLS)} larger problems in fp16 ({used[0]['device']['name']}; 16,384 tokens; N from {LENGTHS[0]:,} to {LENGTHS[-1]:,}, d of 64 and 128, "
        f"with and without a mask), stage 08 has **{mean['forward', 'flash']} times** the rate of torch's FlashAttention-2 in the forward pass "
        f"({ends['forward']}) and **{mean['backward', 'flash']} times** in the backward pass ({ends['backward']}; geometric means). It has "
        f"{mean['forward', 'cudnn']} and {mean['backward', 'cudnn']} times the rate of cuDNN, which uses instructions that Hopper alone has; the stages "
        f"do without, and so run on older GPUs too. {age(used)}"
    )


@of_each_gpu
def others(device):
    """The other problems: other widths, bf16, odd shapes."""
    ours, peers = saved(device)
    problems = sorted({at[:4] for at in ours} - set(CELLS), key=lambda p: (p[3], p[1], p[0], p[2]))
    rows = [[*line(ours, peers, *p)[:3], p[3], *line(ours, peers, *p)[3:]] for p in problems]
    title = f"{next(iter(ours.values()))['device']['name']}, TFLOP/s, about 16,384 tokens and H·d = 2,048" if ours else ""
    return f"{title}:\n\n{table([*HEAD[:3], 'dtype', *HEAD[3:]], rows)}" if rows else None


@of_each_gpu
def steps(device, which):
    """All steps of one pass at N = 4096: TFLOP/s, and how many times as fast as the step before."""
    columns = [(d, causal) for d in (64, 128) for causal in (False, True)]
    speeds = {}
    for row in newest(device, "tensor_cores.json", direction=which, having="time"):
        d, length, causal, dtype, _ = key(row)
        if of_today(row) and length == 4096 and dtype == "fp16" and (d, causal) in columns:
            speeds.setdefault(row["variant"], {})[d, causal] = row
    lines = []
    for before, (variant, at) in zip([{}, *speeds.values()], speeds.items()):
        gains = [ratio(at.get(column), before.get(column)) for column in columns]
        lines.append([f"`{variant}`", *(speed(at.get(c)) + (f" (× {gain:.2f})" if gain else "") for c, gain in zip(columns, gains))])
    used = [row for at in speeds.values() for row in at.values()]
    head = ["step", *(f"d = {d}{', causal' if causal else ''}" for d, causal in columns)]
    return section("{pass}, TFLOP/s at N = 4,096, fp16", head, lines, used)
