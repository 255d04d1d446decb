"""Of docs/profiling.md: docs/results/GPU/profile.json (common/profile_gpu.py --details)."""

from rows.row import grouped
from rows.text import describe, size

from .formatting import number, shown, step
from .saved import newest, of_each_gpu, section

FLOPS_OF_MMA = 2 * 16 * 8 * 16  # m16n8k16
STALLS = "selected math_pipe_throttle wait short_scoreboard mio_throttle barrier long_scoreboard not_selected dispatch_stall".split()
SMALL_KERNEL = 0.02  # of a pass: preparing and converting do not count here


def of_kernels(device, head, cells):
    """A line of cells(kernel) for every launch that takes a part of its pass worth speaking of; none if it gives none."""

    def lines(row):
        whole = sum(kernel["time_us"] for kernel in row["profile"])
        for kernel in row["profile"]:
            found = cells(kernel) if kernel["time_us"] > SMALL_KERNEL * whole else []
            if found:
                yield [step(row), kernel["kernel"], *found]

    return of_problems(device, f"step | kernel | {head}", lines)


def of_problems(device, head, lines):
    """A table for each problem, of lines(row)."""
    rows = newest(device, "profile.json", having="profile")
    problems = grouped(rows, lambda row: describe(row["problem"])).values()
    tables = [section("{problem}", head, [line for row in some for line in lines(row)], some) for some in problems]
    return "\n\n".join(filter(None, tables)) or None


@of_each_gpu
def units(device):
    head = "ms | tensor pipe, % | issue slots, % | warps of a scheduler | L2 hits, % | HBM, % | registers"
    keys = ["tensor_percent", "issue_percent", "warps_per_scheduler", "l2_hit_percent", "hbm_percent", "registers"]
    return of_kernels(device, head, lambda kernel: [number(kernel["time_us"] / 1000), *(shown(kernel.get(key)) for key in keys)])


@of_each_gpu
def stalls(device):
    """Clocks between two instructions of a warp, by what it waits for."""

    def cells(kernel):
        clocks = {name.removeprefix("stall_"): value for name, value in kernel.items() if name.startswith("stall_") and value is not None}
        others = sum(value for name, value in clocks.items() if name not in STALLS)
        return [shown(sum(clocks.values())), *(shown(clocks.get(name)) for name in STALLS), shown(others)] if clocks else []

    return of_kernels(device, f"clocks | {' | '.join(STALLS).replace('_', ' ')} | others", cells)


def pass_counts(row):
    """(what, how to write it, GPU, simulator) of a whole pass, where both are known."""
    counted, p = row.get("counters_of_a_head"), row["problem"]
    if not counted or p["heads"] != p["kv_heads"]:
        return
    heads = p["batch"] * p["heads"]

    def sum_of(*keys, times=1):
        values = [kernel.get(key) for kernel in row["profile"] for key in keys]
        return None if None in values else times * sum(values)

    def billions(value):
        return f"{value / 1e9:,.3f} · 10⁹"

    tensors = counted["tensors"].values()
    read, written = (sum(t[f"{way}_bytes"] for t in tensors) * heads for way in ("read", "written"))
    conflicts = sum_of("load_conflicts", "store_conflicts", "copy_conflicts")
    yield "FLOPs of tensor cores", billions, sum_of("tensor_instructions", times=FLOPS_OF_MMA), 2 * counted["tensor_core_products"] * heads
    yield "bank conflicts", "{:,.0f}".format, conflicts, counted["bank_conflicts"] * heads
    yield "bytes read: from HBM; asked for", size, sum_of("hbm_read_bytes"), read
    yield "bytes written: to HBM; asked for", size, sum_of("hbm_written_bytes"), written


@of_each_gpu
def counts(device):
    def lines(row):
        for what, text, *both in pass_counts(row):
            yield [f"{step(row)} {row['pass']}", what, *("–" if value is None else text(value) for value in both)]

    return of_problems(device, "step | count | GPU | simulator", lines)
