"""The rules by which a picture chooses among saved rows."""

from rows import text
from rows.row import device_name, is_borrowed, is_good, is_peer, latest, number, verdict  # noqa: F401  (latest: for the pictures)
from rows.text import options

PEERS = {"plain": "torch plain", "memory_efficient": "torch mem.-efficient", "flash": "torch FA2", "cudnn": "torch cuDNN"}
SIXTEEN = ("fp16", "bf16")


class Unfit(Exception):
    """The rows do not suffice for a picture; the text says why."""


def of_one_device(rows):
    """The rows that name their problem and are of stages' own kernels. Unfit if they come from several devices: their times have no common
    axis."""
    devices = sorted({device_name(row) for row in rows if row.get("device")})
    if len(devices) > 1:
        raise Unfit(f"the rows come from several devices: {', '.join(devices)}; allowed: one")
    return [row for row in rows if row.get("problem") and not is_borrowed(row)]


def device_of(rows):
    """A row that was not run may have none."""
    return next((device_name(row) for row in rows if row.get("device")), "unknown device")


# ---- one row ---------------------------------------------------------------------------------------------------------------


def median(row):
    """Milliseconds; None if it was not timed or its result is wrong."""
    time = number(row, "time", "median_ms")
    return time if time and time > 0 and is_good(row) else None


def tflops(row):
    return number(row, "flops") / median(row) / 1e9


def is_timed(row):
    return median(row) is not None and (number(row, "flops") or 0) > 0


def name_of(row):
    """"06 warp_tiled", "torch cuDNN"."""
    if is_peer(row):
        return PEERS.get(row["variant"], f"torch {row['variant']}")
    return f"{row['stage'][:2]} {row['variant']}"


def series_of(row):
    """What has a line, a bar or a colour of its own: a stage, or a peer."""
    return f"peer_{row['variant']}" if is_peer(row) else row["stage"][:2]


def absence(row):
    """Why a row has no time, in a word or two."""
    return text.absence(verdict(row), row.get("message") or "")


DATA = ("input", "scale", "seed")  # options that change numbers, and no work


def is_plain(p):
    """Self-attention without shared heads and without any option, which is what pictures compare."""
    return p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"] and all(name in DATA for name, _ in options(p))


# ---- families of problems --------------------------------------------------------------------------------------------------


def families(rows):
    """Rules under which batch and heads may follow from N and d: both fixed, or B·N tokens in all, or H·d numbers in a token's row."""
    found = {}
    for row in rows:
        p = row["problem"]
        for batch in (("batch", p["batch"]), ("tokens", p["batch"] * p["seq_q"])):
            for heads in (("heads", p["heads"]), ("width", p["heads"] * p["head_dim"])):
                found[batch + heads] = None
    return list(found)


def belongs(p, family):
    batch_rule, batch, heads_rule, heads = family
    right_batch = p["batch"] == (batch if batch_rule == "batch" else max(1, batch // p["seq_q"]))
    return right_batch and p["heads"] == (heads if heads_rule == "heads" else max(1, heads // p["head_dim"]))


def without_neighbours(rows):
    """Of lengths less than a fifth apart the one with more rows: 4,000 beside 4,096 is another question than growth."""
    count = {n: sum(row["problem"]["seq_q"] == n for row in rows) for n in lengths(rows)}
    kept = {n for n in count if all(abs(n - other) * 5 >= max(n, other) or (count[n], n) >= (count[other], other) for other in count)}
    return [row for row in rows if row["problem"]["seq_q"] in kept]


def best_family(rows, measure):
    """The rows of the family for which `measure(rows)` is largest, and the family. Of equals the one with more rows, then the one whose
    rule is simpler."""
    ranked = []
    for family in families(rows):
        members = without_neighbours([row for row in rows if belongs(row["problem"], family)])
        simple = (family[0] == "batch") + (family[2] == "heads")
        ranked.append((measure(members), len(members), simple, family, members))
    if not ranked:
        return [], None
    best = max(ranked, key=lambda entry: entry[:3] + (entry[3][1], entry[3][3]))
    return best[4], best[3]


def family_text(family):
    batch_rule, batch, heads_rule, heads = family
    return (f"B = {batch}" if batch_rule == "batch" else f"B·N = {batch:,}") + ", " + (f"H = {heads}" if heads_rule == "heads" else f"H·d = {heads:,}")


def slice_of(row):
    """Width and mask."""
    return row["problem"]["head_dim"], bool(row["problem"].get("causal"))


def slice_text(d, causal):
    return f"d = {d}, {'causal' if causal else 'no mask'}"


def lengths(rows):
    return {row["problem"]["seq_q"] for row in rows}


def best_slice(rows):
    """Of the rows' (d, causal) the one with the most lengths, then the most series, then without a mask and the smaller d."""
    slices = dict.fromkeys(slice_of(row) for row in rows)

    def rank(one):
        members = without_neighbours([row for row in rows if slice_of(row) == one])
        return len(lengths(members)), len({series_of(row) for row in members}), not one[1], -one[0]

    return max(slices, key=rank)


def sixteen_bit(rows):
    """Those of the 16-bit type that has more rows; fp16 if both have as many."""
    of_type = {dtype: [row for row in rows if row["problem"]["dtype"] == dtype] for dtype in SIXTEEN}
    return max(of_type.values(), key=len)


def by_type(rows):
    """[(type, its rows)] of fp32 and one 16-bit type, those that are there."""
    pairs = [[row for row in rows if row["problem"]["dtype"] == "fp32"], sixteen_bit(rows)]
    return [(members[0]["problem"]["dtype"], members) for members in pairs if members]


# ---- one variant of a stage ------------------------------------------------------------------------------------------------


def best_variants(rows):
    """{series: the rows of its best variant}: the one that is fastest at the largest N at which the stage was timed; without times its
    last step. Stages first, by number, then peers. A line is one kernel all along."""
    groups = {}
    for row in rows:
        groups.setdefault(series_of(row), []).append(row)
    chosen = {}
    for series in sorted(groups, key=lambda name: (name.startswith("peer"), list(PEERS).index(name[5:]) if name[5:] in PEERS else 9, name)):
        timed = [row for row in groups[series] if is_timed(row)]
        if timed:
            largest = max(lengths(timed))
            best = min((row for row in timed if row["problem"]["seq_q"] == largest), key=median)
        else:
            best = groups[series][-1]
        chosen[series] = [row for row in groups[series] if row["variant"] == best["variant"]]
    return chosen
