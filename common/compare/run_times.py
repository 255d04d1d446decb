"""How long runs to come will take, judged by those that were done."""
import math
import statistics

from peer_timing import WARM_UPS


def duration_text(seconds):
    if seconds < 99.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class RunTimes:
    """A run takes a constant part, the same for all, and one that grows with its FLOPs and the times that its pass is called."""

    def __init__(self, limit):
        self.limit = limit  # seconds; what is predicted to take longer is not run
        self.done, self.constants = [], []

    def add(self, row, seconds=None):
        """A row with a result. `seconds`: of the whole run, if it was done now."""
        if "time" not in row:
            return
        self.done.append(row)
        if seconds is not None:
            self.constants.append(max(0.0, seconds - work(row, row["time"]["iterations"])))

    def predict(self, row, iterations, same_kernel=True):
        """Seconds, or None if nothing is known. `same_kernel`: judged only by runs of its variant and pass."""
        known = [other for other in self.done if not same_kernel or alike(row, other, "variant", "pass")]
        if not known:
            return None
        nearest = min(known, key=lambda other: distance(row, other))
        constant = statistics.median(self.constants) if self.constants else 0.0
        return constant + work(nearest, iterations) * row["flops"] / nearest["flops"]

    def left_text(self, runs):
        """"about 3 min left", or nothing as long as nothing is known."""
        seconds = [self.predict(*run, same_kernel=False) for run in runs]
        return "" if None in seconds else f"about {duration_text(sum(s for s in seconds if s <= self.limit))} left"


def work(row, iterations):
    return (1 + WARM_UPS + iterations) * row["time"]["median_ms"] / 1e3


def alike(row, other, *names):
    return all(row[name] == other[name] for name in names)


def distance(row, other):
    differ = [not alike(row, other, name) for name in ("variant", "pass")]
    differ += [not alike(row["problem"], other["problem"], name) for name in ("dtype", "head_dim", "causal")]
    return (*differ, abs(math.log(row["flops"] / other["flops"])))
