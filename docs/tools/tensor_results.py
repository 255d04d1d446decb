"""Stage 08 beside torch's FlashAttention-2 and cuDNN: docs/results/DEVICE/tensor_cores.json and peers16.json of common/check_gpu.sh."""

import math

from .formatting import table
from .saved import NOTHING_SAVED, age, gpus, of_this_step, origin, rows_of

LENGTHS = (1024, 4096, 16384)
CELLS = [(d, length, causal, "fp16") for d in (64, 128) for length in LENGTHS for causal in (False, True)]


def key(row):
    p = row["problem"]
    return p["head_dim"], p["seq_q"], p["causal"], p["dtype"], row["pass"]


def saved(device):
    """(ours, peers): of each problem and pass the row of the last step, and {peer: row}; only those that have a time."""
    ours, peers = {}, {}
    for row in rows_of(device, "tensor_cores.json"):
        if "time" in row:
            ours[key(row)] = row  # steps stand in the order of their numbers
    for row in rows_of(device, "peers16.json"):
        beside = ours.get(key(row), row)
        if "time" in row and all(row["problem"][size] == beside["problem"][size] for size in ("batch", "heads")):
            peers.setdefault(key(row), {})[row["variant"]] = row
    return ours, peers


def speed(row):
    return "–" if row is None else f"{row['tflops']:.0f}"


def beside(ours, peers, at):
    """[ours, FlashAttention-2, ours / FlashAttention-2, cuDNN] as text, and the ratio."""
    mine, flash, cudnn = ours.get(at), peers.get(at, {}).get("flash"), peers.get(at, {}).get("cudnn")
    ratio = mine["tflops"] / flash["tflops"] if mine and flash else None
    return [speed(mine), speed(flash), "–" if ratio is None else f"{ratio:.2f}", speed(cudnn)], ratio


def geometric_mean(ratios):
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}" if known else "–"


HEAD = [f"{which} {name}" for which in ("forward", "backward") for name in ("here", "FA2", "here / FA2", "cuDNN")]


def both_passes(ours, peers, *problem):
    cells, ratios = [], []
    for which in ("forward", "backward"):
        texts, ratio = beside(ours, peers, (*problem, which))
        cells += texts
        ratios.append(ratio)
    return cells, ratios


def cells():
    """TFLOP/s of the twelve cells."""
    parts = []
    for device in gpus():
        ours, peers = saved(device)
        rows, ratios = [], []
        for d, length, causal, dtype in CELLS:
            texts, two = both_passes(ours, peers, d, length, causal, dtype)
            rows.append([d, f"{length:,}", "causal" if causal else "no", *texts])
            ratios.append(two)
        if not ours:
            continue
        means = [geometric_mean(ratio) for ratio in zip(*ratios)]
        rows.append(["", "", "geometric mean", "", "", f"**{means[0]}**", "", "", "", f"**{means[1]}**", ""])
        used = [row for at, row in ours.items() if at[:4] in CELLS]
        torch = {row["torch"] for rows_of_problem in peers.values() for row in rows_of_problem.values()}
        name = next(iter(ours.values()))["device"]["name"]
        beside_torch = f"; torch {', '.join(sorted(torch))} in the same run" if torch else ""
        parts.append(
            f"{name}, TFLOP/s, fp16, 16,384 tokens, H·d = 2,048{beside_torch}:\n\n{table(['d', 'N', 'mask', *HEAD], rows)}\n\n{origin(used)}"
        )
    return "\n\n".join(parts) or NOTHING_SAVED


def summary():
    """The twelve cells in two sentences, for the front page; of GPUs that have all of them."""
    parts = []
    for device in gpus():
        ours, peers = saved(device)
        ratios, used = {}, []
        for which in ("forward", "backward"):
            found = [(ours.get((*cell, which)), peers.get((*cell, which), {})) for cell in CELLS]
            if all(mine and {"flash", "cudnn"} <= set(torch) for mine, torch in found):
                ratios[which] = {name: [mine["tflops"] / torch[name]["tflops"] for mine, torch in found] for name in ("flash", "cudnn")}
                used += [mine for mine, _ in found]
        if len(ratios) < 2:
            continue
        mean = {(which, name): geometric_mean(of[name]) for which, of in ratios.items() for name in of}
        ends = {which: f"{min(of['flash']):.2f} to {max(of['flash']):.2f}" for which, of in ratios.items()}
        parts.append(
            f"On {len(CELLS)} larger problems in fp16 ({used[0]['device']['name']}; 16,384 tokens; N from {LENGTHS[0]:,} to {LENGTHS[-1]:,}, d of 64 and 128, with "
            f"and without a mask), stage 08 has **{mean['forward', 'flash']} times** the rate of torch's FlashAttention-2 in the forward pass ({ends['forward']}) "
            f"and **{mean['backward', 'flash']} times** in the backward pass ({ends['backward']}; geometric means). It has {mean['forward', 'cudnn']} and "
            f"{mean['backward', 'cudnn']} times the rate of cuDNN, which uses instructions that Hopper alone has; the stages do without, and so run on older "
            f"GPUs too. {age(used)}"
        )
    return "\n\n".join(parts) or NOTHING_SAVED


def others():
    """The other problems: other widths, bf16, odd shapes."""
    parts = []
    for device in gpus():
        ours, peers = saved(device)
        problems = sorted({at[:4] for at in ours} - set(CELLS), key=lambda p: (p[3], p[1], p[0], p[2]))
        rows = [[d, f"{n:,}", "causal" if causal else "no", dtype, *both_passes(ours, peers, d, n, causal, dtype)[0]] for d, n, causal, dtype in problems]
        if rows:
            name = next(iter(ours.values()))["device"]["name"]
            parts.append(f"{name}, TFLOP/s, about 16,384 tokens and H·d = 2,048:\n\n{table(['d', 'N', 'mask', 'dtype', *HEAD], rows)}")
    return "\n\n".join(parts) or NOTHING_SAVED


def steps(which):
    """All steps of one pass at N = 4096: TFLOP/s, and how many times as fast as the step before."""
    columns = [(d, causal) for d in (64, 128) for causal in (False, True)]
    parts = []
    for device in gpus():
        speeds = {}
        for row in rows_of(device, "tensor_cores.json"):
            d, length, causal, dtype, direction = key(row)
            if "time" in row and of_this_step(row) and direction == which and length == 4096 and dtype == "fp16" and (d, causal) in columns:
                speeds.setdefault(row["variant"], {})[d, causal] = row
        rows, before = [], {}
        for variant, at in speeds.items():
            cells_of_step = []
            for column in columns:
                row, last = at.get(column), before.get(column)
                gain = f" (× {row['tflops'] / last['tflops']:.2f})" if row and last else ""
                cells_of_step.append(speed(row) + gain)
            rows.append([f"`{variant}`", *cells_of_step])
            before = at
        if rows:
            used = [row for at in speeds.values() for row in at.values()]
            head = ["step", *(f"d = {d}{', causal' if causal else ''}" for d, causal in columns)]
            parts.append(f"{used[0]['device']['name']}, {which}, TFLOP/s at N = 4,096, fp16:\n\n{table(head, rows)}\n\n{origin(used)}")
    return "\n\n".join(parts) or NOTHING_SAVED
