"""What was measured on each GPU: times, next to those of earlier stages, and the counters of each kernel. Sweeps are for plots."""

from rows import describe, grouped, size

from .formatting import ms, number, shown, step, tiles_text
from .saved import GPU, fastest, newest, origin, section


def by_problem(rows):
    """Lists of rows: of one pass and problem each."""
    return grouped(rows, lambda row: (row["pass"], describe(row["problem"]))).values()


def times(*stages):
    """Of the last stage, with those of the stages before it that are named."""
    parts = []
    for rows in by_problem(row for row in newest(GPU, "compare.jsonl", having="time") if row["stage"] in stages):
        if any(row["stage"] == stages[-1] for row in rows):
            lines = [
                [row["stage"], step(row), ms(row), number(row["tflops"]), number(row.get("percent_of_peak"))]
                + [row.verdict.replace("WRONG", "**wrong**")]
                for row in rows
            ]
            head = "stage | variant | ms, median | TFLOP/s | % of peak | check"
            parts.append(section("{pass}, {problem}", head, lines, rows))
    return "\n\n".join(parts)


def profile(*stages):
    """Each kernel of a pass, as the GPU's counters saw it; of several stages the kernels of the softmax."""
    rows = [row for row in newest(GPU, "compare.jsonl", having="profile") if row["stage"] in stages]
    lines = [
        [row["stage"], step(row), kernel["kernel"], f"{kernel['time_us']:,.0f}"]
        + [f"{int(kernel['read_sectors'] + kernel['written_sectors']):,}"]
        + [size(kernel["hbm_read_bytes"]), size(kernel["hbm_written_bytes"])]
        + [f"{kernel[key]:.0f}" for key in ["hbm_percent", "l1_percent"]]
        for row in rows
        for kernel in row["profile"]
        if "softmax" in kernel["kernel"] or len(stages) == 1
    ]
    head = "stage | variant | kernel | µs | sectors requested | read from HBM | written to HBM | HBM, % of peak | L1, % of peak"
    return section("{problem}", head, lines, rows)


def faster_or_slower(ratio):
    """Of a time divided by another one."""
    if 0.98 < ratio < 1.02:
        return "about the same"
    return f"{1 / ratio:.2g} times as fast" if ratio < 1 else f"{ratio:.2g} times as long: it loses"


def pairs(file, stage, direction):
    """For each saved problem a stage's best variant, and the best of all stages before it."""
    for rows in by_problem(newest(GPU, file, direction=direction, having="time")):
        ours, before = fastest(row for row in rows if row["stage"] == stage), fastest(row for row in rows if row["stage"] < stage)
        if ours and before:
            yield ours, before


def against(file, stage, direction):
    """A stage's best variant beside the best of all stages before it, for each saved problem."""
    parts = []
    for ours, before in pairs(file, stage, direction):
        ratio = ours["time"]["median_ms"] / before["time"]["median_ms"]
        memory = [size(row["extra_memory_bytes"]) for row in (ours, before)]
        parts.append(
            f"{ours['device']['name']}, {direction}, {describe(ours['problem'])}: the best of this stage takes {ms(ours)} ms, the best "
            f"before it (`{before['stage']}`, {step(before)}) {ms(before)} ms. **{faster_or_slower(ratio).capitalize()}**, "
            f"with {memory[0]} of extra memory instead of {memory[1]}. {origin([ours, before])}"
        )
    return "\n\n".join(parts)


def gains(stage, direction):
    """The table that opens a chapter: with many heads, then with few, its stage next to the best of all earlier ones."""
    lines, used = [], []
    for file in ("compare.jsonl", "few_heads.jsonl"):
        for ours, before in pairs(file, stage, direction):
            for row in (before, ours):
                speed = before["time"]["median_ms"] / row["time"]["median_ms"]
                lines.append([describe(row["problem"]), f"{row['stage']} {step(row)}", ms(row), number(row["tflops"])])
                lines[-1] += [f"× {speed:.2g}" if row is ours else "", size(row["extra_memory_bytes"])]
            used += [ours, before]
    return section(direction, "problem | kernel | ms | TFLOP/s | speed | extra memory", lines, used)


def long_sequences(stage, direction):
    """The steps of a stage on the problems of large.jsonl: rates, gains, and what a causal mask does to the rate."""
    rows = newest(GPU, "large.jsonl", stage=stage, direction=direction, having="time")
    rates = {(describe(row["problem"]), row["variant"]): row["tflops"] for row in rows}
    lines = []
    for of_problem in by_problem(rows):
        for before, row in zip([None, *of_problem], of_problem):
            problem = describe(row["problem"])
            full = rates.get((problem.replace(" causal", ""), row["variant"])) if row["problem"]["causal"] else None
            gain, of_full = (shown(other and row["tflops"] / other, ".2f") for other in (before and before["tflops"], full))
            lines.append([problem, step(row), tiles_text(row.get("tiles")), ms(row), f"{row['tflops']:.1f}", gain, of_full])
    head = "problem | step | tiles | ms | TFLOP/s | times the step before | times the rate without mask"
    return section(direction, head, lines, rows)


def walks():
    """Of chapter 07: the time of each kernel that walks over tiles, and of each product in it."""
    lines, used = [], []
    for row in newest(GPU, "compare.jsonl", stage="07_fa2_backward", having="profile"):
        for kernel in row["profile"]:
            count = {"dk_dv_kernel": 4, "dq_kernel": 3, "backward_kernel": 5}.get(kernel["kernel"])
            if count:
                time = kernel["time_us"]
                lines.append([step(row), f"`{kernel['kernel']}`", f"{time:,.0f}", count, f"{time / count:,.0f}"])
                used.append(row)
    return section("{problem}", "variant | kernel | µs | products | µs for each", lines, used)
