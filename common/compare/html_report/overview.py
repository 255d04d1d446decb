"""The overview of a sweep: one block for each head dimension, mask, type and pass; a line for each stage and variant, a column for each N."""

from rows.row import (
    absence,
    borrowed_from,
    device_name,
    is_failure,
    is_good,
    is_peer,
    label,
    moved_bytes,
    number,
    place,
    problem_key,
    verdict,
)
from rows.text import SIZES, size

from .columns import DASH, cell, figure
from .markup import join, tag
from .tables import name_cell, verdict_class

# How a column is headed, and what the line above the block says of sizes that do not change in it.
NAMES = (("N", ("seq_q", "seq_k")), ("B", ("batch",)), ("H", ("heads",)), ("Hkv", ("kv_heads",)), ("d", ("head_dim",)))


def blocks(found):
    """Lists of groups that differ in their sizes alone. Head dimensions share a block only if there is nothing else to compare."""
    everything_but_sizes = {}
    for index, group in enumerate(found, start=1):
        key = (device_name(group.rows[0]), problem_key(group.problem)[len(SIZES) :], group.which)
        everything_but_sizes.setdefault(key, []).append((index, group))
    for members in everything_but_sizes.values():
        by_width = {}
        for index, group in members:
            by_width.setdefault(group.problem["head_dim"], []).append((index, group))
        alone = all(len(same) == 1 for same in by_width.values())
        yield from [members] if alone else by_width.values()


def value_of(problem, keys):
    values = [problem[key] for key in keys]
    return f"{values[0]:,}" if len(set(values)) == 1 else " and ".join(f"{value:,}" for value in values)


def sizes_that(block, vary):
    """The NAMES that are the same in all columns of a block, or those that are not. Hkv is told only where it is not H."""
    problems = [group.problem for _, group in block]
    grouped = any(p["heads"] != p["kv_heads"] for p in problems)
    return [(name, keys) for name, keys in NAMES
            if (len({tuple(p[key] for key in keys) for p in problems}) > 1) == vary and (grouped or name != "Hkv")]  # fmt: skip


def heading(block):
    p, which = block[0][1].problem, block[0][1].which
    same = " ".join(f"{name}={value_of(p, keys)}" for name, keys in sizes_that(block, vary=False))
    mask = "causal" if p["causal"] else "not causal"
    more = "".join(f", {name} {p[name]}" for name, usual in (("bias", "none"), ("layout", "bhnd")) if p[name] != usual)
    return f"{which.capitalize()}, {p['dtype']}, {mask}{more}" + (f", {same}" if same else "")


def note(block):
    """Products that stay the same while their factors change: B N tokens, H d of width. "" if there are none."""
    problems = [group.problem for _, group in block]
    said = []
    for words, one, other in (("B·N", "batch", "seq_q"), ("H·d", "heads", "head_dim")):
        if len({p[one] for p in problems}) > 1 and len({p[one] * p[other] for p in problems}) == 1:
            said.append(f"{words} is always {problems[0][one] * problems[0][other]:,}.")
    return " ".join(said)


def measure(row, gpu):
    return number(row, "tflops") if gpu else moved_bytes(row)


def figures(row, group, index, title, most):
    """The cell of a line; `title` is that of the column."""
    if row is None:
        return cell(title, DASH)
    if not is_good(row):
        return tag("td", tag("a", why_absent(row), href=f"#problem-{index}"), class_=f"number {verdict_class(row)}", data_title=title)
    value = measure(row, group.gpu)
    if value is None:
        return cell(title, DASH)
    if group.gpu:
        median = number(row, "time", "median_ms")
        large, small = figure(value), DASH if median is None else figure(median)
    else:
        extra = number(row, "extra_memory_bytes")
        large, small = size(value), DASH if extra is None else "none" if extra == 0 else size(extra)
    return cell(title, tag("b", large) if row is group.best() else large, small, value / most if most else 0)


def why_absent(row):
    """A failure by its own name, all else in the words that the plots use."""
    word = absence(row)
    return verdict(row) if word == "failed" else word


def without_result(lines):
    """One sentence for the lines that have a result in no column, in place of rows of equal cells. `lines`: {name: its rows}"""
    words = {}
    for name, rows in lines.items():
        words.setdefault(" or ".join(dict.fromkeys(map(why_absent, rows))), []).append(name)
    said = "; ".join(f"{', '.join(names)} ({word})" for word, names in words.items())
    return f"Without a result in any column: {said}. The tables say why." if said else ""


def matrix(block, name):
    first = block[0][1]
    lines = {}  # label: a row that names it
    for row in sorted((row for _, group in block for row in group.rows if not borrowed_from(row)), key=place):
        lines.setdefault(label(row), row)
    absent = {}
    for name_of_line in lines:
        rows = [row for _, group in block for row in group.rows if label(row) == name_of_line]
        if not any(is_good(row) or is_failure(row) for row in rows):  # a failure has to be seen
            absent[name_of_line] = rows
    if len(absent) == len(lines):
        absent = {}
    here = [{label(row): row for row in reversed(group.rows)} for _, group in block]
    values = [measure(row, first.gpu) or 0 for rows in here for row in rows.values() if is_good(row)]
    most = max(values, default=0)
    varying = sizes_that(block, vary=True)
    head = [tag("th", "stage/variant", scope="col")]
    titles = [[f"{word}={value_of(group.problem, keys)}" for word, keys in varying] for _, group in block]
    for (index, _), names in zip(block, titles):
        link = tag("a", names[0], href=f"#problem-{index}")
        head.append(tag("th", link, tag("small", " ".join(names[1:])) if names[1:] else None, scope="col", class_="number"))
    body = []
    for name_of_line, line in lines.items():
        if name_of_line in absent:
            continue
        cells = [figures(rows.get(name_of_line), group, index, " ".join(names), most)
                 for (index, group), rows, names in zip(block, here, titles)]  # fmt: skip
        body.append(tag("tr", name_cell(line), *cells, class_="peer" if is_peer(line) else None))
    grid = tag("table", tag("caption", heading(block), class_="unseen"), tag("thead", tag("tr", *head)), tag("tbody", *body))
    said = " ".join(sentence for sentence in (note(block), without_result(absent)) if sentence)
    return tag("section", tag("h3", heading(block), id=name), tag("p", said, class_="caption") if said else None,
               tag("div", grid, class_="scroll narrow", role="region", aria_labelledby=name, tabindex="0"))  # fmt: skip


def introduction(shown):
    """How to read the cells of these blocks."""
    kinds = {block[0][1].gpu for block in shown}
    said = []
    if True in kinds:
        said.append("Of a GPU the large figure is TFLOP/s, the small one the median time in ms.")
    if False in kinds:
        said.append("Of the simulator the large figure is the bytes moved, an exact count and no time; the small one is the extra memory.")
    said.append("Bold is the best stage of a column. The head of a column leads to its full table.")
    return tag("p", " ".join(said))


def section(found):
    """None where no two tables could share a block."""
    shown = [block for block in blocks(found) if len(block) > 1]
    if not shown:
        return None
    return join([introduction(shown), *(matrix(block, f"overview-{index}") for index, block in enumerate(shown, start=1))])
