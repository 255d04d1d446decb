"""Of docs/howto/profiling.md: docs/results/GPU/profile.jsonl (compare profile --details)."""

from common.compare.rows import describe, grouped, size

from .formatting import number, shown, step
from .saved import H200, newest, section

FLOPS = "tensor_flops_fp16 tensor_flops_bf16 wgmma_flops_fp16 wgmma_flops_bf16".split()
CONFLICTS = "load_conflicts store_conflicts copy_conflicts".split()
SMALL_KERNEL = 0.05  # of a pass: preparing and converting do not count here


def waits(kernel):
    """{reason: warps in that state per issued instruction}, the largest first, without the warp that issues."""
    known = {name.removeprefix("stall_"): value for name, value in kernel.items() if name.startswith("stall_") and value is not None}
    return dict(sorted(((name, value) for name, value in known.items() if name != "selected"), key=lambda pair: -pair[1]))


def in_words(waits, count):
    return ", ".join(f"{name.replace('_', ' ')}\u00a0{value:.2f}" for name, value in list(waits.items())[:count])


def of_kernels(head, cells, steps):
    """A line of cells(kernel) for every launch that takes a part of its pass worth speaking of; none if it gives none."""

    def lines(row):
        whole = sum(kernel["time_us"] for kernel in row["profile"])
        for kernel in row["profile"]:
            found = cells(kernel) if kernel["time_us"] > SMALL_KERNEL * whole else []
            if found:
                yield [step(row), kernel["kernel"], *found]

    return of_problems(f"step | kernel | {head}", lines, steps)


def of_problems(head, lines, steps):
    """A table for each problem, of lines(row) of some steps."""
    rows = [row for row in newest(H200, "profile.jsonl", having="profile") if not steps or row["variant"] in steps]
    problems = grouped(rows, lambda row: describe(row["problem"])).values()
    tables = [section("{problem}", head, [line for row in some for line in lines(row)], some) for some in problems]
    return "\n\n".join(filter(None, tables)) or None


def units(*steps):
    head = "ms | tensor pipe, % | issue slots, % | warps per scheduler | L2 hits, % | HBM, % | registers"
    keys = ["tensor_percent", "issue_percent", "warps_per_scheduler", "l2_hit_percent", "hbm_percent", "registers"]
    return of_kernels(head, lambda kernel: [number(kernel["time_us"] / 1000), *(shown(kernel.get(key)) for key in keys)], steps)


def stalls(*steps):
    """Cycles between two instructions of a warp, and what it waits for in most of them."""

    def cells(kernel):
        found = waits(kernel)
        return [shown(1 + sum(found.values())), in_words(found, 4)] if found else []

    return of_kernels("cycles | largest waits", cells, steps)


def counts(*steps):
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
    return of_problems(f"{head} | read: from HBM | requested | written: to HBM | requested", lines, steps)
