"""One table for each problem and pass: every stage, the peers, what failed and why."""

from rows.row import borrowed_from, device_name, is_failure, is_good, is_peer, label, max_error, number, text, verdict
from rows.text import size

from . import chapters
from .columns import cell, columns, figure, tiles
from .markup import counted, join, tag


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
    name = tag("code", tag("a", row["stage"], href=chapters.place(row["stage"])) if chapters.place(row["stage"]) else row["stage"], "/", tag("wbr"), row["variant"])
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
        cells = [cell("tiles", tiles(row)), *(column.cell(row, most.get(column.title)) for column in shown)]
    else:
        cells = [tag("td", reason(row), colspan=len(shown) + 1, class_="reason")]
    kind = "peer" if is_peer(row) else "borrowed" if borrowed_from(row) else None
    return tag("tr", name_cell(*rows), *cells, tag("td", verdict(row), class_=verdict_class(row), data_title="verdict"), class_=kind)


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
    heads = [("stage/variant", None, None), ("tiles", None, "number"), *((column.title, column.small_title, "number") for column in shown), ("verdict", None, None)]
    head = [tag("th", title, tag("small", small) if small else None, scope="col", class_=kind) for title, small, kind in heads]
    grid = tag(
        "table",
        tag("caption", group.title, class_="unseen"),
        tag("thead", tag("tr", *head)),
        tag("tbody", *(body_row(rows, shown, most) for rows in together(group.rows))),
    )
    box = tag("div", grid, class_="scroll wide", role="region", aria_labelledby=name, tabindex="0")
    return join([tag("p", caption(group), class_="caption"), box, chapters.why_fa2_reads_more(group)])


def family(group):
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
        if folded and family(group) != before:
            before = family(group)
            parts.append(tag("h3", before, class_="family"))
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
    lines = [tag("tr", name_cell(row), tag("td", row["pass"], data_title="pass"), tag("td", reason(row), class_="reason"),
                 tag("td", verdict(row), class_=verdict_class(row), data_title="verdict")) for row in rows]  # fmt: skip
    head = tag("tr", *(tag("th", title, scope="col") for title in ("stage/variant", "pass", "reason", "verdict")))
    grid = tag("table", tag("caption", "Runs without a problem", class_="unseen"), tag("thead", head), tag("tbody", *lines))
    return tag("section", tag("h3", "Runs that ended before they named their problem", id="no-problem"),
               tag("div", grid, class_="scroll wide", role="region", aria_labelledby="no-problem", tabindex="0"))  # fmt: skip
