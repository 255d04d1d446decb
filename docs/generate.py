#!/usr/bin/env python3
"""Writes every generated part of the Markdown pages, and the pictures, from saved results. Needs Python alone.

  docs/generate.py           rewrites what changed
  docs/generate.py --check   changes nothing; exits with 1 and names each part that is stale, each broken link and equation

A generated part stands between `<!-- generated: NAME ... -->` and `<!-- end -->`; PARTS below says what each NAME is.
Saved results are docs/results/DEVICE/*.json (rows of `compare --save`) and *.txt (what a program printed): docs/save_results.sh.
"""

import json
import re
import sys
from pathlib import Path

from tools import check_pages, costs, diagrams, fused_tables, h200, matmul_tables, roofline as roofline_page, stage_tables
from tools.saved import NOTHING_SAVED, gpus, origin, rows_of, saved_text

ROOT = Path(__file__).resolve().parent.parent
MARKER = re.compile(r"(<!-- generated: ([^>]+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


# ---- formatting ------------------------------------------------------------------------------------------------------------


def table(head, rows):
    """Columns of numbers (most of their cells are) are aligned to the right."""
    is_number = re.compile(r"\**[\d.,]+(e[+-]?\d+)?( [KMG]?i?B?)?\**").fullmatch
    numeric = [sum(bool(is_number(str(row[c]))) for row in rows) > len(rows) / 2 for c in range(len(head))]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---:" if n else "---" for n in numeric) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def number(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def size(amount):
    """Bytes for people."""
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if amount < 1024 or unit == "GiB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= 1024
    return ""


def problem_text(p):
    heads = f"H={p['heads']}" if p["heads"] == p["kv_heads"] else f"H={p['heads']} Hkv={p['kv_heads']}"
    lengths = f"N={p['seq_q']}" if p["seq_q"] == p["seq_k"] else f"Nq={p['seq_q']} Nk={p['seq_k']}"
    options = (" causal" if p["causal"] else "") + (f" bias={p['bias']}" if p["bias"] != "none" else "")
    layout = "" if p["layout"] == "bhnd" else f" {p['layout']}"
    return f"B={p['batch']} {heads} {lengths} d={p['head_dim']}{options}{layout} {p['dtype']}"


# ---- the parts -------------------------------------------------------------------------------------------------------------


def roofline():
    n, d = 4096, 64
    rows = []
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16", 2, h200.BF16_FLOPS)]:
        steps = [
            ("S = QKᵀ/√d", 2 * n * n * d, width * (2 * n * d + n * n)),
            ("P = softmax(S)", 3 * n * n, 2 * width * n * n),
            ("O = PV", 2 * n * n * d, width * (n * n + 2 * n * d)),
        ]
        fused = ("**fused**", sum(s[1] for s in steps), width * 4 * n * d)
        bound = 0.0
        for name, work, moved in steps + [fused]:
            # The softmax does not run on tensor cores, whatever its numbers' width.
            rate = h200.FP32_FLOPS if "softmax" in name else peak
            compute, memory = work / rate * 1e6, moved / h200.HBM_BYTES_PER_SECOND * 1e6
            if name != fused[0]:
                bound += max(compute, memory)
            limit = "memory" if memory > compute else "arithmetic"
            rows.append([dtype, name, f"{work / 1e9:.2f} G", size(moved), f"{work / moved:.1f}", f"{compute:.1f}", f"{memory:.1f}", limit])
        rows.insert(-1, [dtype, "three kernels", "", "", "", "", f"{bound:.1f} in all", ""])
    return table(["", "step", "FLOPs", "bytes", "FLOP/B", "arithmetic, µs", "memory, µs", "bound by"], rows)


def agree(row, what, expected, counted):
    """Predictions are exact: a difference is a mistake in the chapter or in the kernel."""
    if expected != counted:
        name = f"{row['stage']} {row['variant']} {row['pass']}"
        raise SystemExit(f"{name}, {problem_text(row['problem'])}: {what}: predicted {expected}, counted {counted}")
    return f"{counted:,}"


def count_table(stage, direction, p, rows):
    """Predicted beside counted for one problem, a column for each variant."""
    expected = costs.predicted(stage, direction, p, rows[0].get("tiles"))
    traffic = [row["counters"]["tensors"] for row in rows]
    for row, tensors in zip(rows, traffic):
        for name, moved in tensors.items():
            if name not in expected:
                agree(row, f"bytes of {name}", 0, moved["read_bytes"] + moved["written_bytes"])
    lines = []
    for name, elements in expected.items():
        for count, key, what in zip(elements, ["read_bytes", "written_bytes"], ["read", "written"]):
            counts = [agree(row, f"{name} {what}", 4 * count, t.get(name, {}).get(key, 0)) for row, t in zip(rows, traffic)]
            if count:
                lines.append([f"{name} {what}, bytes", f"{4 * count:,}"] + counts)
    total = 4 * sum(read + written for read, written in expected.values())
    lines.append(["**all bytes**"] + [f"**{total:,}**"] * (1 + len(rows)))
    sectors = [costs.predicted_sectors(stage, row["variant"], direction, p) for row in rows]
    if None not in sectors:
        counts = [agree(row, "sectors", expected, row["counters"]["sectors"]) for row, expected in zip(rows, sectors)]
        lines.append(["sectors of 32 bytes", " / ".join(dict.fromkeys(f"{expected:,}" for expected in sectors))] + counts)
    for counter in ["barriers", "warp_operations"]:
        if costs.predicted_events(stage, rows[0]["variant"], direction, p) is None:
            lines.append([counter.replace("_", " "), "–"] + [f"{row['counters'][counter]:,}" for row in rows])
            continue
        events = [costs.predicted_events(stage, row["variant"], direction, p)[counter] for row in rows]
        counts = [agree(row, counter, event, row["counters"][counter]) for row, event in zip(rows, events)]
        if any(events):
            lines.append([counter.replace("_", " "), " / ".join(dict.fromkeys(f"{event:,}" for event in events))] + counts)
    return table(["", "predicted"] + [f"counted, `{row['variant']}`" for row in rows], lines)


def bytes_of(stage):
    """A table for each pass, saved problem and tile size of a stage."""
    problems = {}
    for row in rows_of("cpu"):
        if row["stage"] == stage and "counters" in row:
            problems.setdefault((row["pass"], json.dumps(row["problem"]), json.dumps(row.get("tiles"))), []).append(row)
    parts = []
    for (direction, problem, tiles), rows in problems.items():
        p = json.loads(problem)
        title = f"{direction.capitalize()}, {problem_text(p)}" + (", tiles {br} × {bc}".format_map(json.loads(tiles)) if tiles != "null" else "")
        body = f"{count_table(stage, direction, p, rows)}\n\n{origin(rows)}"
        # The first problem is to be read; the others stay closed until someone asks.
        first = all(json.loads(other) == p for _, other, _ in list(problems)[: len(parts)])
        parts.append(f"{title}:\n\n{body}" if first else f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>")
    return "\n\n".join(parts) or NOTHING_SAVED


def timed_rows(stages):
    """Of compare.json alone, the demo's problem; sweeps are for plots."""
    for device in gpus():
        rows = [row for row in rows_of(device, "compare.json") if "time" in row and (stages is None or row["stage"] in stages)]
        if rows:
            yield device, rows


def verdict(row):
    check = row.get("check")
    return "not checked" if not check else "ok" if check["passed"] else "**wrong**"


def least(row):
    bound = costs.least_ms(row["stage"], row["pass"], row["problem"]) if "H200" in row["device"]["name"] else None
    return "–" if bound is None else number(bound)


def times_of(*stages):
    """Times on each GPU, with those of the stage before."""
    parts = []
    for _, rows in timed_rows(stages):
        by_problem = {}
        for row in rows:
            by_problem.setdefault((row["pass"], problem_text(row["problem"])), []).append(row)
        for (direction, problem), group in by_problem.items():
            if not any(row["stage"] == stages[-1] for row in group):
                continue
            lines = [
                [row["stage"], f"`{row['variant']}`", least(row), number(row["time"]["median_ms"]), number(row["tflops"])]
                + [number(row["percent_of_peak"]) if row.get("percent_of_peak") is not None else "–", verdict(row)]
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
    problem = f"{seen[0]['device']['name']}, {problem_text(seen[0]['problem'])}" if seen else ""
    return f"{problem}:\n\n{table(head, lines)}\n\n{origin(seen)}" if seen else "*No profile saved yet.*"


def sectors_checked():
    """The simulator's sectors beside the GPU's. They have to be equal."""
    lines, seen = [], []
    counted = {(row["stage"], row["variant"], row["pass"]): row for row in rows_of("cpu", "compare.json")}
    for device in gpus():
        for row in rows_of(device, "counted_problem.json"):
            simulated = counted.get((row["stage"], row["variant"], row["pass"]))
            if simulated is None or "profile" not in row or simulated["problem"] != row["problem"]:
                continue
            on_gpu = int(sum(kernel["read_sectors"] + kernel["written_sectors"] for kernel in row["profile"]))
            lines.append([row["stage"], f"`{row['variant']}`", row["pass"], agree(row, "sectors", simulated["counters"]["sectors"], on_gpu), f"{on_gpu:,}"])
            seen.append(row)
    head = ["stage", "variant", "pass", "sectors, simulator", f"sectors, {seen[0]['device']['name']}" if seen else ""]
    return f"{table(head, lines)}\n\n{origin(seen)}" if seen else "*No profile saved yet.*"


PARTS = {
    "roofline": roofline,
    "tiles_04": lambda: stage_tables.tiles_04(table),
    "tiles_05": lambda: stage_tables.tiles_05(table),
    "against": lambda stage, direction: stage_tables.against(stage, direction, number, problem_text),
    "few_heads": lambda stage, direction: stage_tables.against(stage, direction, number, problem_text, "few_heads.json"),
    "bytes_01": lambda: bytes_of("01_naive"),
    "bytes_02": lambda: bytes_of("02_safe_softmax"),
    "bytes_03": lambda: bytes_of("03_online_softmax"),
    "bytes_04": lambda: bytes_of("04_fa1_forward"),
    "bytes_05": lambda: bytes_of("05_fa1_backward"),
    "bytes_06": lambda: bytes_of("06_fa2_forward"),
    "times_01": lambda: times_of("01_naive"),
    "times_02": lambda: times_of("01_naive", "02_safe_softmax"),
    "times_03": lambda: times_of("02_safe_softmax", "03_online_softmax"),
    "times_04": lambda: times_of("03_online_softmax", "04_fa1_forward"),
    "times_05": lambda: times_of("01_naive", "05_fa1_backward"),
    "times_06": lambda: times_of("04_fa1_forward", "06_fa2_forward"),
    "profile": profile_of,
    "sectors_checked": sectors_checked,
    "recompute": lambda: fused_tables.recompute(table),
    "run": fused_tables.run,
    "io_theory": lambda: fused_tables.io_theory(table, size),
    "io_memory": lambda: fused_tables.io_memory(table, size),
    "io_counts": lambda: fused_tables.io_counts(table, size, problem_text),
    "tile_levels": lambda: matmul_tables.tile_levels(table),
    "register_tiles": lambda: matmul_tables.register_tiles(table),
    "wavefronts": lambda: matmul_tables.wavefront_table(table),
    "roofline_stages": lambda: roofline_page.stages_table(table, size, problem_text),
    "lab": lambda name: saved_text("cpu", f"lab_{name}", 110),  # what docs/lab's program printed
    "output": lambda stage: saved_text("cpu", stage),  # what a stage printed
    "comparison": lambda device: saved_text(device, "compare"),  # what the demo printed
}


def page(text, where):
    """The text with all its generated parts made anew, and the names of those that changed."""
    stale = []

    def fill(match):
        name, *arguments = match.group(2).split()
        if name not in PARTS:
            raise SystemExit(f"{where}: no generated part is called '{name}'; there are: {', '.join(PARTS)}")
        body = PARTS[name](*arguments) + "\n"
        if body != match.group(3):
            stale.append(match.group(2))
        return match.group(1) + body + match.group(4)

    return MARKER.sub(fill, text), stale


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        raise SystemExit(__doc__)
    wrong = []
    for path in check_pages.pages():
        relative = path.relative_to(ROOT)
        before = path.read_text()
        after, stale = page(before, relative)
        wrong += [f"{relative}: generated part '{name}' is stale; run docs/generate.py" for name in stale if check]
        if not check and after != before:
            path.write_text(after)
            print(f"{relative}: {', '.join(stale)}")
    for name, contents in diagrams.files().items():
        path = ROOT / name
        if path.exists() and path.read_text() == contents:
            continue
        if check:
            wrong.append(f"{name} is stale; run docs/generate.py")
        else:
            path.write_text(contents)
            print(name)
    wrong += check_pages.problems()
    print("\n".join(wrong) or "docs: all generated parts, links and equation numbers are right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
