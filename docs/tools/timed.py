"""What was measured on each GPU: times, and the counters of each kernel."""

from rows.row import verdict
from rows.text import describe, size

from . import costs
from .formatting import number, table
from .saved import gpus, origin, rows_of


def timed_rows(stages):
    """Of compare.json alone, the demo's problem; sweeps are for plots."""
    for device in gpus():
        rows = [row for row in rows_of(device, "compare.json") if "time" in row and (stages is None or row["stage"] in stages)]
        if rows:
            yield device, rows


def least(row):
    bound = costs.least_ms(row["stage"], row["pass"], row["problem"], row["variant"], row.get("tiles")) if "H200" in row["device"]["name"] else None
    return "–" if bound is None else number(bound)


def times_of(*stages, only=None):
    """Times on each GPU, with those of the stage before; of one pass, or of both."""
    parts = []
    for _, rows in timed_rows(stages):
        by_problem = {}
        for row in rows:
            by_problem.setdefault((row["pass"], describe(row["problem"])), []).append(row)
        for (direction, problem), group in by_problem.items():
            if only not in (None, direction) or not any(row["stage"] == stages[-1] for row in group):
                continue
            lines = [
                [row["stage"], f"`{row['variant']}`", least(row), number(row["time"]["median_ms"]), number(row["tflops"])]
                + [number(row["percent_of_peak"]) if row.get("percent_of_peak") is not None else "–", verdict(row).replace("WRONG", "**wrong**")]
                for row in group
            ]
            head = ["stage", "variant", "ms, at least", "ms, median", "TFLOP/s", "% of peak", "check"]
            parts.append(f"{group[0]['device']['name']}, {direction}, {problem}:\n\n{table(head, lines)}\n\n{origin(group)}")
    return "\n\n".join(parts) or "*No times saved yet.*"


def profile_of(*stages):
    """Each kernel of a pass, as the GPU's counters saw it."""
    lines, seen = [], []
    for device in gpus():
        for row in rows_of(device, "compare.json"):
            if row["stage"] not in stages or "profile" not in row:
                continue
            seen.append(row)
            for kernel in row["profile"]:
                if "softmax" in kernel["kernel"] or row["stage"] == stages[0] == stages[-1]:
                    lines.append(
                        [row["stage"], f"`{row['variant']}`", kernel["kernel"], f"{kernel['time_us']:,.0f}"]
                        + [f"{int(kernel['read_sectors'] + kernel['written_sectors']):,}"]
                        + [size(kernel["hbm_read_bytes"]), size(kernel["hbm_written_bytes"])]
                        + [f"{kernel[key]:.0f}" for key in ["hbm_percent", "l1_percent"]]
                    )
    head = ["stage", "variant", "kernel", "µs", "sectors asked for", "read from HBM", "written to HBM", "HBM, % of peak", "L1, % of peak"]
    problem = f"{seen[0]['device']['name']}, {describe(seen[0]['problem'])}" if seen else ""
    return f"{problem}:\n\n{table(head, lines)}\n\n{origin(seen)}" if seen else "*No profile saved yet.*"
