"""The tile sizes that `--tune` found on each GPU: docs/results/DEVICE/tuned.json, rows of common/compare/tune.py."""

from .formatting import number, table
from .saved import NOTHING_SAVED, gpus, origin, rows_of


def tiles_text(tiles):
    return f"{tiles['br']} × {tiles['bc']}" if tiles else "–"


def milliseconds(choices, tiles):
    return next((row["time"]["median_ms"] for row in choices if tiles and (row["br"], row["bc"]) == (tiles["br"], tiles["bc"]) and "time" in row), None)


def line(row):
    tune, problem = row["tune"], row["problem"]
    default, fastest = (milliseconds(tune["choices"], tune[name]) for name in ("default", "fastest"))
    longer = "–" if default is None or fastest is None else f"{100 * (default / fastest - 1):.1f}"
    mask = "causal" if problem["causal"] else "no"
    return [problem["head_dim"], mask, problem["dtype"], len(tune["choices"]), tiles_text(tune["default"]), "–" if default is None else number(default),
            tiles_text(tune["fastest"]), "–" if fastest is None else number(fastest), longer]  # fmt: skip


def tuned(stage):
    """Of one stage: all its rows, for each GPU and pass."""
    parts = []
    for device in gpus():
        rows = [row for row in rows_of(device, "tuned.json") if row["stage"] == stage]
        for variant, which in dict.fromkeys((row["variant"], row["pass"]) for row in rows):
            group = [row for row in rows if (row["variant"], row["pass"]) == (variant, which)]
            head = ["d", "mask", "dtype", "choices", "default, Br × Bc", "ms", "fastest, Br × Bc", "ms", "default takes longer by %"]
            tokens = group[0]["problem"]["batch"] * group[0]["problem"]["seq_q"]
            parts.append(
                f"{group[0]['device']['name']}, {which}, `{variant}`, {tokens:,} tokens in rows of {group[0]['problem']['seq_q']:,}, H·d about 2,048:\n\n"
                f"{table(head, [line(row) for row in group])}\n\n{origin(group)}"
            )
    return "\n\n".join(parts) or NOTHING_SAVED
