"""Rows sorted into tables."""

import dataclasses

from rows.row import borrowed_from, device_name, is_good, is_gpu, is_peer, moved_bytes, number, place, problem_key
from rows.text import describe


@dataclasses.dataclass
class Group:
    """The rows of one table: a device, a problem and a pass. Peers last."""

    rows: list

    @property
    def problem(self):
        return self.rows[0]["problem"]

    @property
    def which(self):
        return self.rows[0]["pass"]

    @property
    def gpu(self):
        return is_gpu(self.rows[0])

    @property
    def title(self):
        return f"{self.which.capitalize()}, {describe(self.problem)}"

    def cost(self, row):
        """What a row is judged by: its median time on a GPU, the bytes that it moves on the simulator. None if it has not run well."""
        return None if not is_good(row) else number(row, "time", "median_ms") if self.gpu else moved_bytes(row)

    def first(self):
        """The row that gains are measured against: the first of a stage that has run well."""
        return next((row for row in self.rows if not is_peer(row) and self.cost(row)), None)

    def best(self, peers=False):
        """The row of a stage, or of a peer, that costs least. Forward passes borrowed from another stage are not its own."""
        rows = [row for row in self.rows if is_peer(row) == peers and not borrowed_from(row) and self.cost(row)]
        return min(rows, key=self.cost, default=None)


def groups(rows):
    """One group for each device, problem and pass, small problems first. Rows without a problem are in none."""
    found = {}
    for row in rows:
        if row.get("problem"):
            found.setdefault((device_name(row), problem_key(row["problem"]), row["pass"]), []).append(row)
    devices = list(dict.fromkeys(device_name(row) for row in rows))

    def order(group):
        p = group.problem
        dtype = ("fp32", "fp16", "bf16").index(p["dtype"]) if p["dtype"] in ("fp32", "fp16", "bf16") else 3
        sizes = [p[key] for key in ("seq_q", "seq_k", "batch", "heads", "kv_heads")]
        return devices.index(device_name(group.rows[0])), dtype, p["head_dim"], p["causal"], sizes, group.which == "backward"

    return sorted((Group(sorted(found_rows, key=place)) for found_rows in found.values()), key=order)
