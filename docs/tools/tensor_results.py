"""Stage 08 beside FlashAttention-2 and -3 and cuDNN, on its chapters, the comparison and the front page: sweep16.jsonl and tensor_cores.jsonl of
common/check_gpu.sh, in which they were timed in turns, and all steps in tensor_steps.jsonl."""

import math

from common.compare import h200
from common.compare.rows import Row

from .formatting import number, shown, table
from .saved import H200, age, fastest, newest, of_today, section
from .steps import PORTABLE, STAGE, STEPS

SM_FLOPS = 4096  # of tensor cores, 16-bit, in a clock
LENGTHS = (1024, 4096, 16384)
CELLS = [(d, length, causal, "fp16") for d in (64, 128) for length in LENGTHS for causal in (False, True)]
PEERS = ("flash", "cudnn", "flash3")
PASSES = ("forward", "backward")
LAST = {"forward": "lazy_maximum", "backward": "staggered"}  # of the steps that run on every GPU since Ampere
ON_HOPPER = {"forward": "scheduled", "backward": "resident"}
NARROW = {"backward": ("warpgroups", "bulk")}  # instead of it up to d = 64: below N = 4096, and from there on
NONE = [None, None, None, None]


def key(row):
    p = row["problem"]
    return p["head_dim"], p["seq_q"], p["causal"], p["dtype"], row["pass"]


def on_hopper(which, d, length):
    """The step for Hopper that runs by default: the kernels' `fastest`."""
    return NARROW[which][length >= 4096] if which in NARROW and d <= 64 else ON_HOPPER[which]


def names_of(which):
    """The steps for Hopper that run by default, in words."""
    if which not in NARROW:
        return f"`{ON_HOPPER[which]}`"
    short, long = NARROW[which]
    return f"`{ON_HOPPER[which]}` for d > 64, else `{short}` below N = 4,096 and `{long}` from there on"


def is_last(row, last):
    """Is it of the last step in this pass?"""
    d, length, _, _, which = key(row)
    return row["variant"] == (on_hopper(which, d, length) if last is ON_HOPPER else last.get(which))


def saved(last=LAST):
    """{(d, N, mask, type, pass): [the last step's row, FlashAttention-2's, cuDNN's, FlashAttention-3's]} of the problems that the last step has a time of: the twelve
    cells, and others."""
    rows = newest(H200, "sweep16.jsonl", "tensor_cores.jsonl", having="time")
    found = {key(row): [row, None, None, None] for row in rows if is_last(row, last)}
    for row in rows:
        if row["stage"] == "peer" and row["variant"] in PEERS and key(row) in found:
            of_problem = found[key(row)]
            if all(row["problem"][name] == of_problem[0]["problem"][name] for name in ("batch", "heads")):
                of_problem[PEERS.index(row["variant"]) + 1] = row
    return found


def speed(row):
    return shown(row and row["tflops"], ".0f")


def ratio(mine, other):
    return mine["tflops"] / other["tflops"] if mine and other else None


def geometric_mean(ratios):
    known = [one for one in ratios if one is not None]
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}" if known else "–"


def named(d, length, causal, *dtype):
    return [d, f"{length:,}", "causal" if causal else "no", *dtype]


def in_turns(rows):
    torch = ", ".join(sorted({row["torch"] for of_problem in rows.values() for row in of_problem[1:] if row}))
    return f"; torch {torch} in the same run, alternating" if torch else ""


def rates(title, head, found):
    """A line for each of {problem: what to show}: of a row its TFLOP/s, of a pair of rows the first over the second. Problems without a
    dtype are the twelve cells, with the geometric means of their ratios below. It says where these rows come from, but not torch's."""
    shown_rows = (row for of_problem in found.values() for one in of_problem for row in (one if isinstance(one, tuple) else (one,)))
    used = [row for row in shown_rows if isinstance(row, Row) and row.variant not in PEERS]
    lines, of_cells = [], len(next(iter(found))) == 3
    for problem, of_problem in found.items():
        lines.append(named(*problem) + [shown(ratio(*one), ".2f") if isinstance(one, tuple) else speed(one) for one in of_problem])
    if of_cells:
        columns = zip(*found.values())
        means = [f"**{geometric_mean(ratio(*pair) for pair in column)}**" if isinstance(column[0], tuple) else "" for column in columns]
        lines.append(["", "", "geometric mean", *means])
    return section(title, ["d", "N", "mask", *([] if of_cells else ["dtype"]), *head], lines, used)


def heads_of(passes):
    return [f"{which} {name}" for which in passes for name in ("here", "FA2", "here / FA2", "cuDNN")]


def of_passes(rows, problem, passes):
    of_each = (rows.get((*problem, which), NONE) for which in passes)
    return [one for mine, flash, cudnn, _ in of_each for one in (mine, flash, (mine, flash), cudnn)]


def others():
    """Other widths and odd shapes, in fp16 and at about N = 4,096."""
    rows = saved(LAST)
    problems = sorted({at[:4] for at in rows if at[3] == "fp16" and 4000 <= at[1] <= 4096} - set(CELLS))
    found = {problem: of_passes(rows, problem, PASSES) for problem in problems}
    return rates("TFLOP/s, about 16,384 tokens and H·d = 2,048", heads_of(PASSES), found)


def hopper_others(which):
    """The default step for Hopper on problems other than the twelve cells."""
    rows = saved(ON_HOPPER)
    found = {
        at[:4]: [mine, cudnn, (mine, cudnn), flash]
        for at, (mine, flash, cudnn, _) in sorted(rows.items())
        if (*at[:3], "fp16") not in CELLS and at[4] == which
    }
    return rates(f"{which}, TFLOP/s, about 16,384 tokens and H·d = 2,048", ["here", "cuDNN", "here / cuDNN", "FA2"], found)


def in_order(name):
    """The twelve cells of a backward step that adds in order, beside the fastest step that does not, and cuDNN."""
    fastest, ordered = saved(ON_HOPPER), saved({"backward": name})
    found = {}
    for cell in CELLS:
        (fast, *_), (mine, _, cudnn, _) = fastest.get((*cell, "backward"), NONE), ordered.get((*cell, "backward"), NONE)
        found[cell[:3]] = [fast, mine, (mine, fast), cudnn, (mine, cudnn)]
    head = ["in any order", f"`{name}`", "of that", "cuDNN", f"`{name}` / cuDNN"]
    return rates(f"backward, fp16, TFLOP/s, 16,384 tokens, H·d = 2,048{in_turns(ordered)}", head, found)


def in_triton():
    return {key(row): row for row in newest(H200, "sweep_peers.jsonl", having="time") if row["variant"] == "triton"}


def power(which):
    """What the card does in a run of seconds of a pass: `sustained` of saved rows."""
    rows = newest(H200, "power.jsonl", direction=which, having="sustained")
    lines = []
    for row in rows:
        *problem, _ = key(row)
        name = f"torch, {row['variant']}" if row["stage"] == "peer" else f"`{row['variant']}`"
        run = row["sustained"]
        per_clock = 1e12 * run["tflops"] / (SM_FLOPS * h200.SMS * 1e6 * run["clock_mhz"])
        cells = [f"{run['tflops']:.0f}", f"{run['clock_mhz']:,.0f}", f"{run['watts']:.0f}", f"{per_clock:.2f}"]
        lines.append([*named(*problem), name, *cells])
    head = ["d", "N", "mask", "dtype", "kernel", "TFLOP/s", "clock, MHz", "W", f"of {SM_FLOPS:,} FLOPs per cycle"]
    return section("{pass}, each for two seconds, 16,384 tokens, H·d = 2,048", head, lines, rows)


def over(rows, which, peer):
    """The ratios of the twelve cells in a pass; peer: 1 for FlashAttention-2, 2 for cuDNN, 3 for FlashAttention-3."""
    of_cells = (rows.get((*cell, which), NONE) for cell in CELLS)
    return [ratio(of_cell[0], of_cell[peer]) for of_cell in of_cells]


# The front page has a row for these stages' forward and backward pass, on the problem of front.jsonl.
FRONT = [
    ("01_naive", "01_naive", None, "plain attention", "fp32, S and P in global memory"),
    ("04_fa1_forward", "05_fa1_backward", None, "FlashAttention-1", "fp32, S and P stay on the chip"),
    ("06_fa2_forward", "07_fa2_backward", None, "FlashAttention-2", "fp32, a block per tile of queries, register tiles"),
    (STAGE, STAGE, LAST, "tensor cores", "fp16, `mma.sync`, any GPU since Ampere"),
    (STAGE, STAGE, ON_HOPPER, "Hopper", "fp16, TMA, `wgmma`, warp specialisation"),
]


def ends(ratios):
    return f"**{geometric_mean(ratios)}** ({min(ratios):.2f} to {max(ratios):.2f})"


def on_the_front():
    """The rows of both passes on the problem of front.jsonl: of each kernel the latest run, which for stage 08 is the one of the twelve cells."""
    rows = newest(H200, "front.jsonl", "large.jsonl", "sweep16.jsonl", having="time")
    shapes = [{name: row["problem"][name] for name in ("batch", "heads", "seq_q", "head_dim", "causal")} for row in rows]
    at = shapes[next(n for n, row in enumerate(rows) if row["stage"] == "01_naive")]
    return [row for row, shape in zip(rows, shapes) if shape == at and row["problem"]["dtype"] in ("fp32", "fp16")]


def front_rates():
    """([(line of FRONT, [its row per pass])], {peer: [its row per pass]})"""
    rows = on_the_front()
    peers = {name: [next(row for row in rows if (row["variant"], row["pass"]) == (name, which)) for which in PASSES] for name in PEERS}

    def best(stage, which, last):
        return fastest(row for row in rows if (row["stage"], row["pass"]) == (stage, which) and (last is None or is_last(row, last)))

    return [(line, [best(stage, which, line[2]) for stage, which in zip(line, PASSES)]) for line in FRONT], peers


def times_least(label):
    """How many times the bytes that must move a forward step moves on the problem of the demo."""
    for row in newest("cpu", "io.jsonl", "tensor_io.jsonl", direction="forward"):
        p = row["problem"]
        if row.label == label and (p["seq_q"], p["head_dim"], p["causal"], p["dtype"] == "bf16") == (1024, 64, False, False):
            return (row["counters"]["read_bytes"] + row["counters"]["written_bytes"]) / row["compulsory_bytes"]
    return None


def front():
    """What the stages are, what they move and how fast they are: for the front page."""
    found, _ = front_rates()
    lines = []
    for (*stages, _, name, idea), rows in found:
        folders = ", ".join(f"[{stage[:2]}]({stage})" for stage in dict.fromkeys(stages))
        lines.append([folders, f"{name}: {idea}", number(times_least(rows[0].label)), *(number(row["tflops"]) for row in rows)])
    rows = [row for _, of_passes in found for row in of_passes]
    p = rows[0]["problem"]
    mask = ", causal" if p["causal"] else ""
    size = f"batch {p['batch']}, {p['heads']} heads, {p['seq_q']:,} tokens, head size {p['head_dim']}{mask}"
    problem = f"Forward and backward: TFLOP/s on one {rows[0].device_name} ({size}). {age(rows).replace('Saved', 'Measured')}"
    return f"{table('stage | what is new | bytes moved | forward | backward', lines)}\n\n{problem}"


def against():
    """The twelve cells next to the libraries: for the front page."""
    hopper, portable = "for Hopper", "for any GPU since Ampere"
    opponents = ((hopper, ON_HOPPER, "cuDNN", 2), (hopper, ON_HOPPER, "FlashAttention-3", 3), (portable, LAST, "FlashAttention-2", 1))
    ratios = [[which, name, *(ends(over(saved(last), one, peer)) for one in PASSES)] for which, last, name, peer in opponents]
    return table("our kernels | against | forward | backward", ratios)


def steps(which, *names):
    """Steps of one pass at N = 4096: TFLOP/s, and how many times as fast as the step that each changes, which need not be the one before.
    Those of chapter 08, or the named ones."""
    columns = [(d, causal) for d in (64, 128) for causal in (False, True)]
    speeds = {}
    for row in newest(H200, "tensor_steps.jsonl", direction=which, having="time"):
        d, length, causal, dtype, _ = key(row)
        if of_today(row) and length == 4096 and dtype == "fp16" and (d, causal) in columns:
            speeds.setdefault(row["variant"], {})[d, causal] = row
    speeds = {name: at for name, at in speeds.items() if name in (names or PORTABLE[which])}
    lines = []
    changes = {step.name: step.over for step in STEPS[f"tensor_{which}"]}
    for variant, at in speeds.items():
        before = speeds.get(changes.get(f"{STAGE}/{variant}", "").removeprefix(f"{STAGE}/"), {})
        gains = [ratio(at.get(column), before.get(column)) for column in columns]
        lines.append([f"`{variant}`", *(speed(at.get(c)) + (f" (× {gain:.2f})" if gain else "") for c, gain in zip(columns, gains))])
    used = [row for at in speeds.values() for row in at.values()]
    head = ["step", *(f"d = {d}{', causal' if causal else ''}" for d, causal in columns)]
    return section("{pass}, TFLOP/s at N = 4,096, fp16; ×: over the step that each changes", head, lines, used)


def hopper_steps(which):
    """The ladder of a Hopper chapter: the last portable step, those for Hopper, and what they change, each with the step that its factors are
    over. The gain that was expected is shown as a rate, too: the estimate times the measured rate of the step that is changed."""
    known = {step.variant: step for step in STEPS[f"tensor_{which}"]}
    base = {name: step.over.split("/")[1] for name, step in known.items() if name not in PORTABLE[which]}
    chosen = [name for name in known if name in (*base, *base.values(), LAST[which])]
    rows = {
        (row["variant"], *key(row)[:4]): row for row in newest(H200, "tensor_steps.jsonl", direction=which, having="time") if of_today(row)
    }
    lines, used = [], []
    for name in chosen:
        line = [f"`{name}`", f"`{base[name]}`" if name in base else ""]
        for d, causal in [(d, causal) for d in (64, 128) for causal in (False, True)]:
            row, before = (rows.get((one, d, 4096, causal, "fp16")) for one in (name, base.get(name)))
            of = known[name].estimate
            estimate = of[d == 128] if isinstance(of, tuple) else of
            if not causal:
                line.append(f"{estimate * before['tflops']:.0f} (× {estimate:.2f})" if before and row and estimate else "")
            line.append(speed(row) + (f" (× {ratio(row, before):.2f})" if row and before else ""))
            used += [row] if row else []
        lines.append(line)
    head = "step | over | d = 64: expected | measured | causal | d = 128: expected | measured | causal"
    return section("{pass}, TFLOP/s at B = 4, N = 4,096, H·d = 2,048, fp16; ×: over the step in the second column", head, lines, used)
