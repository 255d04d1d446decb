"""The tile sizes that `--tune` found on each GPU: docs/results/DEVICE/tuned.json, rows of `compare --tune`."""

from .formatting import number, table
from .saved import NOTHING_SAVED, gpus, origin, rows_of


def tiles_text(tiles):
    return f"{tiles['br']} × {tiles['bc']}" if tiles else "–"


def same(one, other):
    return bool(one and other) and (one["br"], one["bc"]) == (other["br"], other["bc"])


def milliseconds(choice):
    return choice["time"]["median_ms"] if choice else None


def line(row):
    """The default beside the fastest of the other choices."""
    tune, problem = row["tune"], row["problem"]
    timed = [choice for choice in tune["choices"] if "time" in choice]
    default = next((choice for choice in timed if same(choice, tune["default"])), None)
    other = min((choice for choice in timed if choice is not default), key=milliseconds, default=None)
    longer = f"{100 * (milliseconds(other) / milliseconds(default) - 1):+.1f}" if default and other else "–"
    times = [number(milliseconds(choice)) if choice else "–" for choice in (default, other)]
    mask = "causal" if problem["causal"] else "no"
    return [problem["head_dim"], mask, problem["dtype"], len(tune["choices"]), tiles_text(tune["default"]), times[0], tiles_text(other), times[1], longer]


def widths_and_masks(rows):
    return {(row["problem"]["head_dim"], row["problem"]["causal"]) for row in rows}


def tuned(stage):
    """Of one stage: all its rows, for each GPU and pass; and what is there of the other pass alone."""
    parts = []
    for device in gpus():
        rows = [row for row in rows_of(device, "tuned.json") if row["stage"] == stage and row.get("tune")]
        for variant, which in dict.fromkeys((row["variant"], row["pass"]) for row in rows):
            group = [row for row in rows if (row["variant"], row["pass"]) == (variant, which)]
            head = ["d", "mask", "dtype", "choices", "default, Br × Bc", "ms", "best other, Br × Bc", "ms", "takes longer by %"]
            tokens = group[0]["problem"]["batch"] * group[0]["problem"]["seq_q"]
            missing = sorted(widths_and_masks(rows) - widths_and_masks(group))
            listed = ", ".join(f"d = {d}{' causal' if causal else ''}" for d, causal in missing)
            without = f" Not saved yet: {listed}." if missing else ""
            parts.append(
                f"{group[0]['device']['name']}, {which}, `{variant}`, {tokens:,} tokens in rows of {group[0]['problem']['seq_q']:,}, H·d about 2,048:\n\n"
                f"{table(head, [line(row) for row in group])}\n\n{origin(group)}{without}"
            )
    return "\n\n".join(parts) or NOTHING_SAVED
