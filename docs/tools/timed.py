"""What was measured on each GPU: times, next to those of earlier stages, and the counters of each kernel. Sweeps are for plots."""

from common.compare.rows import describe, grouped, size

from .formatting import ms, number, step
from .saved import H200, fastest, newest, section
from .steps import allowed


def by_problem(rows):
    """Lists of rows: of one pass and problem each."""
    return grouped(rows, lambda row: (row["pass"], describe(row["problem"]))).values()


def times(*stages):
    """Of the last stage, with those of the stages before it that are named."""
    parts = []
    for rows in by_problem(row for row in newest(H200, "compare.jsonl", having="time") if row["stage"] in stages):
        if any(row["stage"] == stages[-1] for row in rows):
            lines = [
                [row["stage"], step(row) + ("" if row.verdict == "ok" else " **wrong**")]
                + [ms(row), number(row["tflops"]), number(row.get("percent_of_peak"))]
                for row in rows
            ]
            head = "stage | variant | ms, median | TFLOP/s | % of peak"
            parts.append(section("{pass}, {problem}", head, lines, rows))
    return "\n\n".join(parts)


def passes(stage):
    """A stage's times, one line per pass."""
    rows = newest(H200, "compare.jsonl", stage=stage, having="time")
    lines = [[row["pass"], step(row), ms(row), number(row["tflops"]), number(row.get("percent_of_peak"))] for row in rows]
    return section("{problem}", "pass | variant | ms, median | TFLOP/s | % of peak", lines, rows)


def named(kernels):
    """(name, kernel) of a profile. The kernel of chapter 01 that runs twice computes dV first, then dK."""
    gradients = iter(("dV", "dK"))
    for kernel in kernels:
        name = kernel["kernel"]
        yield (f"{name}, {next(gradients)}" if name == "key_gradient_kernel" else name), kernel


def profile(*stages):
    """Each kernel of a pass, as the GPU's counters saw it; of several stages the kernels of the softmax."""
    rows = [row for row in newest(H200, "compare.jsonl", having="profile") if row["stage"] in stages]
    lines = [
        [row["stage"], step(row), name, f"{kernel['time_us']:,.0f}"]
        + [f"{int(kernel['read_sectors'] + kernel['written_sectors']):,}"]
        + [size(kernel["hbm_read_bytes"]), size(kernel["hbm_written_bytes"])]
        + [f"{kernel[key]:.0f}" for key in ["hbm_percent", "l1_percent"]]
        for row in rows
        for name, kernel in named(row["profile"])
        if "softmax" in name or len(stages) == 1
    ]
    head = "stage | variant | kernel | µs | sectors requested | read from HBM | written to HBM | HBM, % of peak | L1, % of peak"
    return section("{problem}", head, lines, rows)


def pairs(file, stage, direction, variant=None, before=None):
    """For each saved problem a stage's best variant, or a named one, and the best of all stages before it, or of a named one,
    or a named step of one."""
    for rows in by_problem(newest(H200, file, direction=direction, having="time")):
        ours = fastest(row for row in rows if row["stage"] == stage and variant in (None, row["variant"]))
        older = fastest(row for row in rows if row["stage"] < stage and before in (None, row["stage"], row.label))
        if ours and older:
            yield ours, older


def gains(stage, direction, *names):
    """The table that opens a chapter: with many heads, then with few, its stage next to the best of all earlier ones; or a variant, next to
    the best of an earlier stage."""
    lines, used = [], []
    for file in ("compare.jsonl", "few_heads.jsonl"):
        for ours, before in pairs(file, stage, direction, *names):
            for row in (before, ours):
                speed = before["time"]["median_ms"] / row["time"]["median_ms"]
                lines.append([describe(row["problem"]), f"{row['stage']} {step(row)}", ms(row), number(row["tflops"])])
                lines[-1] += [f"× {speed:.2g}" if row is ours else "", size(row["extra_memory_bytes"])]
            used += [ours, before]
    return section(direction, "problem | kernel | ms | TFLOP/s | over the row above | extra memory", lines, used)


def rungs(stage, direction, bound):
    """The ladder of a stage on the problems of large.jsonl: what the bound allows, rates, and gains over the step before."""
    rows = sorted(newest(H200, "large.jsonl", stage=stage, direction=direction, having="time"), key=lambda row: row["problem"]["head_dim"])
    lines, head = {}, ["step"]
    for of_problem in by_problem(rows):
        p = of_problem[0]["problem"]
        head += ["causal"] if p["causal"] else [f"d = {p['head_dim']}: at most", "measured"]
        for before, row in zip([None, *of_problem], of_problem):
            line = lines.setdefault(step(row), [step(row)])
            line += [] if p["causal"] else [f"{allowed(row.label)[p['head_dim'] == 128]:.0f}"]
            line.append(f"{row['tflops']:.1f}" + (f" (× {row['tflops'] / before['tflops']:.2f})" if before else ""))
    shape = f"B·H·d = {p['batch'] * p['heads'] * p['head_dim']:,}, N = {p['seq_q']:,}"
    title = f"{direction}, {p['dtype']}, {shape}, TFLOP/s; at most: by {bound}; ×: over the row above"
    return section(title, head, list(lines.values()), rows)


def busy(*names):
    """Each kernel of some stages, or of steps STAGE/VARIANT: the instructions it executes, and how busy the units of the GPU are."""
    rows = [row for row in newest(H200, "compare.jsonl", having="profile") if {row["stage"], row.label} & set(names)]
    lines = [
        [f"{row['stage'][:2]} {step(row)}", f"`{kernel['kernel']}`", f"{kernel['time_us']:,.0f}", f"{kernel['instructions'] / 1e6:,.0f}"]
        + [f"{kernel[key]:.0f}" for key in ["sm_percent", "l1_percent", "hbm_percent"]]
        for row in rows
        for kernel in row["profile"]
    ]
    head = "step | kernel | µs | warp instructions, millions | issue slots used, % | L1 and shared memory, % of peak | HBM, % of peak"
    return section("{pass}, {problem}", head, lines, rows)


def walks():
    """Of chapter 07: the time of each kernel that walks over tiles, and of each product in it."""
    lines, used = [], []
    for row in newest(H200, "compare.jsonl", stage="07_fa2_backward", having="profile"):
        for kernel in row["profile"]:
            count = {"dk_dv_kernel": 4, "dq_kernel": 3, "backward_kernel": 5}.get(kernel["kernel"])
            if count:
                time = kernel["time_us"]
                lines.append([step(row), f"`{kernel['kernel']}`", f"{time:,.0f}", count, f"{time / count:,.0f}"])
                used.append(row)
    return section("{problem}", "variant | kernel | µs | products | µs for each", lines, used)
