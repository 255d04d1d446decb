"""The rules by which a plot chooses among saved rows."""

import typing
from dataclasses import dataclass

from rows import grouped, options

PEERS = {
    "plain": "torch plain",
    "memory_efficient": "torch mem.-efficient",
    "flash": "torch FA2",
    "cudnn": "torch cuDNN",
    "triton": "Triton",
}
PASSES = ("forward", "backward")
TYPES = ("fp32", "fp16", "bf16")


class Unfit(Exception):
    """The rows do not suffice for a picture; the text says why."""


@dataclass
class Picture:
    """Between the choice of rows and the drawing."""

    title: str  # says what one sees
    note: str  # device, problem, what is held fixed
    content: dict  # all that is drawn, as lists, numbers and texts: a picture is out of date if this has changed
    rows: list  # from which it was made, for their commits and dates
    remark: str = ""  # answers what a reader of the picture asks; a line under the note


def of_one_device(rows):
    """The rows that name their problem, of a type that is known here, and run no other stage's kernels. Unfit if they come from several
    devices: their times have no common axis."""
    devices = sorted({row.device_name for row in rows if row.get("device")})
    if len(devices) > 1:
        raise Unfit(f"the rows come from several devices: {', '.join(devices)}; allowed: one")
    return [row for row in rows if row.get("problem") and row["problem"]["dtype"] in TYPES and not row.is_borrowed]


def device_of(rows):
    """A row that was not run may have none."""
    return next((row.device_name for row in rows if row.get("device")), "unknown device")


# ---- one row ---------------------------------------------------------------------------------------------------------------


def median(row):
    """Milliseconds; None if it was not timed or its result is wrong."""
    time, flops = row.get("time", {}).get("median_ms", 0), row.flops or 0
    return time if time > 0 and flops > 0 and row.is_good else None


def tflops(row):
    return row["flops"] / median(row) / 1e9


def by_file(row):
    """The order of the steps, whose files are numbered. Rows stand as they were measured."""
    return row["stage"], row.get("kernel", "")


def name_of(row):
    """ "06 warp_tiled", "torch cuDNN"."""
    return PEERS.get(row["variant"], f"torch {row['variant']}") if row.is_peer else f"{row['stage'][:2]} {row['variant']}"


def series_of(row):
    """What has a line, a bar or a colour of its own: a stage, or a peer."""
    return f"peer_{row['variant']}" if row.is_peer else row["stage"][:2]


def is_plain(row):
    """Self-attention without shared heads and without any option that changes work, which is what plots compare."""
    p = row["problem"]
    return p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"] and {name for name, _ in options(p)} <= {"input", "scale", "seed"}


def length(row):
    return row["problem"]["seq_q"]


def slice_of(row):
    """Width and mask."""
    return row["problem"]["head_dim"], bool(row["problem"].get("causal"))


def slice_text(d, causal):
    return f"d = {d}, {'causal' if causal else 'no mask'}"


# ---- some rows -------------------------------------------------------------------------------------------------------------


def lengths(rows):
    return sorted({length(row) for row in rows})


def of_slice(rows, one):
    return [row for row in rows if slice_of(row) == one]


def sixteen_bit(rows):
    """Those of the 16-bit type that has more rows; fp16 if both have as many."""
    return max(([row for row in rows if row["problem"]["dtype"] == dtype] for dtype in ("fp16", "bf16")), key=len)


def by_type(rows):
    """[(type, its rows)] of fp32 and one 16-bit type, those that are there."""
    pairs = [row for row in rows if row["problem"]["dtype"] == "fp32"], sixteen_bit(rows)
    return [(members[0]["problem"]["dtype"], members) for members in pairs if members]


def without_neighbours(rows):
    """Of lengths less than a fifth apart the one with more rows: 4,000 beside 4,096 is another question than growth."""
    count = {n: len(members) for n, members in grouped(rows, length).items()}
    kept = {n for n in count if all(abs(n - other) * 5 >= max(n, other) or (count[n], n) >= (count[other], other) for other in count)}
    return [row for row in rows if length(row) in kept]


def best_slice(rows):
    """Of the rows' (d, causal) the one with the most lengths, then the most series, then without a mask and the smaller d."""

    def rank(one):
        members = without_neighbours(of_slice(rows, one))
        return len(lengths(members)), len({series_of(row) for row in members}), not one[1], -one[0]

    return max(dict.fromkeys(map(slice_of, rows)), key=rank)


def best_variants(rows):
    """{series: the rows of its best variant}: the one that is fastest at the largest N at which the stage was timed; without times its
    last step. Stages first, by number, then peers. A line is one kernel all along."""
    groups, chosen = grouped(rows, series_of), {}
    for series in sorted(groups, key=lambda name: (name.startswith("peer"), list(PEERS).index(name[5:]) if name[5:] in PEERS else 9, name)):
        timed = [row for row in groups[series] if median(row)]
        best = min(timed, key=lambda row: (-length(row), median(row)), default=groups[series][-1])
        chosen[series] = [row for row in groups[series] if row["variant"] == best["variant"]]
    return chosen


# ---- families of problems --------------------------------------------------------------------------------------------------


class Family(typing.NamedTuple):
    """Batch and heads are fixed, or follow from N and d: there are B·N tokens in all, or H·d numbers in a token's row."""

    tokens: bool
    batch: int  # or B·N
    width: bool
    heads: int  # or H·d

    def has(self, row):
        p = row["problem"]
        batch, heads = max(1, self.batch // p["seq_q"]), max(1, self.heads // p["head_dim"])
        return (p["batch"], p["heads"]) == (batch if self.tokens else self.batch, heads if self.width else self.heads)

    def __str__(self):
        return f"B{'·N' * self.tokens} = {self.batch:,}, H{'·d' * self.width} = {self.heads:,}"


def best_family(rows, measure):
    """The rows of the family for which `measure(rows)` is largest, and the family. Of equals the one with more rows, then the one whose
    rule is simpler."""
    families = {}
    for p in (row["problem"] for row in rows):
        for batch in ((False, p["batch"]), (True, p["batch"] * p["seq_q"])):
            for heads in ((False, p["heads"]), (True, p["heads"] * p["head_dim"])):
                families[Family(*batch, *heads)] = None
    members = {family: without_neighbours([row for row in rows if family.has(row)]) for family in families}

    def rank(one):
        return measure(members[one]), len(members[one]), -one.tokens - one.width, one.batch, one.heads

    best = max(families, key=rank)
    return members[best], best


# ---- one problem -----------------------------------------------------------------------------------------------------------


class Size(typing.NamedTuple):
    """What steps in fp32 and in 16 bits have in common."""

    batch: int
    heads: int
    n: int
    d: int
    causal: bool

    @property
    def work(self):
        """What the FLOPs are proportional to, without a mask."""
        return self.batch * self.heads * self.n * self.n * self.d

    def __str__(self):
        return f"B = {self.batch}, H = {self.heads}, N = {self.n:,}, {slice_text(self.d, self.causal)}"


def size_of(row):
    p = row["problem"]
    return Size(p["batch"], p["heads"], p["seq_q"], *slice_of(row))


def most_steps(rows, *tie):
    """The size at which the most steps have rows, in fp32 and one 16-bit type, and these by stage. `tie`: functions of a size, of which
    the largest decides between equals."""
    groups = {size: [row for _, members in by_type(members) for row in members] for size, members in grouped(rows, size_of).items()}
    best = max(groups, key=lambda size: (len(groups[size]), *(function(size) for function in tie)))
    return best, sorted(groups[best], key=lambda row: row["stage"])
