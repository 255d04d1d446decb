"""Of docs/profiling.md: docs/results/GPU/profile.jsonl (common/profile_gpu.py --details)."""

from rows import describe, grouped, size

from .formatting import number, shown, step
from .saved import newest, of_each_gpu, section

FLOPS = "tensor_flops_fp16 tensor_flops_bf16 wgmma_flops_fp16 wgmma_flops_bf16".split()
CONFLICTS = "load_conflicts store_conflicts copy_conflicts".split()
STALLS = "selected math_pipe_throttle wait short_scoreboard mio_throttle barrier long_scoreboard not_selected dispatch_stall".split()
SMALL_KERNEL = 0.05  # of a pass: preparing and converting do not count here


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
    rows = newest(device, "profile.jsonl", having="profile")
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


@of_each_gpu
def counts(device):
    """Of a whole pass, what the GPU counted beside what the simulator did for one head, times their number."""

    def lines(row):
        counted, p = row.get("counters_of_a_head"), row["problem"]
        if not counted or p["heads"] != p["kv_heads"]:
            return
        heads = p["batch"] * p["heads"]

        def gpu(*keys):
            """None if the GPU has no such counter."""
            known = [kernel[key] for kernel in row["profile"] for key in keys if kernel.get(key) is not None]
            return sum(known) if known else None

        def simulator(key, times=1):
            return counted[key] * times * heads

        def asked(way):
            return size(sum(tensor[way] for tensor in counted["tensors"].values()) * heads)

        flops = gpu(*FLOPS)
        yield [
            f"{step(row)} {row['pass']}",
            *[shown(billions, ",.3f") for billions in (flops and flops / 1e9, simulator("tensor_core_products", 2e-9))],
            *[shown(gpu(*CONFLICTS), ",.0f"), f"{simulator('bank_conflicts'):,.0f}"],
            *[size(gpu("hbm_read_bytes")), asked("read_bytes"), size(gpu("hbm_written_bytes")), asked("written_bytes")],
        ]

    head = "step | 10⁹ FLOPs of tensor cores: GPU | simulator | bank conflicts: GPU | simulator"
    return of_problems(device, f"{head} | read: from HBM | asked for | written: to HBM | asked for", lines)
