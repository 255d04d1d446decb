"""Of docs/reference/comparison.md, its logbook and the page on Triton: the stages and their opponents on one problem, in times and in counts, and over the length of the
sequence. The headline ratios are in headline.py."""

import csv
import math
import statistics

from common.compare.rows import describe, size

from .formatting import number, shown, step, table
from .headline import times
from .saved import H200, RESULTS, fastest, newest, origin, section
from .tensor_results import CELLS, LAST, NONE, ON_HOPPER, PASSES, in_triton, in_turns, is_last, names_of, rates, saved, speed

# What the CPU run of `compare` saves of each type, and where torch's rows of the same problem are.
COUNTED = {"fp32": "compare.jsonl", "fp16": "tensor.jsonl"}
TIMED = {"fp32": ("compare.jsonl", "peers.jsonl"), "fp16": ("compare16.jsonl", "peers16.jsonl")}


def worst(row):
    """The largest difference from double precision, of all tensors."""
    tensors = (row.get("check") or {}).get("tensors", {})
    return shown(max((tensor["max_abs"] for tensor in tensors.values()), default=None), ".1e")


def amounts(row):
    return [size(row["extra_memory_bytes"]), *(size(row["counters"][name]) for name in ("read_bytes", "written_bytes"))]


def stages(direction):
    """The fastest step of each stage on the problem of compare.jsonl, of stage 08 also the last one for every GPU since Ampere, and torch on
    the same; with ratios over plain torch in the same type."""
    lines, used = [], []
    for dtype, files in TIMED.items():
        every, theirs = (newest(H200, file, direction=direction, having="time") for file in files)
        theirs = [row for row in theirs if describe(row["problem"]) == describe(every[0]["problem"])]
        best = {id(fastest(row for row in every if row["stage"] == stage)) for stage in {row["stage"] for row in every}}
        ours = [row for row in every if id(row) in best or (dtype == "fp16" and is_last(row, LAST))]
        plain = next((row for row in theirs if row["variant"] == "plain"), None)
        for row in ours + theirs:
            peer = row["stage"] == "peer"
            name = f"torch, {row['variant'].replace('_', '-')}" if peer else f"**{row['stage']}** {step(row)}"
            memory = ["–"] * 2 if peer else [size(row["extra_memory_bytes"]), size(row.moved_bytes)]
            time, ratio = row["time"], times(plain, row, "median_ms")
            spread = f"{100 * (time['max_ms'] - time['min_ms']) / time['median_ms']:.0f}"
            lines.append([name, dtype, *memory, number(time["median_ms"]), spread, number(row["tflops"]), ratio, worst(row)])
        used += ours + theirs
    head = " | type | extra memory | bytes requested | ms, median | spread, % | TFLOP/s | times as fast as plain torch | max error"
    return section(f"{direction}, {describe(used[0]['problem']).rsplit(' ', 1)[0]}", head, lines, used)


def counts(direction, dtype):
    """The same as the simulator counts it, on a laptop's problem."""
    rows = [row for row in newest("cpu", COUNTED[dtype], direction=direction) if row["problem"]["dtype"] == dtype]
    lines = [
        [f"{row['stage']} {step(row)}", *amounts(row)]
        + [f"{row['counters'][name]:,}" for name in ("sectors", "barriers", "warp_operations", "bank_conflicts", "atomics")]
        + [worst(row)]
        for row in rows
    ]
    head = " | extra memory | bytes read | bytes written | sectors | barriers | warp operations | bank conflicts | atomics | max error"
    least = f"Any implementation must move {size(rows[0]['compulsory_bytes'])}."
    return f"CPU simulator, {direction}, {describe(rows[0]['problem'])}. {least}\n\n{table(head, lines)}\n\n{origin(rows)}"


def rivals(direction):
    """TFLOP/s of the twelve cells: the fastest step beside cuDNN, the last one for every GPU since Ampere beside FlashAttention-2."""
    hopper, portable = saved(ON_HOPPER), saved(LAST)
    found = {}
    for cell in CELLS:
        at = (*cell, direction)
        (fast, _, cudnn, flash3), (last, flash, *_) = hopper.get(at, NONE), portable.get(at, NONE)
        found[cell[:3]] = [fast, cudnn, (fast, cudnn), flash3, (fast, flash3), last, flash, (last, flash)]
    title = f"{direction}, TFLOP/s, fp16, 16,384 tokens, H·d = 2,048{in_turns(hopper)}; for Hopper: {names_of(direction)}"
    head = ["for Hopper", "cuDNN", "÷ cuDNN", "FA3", "÷ FA3", f"`{LAST[direction]}`", "FA2", "÷ FA2"]
    return rates(title, head, found)


def beside_triton():
    """The twelve cells of the Triton kernel in both passes: its TFLOP/s, how it compares with FlashAttention-2, and the steps for Hopper with it."""
    hopper, triton = saved(ON_HOPPER), in_triton()
    found = {cell[:3]: [] for cell in CELLS}
    for cell in CELLS:
        for direction in PASSES:
            (fast, flash, *_), mine = hopper.get((*cell, direction), NONE), triton.get((*cell, direction))
            found[cell[:3]] += [mine, (mine, flash), (fast, mine)]
    head = [f"{direction}: {name}" for direction in PASSES for name in ("Triton, TFLOP/s", "Triton / FA2", "Hopper step / Triton")]
    steps = "; ".join(f"{direction} {names_of(direction)}" for direction in PASSES)
    return rates(f"fp16, 16,384 tokens, H·d = 2,048. Hopper steps: {steps}", head, found)


# NVIDIA's own times of cuDNN 9.19.1 on an H200: bf16, d = 128, B = 1, 64 heads of queries that share 8 of keys and values. TFLOP/s of both
# passes by the formula of ours, from github.com/NVIDIA/cudnn-frontend,
# benchmark/sdpa_benchmark_training/results/h200_919_only_cudnn/llama3.1_20260227_034703.csv
BY_NVIDIA = {(4096, False): (671, 560), (4096, True): (591, 474), (16384, False): (702, 612), (16384, True): (673, 579)}


def published():
    """cuDNN as NVIDIA publishes it, as it was timed here, and the fastest steps, on problems that differ in their heads."""
    rows, lines, used = saved(ON_HOPPER), [], []
    for (length, causal), theirs in BY_NVIDIA.items():
        for at, which in enumerate(("forward", "backward")):
            mine, _, cudnn, _ = rows[128, length, causal, "bf16", which]
            p = mine["problem"]
            lines.append(
                [which, f"{length:,}", "causal" if causal else "no", theirs[at], p["batch"] * p["heads"], speed(cudnn), speed(mine)]
            )
            used += [mine, cudnn]
    head = "pass | N | mask | cuDNN by NVIDIA on an H200, 64 heads | heads here, batch × H | cuDNN here | fastest step here"
    return section("TFLOP/s, bf16, d = 128", head, lines, used)


def problems():
    """The twelve cells and other problems: TFLOP/s of the steps that run by default, and over cuDNN's. Rows of common/binding/time_problems.py."""
    with (RESULTS / H200 / "problems.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    columns = [(which, dtype) for which in PASSES for dtype in ("fp16", "bf16")]
    found, ratios = {}, {column: [] for column in columns}
    for row in rows:
        ours, cudnn = float(row["ours"]), float(row["cudnn"])
        problem = tuple(row[name] for name in ("B", "H", "Hkv", "queries", "keys", "d", "causal"))
        found.setdefault(problem, {})[row["pass"], row["dtype"]] = f"{ours:.0f} (× {ours / cudnn:.2f})"
        ratios[row["pass"], row["dtype"]].append(ours / cudnn)
    lines = []
    for (B, H, Hkv, queries, keys, d, causal), cells in found.items():
        heads, length = f"{H}/{Hkv}" if H != Hkv else H, queries if queries == keys else f"{queries} × {keys}"
        lines.append([B, heads, length, d, causal, *(cells[column] for column in columns)])
    means = [f"**{math.exp(statistics.fmean(map(math.log, ratios[column]))):.2f}**" for column in columns]
    lines.append(["", "", "", "", f"geometric mean of all {len(found)}", *means])
    return "NVIDIA H200, TFLOP/s (×: over cuDNN):\n\n" + table(
        " | ".join(["B", "heads", "N", "d", "mask", *map(", ".join, columns)]), lines
    )
