"""The tile sizes that `compare --tune` found on each GPU: docs/results/DEVICE/tuned.jsonl, rows of check_gpu.sh's part `tune`."""

from .formatting import ms, tiles_text
from .saved import H200, fastest, newest, section


def line(row):
    """The default beside the fastest of the other choices."""
    tune, problem = row["tune"], row["problem"]
    timed = [choice for choice in tune["choices"] if "time" in choice]
    default = next((choice for choice in timed if tiles_text(choice) == tiles_text(tune["default"])), None)
    other = fastest(choice for choice in timed if choice is not default)
    longer = f"{100 * (other['time']['median_ms'] / default['time']['median_ms'] - 1):+.1f}" if default and other else "–"
    cells = [tiles_text(tune["default"]), ms(default), tiles_text(other), ms(other), longer]
    return [problem["head_dim"], "causal" if problem["causal"] else "no", problem["dtype"], len(tune["choices"]), *cells]


def widths_and_masks(rows):
    return {(row["problem"]["head_dim"], row["problem"]["causal"]) for row in rows}


def tuned(stage, direction=None, *variants):
    """Of one stage, for each pass, or for one of them, or for some of its variants; and what is there of the other pass alone."""
    rows, parts = newest(H200, "tuned.jsonl", stage=stage, having="tune"), []
    for variant, which in dict.fromkeys((row["variant"], row["pass"]) for row in rows):
        if which != (direction or which) or variant not in (variants or [variant]):
            continue
        of_variant = [row for row in rows if (row["variant"], row["pass"]) == (variant, which)]
        group = [row for row in of_variant if row["tune"]]  # nothing: refused
        group.sort(key=lambda row: (row["problem"]["head_dim"], row["problem"]["causal"]))
        head = "d | mask | dtype | choices | default, Br × Bc | ms | best other, Br × Bc | ms | takes longer by %"
        length, batch = group[0]["problem"]["seq_q"], group[0]["problem"]["batch"]
        missing = sorted(widths_and_masks(rows) - widths_and_masks(of_variant))
        listed = ", ".join(f"d = {d}{' causal' if causal else ''}" for d, causal in missing)
        title = f"{which}, `{variant}`, {batch * length:,} tokens in rows of {length:,}, H·d about 2,048"
        parts.append(section(title, head, list(map(line, group)), group) + (f" Not saved yet: {listed}." if missing else ""))
    return "\n\n".join(parts)
