"""The plots of saved rows. Each is an entry of PLOTS, which plot.py draws from any rows, or from those of docs/results for the pages. Queries
are Python expressions over the columns of plot.mark()."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plot:
    kind: str  # a function of plot.py
    files: str  # files of rows there
    title: str
    note: str  # below the plot; {device} and {problem} are filled in
    rows: str  # query: what the plot can show
    where: str  # query: the problems that it shows, unless --where names others
    problem: str  # the same in words
    panels: dict  # title: query, or column of counts
    y: str  # column
    device: str = "nvidia_h200"  # its folder in docs/results and in docs/plots
    series: str = "last"  # the step of a stage that has a line: the "fastest" or the "last"
    passes: int = 1  # whose times are added up
    guides: dict = field(default_factory=dict)  # label: (power of N, series); a dotted line below the first of these series in the panel
    least: str = ""  # column: what any implementation needs


COUNTS = ("sectors", "barriers", "warp_operations", "bank_conflicts")
NO_MASK = "head_dim == 64 and not causal"
TOKENS, TOKENS_WORDS = "batch * seq_q == 16384 and heads * head_dim == 2048", "B·N = 16,384, H·d = 2,048"
PASSES = {name: f"direction == '{name}'" for name in ("forward", "backward")}
SLICES = {
    f"d = {d}, {mask}": f"head_dim == {d} and {query}"
    for d in (64, 128)
    for mask, query in (("no mask", "not causal"), ("causal", "causal"))
}
LOG = "Both axes logarithmic."
BY_TYPE = {
    f"{title}, {name}": f"dtype == '{title[:4]}' and {query}"
    for title in ("fp32", "fp16, tensor cores", "bf16, tensor cores")
    for name, query in PASSES.items()
}


def speed(words, dtype, *passes):
    """Groups of bars over N, as the FlashAttention papers show speed."""
    fp32 = dtype == "fp32"
    stages = ["01", "04", "05", "06", "07"] if fp32 else ["08"]
    slow = [] if fp32 or len(passes) > 1 else ["peer_plain", "peer_memory_efficient"]  # far behind on tensor cores
    shown = f"(is_peer and series not in {slow} or series in {stages})"
    return Plot(
        kind="bars",
        files="sweep large sweep_peers peers" if fp32 else "sweep_peers sweep16",  # what was run in turns comes last
        title=f"{words}: TFLOP/s against the length N, {'fp32' if fp32 else 'tensor cores'}",
        note="{device}, {problem}; medians with a cold L2, of each stage the step that is fastest at the longest N.",
        rows=f"dtype {'==' if fp32 else '!='} 'fp32' and direction in {passes} and {shown}",
        where=f"dtype == '{dtype}' and {TOKENS}",
        problem=f"{dtype}, {TOKENS_WORDS}",
        panels=SLICES,
        y="tflops",
        passes=len(passes),
    )


PLOTS = {
    "ladder": Plot(
        kind="steps",
        files="front large tensor_steps sweep16",
        title="The ladder: TFLOP/s step by step",
        note="{device}, {problem}; cold L2. FA2 and FA3: FlashAttention-2 and -3.",
        rows="variant not in ['relay', 'divided'] and not is_peer or dtype != 'fp32' and series in ['peer_flash', 'peer_flash3', 'peer_cudnn']",
        # `relay` is for wider heads, `divided` for few of them
        where="batch == 4 and heads == 16 and seq_q == 4096 and head_dim == 128 and causal",
        problem="B = 4, H = 16, N = 4,096, d = 128, causal",
        panels=BY_TYPE,
        y="tflops",
    ),
    "tflops_forward": speed("Forward pass", "fp16", "forward"),
    "tflops_backward": speed("Backward pass", "fp16", "backward"),
    "tflops_both": speed("Forward and backward pass together", "fp16", "forward", "backward"),
    "tflops_forward_fp32": speed("Forward pass", "fp32", "forward"),
    "tflops_backward_fp32": speed("Backward pass", "fp32", "backward"),
    "time": Plot(
        kind="lines",
        files="sweep large peers sweep16 tensor_steps sweep_peers",
        title="Time of a pass against the length N",
        note="{device}, {problem}; medians with a cold L2, of each stage the fastest variant.\nDashed: other libraries. " + LOG,
        rows="is_gpu",
        where=f"{TOKENS} and {NO_MASK}",
        problem=f"{TOKENS_WORDS}, d = 64, no mask",
        panels=BY_TYPE,
        y="ms",
        series="fastest",
        guides={"∝ N": (1, ["06", "07", "08"])},
    ),
    "memory": Plot(
        kind="lines",
        files="counted_problem sweep compare16 tensor_steps sweep16 sweep_peers",
        title="Extra memory of one head: N² in plain attention, N or nothing when fused",
        note="{device}, {problem}; beyond Q, K, V, O and their gradients, of each stage the last step.\n"
        "Stages 01 to 07 in fp32, all others in 16 bits. " + LOG,
        rows="(dtype != 'fp32' or not is_peer) and variant not in ['relay', 'divided']",  # which are made for wider heads and for few
        where="head_dim == 64 and causal",
        problem="d = 64, causal",
        panels=PASSES,
        y="extra_bytes_of_a_head",
        guides={"∝ N²": (2, ["01"]), "∝ N": (1, ["06", "07"])},
    ),
    "roofline": Plot(
        kind="roofline",
        files="compare profile",
        title="Roofline: where the steps sit, and what is above them",
        note="{device}. Filled: forward, hollow: backward; named: of each stage and pass the first step and the fastest.\n"
        "Useful FLOPs only, HBM bytes as the profiler counts them. " + LOG + "\n{problem}",
        rows="profiled_bytes > 0",
        where="dtype == 'fp32' and seq_q == 1024 and head_dim == 64 and causal"
        " or dtype != 'fp32' and seq_q == 4096 and head_dim == 128 and not causal",
        problem="fp32: B = 8, H = 12, N = 1,024, d = 64, causal; 08: B = 4, H = 16, N = 4,096, d = 128, no mask",
        panels={"": "profiled_bytes > 0"},
        y="tflops",
    ),
    "bytes": Plot(
        kind="lines",
        device="cpu",
        files="io sweep sweep16 tensor_io",
        title="Bytes read and written for one head, next to the least that must move",
        note="{problem}. Counted by the simulator: what threads ask of global memory, before caches;\nof each stage the last step. " + LOG,
        rows="not is_gpu",
        where=NO_MASK,
        problem="d = 64, no mask",
        panels=BY_TYPE,
        y="counted_bytes_of_a_head",
        least="least_bytes_of_a_head",
    ),
    "counts": Plot(
        kind="steps",
        device="cpu",
        files="io tensor_io",
        title="What the steps do on one problem, counted",
        note="{problem}; stages 01 to 07 in fp32, 08 in 16 bits. Exact counts of the CPU simulator, not times.",
        rows="not is_gpu",
        where="batch == 1 and heads == 1 and seq_q == 1024 and head_dim == 64 and not causal",
        problem="B = 1, H = 1, N = 1,024, d = 64, no mask",
        panels={"sectors of 32 bytes": "sectors", **{name.replace("_", " "): name for name in COUNTS[1:]}},
        y="sectors",
    ),
}
