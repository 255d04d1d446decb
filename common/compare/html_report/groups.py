"""Rows sorted into tables."""

import dataclasses

from rows.row import borrowed_from, device_name, grouped, is_good, is_gpu, is_peer, moved_bytes, number, place, problem_key
from rows.text import describe, size

from .markup import figure


def cost(row):
    """What a row is judged by: its median time on a GPU, the bytes that it moves on the simulator. None if it has not run well."""
    return None if not is_good(row) else number(row, "time", "median_ms") if is_gpu(row) else moved_bytes(row)


def cost_text(row):
    return figure(cost(row)) if cost(row) is None or is_gpu(row) else size(cost(row))


@dataclasses.dataclass
class Group:
    """The rows of one table: a device, a problem and a pass. Peers last."""

    rows: list
    index: int = 0  # among all tables

    def __post_init__(self):
        first = self.rows[0]
        self.device, self.problem, self.which, self.gpu = device_name(first), first["problem"], first["pass"], is_gpu(first)
        self.title = f"{self.which.capitalize()}, {describe(self.problem)}"
        self.id = f"problem-{self.index}"

    def first(self):
        """The row that gains are measured against: the first of a stage that has run well."""
        return next((row for row in self.rows if not is_peer(row) and cost(row)), None)

    def own(self, peers=False):
        """The rows of stages, or of peers, that have run well. Forward passes borrowed from another stage are not its own."""
        return [row for row in self.rows if is_peer(row) == peers and not borrowed_from(row) and cost(row)]

    def best(self, peers=False):
        """The one that costs least."""
        return min(self.own(peers), key=cost, default=None)


def groups(rows):
    """One group for each device, problem and pass, small problems first. Rows without a problem are in none."""
    named = [row for row in rows if row.get("problem")]
    found = grouped(named, lambda row: (device_name(row), problem_key(row["problem"]), row["pass"]))
    devices = list(dict.fromkeys(device_name(row) for row in rows))

    def order(rows):
        p, types = rows[0]["problem"], ("fp32", "fp16", "bf16")
        dtype = types.index(p["dtype"]) if p["dtype"] in types else 3
        sizes = [p[key] for key in ("seq_q", "seq_k", "batch", "heads", "kv_heads")]
        return devices.index(device_name(rows[0])), dtype, p["head_dim"], p["causal"], sizes, rows[0]["pass"] == "backward"

    return [Group(sorted(rows, key=place), index) for index, rows in enumerate(sorted(found.values(), key=order), start=1)]
