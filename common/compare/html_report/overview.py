"""Many tables in one: a sweep, with a column for each N."""

from rows.row import borrowed_from, grouped, is_failure, is_good, is_gpu, is_peer, label, moved_bytes, number, place, problem_key
from rows.text import SIZES, size

from .markup import Cell, Head, figure, join, part, table, tag
from .tables import memory_text, name_cell, verdict_class, why_absent

# How a column is headed, and what the line above the block says of sizes that do not change in it.
NAMES = (("N", ("seq_q", "seq_k")), ("B", ("batch",)), ("H", ("heads",)), ("Hkv", ("kv_heads",)), ("d", ("head_dim",)))


def blocks(found):
    """Lists of groups that differ in their sizes alone. Head dimensions share a block only if there is nothing else to compare."""
    everything_but_sizes = grouped(found, lambda group: (group.device, problem_key(group.problem)[len(SIZES) :], group.which))
    for members in everything_but_sizes.values():
        by_width = grouped(members, lambda group: group.problem["head_dim"])
        alone = all(len(same) == 1 for same in by_width.values())
        yield from [members] if alone else by_width.values()


def sizes_of(block):
    """{name: its values, one for each column}. Hkv is told only where it is not H."""
    problems = [group.problem for group in block]
    are_shared = any(p["heads"] != p["kv_heads"] for p in problems)
    every = {name: [" and ".join(dict.fromkeys(f"{p[key]:,}" for key in keys)) for p in problems] for name, keys in NAMES}
    return {name: values for name, values in every.items() if are_shared or name != "Hkv"}


def heading(block):
    p = block[0].problem
    same = " ".join(f"{name}={values[0]}" for name, values in sizes_of(block).items() if len(set(values)) == 1)
    more = "".join(f", {name} {p[name]}" for name, usual in (("bias", "none"), ("layout", "bhnd")) if p[name] != usual)
    return f"{block[0].which.capitalize()}, {p['dtype']}, {'causal' if p['causal'] else 'not causal'}{more}" + (f", {same}" if same else "")


def products(block):
    """Sentences about what stays the same while its factors change: B N tokens, H d of width."""
    problems = [group.problem for group in block]
    for words, one, other in (("B·N", "batch", "seq_q"), ("H·d", "heads", "head_dim")):
        if len({p[one] for p in problems}) > 1 and len({p[one] * p[other] for p in problems}) == 1:
            yield f"{words} is always {problems[0][one] * problems[0][other]:,}."


def without_result(lines):
    """A sentence for the lines that have a result in no column, in place of rows of equal cells. `lines`: {name: its rows}"""
    words = grouped(lines, lambda name: " or ".join(dict.fromkeys(map(why_absent, lines[name]))))
    said = "; ".join(f"{', '.join(names)} ({word})" for word, names in words.items())
    return [f"Without a result in any column: {said}. The tables say why."] if said else []


def measure(row):
    return (number(row, "tflops") if is_gpu(row) else moved_bytes(row)) if is_good(row) else None


def sweep_cell(row, group, most):
    if row is None:
        return Cell()
    if not is_good(row):
        return Cell(tag("a", why_absent(row), href=f"#{group.id}"), kind=f"number {verdict_class(row)}")
    value = measure(row)
    if value is None:
        return Cell()
    small = figure(number(row, "time", "median_ms")) if group.gpu else memory_text(number(row, "extra_memory_bytes"))
    large = figure(value) if group.gpu else size(value)
    return Cell(tag("b", large) if row is group.best() else large, small, value / most if most else 0)


def matrix(block, name):
    own = (row for group in block for row in group.rows if not borrowed_from(row))
    lines = grouped(sorted(own, key=place), label)
    shown = {name: rows for name, rows in lines.items() if any(is_good(row) or is_failure(row) for row in rows)} or lines
    absent = {name: rows for name, rows in lines.items() if name not in shown}
    most = max((measure(row) or 0 for group in block for row in group.rows), default=0)
    heads = [Head("stage/variant", kind=None)]
    varying = {name: values for name, values in sizes_of(block).items() if len(set(values)) > 1}
    for group, values in zip(block, zip(*varying.values())):
        words = [f"{word}={value}" for word, value in zip(varying, values)]
        heads.append(Head(words[0], " ".join(words[1:]), href=f"#{group.id}", told=" ".join(words)))
    here = [{label(row): row for row in reversed(group.rows)} for group in block]
    body = []
    for line, (row, *_) in shown.items():
        cells = [sweep_cell(rows.get(line), group, most) for group, rows in zip(block, here)]
        body.append((name_cell(row), cells, "peer" if is_peer(row) else None))
    said = " ".join([*products(block), *without_result(absent)])
    title, caption = heading(block), tag("p", said, class_="caption") if said else None
    return part(title, name, join([caption, table(title, name, heads, body)]))


def section(found):
    """None where no two tables could share a block."""
    shown = [block for block in blocks(found) if len(block) > 1]
    if not shown:
        return None
    kinds = {block[0].gpu for block in shown}
    said = ["GPU: TFLOP/s, with the median time in ms below; the fastest stage of each column is bold."] if True in kinds else []
    if False in kinds:
        said.append(
            "Simulator: bytes moved, an exact count and not a time, with the extra memory below; the smallest of each column is bold."
        )
    said.append("Each column head links to its full table.")
    return join([tag("p", " ".join(said)), *(matrix(block, f"overview-{index}") for index, block in enumerate(shown, start=1))])
