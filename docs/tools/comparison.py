"""Of docs/comparison.md: all stages on one problem, beside torch, in times and in counts. The headline ratios are in
headline.py."""

from collections import Counter

from rows import describe, size

from .formatting import number, shown, step, table
from .saved import NOTHING_SAVED, RESULTS, newest, of_each_gpu, origin, rows_of, section

# What the CPU run of `compare` saves of each type, and where torch's rows of the same problem are.
COUNTED = {"fp32": "compare.jsonl", "fp16": "tensor.jsonl"}
TIMED = {"fp32": ("compare.jsonl", "peers.jsonl"), "fp16": ("compare16.jsonl", "peers16.jsonl")}
SWEEPS = [
    ("nvidia_h200", "sweep.jsonl", "stages 01 to 07, fp32"),
    ("nvidia_h200", "sweep16.jsonl", "last steps of stage 08 and torch in turns, fp16"),
    ("nvidia_h200", "sweep_peers.jsonl", "torch, and Triton in fp16"),
    ("cpu", "sweep.jsonl", "stages 01 to 07, fp32, counts"),
    ("cpu", "sweep16.jsonl", "stage 08, fp16, counts"),
]


def worst(row):
    """The largest difference from double precision, of all tensors."""
    tensors = (row.get("check") or {}).get("tensors", {})
    return shown(max((tensor["max_abs"] for tensor in tensors.values()), default=None), ".1e")


def amounts(row):
    return [size(row[name]) for name in ("extra_memory_bytes", "hbm_read_bytes", "hbm_written_bytes")]


@of_each_gpu
def stages(device, direction, dtype):
    """All steps on the problem of compare.jsonl, with times, then torch on the same."""
    ours, theirs = (newest(device, file, direction=direction, having="time") for file in TIMED[dtype])
    if not ours:
        return None
    theirs = [row for row in theirs if describe(row["problem"]) == describe(ours[0]["problem"])]
    lines = []
    for row in ours + theirs:
        peer = row["stage"] == "peer"
        name = f"torch, {row['variant'].replace('_', '-')}" if peer else f"{row['stage']} {step(row)}"
        times = [number(row["time"][field]) for field in ("median_ms", "min_ms", "max_ms")]
        lines.append(
            [name, *(["–"] * 3 if peer else amounts(row)), times[0], f"{times[1]}\u00a0to\u00a0{times[2]}", number(row["tflops"])]
            + [shown(row.get("percent_of_peak") or None, ".0f"), worst(row)]
        )
    head = " | extra memory | bytes read | bytes written | ms, median | least to most | TFLOP/s | % of peak | max error"
    return section("{pass}, {problem}", head, lines, ours + theirs) + (
        "" if theirs else " Torch on this problem in this type is not saved yet."
    )


def counts(direction, dtype):
    """The same as the simulator counts it, on a laptop's problem."""
    rows = [row for row in newest("cpu", COUNTED[dtype], direction=direction) if row["problem"]["dtype"] == dtype]
    if not rows:
        return NOTHING_SAVED
    lines = [
        [f"{row['stage']} {step(row)}", *amounts(row)]
        + [f"{row['counters'][name]:,}" for name in ("sectors", "barriers", "warp_operations", "bank_conflicts", "atomics")]
        + [worst(row)]
        for row in rows
    ]
    head = " | extra memory | bytes read | bytes written | sectors | barriers | warp operations | bank conflicts | atomics | max error"
    least = f"Any implementation must move {size(rows[0]['compulsory_bytes'])}."
    return f"CPU simulator, {direction}, {describe(rows[0]['problem'])}. {least}\n\n{table(head, lines)}\n\n{origin(rows)}"


def saved_sweeps():
    """Which sweeps are there; when they were saved stands below, as it takes sentences."""
    lines, ages = [], []
    for device, file, what in SWEEPS:
        state = ["not saved yet", "–"]
        if (RESULTS / device / file).exists():
            rows = rows_of(device, file)
            without = Counter(row["verdict"].lower() for row in rows if "time" not in row and "counters" not in row)
            state = [
                f"{len(rows) - sum(without.values())}",
                ", ".join(f"{count} {verdict}" for verdict, count in sorted(without.items())) or "–",
            ]
            ages += [f"- `{device}/{file}`: {origin(rows)}"] if rows else []
        lines.append([f"`{device}/{file}`", what, *state])
    return "\n\n".join([table("file in `docs/results` | what | rows with figures | others", lines), "\n".join(ages)])
