"""Stage 08 next to FlashAttention-2 and -3 and cuDNN, on its chapters and the front page: sweep16.jsonl of common/check_gpu.sh, in which they were timed
in turns, and all steps in tensor_steps.jsonl."""

from statistics import geometric_mean

from common.compare.peer_table import PEERS
from common.compare.rows import PASSES

from . import ladder
from .formatting import number, table
from .saved import H200, changed_since, fastest, newest, of_today, section
from .steps import PORTABLE, STAGE, STEPS

CELLS = [(d, length, causal, "fp16") for d in (64, 128) for length in (1024, 4096, 16384) for causal in (False, True)]
TIMED = {(row["variant"], row["pass"]) for row in newest(H200, "sweep16.jsonl", stage=STAGE, having="time")}
LAST, ON_HOPPER = (  # LAST: since Ampere; of the steps that have rows
    {pass_: [name for name in ladder.steps(f"{STAGE}/{kind}{pass_}") if (name, pass_) in TIMED][-1] for pass_ in PASSES}
    for kind in ("", "hopper_")
)
RIVALS = (  # which steps, the last of them, and the peer that they are compared with
    ("Hopper", ON_HOPPER, "cudnn"),
    ("Hopper", ON_HOPPER, "flash3"),
    ("portable", LAST, "flash"),
)


def key(row):
    p = row["problem"]
    return p["head_dim"], p["seq_q"], p["causal"], p["dtype"], row["pass"]


def is_last(row, last):
    """Is it of the last step in this pass? For Hopper that is the step that runs by default."""
    return row["variant"] == last.get(row["pass"])


def next_to_rivals(last=LAST):
    """{(d, N, mask, type, pass): {"ours": the last step's row, peer: its row}} of the problems that the last step has a time of."""
    rows = newest(H200, "sweep16.jsonl", "tensor_cores.jsonl", having="time")
    found = {key(row): {"ours": row} for row in rows if is_last(row, last)}
    for row in rows:
        if row.is_peer and key(row) in found:
            of_problem = found[key(row)]
            if all(row["problem"][name] == of_problem["ours"]["problem"][name] for name in ("batch", "heads")):
                of_problem[row["variant"]] = row
    return found


def times_as_fast(last, peer, pass_):
    """[(d, the last step's rate over the peer's)] of the twelve cells that have both."""
    found = next_to_rivals(last)
    cells = [(cell[0], found[(*cell, pass_)]) for cell in CELLS]
    return [(d, rows["ours"].tflops / rows[peer].tflops) for d, rows in cells if peer in rows]


def speed(row, before=None):
    """TFLOP/s, and how many times as fast as another row."""
    if not row:
        return "–"
    return f"{row.tflops:.0f}" + (f" (× {row.tflops / before.tflops:.2f})" if before else "")


# The front page has a row for these stages' forward and backward pass, on the problem of front.jsonl.
FRONT = [
    ("01_naive", "01_naive", None, "plain attention", "fp32, S and P in global memory"),
    ("04_fa1_forward", "05_fa1_backward", None, "FlashAttention-1", "fp32, S and P stay on the chip"),
    ("06_fa2_forward", "07_fa2_backward", None, "FlashAttention-2", "fp32, a block per tile of queries, register tiles"),
    (STAGE, STAGE, LAST, "tensor cores", "fp16, `mma.sync`, any GPU since Ampere"),
    (STAGE, STAGE, ON_HOPPER, "Hopper", "fp16, TMA, `wgmma`, warp specialisation"),
]


def front_rates():
    """([(line of FRONT, [its row per pass])], {peer: [its row per pass]}) on the problem of front.jsonl: of each kernel the latest run, which
    for stage 08 is the one of the twelve cells."""
    rows = newest(H200, "front.jsonl", "large.jsonl", "sweep16.jsonl", having="time")
    shapes = [{name: row["problem"][name] for name in ("batch", "heads", "seq_q", "head_dim", "causal")} for row in rows]
    at = shapes[next(n for n, row in enumerate(rows) if row["stage"] == "01_naive")]
    rows = [row for row, shape in zip(rows, shapes) if shape == at and row["problem"]["dtype"] in ("fp32", "fp16")]
    rivals = [peer for _, _, peer in RIVALS]
    peers = {name: [next(row for row in rows if (row["variant"], row["pass"]) == (name, pass_)) for pass_ in PASSES] for name in rivals}

    def best(stage, pass_, last):
        return fastest(row for row in rows if (row["stage"], row["pass"]) == (stage, pass_) and (last is None or is_last(row, last)))

    return [(line, [best(stage, pass_, line[2]) for stage, pass_ in zip(line, PASSES)]) for line in FRONT], peers


def counted(label):
    """The row of a forward step on the problem of the demo."""
    for row in newest("cpu", "io.jsonl", "tensor_io.jsonl", pass_="forward"):
        p = row["problem"]
        if row.label == label and (p["seq_q"], p["head_dim"], p["causal"], p["dtype"] == "bf16") == (1024, 64, False, False):
            return row
    raise LookupError(f"docs/results/cpu has no row of {label}: docs/save_results.sh counts it")


def front():
    """What the stages are, what they move and how fast they are: for the front page."""
    lines, rows = [], []
    for (*stages, _, name, idea), of_passes in front_rates()[0]:
        folders = ", ".join(f"[{stage[:2]}]({stage})" for stage in dict.fromkeys(stages))
        rates = (number(row.tflops) for row in of_passes)
        io = counted(of_passes[0].label)
        lines.append([folders, f"{name}: {idea}", number(io.moved_bytes / io.compulsory_bytes), *rates])
        rows += [*of_passes, io]
    p = rows[0]["problem"]
    mask = ", causal" if p["causal"] else ""
    size = f"batch {p['batch']}, {p['heads']} heads, {p['seq_q']:,} tokens, head size {p['head_dim']}{mask}"
    edited = ", ".join(sorted({path.split("/")[0] for path in changed_since(rows)}))
    since = f" Edited since, and not measured again: kernels of {edited}." if edited else ""
    day = max(row["date"][:10] for row in rows if row.is_gpu)
    problem = f"Forward and backward: TFLOP/s on one {rows[0].device_name} ({size}). Measured on {day}.{since}"
    return f"{table('stage | what is new | bytes moved | forward | backward', lines)}\n\n{problem}"


def against():
    """The twelve cells next to the libraries, as a geometric mean and its ends: for the front page."""
    runs_on = {"Hopper": "for Hopper", "portable": "for any GPU since Ampere"}
    lines = []
    for steps, last, peer in RIVALS:
        lines.append([runs_on[steps], PEERS[peer].name])
        for pass_ in PASSES:
            ratios = [ratio for _, ratio in times_as_fast(last, peer, pass_)]
            lines[-1].append(f"**{geometric_mean(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})")
    return table("our kernels | against | forward | backward", lines)


def twelve():
    """The rates of the twelve cells, both passes side by side."""
    hopper, since_ampere = next_to_rivals(ON_HOPPER), next_to_rivals(LAST)
    lines, used = [], []
    for d, length, causal, dtype in CELLS:
        lines.append([d, f"{length:,}", "causal" if causal else "no"])
        for pass_ in PASSES:
            on_hopper, portable = (of[d, length, causal, dtype, pass_] for of in (hopper, since_ampere))
            rates = [*map(on_hopper.get, ("ours", "cudnn", "flash3")), *map(portable.get, ("ours", "flash"))]
            lines[-1] += map(speed, rates)
            used += [rates[0], rates[-1]]
    names = ", ".join(f"{pass_} `{ON_HOPPER[pass_]}` and `{LAST[pass_]}`" for pass_ in PASSES)
    head = "d | N | mask | forward: Hopper | cuDNN | FA3 | portable | FA2 | backward: Hopper | cuDNN | FA3 | portable | FA2"
    return section(f"TFLOP/s, fp16, 16,384 tokens, H·d = 2,048; {names}", head, lines, used)


def portable_steps(pass_):
    """The ladder of a chapter: the last fp32 step and each portable one at N = 4,096 without a mask."""
    rows = {}
    for row in newest(H200, "large.jsonl", "tensor_steps.jsonl", pass_=pass_, having="time"):
        if of_today(row) and key(row)[1:4] == (4096, False, "fp16" if row["stage"] == STAGE else "fp32"):
            rows[row.label, row["problem"]["head_dim"]] = row
    steps = [step for step in STEPS[f"tensor_{pass_}"] if step.variant in PORTABLE[pass_]]
    lines, used, before = [], [], {}
    for count, name in enumerate([steps[0].over, *(step.name for step in steps)]):
        file, variant, idea = ladder.variants()[name]
        lines.append([f"{count or file[:2]} [`{variant}`](../../{file})", idea if count else "in fp32, to compare"])
        for width in (64, 128):
            row = rows.get((name, width))
            lines[-1].append(speed(row, before.get(width)))
            if row:
                before[width] = row
                used.append(row)
    head = "step | what is new | d = 64 | d = 128"
    heads = {row["problem"]["head_dim"]: row["problem"]["heads"] for row in used}
    p = used[-1]["problem"]
    title = f"{p['dtype']}, N = {p['seq_q']}, B = {p['batch']}, H = {heads[64]} for d = 64 and {heads[128]} for d = 128, TFLOP/s"
    return section(f"{{pass}}, {title}; ×: over the row above", head, lines, used)


def hopper_steps(pass_):
    """The ladder of a Hopper chapter: the last portable step, those for Hopper, and what they change, each with the step that its factors are
    over. The gain that was expected is shown as a rate, too: the estimate times the measured rate of the step that is changed."""
    known = {step.variant: step for step in STEPS[f"tensor_{pass_}"]}
    base = {name: step.over.split("/")[1] for name, step in known.items() if name not in PORTABLE[pass_]}
    rows = {(row["variant"], *key(row)[:4]): row for row in newest(H200, "tensor_steps.jsonl", pass_=pass_, having="time") if of_today(row)}
    lines, used = [], []
    for name in (name for name in known if name in (*base, *base.values(), LAST[pass_])):
        lines.append([f"`{name}`", f"`{base[name]}`" if name in base else ""])
        for d, causal in [(d, causal) for d in (64, 128) for causal in (False, True)]:
            row, before = (rows.get((variant, d, 4096, causal, "fp16")) for variant in (name, base.get(name)))
            of = known[name].estimate
            estimate = of[(64, 128).index(d)] if isinstance(of, tuple) else of
            if not causal:
                lines[-1].append(f"{estimate * before.tflops:.0f} (× {estimate:.2f})" if before and row and estimate else "")
            lines[-1].append(speed(row, before))
            if row:
                used += [row]
    head = "step | over | d = 64: expected | measured | causal | d = 128: expected | measured | causal"
    return section("{pass}, TFLOP/s at B = 4, N = 4,096, H·d = 2,048, fp16; ×: over the step in the second column", head, lines, used)
