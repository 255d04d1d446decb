"""The plots of saved rows. Each is an entry of PLOTS, which plot.py draws from any rows, or from those of docs/results for the pages. Queries
are Python expressions over the columns of plot.mark()."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plot:
    files: str  # files of rows there
    title: str
    note: str  # below the plot; {device} and {problem} are filled in
    rows: str  # query: what the plot can show
    where: str  # query: the problems that it shows, unless --where names others
    problem: str  # the same in words
    panels: dict  # title: query
    y: str  # column
    device: str = "nvidia_h200"  # its folder in docs/results and in docs/plots
    series: str = "last"  # the step of a stage that has a line: the "fastest" or the "last"
    least: str = ""  # column: what any implementation needs


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


def speed(which, dtype):
    fp32 = dtype == "fp32"
    stages = ["01", "04", "05", "06", "07"] if fp32 else ["08"]
    slow = [] if fp32 else ["peer_plain", "peer_memory_efficient"]  # far behind on tensor cores
    shown = f"(is_peer and series not in {slow} or series in {stages})"
    return Plot(
        files="sweep large sweep_peers peers" if fp32 else "sweep_peers sweep16",  # what was run in turns comes last
        title=f"{which.capitalize()} pass: TFLOP/s against the length N, {'fp32' if fp32 else 'tensor cores'}",
        note="{device}, {problem}; medians with a cold L2, of each stage the step that is fastest at the longest N.",
        rows=f"dtype {'==' if fp32 else '!='} 'fp32' and direction == '{which}' and {shown}",
        where=f"dtype == '{dtype}' and {TOKENS}",
        problem=f"{dtype}, {TOKENS_WORDS}",
        panels=SLICES,
        y="tflops",
        series="fastest",
    )


PLOTS = {
    "tflops_forward": speed("forward", "fp16"),
    "tflops_backward": speed("backward", "fp16"),
    "tflops_forward_fp32": speed("forward", "fp32"),
    "tflops_backward_fp32": speed("backward", "fp32"),
    "memory": Plot(
        files="counted_problem sweep compare16 tensor_steps sweep16 sweep_peers",
        title="Extra memory of one head: N² in plain attention, N or nothing when fused",
        note="{device}, {problem}; beyond Q, K, V, O and their gradients, of each stage the last step.\n"
        "Stages 01 to 07 in fp32, all others in 16 bits. " + LOG,
        rows="(dtype != 'fp32' or not is_peer) and variant not in ['relay', 'divided']",  # which are made for wider heads and for few
        where="head_dim == 64 and causal",
        problem="d = 64, causal",
        panels=PASSES,
        y="extra_bytes_of_a_head",
    ),
    "bytes": Plot(
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
}
