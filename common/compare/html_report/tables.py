"""One table for each problem and pass: every stage, the peers, what failed and why."""

import itertools
import typing

from rows.row import absence, borrowed_from, device_name, is_failure, is_good, is_peer, label, max_error, moved_bytes, number, text, verdict
from rows.text import size

from . import chapters
from .groups import cost, cost_text
from .markup import DASH, Cell, Head, counted, figure, gain, join, part, small, table, tag


class Column(typing.NamedTuple):
    title: str
    value: typing.Callable  # of a row: a number, or None
    text: typing.Callable = figure
    has_bar: bool = False
    small_title: str = None
    small: typing.Callable = lambda row: None  # what stands in small print under its value

    def cell(self, row, most):
        value = self.value(row)
        return Cell() if value is None else Cell(self.text(value), self.small(row), value / most if self.has_bar and most else None)


def at(*keys):
    return lambda row: number(row, *keys)


def memory_text(value):
    return DASH if value is None else "none" if value == 0 else size(value)


def peaks(rows):
    """{(device, dtype): peak in TFLOP/s} from the rows that know their share of it, so that peers have one too."""
    known = {}
    for row in rows:
        tflops, percent = number(row, "tflops"), number(row, "percent_of_peak")
        if tflops and percent and row.get("problem"):
            known.setdefault((device_name(row), row["problem"]["dtype"]), 100 * tflops / percent)
    return known


def gains(group):
    """Columns of a row's gain over the first line, and over the line before; None where there is none."""
    own = group.own()
    first, before = group.first(), {id(row): last for last, row in zip(own, own[1:])}

    def over(other, row):
        return None if other is None or other is row or not cost(row) else cost(other) / cost(row)

    return [
        Column("gain over the first", lambda row: over(first, row), gain),
        Column("over the line before", lambda row: over(before.get(id(row)), row), gain),
    ]


def columns(group, peak):
    """Those that have a figure in some line. `peak`: of the device for the type, or None."""

    def percent(row):
        known, tflops = number(row, "percent_of_peak"), number(row, "tflops")
        return known if known is not None else 100 * tflops / peak if peak and tflops else None

    def ends(row):
        return " to ".join(figure(number(row, "time", key)) for key in ("min_ms", "max_ms"))

    def both_ways(row):
        return " + ".join(size(number(row, key)) for key in ("hbm_read_bytes", "hbm_written_bytes"))

    moved = Column("bytes moved", moved_bytes, size, not group.gpu, "read + written", both_ways)
    memory = Column("extra memory", at("extra_memory_bytes"), memory_text)
    if group.gpu:
        median = Column("median, ms", at("time", "median_ms"), small_title="min to max", small=ends)
        enqueue = Column("until the launch returned, ms", at("time", "enqueue_ms"))
        speeds = [Column("TFLOP/s", at("tflops"), has_bar=True), Column("% of peak", percent)]
        every = [median, *speeds, *gains(group), moved, memory, enqueue]
    else:
        names = ("sectors", "barriers", "warp_operations", "bank_conflicts")
        every = [moved, *gains(group), memory, *(Column(name.replace("_", " "), at("counters", name)) for name in names)]
    every.append(Column("max error", max_error))
    return [column for column in every if any(is_good(row) and column.value(row) is not None for row in group.rows)]


def together(rows):
    """Lists of rows that share a line of a table: peers that did not run, one after the other, for the same reason."""

    def line(row):
        return (verdict(row), text(row, "message")) if is_peer(row) and not is_good(row) else id(row)

    return [list(same) for _, same in itertools.groupby(rows, line)]


def name_cell(row, *others):
    """The stage and its variant over the idea in small print; of several rows the names alone."""
    lender = borrowed_from(row)
    idea = "" if others else f"its forward pass is that of {lender}" if lender else text(row, "idea")
    name = tag("code", chapters.link(row["stage"]), "/", tag("wbr"), row["variant"])
    if is_peer(row):
        name = join([tag("span", "peer", class_="mark"), " ", tag("code", ", ".join(one["variant"] for one in (row, *others)))])
    return tag("th", name, small(idea), scope="row")


def reason(row):
    """The verdict and what led to it, in place of figures."""
    error = max_error(row)
    said = text(row, "message") or ("the time limit ended the run" if verdict(row) == "TIMED OUT" else "no reason given")
    return tag("span", tag("b", verdict(row)), f": {said}" + (f" (max error {figure(error)})" if error is not None else ""))


def why_absent(row):
    """A failure by its own name, all else in the words that the plots use."""
    return verdict(row) if absence(row) == "failed" else absence(row)


def verdict_class(row):
    return "failed" if is_failure(row) else "good" if is_good(row) else "left-out"


def verdict_cell(row):
    return Cell(verdict(row), kind=verdict_class(row))


def tiles(row):
    br, bc = number(row, "tiles", "br"), number(row, "tiles", "bc")
    return DASH if br is None or bc is None else f"{br:g} × {bc:g}"


def caption(group):
    """What holds for all lines."""
    known = [row for row in group.rows if not is_peer(row)] or group.rows
    least, flops = (next(filter(None, (number(row, key) for row in known)), None) for key in ("compulsory_bytes", "flops"))
    parts = [group.device] if group.gpu else [group.device, "exact counts; they are not times"]
    cold = {row["time"].get("cold_l2") for row in group.rows if isinstance(row.get("time"), dict)}
    if group.gpu and cold:
        parts.append("cold L2" if cold == {True} else "L2 not flushed in every line")
    if least and flops:
        parts.append(f"any implementation must move {size(least)} and do {figure(flops / 1e9)} GFLOP")
    if group.first() is not None:
        parts.append(f"gains are over {label(group.first())}, in {'time' if group.gpu else 'bytes moved'}")
    return tag("p", "; ".join(parts) + ".", class_="caption")


def result(group):
    """The line of a folded table: the best of it."""
    best, bad = group.best() or group.best(peers=True), sum(not is_good(row) for row in group.rows)
    said = counted(len(group.rows), "line") + (f", {bad} without a result" if bad else "")
    if best is None or (group.gpu and not number(best, "tflops")):
        return said
    figures = f"{figure(number(best, 'tflops'))} TFLOP/s" if group.gpu else f"{cost_text(best)} moved"
    return f"{label(best)}: {figures}; {said}"


def content(group, peak):
    shown = columns(group, peak)
    most = {column: max((column.value(row) or 0 for row in group.rows if is_good(row)), default=0) for column in shown}
    lines = []
    for rows in together(group.rows):
        row = rows[0]
        if is_good(row):
            cells = [Cell(tiles(row)), *(column.cell(row, most[column]) for column in shown)]
        else:
            cells = [Cell(reason(row), kind="reason", span=len(shown) + 1)]
        kind = "peer" if is_peer(row) else "borrowed" if borrowed_from(row) else None
        lines.append((name_cell(*rows), [*cells, verdict_cell(row)], kind))
    figures = [Head(column.title, column.small_title) for column in shown]
    heads = [Head("stage/variant", kind=None), Head("tiles"), *figures, Head("verdict", kind=None)]
    return join([caption(group), table(group.title, group.id, heads, lines, "wide")])


def section(found, peaks, unfolded):
    """All tables. Those of a sweep are folded but for some."""

    def family(group):
        p = group.problem
        return f"{group.device}, {p['dtype']}, d={p['head_dim']}, {'causal' if p['causal'] else 'not causal'}"

    folded = len(found) > 4 and any(group not in unfolded for group in found)
    parts = [tag("p", "Only tables that are unfolded are printed.", class_="caption")] if folded else []
    for name, groups in itertools.groupby(found, family):
        parts += [tag("h3", name, class_="family")] if folded else []
        for group in groups:
            shown = content(group, peaks.get((group.device, group.problem["dtype"])))
            parts.append(part(group.title, group.id, shown, folded, result(group) if folded else None, group in unfolded))
    return join(parts)


def without_problem(rows):
    """Runs that ended before they said which problem they had."""
    if not rows:
        return None
    lines = [(name_cell(row), [Cell(row["pass"], kind=None), Cell(reason(row), kind="reason"), verdict_cell(row)], None) for row in rows]
    heads = [Head(title, kind=None) for title in ("stage/variant", "pass", "reason", "verdict")]
    title, id = "Runs that ended before they named their problem", "no-problem"
    return part(title, id, table(title, id, heads, lines, "wide"))
