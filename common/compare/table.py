"""Rows as tables: one for each problem, pass and device."""

from .rows import bytes_text, describe, grouped, three_digits


def value_at(*path, text=three_digits):
    """A column's cell: a row's value, or one at a path of keys in it, as text; "" if the row has none."""

    def cell(row):
        value = getattr(row, path[0])
        for key in path[1:]:
            value = value.get(key) if isinstance(value, dict) else None
        return "" if value is None else text(value)

    return cell


def short(value):
    return bytes_text(value, 2)


def tiles(row):
    sizes = row.tiles or row.tune or {}
    return f"{sizes['br']},{sizes['bc']}" if "br" in sizes else ""


def name(row):
    return f"{row.label} {tiles(row)}" if row.tune else row.label


# Title of two lines, cell, whether only --wide shows it. Text is aligned to the left. A table leaves out columns without values.
COLUMNS = (
    ("|stage/variant", name, False),
    ("|tiles", tiles, True),
    ("shared|memory", value_at("tune", "shared_bytes", text=short), False),  # what a choice of tiles takes
    ("extra|memory", value_at("extra_memory_bytes", text=short), False),
    ("|read", value_at("counters", "read_bytes", text=short), True),
    ("|written", value_at("counters", "written_bytes", text=short), True),
    ("|moved", value_at("moved_bytes", text=short), False),
    ("median|ms", value_at("time", "median_ms"), False),
    ("min|ms", value_at("time", "min_ms"), True),
    ("max|ms", value_at("time", "max_ms"), True),
    ("|TFLOP/s", value_at("tflops"), False),
    ("% of|peak", value_at("percent_of_peak"), True),
    ("|sectors", value_at("counters", "sectors", text="{:,}".format), True),
    ("|barriers", value_at("counters", "barriers", text="{:,}".format), False),
    ("warp|ops", value_at("counters", "warp_operations", text="{:,}".format), True),
    ("bank|conflicts", value_at("counters", "bank_conflicts", text="{:,}".format), False),
    ("|verdict", lambda row: row.verdict, False),
    ("|new idea", lambda row: row.idea, True),
)
LEFT = ("stage/variant", "tiles", "verdict", "new idea")


def table(rows, wide):
    shown = [(title.split("|"), cell) for title, cell, is_wide in COLUMNS if (wide or not is_wide) and any(map(cell, rows))]
    columns = []
    for (above, title), cell in shown:
        cells = [above, title, "", *(cell(row) or "-" for row in rows)]
        width = max(map(len, cells))
        cells[2] = "-" * width
        columns.append([text.ljust(width) if title in LEFT else text.rjust(width) for text in cells])
    return "".join("  ".join(cells).rstrip() + "\n" for cells in zip(*columns)).lstrip("\n")


def heading(first):
    """The problem, the device, and the units of the columns."""
    where = f"on {first.device_name}; cold L2; bytes are what threads request from memory,\nbefore caches, as the stage predicts them"
    if not first.is_gpu:
        sm = first.device.get("simulates_sm", 90)
        where = f"on the CPU simulator of sm_{sm}: exact counts; they are not times\n"
        where += "bytes and 32-byte sectors are what threads request from memory, before caches"
    text = f"\n{first['pass']}, {describe(first.problem)}\n{where}\n"
    if first.flops and first.compulsory_bytes:
        text += f"any implementation must move {short(first.compulsory_bytes)} and do {first.flops / 1e9:.3g} GFLOP\n"
    return text + "\n"


def advice(rows):
    """What to know of each variant that was tuned: its default, and what is faster."""
    text = ""
    for label, choices in grouped(filter(lambda row: row.tune, rows), lambda row: row.label).items():
        default, timed = choices[0], [row for row in choices if row.time]
        text += f"{label}: the default is {tiles(default)}: {default.tune.get('why', '')}\n"
        if timed and default.time:
            fastest = min(timed, key=lambda row: row.time["median_ms"])
            longer = 100 * (default.time["median_ms"] / fastest.time["median_ms"] - 1)
            text += f"the fastest is {tiles(fastest)}; the default takes {longer:.1f} % longer\n"
    return text


def tables(rows, wide):
    """In the order of their first rows: a heading, a line per row, and what went wrong."""
    text = ""
    for group in grouped(rows, lambda row: (describe(row.problem), row["pass"], row.device_name)).values():
        text += heading(next((row for row in group if row.flops), group[0])) + table(group, wide)
        text += "".join(f"{name(row)}: {' '.join(row.message.split())}\n" for row in group if not row.is_good and row.message)
        text += advice(group)
    return text
