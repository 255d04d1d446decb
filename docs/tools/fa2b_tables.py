"""Generated tables of chapter 07, from the shapes of its kernels."""

import json

from plots import h200
from rows.text import describe

from .fa2_tables import fitting
from .fa2b_shapes import PRODUCTS, THREADS, WARP, instructions, products, shape_of, shapes, share
from .formatting import table
from .matmul_tables import wavefronts
from .saved import RESULTS, gpus, origin, rows_of

WIDTHS = [32, 64, 96, 128]


def tiles_07():
    """The compiled kernels. Both steps list the same."""
    lists = [shapes(variant) for variant in PRODUCTS]
    if lists[0] != lists[1]:
        raise SystemExit("the steps of 07 list different shapes; tiles_07 and chapter 07 show one list")
    rows = []
    for s in lists[0]:
        amount = s.shared_bytes()
        rows.append(
            [s.width, f"{s.br} × {s.bc}", f"{s.tm} × {s.tn}", f"{s.tk} × {s.td}", f"{s.tq} × {s.tc}"]
            + [f"{amount / 1024:.0f} KiB", fitting(amount), s.why]
        )
    return table(["d, padded", "Br × Bc", "S or dP of a thread", "dV or dK", "dQ", "shared memory", "fits", "as its source says"], rows)


def loads_07():
    """Numbers and load instructions of a thread, product by product, for the default tiles of step 2."""
    rows = []
    for width in [64, 128]:
        s = shape_of("one_kernel", width)
        numbers = done = loads = 0
        for name, (m, n, depth) in products(s).items():
            issued = (m + n) * depth // 4
            rows.append([width, name, f"{m} × {n}", f"{m * n * depth:,}", f"{(m + n) / (m * n):.3g}", f"{issued / (m * n * depth):.3g}"])
            numbers, done, loads = numbers + (m + n) * depth, done + m * n * depth, loads + issued
        rows.append([width, "**all**", "", f"{done:,}", f"**{numbers / done:.3g}**", f"**{loads / done:.3g}**"])
    return table(["d", "product", "tile of a thread", "multiply-adds", "numbers per multiply-add", "load instructions per multiply-add"], rows)


def registers_07():
    """Two ways to deal five products out to 256 threads: to halves, or all of each to all. For the default tiles of d = 128."""
    s = shape_of("one_kernel", 128)
    gradients = 2 * s.bc * s.width // THREADS
    rows = [
        ["halves: dV or dK", f"{s.tk} × {s.td}", gradients, f"{(s.tk + s.td) / (s.tk * s.td):.3g}"],
        ["all threads both", f"{s.tk // 2} × {s.td}, twice", gradients, f"{(s.tk // 2 + s.td) / (s.tk // 2 * s.td):.3g}"],
        ["all threads both, tiles as large", f"{s.tk} × {s.td}, twice", 2 * gradients, f"{(s.tk + s.td) / (s.tk * s.td):.3g}"],
    ]
    if s.tk * s.td != gradients:
        raise SystemExit("registers_07: a half no longer holds what it is said to hold")
    return table(["who computes", "tile of a thread", "registers for it", "numbers read per multiply-add"], rows)


def instructions_07():
    """(7.8)  And the rate that it allows, in FLOPs that count."""
    rows = []
    for variant, count in PRODUCTS.items():
        for width in WIDTHS:
            s = shape_of(variant, width)
            counts = instructions(s, variant)
            rate = share(s, variant) * h200.FP32_FLOPS * 5 / count / 1e12
            rows.append([list(PRODUCTS).index(variant) + 1, width, f"{s.br} × {s.bc}"] + [f"{c:,}" for c in counts.values()] + [f"{100 * share(s, variant):.0f} %", f"{rate:.0f}"])
    return table(["step", "d", "tiles", *counts, "μ", "TFLOP/s, at most"], rows)


def accesses(s):
    """[(what, function of a lane: first word, words of a lane, used)] of the first access of each kind."""
    through = "P, dS written, P read"  # by the lanes that hold S or dP

    def score(t, group):
        return s.score_row(t, 0, group) * s.p_stride + s.score_col(t, 0)

    return [
        ("Q, dO read for S, dP", lambda t: s.score_row(t, 0) * s.stride, 4, True),
        ("K, V read for S, dP: rows as they are", lambda t: s.score_col(t, 0) * s.width, 4, False),
        ("K, V read for S, dP: rows padded by 4", lambda t: s.score_col(t, 0) * s.stride, 4, True),
        (f"{through}: {s.tm} rows of a lane side by side", lambda t: score(t, s.tm), 1, False),
        (f"{through}: a lane has one row of {s.ly}", lambda t: score(t, 1), 1, False),
        (f"{through}: a lane has {s.group} rows of each 8", lambda t: score(t, s.group), 1, True),
        ("P, dS read for dV, dK", lambda t: s.key(t, 0), 4, True),
        ("dO, Q read for dV, dK", lambda t: s.key_col(t, 0), 4, True),
        ("dS read for dQ", lambda t: s.query_row(t, 0) * s.p_stride, 4, True),
        ("K read for dQ", lambda t: s.query_col(t, 0), 4, True),
    ]


def banks_07():
    parts = []
    for width in [64, 128]:
        s = shape_of("one_kernel", width)
        rows = []
        for what, first, words, used in accesses(s):
            different = {first(t) + w for t in range(WARP) for w in range(words)}
            rows.append([f"**{what}**" if used else what, len(different), wavefronts(first, words), 4 if words == 4 else 1])
        parts.append(f"d = {width}, {s.ly} × {s.lx} lanes, {s.tm} × {s.tn} scores:\n\n{table(['access', 'different words', 'wavefronts', 'least'], rows)}")
    return "\n\n".join(parts)


def history():
    return json.loads((RESULTS / "nvidia_h200" / "backward_history.json").read_text())


def backward_history():
    """How step 2 got its speed."""
    saved = history()
    rows = []
    for line, row in enumerate(saved["rows"], 1):
        rates = [f"{row['tflops'][d]:.1f}" for d in ("64", "128")]
        expected = f"{row['predicted']['128']:.0f}" if "predicted" in row else "–"
        rows.append([line, row["what"], *rates, expected, " / ".join(map(str, row["issue_percent"])) if "issue_percent" in row else "–"])
    head = ["line", "step 2 with", "d = 64, TFLOP/s", "d = 128, TFLOP/s", "d = 128, predicted", "issue slots used, %, d = 64 / 128"]
    problems = " and ".join(saved["problems"].values())
    title = f"{saved['device']}, {saved['pass']}, {problems} fp32, not causal:"
    return f"{title}\n\n{table(head, rows)}\n\nMeasured while the kernel was being made, from versions that were not kept. Line 3 is line 2 with one change more."


def backward_samples():
    return table(["where the samples of line 1 fall, d = 128", "% of all"], [[row["what"], row["percent"]] for row in history()["samples"]])


def repeats_07():
    """Step 2 beside step 1 in what a run needs beside time: bytes, and atomic additions."""
    rows, used = [], []
    for row in rows_of("cpu"):
        if row["stage"] != "07_fa2_backward" or row["pass"] != "backward" or "counters" not in row:
            continue
        tensors = row["counters"]["tensors"]
        moved = sum(t["read_bytes"] + t["written_bytes"] for t in tensors.values())
        gradient = sum(tensors["dQ"][key] for key in ("read_bytes", "written_bytes"))
        rows.append([describe(row["problem"]), f"`{row['variant']}`", f"{moved:,}", f"{gradient:,}", f"{row['counters']['atomics']:,}"])
        used.append(row)
    if not rows:
        return "*Nothing saved yet.*"
    return f"{table(['problem', 'variant', 'all bytes', 'of them dQ', 'atomic additions'], rows)}\n\n{origin(used)}"


PRODUCTS_OF = {"dk_dv_kernel": 4, "dq_kernel": 3, "backward_kernel": 5}


def walks_07():
    """Time of each walk, and for each product in it."""
    lines, used = [], []
    for device in gpus():
        for row in rows_of(device, "compare.json"):
            for kernel in row.get("profile", []) if row["stage"] == "07_fa2_backward" and row["pass"] == "backward" else []:
                if kernel["kernel"] in PRODUCTS_OF:
                    count = PRODUCTS_OF[kernel["kernel"]]
                    lines.append([f"`{row['variant']}`", f"`{kernel['kernel']}`", f"{kernel['time_us']:,.0f}", count, f"{kernel['time_us'] / count:,.0f}"])
                    used.append(row)
    if not lines:
        return "*No profile saved yet.*"
    title = f"{used[0]['device']['name']}, {describe(used[0]['problem'])}"
    return f"{title}:\n\n{table(['variant', 'kernel', 'µs', 'products', 'µs for each'], lines)}\n\n{origin(used)}"
