"""The columns of a table, each a figure of a row."""

import dataclasses
import typing

from rows.row import borrowed_from, device_name, is_peer, max_error, moved_bytes, number
from rows.text import size

from .markup import tag

DASH = "–"


def figure(value):
    """Three significant digits, all digits of whole numbers, without an exponent where it can be read."""
    if isinstance(value, int):
        return f"{value:,}"
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def gain(value):
    return f"{figure(value)} ×"


def cell(title, content, small=None, share=None):
    """A figure, a small line under it, and a bar behind both of a share of the cell, 0 to 1. `title`: what it stands under."""
    style = None if share is None else f"--share:{100 * min(max(share, 0), 1):.1f}%"
    small = tag("small", small) if small else None
    return tag("td", content, small, class_="number" if share is None else "number bar", style=style, data_title=title)


@dataclasses.dataclass
class Column:
    title: str
    value: typing.Callable  # of a row: a number, or None
    text: typing.Callable = figure
    has_bar: bool = False
    small_title: str = None
    small: typing.Callable = None  # of a row: what stands in small print under its value

    def cell(self, row, most):
        value = self.value(row)
        if value is None:
            return cell(self.title, DASH)
        small = self.small(row) if self.small else None
        return cell(self.title, self.text(value), small, value / most if self.has_bar and most else None)


def at(*keys):
    return lambda row: number(row, *keys)


def spread(row):
    ends = [number(row, "time", key) for key in ("min_ms", "max_ms")]
    return " to ".join(DASH if end is None else figure(end) for end in ends)


def both_ways(row):
    return " + ".join(size(number(row, key)) for key in ("hbm_read_bytes", "hbm_written_bytes"))


def peaks(rows):
    """{(device, dtype): peak in TFLOP/s} from the rows that know their share of it, so that peers have one too."""
    known = {}
    for row in rows:
        tflops, percent = number(row, "tflops"), number(row, "percent_of_peak")
        if tflops and percent and row.get("problem"):
            known.setdefault((device_name(row), row["problem"]["dtype"]), 100 * tflops / percent)
    return known


def gains(group):
    """Two functions of a row: its gain over the first line, and over the line before; None where there is none."""
    first = group.first()
    before, last = {}, None
    for row in group.rows:
        if is_peer(row) or borrowed_from(row) or not group.cost(row):
            continue
        before[id(row)], last = last, row

    def over(other, row):
        return None if other is None or other is row or not group.cost(row) else group.cost(other) / group.cost(row)

    return (lambda row: over(first, row)), (lambda row: over(before.get(id(row)), row))


def columns(group, report):
    over_first, over_before = gains(group)
    gain_columns = [Column("gain over the first", over_first, gain), Column("over the line before", over_before, gain)]
    memory = Column("extra memory", at("extra_memory_bytes"), lambda value: "none" if value == 0 else size(value))
    moved = Column("bytes moved", moved_bytes, size, not group.gpu, "read + written", both_ways)
    if not group.gpu:
        return [
            moved,
            *gain_columns,
            memory,
            Column("sectors", at("counters", "sectors")),
            Column("barriers", at("counters", "barriers")),
            Column("warp operations", at("counters", "warp_operations")),
            Column("bank conflicts", at("counters", "bank_conflicts")),
            Column("max error", max_error),
        ]
    peak = report.peaks.get((device_name(group.rows[0]), group.problem["dtype"]))

    def percent(row):
        known, tflops = number(row, "percent_of_peak"), number(row, "tflops")
        return known if known is not None else 100 * tflops / peak if peak and tflops else None

    return [
        Column("median, ms", at("time", "median_ms"), small_title="min to max", small=spread),
        Column("TFLOP/s", at("tflops"), has_bar=True),
        Column("% of peak", percent),
        *gain_columns,
        moved,
        memory,
        *([Column("until the launch returned, ms", at("time", "enqueue_ms"))] if report.has_enqueue else []),
        Column("max error", max_error),
    ]


def tiles(row):
    br, bc = number(row, "tiles", "br"), number(row, "tiles", "bc")
    return DASH if br is None or bc is None else f"{br:g} × {bc:g}"
