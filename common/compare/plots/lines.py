"""Lines against N: time, extra memory, bytes.

Rows without a bias, with as many keys as queries and own heads for all. Memory and bytes are of one head, so that rows of any batch and
any number of heads go together. Which d and mask: those with the most lengths, then the most series, then no mask and the smaller d.
Times: the family of problems (batch and heads fixed, or B·N and H·d) that has the most lengths, and of each stage the variant that is
fastest at the largest N."""

from . import choose
from .choose import Unfit, absence, best_variants, by_type, device_of, is_good, is_plain, is_timed, latest, median, name_of, number, series_of, slice_of
from .picture import Picture

PASSES = ("forward", "backward")
TYPES = {"fp32": "fp32", "fp16": "fp16, tensor cores", "bf16": "bf16, tensor cores"}


def longest_slice(rows):
    """Number of lengths of the (d, mask) with the most."""
    return max((len(choose.lengths([row for row in rows if slice_of(row) == one])) for one in {slice_of(row) for row in rows}), default=0)


def of_slice(rows, one):
    return [row for row in rows if slice_of(row) == one]


def points(rows, value):
    """[[N, value]] in the order of N."""
    return sorted([row["problem"]["seq_q"], value(row)] for row in rows)


def time(rows):
    rows = [row for row in rows if is_plain(row["problem"])]
    timed = latest([row for row in rows if is_timed(row)])
    if not timed:
        raise Unfit("no row has a time")
    panels, used, absent = [], [], []
    for dtype, members in by_type(timed):
        members, family = choose.best_family(members, longest_slice)
        d, causal = choose.best_slice(members)
        members = of_slice(members, (d, causal))
        if len(choose.lengths(members)) < 2:
            absent.append(f" {dtype}: only one length is saved.")
            continue
        used += members
        others = [row for row in rows if not is_timed(row) and row["problem"]["dtype"] == dtype and slice_of(row) == (d, causal)]
        others = latest([row for row in others if choose.belongs(row["problem"], family)])
        for direction in PASSES:
            mine = [row for row in members if row["pass"] == direction]
            if mine:
                missing = [row for row in others if row["pass"] == direction]
                of = f"{choose.family_text(family)}, {choose.slice_text(d, causal)}"
                panels.append(time_panel(dtype, f"{TYPES[dtype]}, {direction}", of, mine, missing))
    if not panels:
        raise Unfit("no kind of problem was timed at two lengths or more")
    note = f"{device_of(used)}; medians with a cold L2, of each stage the fastest variant. Dashed: torch. Both axes logarithmic.{''.join(absent)}"
    return Picture("Time of a pass against the length N", note, {"unit": "ms", "panels": panels}, used)


def time_panel(dtype, title, note, rows, missing):
    series, gaps = [], {}
    for name, members in best_variants(rows).items():
        series.append({"series": name, "label": name_of(members[0]), "points": points(members, median)})
        known = {n for n, _ in series[-1]["points"]}
        for row in sorted(missing, key=lambda row: row["problem"]["seq_q"]):
            n = row["problem"]["seq_q"]
            if series_of(row) == name and row["variant"] == members[0]["variant"] and n not in known:
                gaps.setdefault((name_of(row), absence(row)), []).append(f"{n:,}")
    work = {row["problem"]["seq_q"]: row["flops"] for row in rows}
    least = min(median(row) / row["flops"] for row in rows) * 0.6
    batches = {row["problem"]["batch"] for row in rows}
    tokens = {row["problem"]["batch"] * row["problem"]["seq_q"] for row in rows}
    slope = "N²" if len(batches) == 1 else "N" if len(tokens) == 1 else "FLOPs"
    guide = {"label": f"∝ {slope}", "points": sorted([n, flops * least] for n, flops in work.items())}
    return {"row": dtype, "title": title, "note": note, "series": series, "guides": [guide],
            "gaps": [f"{name}, N = {'; '.join(at)}: {why}" for (name, why), at in gaps.items()]}  # fmt: skip


def of_one_head(row, *path):
    """A quantity that is proportional to B·H, for one head."""
    value = number(row, *path)
    return None if value is None or value < 0 else value / (row["problem"]["batch"] * row["problem"]["heads"])


def memory(rows):
    kept = latest([row for row in rows if is_plain(row["problem"]) and is_good(row) and of_one_head(row, "extra_memory_bytes") is not None])
    if not kept:
        raise Unfit("no row has extra_memory_bytes")
    d, causal = choose.best_slice(kept)
    kept = choose.without_neighbours(of_slice(kept, (d, causal)))
    kept = [row for _, members in by_type(kept) for row in members]
    panels = []
    for direction in PASSES:
        mine = [row for row in kept if row["pass"] == direction]
        if len(choose.lengths(mine)) >= 2:
            panels.append(memory_panel(direction, choose.slice_text(d, causal), mine))
    if not panels:
        raise Unfit("extra memory was saved at one length only")
    title = "Extra memory of one head: plain attention keeps N² numbers, FlashAttention N or none"
    note = f"{device_of(kept)}; beside inputs and outputs. Stages 01 to 07 in fp32, 08 in 16 bits. Both axes logarithmic."
    return Picture(title, note, {"unit": "bytes", "panels": panels}, kept)


def memory_panel(title, note, rows):
    """Stages and steps that need the same wherever both were run share a line."""
    variants = {}
    for row in rows:
        variants.setdefault((row["stage"], row["variant"]), []).append(row)
    lines = []  # [{N: bytes}, rows of variants]
    for members in variants.values():
        at = dict(points(members, lambda row: of_one_head(row, "extra_memory_bytes")))
        same = next((line for line in lines if len(line[0].keys() & at.keys()) > 1 and all(line[0][n] == at[n] for n in line[0].keys() & at.keys())), None)
        if same:
            same[0].update(at)
            same[1].append(members[0])
        else:
            lines.append([at, [members[0]]])
    series = []
    for at, members in lines:
        labels = {}
        for row in sorted(members, key=lambda row: (row["stage"] == "peer", row["stage"])):
            whole = all(any(stage == other["stage"] and variant == other["variant"] for other in members) for stage, variant in variants if stage == row["stage"])
            labels[row["stage"][:2] if whole and row["stage"] != "peer" else name_of(row)] = series_of(row)
        series.append({"series": next(iter(labels.values())), "label": ", ".join(labels), "points": sorted(map(list, at.items()))})
    guides = []
    for power, label in ((2, "∝ N²"), (1, "∝ N")):
        like = [line["points"] for line in series if grows_like(line["points"], power)]
        if like:
            low = min(like, key=lambda at: at[-1][1])
            guides.append({"label": label, "points": [[n, value * 0.5] for n, value in low]})
    return {"row": "all", "title": title, "note": note, "series": series, "guides": guides, "gaps": []}


def grows_like(at, power):
    """Within a tenth."""
    (n, first), (m, last) = at[0], at[-1]
    return first > 0 and m > n and abs(last / first / (m / n) ** power - 1) < 0.1


def moved_bytes(row):
    read, written = of_one_head(row, "hbm_read_bytes"), of_one_head(row, "hbm_written_bytes")
    return None if read is None or written is None else read + written


WHY_ABOVE = "Why 06 lies above 04: FA-2 reads K and V again for each tile of queries, and takes small tiles to occupy more SMs."


def crosses(series):
    """Does FA-2 move more than FA-1 at some length?"""
    first, second = (next((dict(line["points"]) for line in series if line["series"] == name), {}) for name in ("04", "06"))
    return any(value > first[n] for n, value in second.items() if n in first)


def moved(rows):
    kept = latest([row for row in rows if is_plain(row["problem"]) and "counters" in row and is_good(row) and moved_bytes(row)])
    if not kept:
        raise Unfit("no row of the CPU simulator has counted bytes")
    panels, used, remark = [], [], ""
    for dtype, members in by_type(kept):
        d, causal = choose.best_slice(members)
        for direction in PASSES:
            mine = [row for row in choose.without_neighbours(of_slice(members, (d, causal))) if row["pass"] == direction]
            if len(choose.lengths(mine)) < 2:
                continue
            used += mine
            series = [
                {"series": name, "label": name_of(members[0]), "points": points(members, moved_bytes)}
                for name, members in best_variants(mine).items()
            ]
            if direction == "forward" and crosses(series):
                remark = WHY_ABOVE
            least = {row["problem"]["seq_q"]: of_one_head(row, "compulsory_bytes") for row in mine}
            if None not in least.values():
                series.append({"series": "least", "label": "must move", "points": sorted(map(list, least.items()))})
            panel = {"row": dtype, "title": f"{dtype}, {direction}", "note": choose.slice_text(d, causal)}
            panels.append({**panel, "series": series, "guides": [], "gaps": []})
    if not panels:
        raise Unfit("bytes were counted at one length only")
    note = "Counted by the simulator: what threads ask of global memory, before caches; of each stage the last step. Both axes logarithmic."
    return Picture("Bytes read and written for one head, beside the least that must move", note, {"unit": "bytes", "panels": panels}, used, remark)
