"""One table for each problem and pass: every stage, the peers, what failed and why."""

import dataclasses
import typing

from .markup import counted, join, tag
from .rows import (borrowed_from, device_name, is_failure, is_good, is_gpu, is_peer, label, max_error, moved_bytes, number, text,
                   verdict)  # fmt: skip
from tools.formatting import size  # the path is set in rows.py

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


def bar(content, share, class_="number"):
    """A cell with a bar behind its text; share: 0 to 1 of the cell."""
    return tag("td", content, class_=f"{class_} bar", style=f"--share:{100 * min(max(share, 0), 1):.1f}%")


@dataclasses.dataclass
class Column:
    title: str
    value: typing.Callable  # of a row: a number, or None
    text: typing.Callable = figure
    has_bar: bool = False
    cell_text: typing.Callable = None  # of a row, where one number is not all

    def cell(self, row, most):
        value = self.value(row)
        if value is None:
            return tag("td", DASH, class_="number")
        if self.cell_text:
            return tag("td", self.cell_text(row), class_="number")
        if self.has_bar and most:
            return bar(self.text(value), value / most)
        return tag("td", self.text(value), class_="number")


def at(*keys):
    return lambda row: number(row, *keys)


def spread(row):
    ends = [number(row, "time", key) for key in ("min_ms", "max_ms")]
    return " to ".join(DASH if end is None else figure(end) for end in ends)


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
    if not group.gpu:
        return [
            Column("bytes moved", moved_bytes, size, has_bar=True),
            *gain_columns,
            Column("read", at("hbm_read_bytes"), size),
            Column("written", at("hbm_written_bytes"), size),
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

    enqueue = [Column("until the launch returned, ms", at("time", "enqueue_ms"))] if report.has_enqueue else []
    return [
        Column("median, ms", at("time", "median_ms")),
        Column("min to max, ms", at("time", "min_ms"), cell_text=spread),
        *enqueue,
        Column("TFLOP/s", at("tflops"), has_bar=True),
        Column("% of peak", percent),
        *gain_columns,
        Column("bytes read", at("hbm_read_bytes"), size),
        Column("bytes written", at("hbm_written_bytes"), size),
        memory,
        Column("max error", max_error),
    ]


def tiles(row):
    br, bc = number(row, "tiles", "br"), number(row, "tiles", "bc")
    return DASH if br is None or bc is None else f"{br:g} × {bc:g}"


def together(rows):
    """Lists of rows that share a line of a table: peers that did not run, one after the other, for the same reason."""
    lines = []
    for row in rows:
        before = lines[-1][0] if lines else None
        same = before and is_peer(row) and is_peer(before) and not is_good(row) and not is_good(before)
        if same and verdict(row) == verdict(before) and text(row, "message") == text(before, "message"):
            lines[-1].append(row)
        else:
            lines.append([row])
    return lines


def name_cell(row, *others):
    """The stage and its variant over the idea in small print; of several rows the names alone."""
    idea = "" if others else text(row, "idea")
    lender = borrowed_from(row)
    if lender:
        idea = f"its forward pass is that of {lender}"
    name = tag("code", row["stage"], "/", tag("wbr"), row["variant"])
    if is_peer(row):
        name = join([tag("span", "peer", class_="mark"), " ", tag("code", ", ".join(one["variant"] for one in (row, *others)))])
    return tag("th", name, tag("small", idea) if idea else None, scope="row")


def reason(row):
    """The verdict and what led to it, in place of figures."""
    error = max_error(row)
    said = text(row, "message") or ("the time limit ended the run" if verdict(row) == "TIMED OUT" else "no reason given")
    return tag("span", tag("b", verdict(row)), f": {said}" + (f" (max error {figure(error)})" if error is not None else ""))


def verdict_class(row):
    return "failed" if is_failure(row) else "good" if is_good(row) else "left-out"


def body_row(rows, shown, most):
    """Rows that have run well have figures; all others, which may share a line, the reason why they have none."""
    row = rows[0]
    if is_good(row):
        cells = [tag("td", tiles(row), class_="number"), *(column.cell(row, most.get(column.title)) for column in shown)]
    else:
        cells = [tag("td", reason(row), colspan=len(shown) + 1, class_="reason")]
    kind = "peer" if is_peer(row) else "borrowed" if borrowed_from(row) else None
    return tag("tr", name_cell(*rows), *cells, tag("td", verdict(row), class_=verdict_class(row)), class_=kind)


def caption(group):
    """What holds for all lines."""
    known = [row for row in group.rows if not is_peer(row)] or group.rows
    least = next((value for value in (number(row, "compulsory_bytes") for row in known) if value is not None), None)
    flops = next((value for value in (number(row, "flops") for row in known) if value is not None), None)
    parts = [device_name(group.rows[0])]
    if group.gpu:
        cold = {row["time"].get("cold_l2") for row in group.rows if isinstance(row.get("time"), dict)}
        parts += ["cold L2" if cold == {True} else "L2 not flushed in every line"] if cold else []
    else:
        parts.append("exact counts; they are not times")
    if least is not None and flops is not None:
        parts.append(f"any implementation must move {size(least)} and do {figure(flops / 1e9)} GFLOP")
    if group.first() is not None:
        parts.append(f"gains are over {label(group.first())}, in {'time' if group.gpu else 'bytes moved'}")
    return "; ".join(parts) + "."


def result(group):
    """The line of a folded table: the best of it."""
    best, bad = group.best() or group.best(peers=True), sum(not is_good(row) for row in group.rows)
    said = counted(len(group.rows), "line") + (f", {bad} without a result" if bad else "")
    if best is None:
        return said
    tflops = number(best, "tflops")
    figures = f"{figure(tflops)} TFLOP/s" if group.gpu and tflops else f"{size(group.cost(best))} moved" if not group.gpu else ""
    return f"{label(best)}: {figures}; {said}" if figures else said


def table(group, name, report):
    good = [row for row in group.rows if is_good(row)]
    shown = [column for column in columns(group, report) if not good or any(column.value(row) is not None for row in good)]
    most = {column.title: max((column.value(row) or 0 for row in good), default=0) for column in shown if column.has_bar}
    head = [tag("th", title, scope="col", class_=kind) for title, kind in
            [("stage/variant", None), ("tiles", "number"), *((column.title, "number") for column in shown), ("verdict", None)]]  # fmt: skip
    grid = tag(
        "table",
        tag("caption", group.title, class_="unseen"),
        tag("thead", tag("tr", *head)),
        tag("tbody", *(body_row(rows, shown, most) for rows in together(group.rows))),
    )
    box = tag("div", grid, class_="scroll", role="region", aria_labelledby=name, tabindex="0")
    return join([tag("p", caption(group), class_="caption"), box])


def chapter(group):
    """What a folded table stands under."""
    p = group.problem
    return f"{device_name(group.rows[0])}, {p['dtype']}, d={p['head_dim']}, {'causal' if p['causal'] else 'not causal'}"


def section(found, report):
    """All tables. Those of a sweep are folded but for the ones that the lesson is about."""
    parts, folded = [], len(found) > 4 and any(group not in report.lesson for group in found)
    if folded:
        parts.append(tag("p", "Only tables that are unfolded are printed.", class_="caption"))
    before = None
    for index, group in enumerate(found, start=1):
        name = f"problem-{index}"
        heading = tag("h4" if folded else "h3", group.title, id=name)
        if folded and chapter(group) != before:
            before = chapter(group)
            parts.append(tag("h3", before, class_="chapter"))
        if folded:
            fold = tag("summary", heading, tag("span", result(group)))
            parts.append(tag("details", fold, table(group, name, report), open="open" if group in report.lesson else None))
        else:
            parts.append(tag("section", heading, table(group, name, report)))
    return join(parts)


def without_problem(rows):
    """Runs that ended before they said which problem they had."""
    if not rows:
        return None
    lines = [tag("tr", name_cell(row), tag("td", row["pass"]), tag("td", reason(row), class_="reason"),
                 tag("td", verdict(row), class_=verdict_class(row))) for row in rows]  # fmt: skip
    head = tag("tr", *(tag("th", title, scope="col") for title in ("stage/variant", "pass", "reason", "verdict")))
    grid = tag("table", tag("caption", "Runs without a problem", class_="unseen"), tag("thead", head), tag("tbody", *lines))
    return tag("section", tag("h3", "Runs that ended before they named their problem", id="no-problem"),
               tag("div", grid, class_="scroll", role="region", aria_labelledby="no-problem", tabindex="0"))  # fmt: skip
