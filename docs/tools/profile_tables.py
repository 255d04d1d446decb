"""Generated tables of the page on profiling, from docs/results/GPU/profile.json (common/profile_gpu.py --details)."""

from rows.text import describe, size

from .formatting import number, table
from .saved import gpus, origin, rows_of

PENDING = "*No profile with details saved yet: the commands of section 2 make it.*"
FLOPS_OF_MMA = 2 * 16 * 8 * 16  # m16n8k16
STALLS = ["selected", "math_pipe_throttle", "wait", "short_scoreboard", "mio_throttle", "barrier", "long_scoreboard", "not_selected", "dispatch_stall"]
SMALL_KERNEL = 0.02  # of a pass: preparing and converting do not count here


def rows():
    return [row for device in gpus() for row in rows_of(device, "profile.json") if row.get("profile")]


def kernels():
    """(row, kernel) of every launch that takes a part of its pass worth speaking of."""
    for row in rows():
        whole = sum(kernel["time_us"] for kernel in row["profile"])
        for kernel in row["profile"]:
            if kernel["time_us"] > SMALL_KERNEL * whole:
                yield row, kernel


def shown(value, digits=3):
    return "–" if value is None else f"{value:.{digits}g}"


def title(row, kernel):
    return [describe(row["problem"]), f"`{row['variant']}`", kernel["kernel"]]


def finished(head, lines):
    if not lines:
        return PENDING
    return f"{rows()[0]['device']['name']}:\n\n{table(head, lines)}\n\n{origin(rows())}"


def units():
    lines = [
        title(row, k)
        + [number(k["time_us"] / 1000)]
        + [shown(k.get(key)) for key in ["tensor_percent", "issue_percent", "warps_per_scheduler", "l2_hit_percent", "hbm_percent", "registers"]]
        for row, k in kernels()
    ]
    head = ["problem", "step", "kernel", "ms", "tensor pipe, %", "issue slots, %", "warps of a scheduler", "L2 hits, %", "HBM, %", "registers"]
    return finished(head, lines)


def stalls():
    """Clocks between two instructions of a warp, by what it waits for."""
    lines = []
    for row, k in kernels():
        clocks = {name.removeprefix("stall_"): value for name, value in k.items() if name.startswith("stall_") and value is not None}
        if clocks:
            others = sum(value for name, value in clocks.items() if name not in STALLS)
            lines.append(title(row, k) + [shown(sum(clocks.values()))] + [shown(clocks.get(name)) for name in STALLS] + [shown(others)])
    head = ["problem", "step", "kernel", "clocks"] + [name.replace("_", " ") for name in STALLS] + ["others"]
    return finished(head, lines)


def billions(value):
    return f"{value / 1e9:,.3f} · 10⁹"


def pass_counts(row):
    """(what, GPU, simulator, how to write it) of a whole pass, where both are known."""
    counted, p = row.get("counters_of_a_head"), row["problem"]
    if not counted or p["heads"] != p["kv_heads"]:
        return
    heads = p["batch"] * p["heads"]

    def sum_of(*keys):
        values = [kernel.get(key) for kernel in row["profile"] for key in keys]
        return None if None in values else sum(values)

    tensors = counted["tensors"].values()
    read, written = (sum(t[f"{way}_bytes"] for t in tensors) * heads for way in ("read", "written"))
    tensor_instructions = sum_of("tensor_instructions")
    yield "FLOPs of tensor cores", None if tensor_instructions is None else tensor_instructions * FLOPS_OF_MMA, 2 * counted["tensor_core_products"] * heads, billions
    yield "bank conflicts", sum_of("load_conflicts", "store_conflicts", "copy_conflicts"), counted["bank_conflicts"] * heads, "{:,.0f}".format
    yield "bytes read: from HBM; asked for", sum_of("hbm_read_bytes"), read, size
    yield "bytes written: to HBM; asked for", sum_of("hbm_written_bytes"), written, size


def counts():
    lines = []
    for row in rows():
        for what, gpu, simulator, text in pass_counts(row):
            lines.append([describe(row["problem"]), f"`{row['variant']}` {row['pass']}", what] + [text(value) if value is not None else "–" for value in (gpu, simulator)])
    return finished(["problem", "step", "count", "GPU", "simulator"], lines)
