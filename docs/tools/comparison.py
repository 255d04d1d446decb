"""The tables of docs/comparison.md and of README.md: all stages on one problem, beside torch, in times and in counts."""

from collections import Counter

from rows.row import is_borrowed
from rows.text import describe, size

from .formatting import number, table
from .saved import NOTHING_SAVED, RESULTS, age, gpus, origin, rows_of

# The front page has a line for each stage and pass that the stage is about, in these words.
FRONT = [
    ("01_naive", "forward", "S and P in HBM"),
    ("02_safe_softmax", "forward", "the maximum subtracted; a warp per row"),
    ("03_online_softmax", "forward", "maximum and sum in one pass"),
    ("04_fa1_forward", "forward", "S and P stay on the chip"),
    ("06_fa2_forward", "forward", "queries outside; register tiles, double buffering"),
    ("08_tensor_cores", "forward", "fp16 products on tensor cores"),
    ("01_naive", "backward", "P, dP and dS in HBM"),
    ("05_fa1_backward", "backward", "P computed again instead of stored"),
    ("07_fa2_backward", "backward", "five products in one kernel, register tiles"),
    ("08_tensor_cores", "backward", "the same on tensor cores"),
]
# What the CPU run of `compare` saves of each type, and where torch's rows of the same problem are.
COUNTED = {"fp32": "compare.json", "fp16": "tensor.json"}
TIMED = {"fp32": ("compare.json", "peers.json"), "fp16": ("compare16.json", "peers16.json")}
SWEEPS = [
    ("nvidia_h200", "sweep.json", "stages 01 to 07, fp32"),
    ("nvidia_h200", "sweep16.json", "stage 08, fp16"),
    ("nvidia_h200", "sweep_peers.json", "torch"),
    ("cpu", "sweep.json", "stages 01 to 07, fp32, counts"),
    ("cpu", "sweep16.json", "stage 08, fp16, counts"),
]


def worst(row):
    """The largest difference from double precision, of all tensors."""
    tensors = (row.get("check") or {}).get("tensors", {})
    return f"{max(tensor['max_abs'] for tensor in tensors.values()):.1e}" if tensors else "–"


def own(rows, direction, dtype):
    """The rows of a pass and type, without passes that run another stage's kernels."""
    return [row for row in rows if row["pass"] == direction and row["problem"]["dtype"] == dtype and not is_borrowed(row)]


def stages(direction, dtype):
    """All steps on the problem of compare.json, with times, then torch on the same."""
    parts = []
    for device in gpus():
        ours, theirs = (own(rows_of(device, file), direction, dtype) for file in TIMED[dtype])
        ours = [row for row in ours if "time" in row]
        if not ours:
            continue
        theirs = [row for row in theirs if "time" in row and describe(row["problem"]) == describe(ours[0]["problem"])]
        lines = []
        for row in ours + theirs:
            name = f"{row['stage']} `{row['variant']}`" if row in ours else f"torch, {row['variant'].replace('_', '-')}"
            counts = [size(row["extra_memory_bytes"]), size(row["hbm_read_bytes"]), size(row["hbm_written_bytes"])] if row in ours else ["–"] * 3
            lines.append(
                [name, *counts, number(row["time"]["median_ms"]), f"{number(row['time']['min_ms'])}\u00a0to\u00a0{number(row['time']['max_ms'])}"]
                + [number(row["tflops"]), f"{row['percent_of_peak']:.0f}" if row.get("percent_of_peak") else "–", worst(row)]
            )
        head = ["", "extra memory", "bytes read", "bytes written", "ms, median", "least to most", "TFLOP/s", "% of peak", "max error"]
        beside = "" if theirs else " Torch on this problem in this type is not saved yet."
        title = f"{ours[0]['device']['name']}, {direction}, {describe(ours[0]['problem'])}:"
        parts.append(f"{title}\n\n{table(head, lines)}\n\n{origin(ours + theirs)}{beside}")
    return "\n\n".join(parts) or NOTHING_SAVED


def counts(direction, dtype):
    """The same as the simulator counts it, on a laptop's problem."""
    rows = own(rows_of("cpu", COUNTED[dtype]), direction, dtype)
    if not rows:
        return NOTHING_SAVED
    lines = [
        [f"{row['stage']} `{row['variant']}`", size(row["extra_memory_bytes"]), size(row["hbm_read_bytes"]), size(row["hbm_written_bytes"])]
        + [f"{row['counters'][name]:,}" for name in ("sectors", "barriers", "warp_operations", "bank_conflicts", "atomics")]
        + [worst(row)]
        for row in rows
    ]
    head = ["", "extra memory", "bytes read", "bytes written", "sectors", "barriers", "warp operations", "bank conflicts", "atomics", "max error"]
    least = f"Any implementation must move {size(rows[0]['compulsory_bytes'])}."
    return f"CPU simulator, {direction}, {describe(rows[0]['problem'])}. {least}\n\n{table(head, lines)}\n\n{origin(rows)}"


def front():
    """One line for each stage: its fastest step on the problem of compare.json."""
    parts = []
    for device in gpus():
        rows = [row for files in TIMED.values() for row in rows_of(device, files[0]) if "time" in row]
        lines, used = [], []
        for stage, direction, idea in FRONT:
            best = min((row for row in rows if (row["stage"], row["pass"]) == (stage, direction)), key=lambda row: row["time"]["median_ms"], default=None)
            cells = ["–"] * 4
            if best:
                used.append(best)
                cells = [size(best["extra_memory_bytes"]), size(best["hbm_read_bytes"] + best["hbm_written_bytes"])]
                cells += [number(best["time"]["median_ms"]), number(best["tflops"])]
            lines.append([f"[`{stage}`]({stage})", direction, idea, *cells])
        if used:
            problem = describe(used[0]["problem"]).rsplit(" ", 1)[0]
            head = ["stage", "pass", "what is new", "extra memory", "bytes asked of memory", "ms", "TFLOP/s"]
            title = f"{used[0]['device']['name']}, {problem}, the fastest step of each stage; fp32, stage 08 fp16:"
            parts.append(f"{title}\n\n{table(head, lines)}\n\n{age(used)}")
    return "\n\n".join(parts) or NOTHING_SAVED


def demo():
    """The first table that `compare` printed on the CPU."""
    path = RESULTS / "cpu" / "compare.txt"
    if not path.exists():
        return NOTHING_SAVED
    head, first, *_ = path.read_text().strip().split("\n\n")
    return f"```text\n{head}\n\n{first}\n```"


def saved_sweeps():
    """Which sweeps are there."""
    lines = []
    for device, file, what in SWEEPS:
        path, state = RESULTS / device / file, ["not saved yet", "–", "–"]
        if path.exists():
            rows = rows_of(device, file)
            without = Counter(row["verdict"].lower() for row in rows if "time" not in row and "counters" not in row)
            state = [origin(rows) if rows else "empty", f"{len(rows) - sum(without.values())}"]
            state += [", ".join(f"{count} {verdict}" for verdict, count in sorted(without.items())) or "–"]
        lines.append([f"`{device}/{file}`", what, *state])
    return table(["file in `docs/results`", "what", "saved", "rows with figures", "others"], lines)
