"""Generated tables of the appendices: what follows from the data sheet alone, and from the costs of the fused stages."""

import math
import random
import struct
import subprocess
import sys

from plots import h200
from rows.row import is_borrowed
from rows.text import describe, size

from .formatting import table
from .saved import NOTHING_SAVED, ROOT, origin, rows_of


def run(path):
    """What a Python program of the docs prints. It has to end well."""
    done = subprocess.run([sys.executable, "-B", str(ROOT / path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{path} failed:\n{done.stdout}{done.stderr}")
    return f"```text\n{done.stdout.strip()}\n```"


def recompute():
    """An element of P: 2d FLOPs to compute its score again, against w bytes out and in."""
    rows = []
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16, tensor cores", 2, h200.BF16_FLOPS)]:
        for d in [64, 128]:
            again, moved = 2 * d / peak * 1e12, 2 * width / h200.HBM_BYTES_PER_SECOND * 1e12
            rows.append([dtype, d, f"{again:.2f}", f"{moved:.2f}", "compute again" if again < moved else "keep"])
    return table(["", "d", "compute again, ps", "write and read, ps", "faster"], rows)


SHARED_FLOATS = 227 * 1024 // 4  # of a block on sm_90, at most
REGISTER_ROWS = 128  # rows of a Q tile of FlashAttention-2 in the tables below


def traffic(n, d, floats=SHARED_FLOATS):
    """Elements of one head's forward pass, (I.1) to (I.5), for Nq = Nk = n without a causal mask."""
    bc = -(-floats // (4 * d))
    return {
        "compulsory": 4 * n * d + n,
        "three kernels": 4 * n * n + 4 * n * d,
        "FA1": 2 * n * d + -(-n // bc) * (3 * n * d + 4 * n),
        "FA2": 2 * n * d + n + -(-n // REGISTER_ROWS) * 2 * n * d,
    }


def io_theory():
    """The formulas for some lengths, in bytes of fp32."""
    rows = []
    for d in [64, 128]:
        for n in [1024, 4096, 16384]:
            each = traffic(n, d)
            rows.append([d, n] + [size(4 * e) for e in each.values()] + [f"{each['FA1'] / each['three kernels']:.2f}", f"{each['FA2'] / each['three kernels']:.2f}"])
    return table(["d", "N", "compulsory (I.1)", "S, P in HBM (I.2)", "FA1 (I.3)", "FA2 (I.5)", "FA1 / (I.2)", "FA2 / (I.2)"], rows)


def io_memory():
    """(I.3) and (I.5) for other amounts of shared memory."""
    n, d = 4096, 64
    rows = []
    for kib in [16, 32, 64, 128, 227]:
        floats = kib * 256
        bc = -(-floats // (4 * d))
        each = traffic(n, d, floats)
        rows.append([f"{kib} KiB", bc, -(-n // bc), size(4 * each["FA1"]), f"{each['FA1'] * floats / (n * n * d * d):.1f}"])
    return table(["M", "Bc = ⌈M/4d⌉", "Tc", "FA1 (I.3)", "times M / N²d²"], rows)


def io_counts():
    """All stages on one problem: bytes of S, P and their gradients, all bytes, and the compulsory ones of (I.1)."""
    parts = []
    for file in ["compare.json", "io.json"]:
        groups = {}
        for row in rows_of("cpu", file):
            if "counters" in row and not is_borrowed(row):
                groups.setdefault(describe(row["problem"]), []).append(row)
        for problem, rows in groups.items():
            lines = []
            for row in sorted(rows, key=lambda row: (row["pass"] != "forward", row["stage"])):
                tensors = row["counters"]["tensors"]
                counted = sum(moved["read_bytes"] + moved["written_bytes"] for moved in tensors.values())
                square = sum(tensors[name]["read_bytes"] + tensors[name]["written_bytes"] for name in ["S", "P", "dP", "dS"] if name in tensors)
                expected = row.get("predicted") and row["predicted"]["read_bytes"] + row["predicted"]["written_bytes"]
                if expected not in (None, counted):
                    raise SystemExit(f"{row['stage']} {row['variant']} {row['pass']}, {problem}: formula {expected} bytes, counted {counted}")
                lines.append(
                    [row["pass"], row["stage"], f"`{row['variant']}`", f"{square:,}", "–" if expected is None else f"{expected:,}", f"{counted:,}"]
                    + [f"{counted / row['compulsory_bytes']:.1f}", size(row["extra_memory_bytes"])]
                )
            head = ["pass", "stage", "variant", "N × N matrices, bytes", "all, formula", "all, counted", "times compulsory", "extra memory"]
            parts.append(f"{problem}:\n\n{table(head, lines)}\n\n{origin(rows)}")
    return "\n\n".join(parts) or NOTHING_SAVED


def fp32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def fp32_sum(terms):
    total = 0.0
    for term in terms:
        total = fp32(total + term)
    return total


def order_of_sums():
    """Errors of one chain of additions and of two levels, of random terms; the same terms at each call."""
    rows = []
    for count, chains, trials in [(2048, [1, 16], 100), (12288, [1, 6, 96], 100)]:
        source = random.Random(count)
        sets = [[fp32(source.gauss(0, 1)) for _ in range(count)] for _ in range(trials)]
        single = None
        for number in chains:
            length, squares = count // number, 0.0
            for terms in sets:
                got = fp32_sum(fp32_sum(terms[first : first + length]) for first in range(0, count, length))
                squares += (got - math.fsum(terms)) ** 2
            error = math.sqrt(squares / trials / count) * 2**24
            single = single or error
            law = math.sqrt(1 / number + 1 / length) if number > 1 else 1
            rows.append([f"{count:,}", f"{number} × {length:,}", f"{error:.1f}", f"{error / single:.2f}", f"{law:.2f}"])
    head = ["terms", "chains × their length", "error of the sum, in u", "of the single chain's", "predicted"]
    return table(head, rows)
