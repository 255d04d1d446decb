"""The stages' times on a GPU, next to those of earlier stages."""

from common.compare.peer_table import PEERS
from common.compare.rows import bytes_text, describe, grouped

from .formatting import ms, number, step
from .saved import H200, fastest, newest, section
from .steps import ALLOWED, PORTABLE, STAGE


def by_problem(rows):
    """Lists of rows of one pass and problem each."""
    return grouped(rows, lambda row: (row["pass"], describe(row["problem"]))).values()


def section_of(title, first, rows):
    """A table of times whose first column is a field of the rows."""
    lines = [[row[first], step(row), ms(row), number(row.tflops), number(row.percent_of_peak)] for row in rows]
    return section(title, f"{first} | variant | ms, median | TFLOP/s | % of peak", lines, rows)


def times(*stages):
    """The steps of these stages, on each problem that the last of them was timed on."""
    rows = [row for row in newest(H200, "compare.jsonl", having="time") if row["stage"] in stages]
    problems = (group for group in by_problem(rows) if any(row["stage"] == stages[-1] for row in group))
    return "\n\n".join(section_of("{pass}, {problem}", "stage", group) for group in problems)


def passes(stage):
    """A stage's times, one line per pass."""
    return section_of("{problem}", "pass", newest(H200, "compare.jsonl", stage=stage, having="time"))


def gains(stage, pass_, variant=None, before=None):
    """The table that opens a chapter, with many heads and with few: the stage's best step, or a named one, next to the best of all earlier
    stages, or a named step."""
    lines, used = [], []
    for file in ("compare.jsonl", "few_heads.jsonl"):
        for rows in by_problem(newest(H200, file, pass_=pass_, having="time")):
            ours = fastest(row for row in rows if row["stage"] == stage and variant in (None, row["variant"]))
            older = fastest(row for row in rows if row["stage"] < stage and before in (None, row.label))
            if ours and older:
                gain = f"× {older['time']['median_ms'] / ours['time']['median_ms']:.2g}"
                for row, over in ((older, ""), (ours, gain)):
                    cells = [ms(row), number(row.tflops), over, bytes_text(row["extra_memory_bytes"])]
                    lines.append([describe(row["problem"]), f"{row['stage']} {step(row)}", *cells])
                used += [ours, older]
    return section(pass_, "problem | kernel | ms | TFLOP/s | over the row above | extra memory", lines, used)


def steps(stage, pass_):
    """All steps of a stage on one problem, in one run, each over the step before it."""
    rows = newest(H200, "compare.jsonl", stage=stage, pass_=pass_, having="time")
    gains = [f"× {before['time']['median_ms'] / row['time']['median_ms']:.2f}" for before, row in zip(rows, rows[1:])]
    lines = [[step(row), ms(row), number(row.tflops), gain] for row, gain in zip(rows, ["", *gains])]
    return section("{pass}, {problem}", "step | ms | TFLOP/s | over the row above", lines, rows)


def rungs(stage, pass_, bound):
    """The ladder of a stage on the problems of large.jsonl: what the bound allows, rates, and gains over the step before."""
    rows = sorted(newest(H200, "large.jsonl", stage=stage, pass_=pass_, having="time"), key=lambda row: row["problem"]["head_dim"])
    lines, head = {}, ["step"]
    for of_problem in by_problem(rows):
        p = of_problem[0]["problem"]
        head += ["causal"] if p["causal"] else [f"d = {p['head_dim']}: at most", "measured"]
        for before, row in zip([None, *of_problem], of_problem):
            line = lines.setdefault(step(row), [step(row)])
            if not p["causal"]:
                line += [f"{ALLOWED[row.label][(64, 128).index(p['head_dim'])]:.0f}"]
            line.append(f"{row.tflops:.1f}" + (f" (× {row.tflops / before.tflops:.2f})" if before else ""))
    shape = f"B·H·d = {p['batch'] * p['heads'] * p['head_dim']:,}, N = {p['seq_q']:,}"
    title = f"{pass_}, {p['dtype']}, {shape}, TFLOP/s; at most: by {bound}; ×: over the row above"
    return section(title, head, list(lines.values()), rows)


STAGES = [("01_naive", "01_naive"), ("03_online_softmax", ""), ("04_fa1_forward", "05_fa1_backward"), ("06_fa2_forward", "07_fa2_backward")]
# Type, stages of the two passes, which of their variants, and a name if it is not that of the fastest.
KERNELS = [("fp32", stages, lambda variant, pass_: True, None) for stages in STAGES]
KERNELS += [("fp16", (STAGE, STAGE), lambda v, pass_, of=of: (v in PORTABLE[pass_]) == of, None) for of in (True, False)]
KERNELS += [(t, ("peer", "peer"), lambda v, pass_, of=of: v == of, peer.name) for of, peer in PEERS.items() for t in ("fp32", "fp16")]


def kernels():
    """Each stage's fastest step on the problem of compare.jsonl, of stage 08 also its fastest portable one, and torch's kernels."""
    rows = newest(H200, "compare.jsonl", "compare16.jsonl", "peers.jsonl", "peers16.jsonl", having="time")
    rows = [row for row in rows if describe({**row["problem"], "dtype": "fp32"}) == describe(rows[0]["problem"])]
    plain = {(r["problem"]["dtype"], r["pass"]): r["time"]["median_ms"] for r in rows if r.label == "peer/plain"}
    lines, used = [], []
    for dtype, stages, wanted, name in sorted(KERNELS, key=lambda kernel: kernel[0], reverse=True):
        line = []
        for stage, pass_ in zip(stages, ("forward", "backward")):
            some = [row for row in rows if (row["problem"]["dtype"], row["stage"], row["pass"]) == (dtype, stage, pass_)]
            row = fastest(row for row in some if wanted(row["variant"], pass_))
            line += [row, ms(row), number(row and plain[dtype, pass_] / row["time"]["median_ms"])]
        if line[0]:
            names = dict.fromkeys(f"{row['stage'][:2]} {step(row)}" for row in line[::3] if row)
            lines.append([name or f"**{', '.join(names)}**", dtype, *line[1:3], *line[4:]])
            used += filter(None, line[::3])
    head = "kernel | type | forward, ms | over plain torch | backward, ms | over plain torch"
    return section(describe(rows[0]["problem"]).removesuffix(" fp32"), head, lines, used)
