"""Of docs/io_complexity.md: formulas for some lengths and amounts of shared memory, and all stages counted."""

from operator import itemgetter

from rows import grouped, size

from .counted import agree
from .formatting import step, tabled
from .saved import NOTHING_SAVED, newest, section
from .shapes import SHARED_BYTES

PASS = itemgetter("pass")
REGISTER_ROWS = 128  # rows of a Q tile of FlashAttention-2 in the tables below


def traffic(n, d, floats=SHARED_BYTES[90] // 4):
    """Elements of one head's forward pass, (I.1) to (I.5), for Nq = Nk = n without a causal mask."""
    bc = -(-floats // (4 * d))
    return {
        "compulsory": 4 * n * d + n,
        "three kernels": 4 * n * n + 4 * n * d,
        "FA1": 2 * n * d + -(-n // bc) * (3 * n * d + 4 * n),
        "FA2": 2 * n * d + n + -(-n // REGISTER_ROWS) * 2 * n * d,
    }


@tabled("d | N | compulsory (I.1) | S, P in HBM (I.2) | FA1 (I.3) | FA2 (I.5) | FA1 / (I.2) | FA2 / (I.2)")
def theory():
    """The formulas for some lengths, in bytes of fp32."""
    for d in [64, 128]:
        for n in [1024, 4096, 16384]:
            each = traffic(n, d)
            of_three_kernels = [f"{each[name] / each['three kernels']:.2f}" for name in ("FA1", "FA2")]
            yield [d, n, *(size(4 * e) for e in each.values()), *of_three_kernels]


@tabled("M | Bc = ⌈M/4d⌉ | Tc | FA1 (I.3) | times M / N²d²")
def memory():
    """(I.3) for other amounts of shared memory."""
    n, d = 4096, 64
    for kib in [16, 32, 64, 128, 227]:
        floats = kib * 256
        bc, fa1 = -(-floats // (4 * d)), traffic(n, d, floats)["FA1"]
        yield [f"{kib} KiB", bc, -(-n // bc), size(4 * fa1), f"{fa1 * floats / (n * n * d * d):.1f}"]


def both_ways(moved):
    return moved["read_bytes"] + moved["written_bytes"]


def line(row):
    tensors = row["counters"]["tensors"]
    square = sum(both_ways(tensors[name]) for name in ["S", "P", "dP", "dS"] if name in tensors)
    counted = sum(map(both_ways, tensors.values()))
    formula = agree(row, "bytes", both_ways(row["predicted"]), counted) if row["predicted"] else "–"
    times = f"{counted / row['compulsory_bytes']:.1f}"
    return [row["stage"], step(row), f"{square:,}", formula, f"{counted:,}", times, size(row["extra_memory_bytes"])]


def counts():
    """All stages on two problems: bytes of S, P and their gradients, all bytes, and the compulsory ones of (I.1)."""
    parts = []
    for file in ["compare.jsonl", "io.jsonl"]:
        rows = sorted(newest("cpu", file), key=lambda row: (row["pass"] != "forward", row["stage"]))
        head = "stage | variant | N × N matrices, bytes | all, formula | all, counted | times compulsory | extra memory"
        parts += [
            section(f"{name.capitalize()}, {{problem}}", head, list(map(line, some)), some) for name, some in grouped(rows, PASS).items()
        ]
    return "\n\n".join(parts) or NOTHING_SAVED
