"""The plots of saved rows. Each is an entry of PLOTS, which plot.py draws from any rows, or from those of docs/results for the pages. Queries
are Python expressions over the columns of plot.mark()."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plot:
    title: str
    note: str  # below the plot; {device} and {problem} are filled in
    rows: str  # query: what the plot can show
    where: str  # query: the problems that it shows, unless --where names others
    problem: str  # the same in words
    panels: dict  # title: query
    y: str  # column
    files: str = ""  # of docs/results/nvidia_h200: what --docs draws it of, if a page shows it
    series: str = "last"  # the step of a stage that has a line: the "fastest" or the "last"
    least: str = ""  # column: what any implementation needs


TOKENS = "batch * seq_q == 16384 and heads * head_dim == 2048"
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


def speed(which):
    return Plot(
        files="sweep_peers sweep16",  # what was run in turns comes last
        title=f"{which.capitalize()} pass: TFLOP/s against the length N, tensor cores",
        note="{device}, {problem}; medians with a cold L2, of each stage the step that is fastest at the longest N.",
        rows=f"dtype != 'fp32' and direction == '{which}' and series not in ['peer_plain', 'peer_memory_efficient']",  # far behind
        where=f"dtype == 'fp16' and {TOKENS}",
        problem="fp16, B·N = 16,384, H·d = 2,048",
        panels=SLICES,
        y="tflops",
        series="fastest",
    )


PLOTS = {
    "tflops_forward": speed("forward"),
    "tflops_backward": speed("backward"),
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
        title="Bytes read and written for one head, next to the least that must move",
        note="{problem}. Counted by the simulator: what threads ask of global memory, before caches;\nof each stage the last step. " + LOG,
        rows="not is_gpu",
        where="head_dim == 64 and not causal",
        problem="d = 64, no mask",
        panels=BY_TYPE,
        y="counted_bytes_of_a_head",
        least="least_bytes_of_a_head",
    ),
}
