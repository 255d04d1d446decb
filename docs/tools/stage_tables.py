"""Generated tables and sentences of the chapters on fused stages."""

from rows.text import describe, size

from . import fused_costs
from .constants import constant
from .formatting import number, table
from .saved import gpus, origin, rows_of


def shared_kib(br, bc, width):
    pad = constant(fused_costs.FA1_ROWS, "PAD")
    return 4 * (2 * bc * width + 2 * br * (width + pad)) / 1024


def tiles_04():
    """(4.6)  On three generations of GPUs."""
    rows = []
    for sm, available in fused_costs.SHARED_BYTES.items():
        for d in [32, 64, 96, 128]:
            br, bc = fused_costs.fa1_tiles({"head_dim": d, "seq_q": 10**6, "seq_k": 10**6}, sm)
            paper = -(-available // 4 // (4 * d))
            rows.append([f"sm_{sm}, {available // 1024} KiB", d, f"{min(paper, d)} × {paper}", f"{br} × {bc}", f"{shared_kib(br, bc, fused_costs.up(d, 32)):.0f} KiB"])
    return table(["shared memory of a block", "d", "paper, Br × Bc", "here, Br × Bc", "used"], rows)


def tiles_05():
    """(5.8)"""
    rows = []
    for sm, available in fused_costs.SHARED_BYTES.items():
        for d in [32, 64, 96, 128]:
            br, bc = fused_costs.fa1_backward_tiles({"head_dim": d, "seq_q": 10**6, "seq_k": 10**6}, sm)
            rows.append([f"sm_{sm}, {available // 1024} KiB", d, f"{br} × {bc}", f"{fused_costs.fa1_backward_shared(br, bc, fused_costs.up(d, 32)) / 256:.0f} KiB"])
    return table(["shared memory of a block", "d", "Br × Bc", "used"], rows)


def faster_or_slower(ratio):
    """Of a time divided by another one."""
    if 0.98 < ratio < 1.02:
        return "about the same"
    return f"{1 / ratio:.2g} times as fast" if ratio < 1 else f"{ratio:.2g} times as long: it loses"


def against(stage, direction, file="compare.json", missing="*No times saved yet.*"):
    """A stage's best variant beside the best of all stages before it, for each saved problem of each GPU."""
    parts = []
    for device in gpus():
        problems = {}
        for row in rows_of(device, file):
            if row["pass"] == direction and "time" in row:
                problems.setdefault(describe(row["problem"]), []).append(row)
        for problem, rows in problems.items():
            ours = min((row for row in rows if row["stage"] == stage), key=lambda row: row["time"]["median_ms"], default=None)
            before = min((row for row in rows if row["stage"] < stage), key=lambda row: row["time"]["median_ms"], default=None)
            if ours is None or before is None:
                continue
            ratio = ours["time"]["median_ms"] / before["time"]["median_ms"]
            parts.append(
                f"{ours['device']['name']}, {direction}, {problem}: the best of this stage takes {number(ours['time']['median_ms'])} ms, the best before it "
                f"(`{before['stage']}`, `{before['variant']}`) {number(before['time']['median_ms'])} ms. **{faster_or_slower(ratio).capitalize()}**, "
                f"with {size(ours['extra_memory_bytes'])} of extra memory instead of {size(before['extra_memory_bytes'])}. {origin([ours, before])}"
            )
    return "\n\n".join(parts) or missing


def long_sequences(stage, direction):
    """The steps of a stage on the problems of large.json: rates, gains, and what a causal mask does to the rate."""
    parts = []
    for device in gpus():
        rows = [row for row in rows_of(device, "large.json") if row["stage"] == stage and row["pass"] == direction and "time" in row]
        rates = {(describe(row["problem"]), row["variant"]): row["tflops"] for row in rows}
        lines = []
        for row in rows:
            problem, variant = describe(row["problem"]), row["variant"]
            before = [other["variant"] for other in rows if describe(other["problem"]) == problem]
            before = before[before.index(variant) - 1] if before.index(variant) else None
            full = rates.get((problem.replace(" causal", ""), variant)) if row["problem"]["causal"] else None
            lines.append(
                [problem, f"`{variant}`", "{br} × {bc}".format_map(row["tiles"]) if row.get("tiles") else "–", number(row["time"]["median_ms"])]
                + [f"{row['tflops']:.1f}", f"{rates[problem, variant] / rates[problem, before]:.2f}" if before else "–"]
                + [f"{row['tflops'] / full:.2f}" if full else "–"]
            )
        if lines:
            head = ["problem", "step", "tiles", "ms", "TFLOP/s", "times the step before", "times the rate without mask"]
            parts.append(f"{rows[0]['device']['name']}, {direction}:\n\n{table(head, lines)}\n\n{origin(rows)}")
    return "\n\n".join(parts) or "*No times saved yet.*"
