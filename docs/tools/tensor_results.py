"""Stage 08 beside torch's FlashAttention-2 and cuDNN, on its chapters, the comparison and the front page: sweep16.json and tensor_cores.json of
common/check_gpu.sh, in which they were timed in turns, and all steps in tensor_steps.json."""

import math

from plots import h200

from .formatting import shown
from .ladder import entries
from .saved import age, newest, of_each_gpu, of_today, section
from .tensor_bounds import HOPPER

SM_FLOPS = 4096  # of tensor cores, 16-bit, in a clock
LENGTHS = (1024, 4096, 16384)
CELLS = [(d, length, causal, "fp16") for d in (64, 128) for length in LENGTHS for causal in (False, True)]
PEERS = ("flash", "cudnn")
PASSES = ("forward", "backward")
LAST = {"forward": "tuned", "backward": "staggered"}  # of the steps that run on every GPU since Ampere
ON_HOPPER = {"forward": "scheduled", "backward": "resident"}
NARROW = {"backward": "warpgroups"}  # in place of it up to d = 64, where it is faster
NONE = [None, None, None]


def key(row):
    p = row["problem"]
    return p["head_dim"], p["seq_q"], p["causal"], p["dtype"], row["pass"]


def names_of(steps):
    """`steps`, in words."""
    narrow = NARROW.get(steps, ON_HOPPER[steps])
    return f"`{ON_HOPPER[steps]}`" if narrow == ON_HOPPER[steps] else f"`{narrow}` up to d = 64, `{ON_HOPPER[steps]}` beyond"


def is_last(row, last):
    """Is it of the last step in this pass?"""
    of_pass = row["pass"]
    narrow = last is ON_HOPPER and row["problem"]["head_dim"] <= 64
    return row["variant"] == (NARROW.get(of_pass, last[of_pass]) if narrow else last.get(of_pass))


def saved(device, last=LAST):
    """{(d, N, mask, type, pass): [the last step's row, FlashAttention-2's, cuDNN's]} of the problems that the last step has a time of."""
    rows = newest(device, "sweep16.json", "tensor_cores.json", having="time")
    ours = {key(row): row for row in rows if is_last(row, last)}
    found = {at: [row, None, None] for at, row in ours.items()}
    for row in rows:
        beside = ours.get(key(row))
        if (
            row["stage"] == "peer"
            and row["variant"] in PEERS
            and beside
            and all(row["problem"][n] == beside["problem"][n] for n in ("batch", "heads"))
        ):
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
    return section(f"TFLOP/s, fp16, 16,384 tokens, H·d = 2,048{in_turns(rows)}", HEAD, lines, used) if used else None


def in_turns(rows):
    torch = ", ".join(sorted({row["torch"] for of_problem in rows.values() for row in of_problem[1:] if row}))
    return f"; torch {torch} in the same run, in turns" if torch else ""


@of_each_gpu
def hopper_cells(device, which):
    """The twelve cells of a step for Hopper, in both types."""
    rows = saved(device, ON_HOPPER)
    found = {at: {dtype: rows.get((*at[:3], dtype, which), NONE) for dtype in ("fp16", "bf16")} for at in CELLS}
    used = [row for of_cell in found.values() for row, _, _ in of_cell.values() if row]
    lines = []
    for (d, length, causal, _), of_types in found.items():
        cells = [d, f"{length:,}", "causal" if causal else "no"]
        for mine, flash, cudnn in of_types.values():
            cells += [speed(mine), speed(cudnn), shown(ratio(mine, cudnn), ".2f"), speed(flash)]
        lines.append(cells)
    means = [geometric_mean(ratio(of_types[dtype][0], of_types[dtype][2]) for of_types in found.values()) for dtype in ("fp16", "bf16")]
    lines.append(["", "", "geometric mean", "", "", f"**{means[0]}**", "", "", "", f"**{means[1]}**", ""])
    head = ["d", "N", "mask", *(f"{dtype} {name}" for dtype in ("fp16", "bf16") for name in ("here", "cuDNN", "here / cuDNN", "FA2"))]
    return section(f"{which}, {names_of(which)}, TFLOP/s, 16,384 tokens, H·d = 2,048{in_turns(rows)}", head, lines, used) if used else None


@of_each_gpu
def in_order(device, name):
    """The twelve cells of a backward step that adds in order, beside the fastest step that does not, and cuDNN."""
    fastest, ordered = saved(device, ON_HOPPER), saved(device, {"backward": name})
    lines, ratios, used = [], [], []
    for cell in CELLS:
        (fast, _, _), (mine, _, cudnn) = fastest.get((*cell, "backward"), NONE), ordered.get((*cell, "backward"), NONE)
        used += [row for row in (mine, fast) if row]
        ratios.append((ratio(mine, fast), ratio(mine, cudnn)))
        d, length, causal, _ = cell
        cells = [d, f"{length:,}", "causal" if causal else "no", speed(fast), speed(mine), shown(ratios[-1][0], ".2f"), speed(cudnn)]
        lines.append([*cells, shown(ratios[-1][1], ".2f")])
    means = [f"**{geometric_mean(one)}**" for one in zip(*ratios)]
    lines.append(["", "", "geometric mean", "", "", means[0], "", means[1]])
    head = ["d", "N", "mask", "in any order", f"`{name}`", "of that", "cuDNN", f"`{name}` / cuDNN"]
    title = f"backward, fp16, TFLOP/s, 16,384 tokens, H·d = 2,048{in_turns(ordered)}"
    return section(title, head, lines, used) if used else None


@of_each_gpu
def hopper_others(device, which):
    """Its other problems."""
    rows = {at: found for at, found in saved(device, ON_HOPPER).items() if (*at[:3], "fp16") not in CELLS and at[4] == which}
    lines = []
    for d, length, causal, dtype, _ in sorted(rows):
        mine, flash, cudnn = rows[d, length, causal, dtype, which]
        lines.append(
            [
                d,
                f"{length:,}",
                "causal" if causal else "no",
                dtype,
                speed(mine),
                speed(cudnn),
                shown(ratio(mine, cudnn), ".2f"),
                speed(flash),
            ]
        )
    head = ["d", "N", "mask", "dtype", "here", "cuDNN", "here / cuDNN", "FA2"]
    return (
        section(f"{which}, TFLOP/s, about 16,384 tokens and H·d = 2,048", head, lines, [row for row, _, _ in rows.values()])
        if rows
        else None
    )


def in_triton(device):
    return {key(row): row for row in newest(device, "sweep_peers.json", having="time") if row["variant"] == "triton"}


@of_each_gpu
def triton(device):
    """The twelve cells of the peer in Triton, of sweep_peers.json, beside the stage's steps and FlashAttention-2."""
    of_triton = in_triton(device)
    portable, hopper = saved(device), saved(device, ON_HOPPER)
    tables, used = [], []
    for which in PASSES:
        lines, ratios = [], []
        for cell in CELLS:
            at = (*cell, which)
            mine, (last, flash, _), fastest = of_triton.get(at), portable.get(at, NONE), hopper.get(at, NONE)[0]
            used += [row for row in (mine, last, flash, fastest) if row]
            beside = (flash, last, fastest)
            ratios.append([ratio(other, mine) for other in beside])
            cells = [text for other, times in zip(beside, ratios[-1]) for text in (speed(other), shown(times, ".2f"))]
            lines.append([cell[0], f"{cell[1]:,}", "causal" if cell[2] else "no", speed(mine), *cells])
        means = [f"**{geometric_mean(of_one)}**" for of_one in zip(*ratios)]
        lines.append(["", "", "geometric mean", "", *(one for mean in means for one in ("", mean))])
        others = ["FA2", f"`{LAST[which]}`", "for Hopper"]
        head = ["d", "N", "mask", "Triton", *(text for name in others for text in (name, "/ Triton"))]
        tables.append(section(f"{which}, fp16, TFLOP/s, 16,384 tokens, H·d = 2,048; for Hopper: {names_of(which)}", head, lines, used))
    return "\n\n".join(tables) if of_triton else None


@of_each_gpu
def power(device):
    """What the card does in a run of seconds: `sustained` of rows (common/power_gpu.py)."""
    rows = newest(device, "power.json", having="sustained")
    lines = []
    for row in rows:
        d, length, causal, dtype, which = key(row)
        name = f"torch, {row['variant']}" if row["stage"] == "peer" else f"`{row['variant']}`"
        run = row["sustained"]
        per_clock = 1e12 * run["tflops"] / (SM_FLOPS * h200.SMS * 1e6 * run["clock_mhz"])
        cells = [f"{run['tflops']:.0f}", f"{run['clock_mhz']:,.0f}", f"{run['watts']:.0f}", f"{per_clock:.2f}"]
        lines.append([which, d, f"{length:,}", "causal" if causal else "no", dtype, name, *cells])
    head = ["pass", "d", "N", "mask", "dtype", "kernel", "TFLOP/s", "clock, MHz", "W", f"of {SM_FLOPS:,} FLOPs a clock"]
    return section("each for two seconds, 16,384 tokens, H·d = 2,048", head, lines, rows) if rows else None


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
        f"geometric means). These steps run on every GPU since Ampere; they have {geometric_mean(cudnn['forward'])} and "
        f"{geometric_mean(cudnn['backward'])} times the rate of cuDNN, which uses instructions that Hopper alone has. "
        f"{on_hopper(device)}{over_triton(device)}{age(used)}"
    )


def on_hopper(device):
    rows = saved(device, ON_HOPPER)
    said = []
    for which in PASSES:
        ratios = [ratio(mine, cudnn) for mine, _, cudnn in (rows.get((*cell, which), NONE) for cell in CELLS)]
        if None in ratios:
            return ""
        said.append(f"**{geometric_mean(ratios)} times** the rate of cuDNN {which} ({min(ratios):.2f} to {max(ratios):.2f})")
    return f"With them, its [steps for Hopper](docs/08_hopper_forward.md) have {' and '.join(said)}. "


def over_triton(device):
    fastest, of_triton, means = saved(device, ON_HOPPER), in_triton(device), []
    for which in PASSES:
        ratios = [ratio(fastest.get((*cell, which), NONE)[0], of_triton.get((*cell, which))) for cell in CELLS]
        if None in ratios:
            return ""
        means.append(f"**{geometric_mean(ratios)} times**")
    return f"They have {means[0]} and {means[1]} the rate of this project's FlashAttention-2 in [Triton](docs/triton.md). "


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
    """Steps of one pass at N = 4096: TFLOP/s, and how many times as fast as the step that each changes, which need not be the one before.
    Those of chapter 08, or the named ones, if the last of these is saved."""
    columns = [(d, causal) for d in (64, 128) for causal in (False, True)]
    speeds = {}
    for row in newest(device, "tensor_steps.json", direction=which, having="time"):
        d, length, causal, dtype, _ = key(row)
        if of_today(row) and length == 4096 and dtype == "fp16" and (d, causal) in columns:
            speeds.setdefault(row["variant"], {})[d, causal] = row
    if names and names[-1] not in speeds:
        return None
    speeds = {name: at for name, at in speeds.items() if name in names or not names and name not in HOPPER}
    lines = []
    changes = {entry["step"]: entry["over"].split("/")[1] for entry in entries(f"tensor_{which}")}
    for before, (variant, at) in zip([None, *speeds], speeds.items()):
        before = speeds.get(changes.get(f"08_tensor_cores/{variant}", before), {}) if before else {}
        gains = [ratio(at.get(column), before.get(column)) for column in columns]
        lines.append([f"`{variant}`", *(speed(at.get(c)) + (f" (× {gain:.2f})" if gain else "") for c, gain in zip(columns, gains))])
    used = [row for at in speeds.values() for row in at.values()]
    head = ["step", *(f"d = {d}{', causal' if causal else ''}" for d, causal in columns)]
    return section("{pass}, TFLOP/s at N = 4,096, fp16; ×: over the step that each changes", head, lines, used)
