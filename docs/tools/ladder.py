"""The ladder: every step of the stages, the gains that were predicted and the one that was measured, from docs/ladder.json, the formulas
of the chapters, and the saved times of one GPU."""

import json

from rows.row import is_borrowed
from rows.text import describe

from . import costs
from .formatting import number, table
from .saved import ROOT, newest_rows, origin, rows_of

DEVICE = "nvidia_h200"


def entries(direction):
    """The steps as docs/ladder.json has them. Each changes a step before it."""
    found = json.loads((ROOT / "docs" / "ladder.json").read_text())[direction]
    seen = []
    for entry in found:
        if entry["step"] in seen or entry.get("over", seen[0] if seen else None) not in [*seen, None]:
            raise SystemExit(f"docs/ladder.json: {entry['step']} is there twice, or changes no step before it")
        if not float(entry.get("predicted", 1)) > 0:
            raise SystemExit(f"docs/ladder.json: {entry['step']} has no positive gain")
        seen.append(entry["step"])
    return found


def by_least_times(entry, rows, direction):
    """The gain that the chapters' least times allow, of the tiles that ran."""
    if "over" not in entry or not rows:
        return None
    problem, least = next(iter(rows.values()))["problem"], []
    for step in (entry["over"], entry["step"]):
        stage, variant = step.split("/")
        least.append(costs.least_ms(stage, direction, problem, variant, rows.get(step, {}).get("tiles")))
    return None if None in least else least[0] / least[1]


def ladder(direction):
    saved = [row for row in rows_of(DEVICE, "compare.json") if row["pass"] == direction and not is_borrowed(row)]
    rows = {f"{row['stage']}/{row['variant']}": row for row in saved if "time" in row}
    steps = entries(direction)
    known = [entry["step"] for entry in steps]
    steps += [{"step": step, "why": "Not in docs/ladder.json yet."} for step in rows if step not in known]
    first = rows.get(known[0])
    lines, sentences = [], []
    for count, entry in enumerate(steps, 1):
        row, before = rows.get(entry["step"]), rows.get(entry.get("over"))
        gain = before["time"]["median_ms"] / row["time"]["median_ms"] if row and before else None
        in_all = first["time"]["median_ms"] / row["time"]["median_ms"] if row and first else None
        stage, variant = entry["step"].split("/")
        factors = (entry.get("predicted"), by_least_times(entry, rows, direction), gain, in_all)
        lines.append(
            [count, stage, f"`{variant}`", known.index(entry["over"]) + 1 if "over" in entry else "–"]
            + ["–" if factor is None else number(float(factor)) for factor in factors]
            + ([number(row["time"]["median_ms"]), number(row["tflops"])] if row else ["–", "–"])
        )
        measured = entry.get("why") if row else "Not saved yet."
        if "over" in entry or measured:
            expected = f"*Expected:* {entry['from']} " if "from" in entry else ""
            sentences.append(f"- **{count}, `{variant}`.** {expected}{'*Measured:* ' + measured if measured else ''}".rstrip())
    head = ["no.", "stage", "step", "changes", "gain, estimate", "gain, by least times", "gain, measured", "in all", "ms", "TFLOP/s"]
    body = f"{table(head, lines)}\n\n" + "\n".join(sentences)
    if not rows:
        return body
    row = next(iter(rows.values()))
    return f"{row['device']['name']}, {direction}, {describe(row['problem'])}:\n\n{body}\n\n{origin(list(rows.values()))}"


def beside_peers(direction):
    """The best of the stages, and each of torch's kernels that takes the problem, on the problems that both were timed on."""
    peers = [row for row in rows_of(DEVICE, "peers.json") if row["pass"] == direction and "time" in row]
    saved = newest_rows(DEVICE, "compare.json", "large.json", "sweep.json")
    ours = [row for row in saved if row["pass"] == direction and "time" in row and not is_borrowed(row)]
    variants = list(dict.fromkeys(row["variant"] for row in peers))
    lines, used = [], []
    for problem in dict.fromkeys(describe(row["problem"]) for row in peers):
        stages = [row for row in ours if describe(row["problem"]) == problem]
        if not stages:
            continue
        best = min(stages, key=lambda row: row["time"]["median_ms"])
        times = {row["variant"]: row for row in peers if describe(row["problem"]) == problem}
        used += [best, *times.values()]
        ratios = [best["tflops"] / times[name]["tflops"] if name in times else None for name in variants]
        lines.append(
            [problem, f"{best['stage']} `{best['variant']}`", number(best["tflops"])]
            + [f"{number(times[name]['tflops'])} (×{ratio:.2f})" if ratio else "–" for name, ratio in zip(variants, ratios)]
        )
    if not lines:
        return "*No times of peers saved yet.*"
    head = ["problem", "best step here", "TFLOP/s", *(f"torch, {name.replace('_', '-')}" for name in variants)]
    versions = sorted({row["torch"] for row in peers if "torch" in row})
    return f"{used[0]['device']['name']}, {direction}, torch {', '.join(versions)}; in brackets how many times as fast the step here is:\n\n{table(head, lines)}\n\n{origin(used)}"
