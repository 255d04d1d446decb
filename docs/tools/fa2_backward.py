"""Of docs/07_fa2_backward.md: tiles, loads, instructions, banks, events, sectors and least times, walks and repeats. Its pictures are in
fa2_backward_pictures.py."""

from plots import h200
from rows import describe

from .fa2_forward import share
from .formatting import step, table, tabled
from .saved import NOTHING_SAVED, newest, of_each_gpu, origin, section
from .shapes import WARP, shape_of, shapes, up, variants, visible_pairs, visited, wavefronts

STAGE = "07_fa2_backward"
PRODUCTS = {variant: 7 if variant == "two_kernels" else 5 for variant in variants(STAGE)}


def of_width(width, variant="one_kernel", tiles=None):
    return shape_of(STAGE, variant, "backward", width, tiles)


def tiles():
    """The compiled kernels. Both steps list the same."""
    lists = [[s.__dict__ | {"variant": None} for s in shapes(STAGE, variant, "backward")] for variant in PRODUCTS]
    if lists[0] != lists[1]:
        raise SystemExit("the steps of 07 list different kernels; fa2_backward.tiles and chapter 07 show one list")
    rows = [[s.width, s.tiles, *s.thread.values(), s.kib, s.fits, s.why] for s in shapes(STAGE, "one_kernel", "backward")]
    return table("d, padded | Br × Bc | S or dP of a thread | dV or dK | dQ | shared memory | fits | as its source says", rows)


def products(s):
    """[(product, its tile in a thread's registers, length of the inner dimension)]"""
    return [("S or dP", s.thread["S"], s.width), ("dV or dK", s.thread["dK"], s.br), ("dQ", s.thread["dQ"], s.bc)]


@tabled("d | product | tile of a thread | multiply-adds | numbers per multiply-add | load instructions per multiply-add")
def loads():
    """Numbers and load instructions of a thread, product by product, for the default tiles of step 2."""
    for width in [64, 128]:
        numbers = done = loads = 0
        for name, tile, depth in products(of_width(width)):
            read, multiplied, issued = tile.sides * depth, tile.size * depth, tile.sides * depth // 4
            yield [width, name, tile, f"{multiplied:,}", f"{read / multiplied:.3g}", f"{issued / multiplied:.3g}"]
            numbers, done, loads = numbers + read, done + multiplied, loads + issued
        yield [width, "**all**", "", f"{done:,}", f"**{numbers / done:.3g}**", f"**{loads / done:.3g}**"]


def registers():
    """Two ways to deal five products out to 256 threads: to halves, or all of each to all. For the default tiles of d = 128."""
    s = of_width(128)
    rows, cols, gradients = s.thread["dK"].rows, s.thread["dK"].cols, s.thread["dK"].size
    lines = [
        ["halves: dV or dK", f"{rows} × {cols}", gradients, f"{(rows + cols) / (rows * cols):.3g}"],
        ["all threads both", f"{rows // 2} × {cols}, twice", gradients, f"{(rows // 2 + cols) / (rows // 2 * cols):.3g}"],
        ["all threads both, tiles as large", f"{rows} × {cols}, twice", 2 * gradients, f"{(rows + cols) / (rows * cols):.3g}"],
    ]
    return table("who computes | tile of a thread | registers for it | numbers read per multiply-add", lines)


def instructions(s):
    """(7.8)  What a thread issues for a pair of tiles, at least, the mean of both halves: {what: instructions}."""
    scores, keys, queries = s.thread["S"], s.thread["dK"], s.thread["dQ"]
    twice = s.variant == "two_kernels"  # S, dP, and what becomes of them
    both = 2 if twice else 1
    copied = 2 * s.br + (2 * s.bc if twice else 0)  # rows of Q, dO, and of K, V in the second kernel
    q = queries.size
    return {
        "products": both * scores.size * s.width + keys.size * s.br + q * s.bc,
        "loads": (both * scores.sides * s.width + keys.sides * s.br + queries.sides * s.bc) // 4,
        "P and dS": both * (8 * scores.size + 4 * scores.rows) // 2,
        "dQ added": 0 if twice else q + q // 4,
        "copies": copied * s.width // 4 // s.threads,
    }


def issued():
    """(7.8)  And the rate that it allows, in FLOPs that count."""
    rows = []
    for number, variant in enumerate(PRODUCTS, 1):
        for s in (of_width(width, variant) for width in (32, 64, 96, 128)):
            counts = instructions(s)
            rate = share(counts) * h200.FP32_FLOPS * 5 / PRODUCTS[variant] / 1e12
            cells = [f"{100 * share(counts):.0f} %", f"{rate:.0f}"]
            rows.append([number, s.width, s.tiles, *(f"{count:,}" for count in counts.values()), *cells])
    return table(["step", "d", "tiles", *instructions(of_width(64)), "μ", "TFLOP/s, at most"], rows)


def events(row):
    """Barriers: four for each pair of tiles and kernel. Warp operations: five shuffles for each row of D."""
    p, kernels = row["problem"], 2 if row["variant"] == "two_kernels" else 1
    pairs, heads = sum(visited(p, row["tiles"]["br"], row["tiles"]["bc"])), p["batch"] * p["heads"]
    return {"barriers": 4 * kernels * pairs * heads, "warp_operations": 5 * p["seq_q"] * heads}


def sectors(row, moved):
    """All along rows, but a lane writes D alone."""
    return (sum(map(sum, moved.values())) + 7 * moved["D"][1]) // 8


def least_ms(row):
    """(7.9)  On an H200, by what is issued."""
    p = row["problem"]
    flops = 2 * PRODUCTS[row["variant"]] * visible_pairs(p) * p["heads"] * p["batch"] * p["head_dim"]
    return 1e3 * flops / (share(instructions(of_width(up(p["head_dim"], 32), row["variant"], row.get("tiles")))) * h200.FP32_FLOPS)


def stride_of_p(s):
    """Words: rows of P are padded so that the lanes of a column meet other banks."""
    return s.bc + s.thread["S"].lanes // s.thread["S"].row_run


def word_of_p(s, run):
    """The function of a lane that gives its first word in P, if a lane had `run` rows side by side."""
    return lambda t: t // s.thread["S"].lanes * run * stride_of_p(s) + s.thread["S"].col(t, 0)


def accesses(s):
    """[(what, function of a lane: first word, words of a lane, used)] of the first access of each kind."""
    scores, keys, queries = s.thread["S"], s.thread["dK"], s.thread["dQ"]
    stride = s.width + 4
    through = "P, dS written, P read"  # by the lanes that hold S or dP
    return [
        ("Q, dO read for S, dP", lambda t: scores.row(t, 0) * stride, 4, True),
        ("K, V read for S, dP: rows as they are", lambda t: scores.col(t, 0) * s.width, 4, False),
        ("K, V read for S, dP: rows padded by 4", lambda t: scores.col(t, 0) * stride, 4, True),
        (f"{through}: {scores.rows} rows of a lane side by side", word_of_p(s, scores.rows), 1, False),
        (f"{through}: a lane has one row of {scores.along}", word_of_p(s, 1), 1, False),
        (f"{through}: a lane has {scores.row_run} rows of each 8", word_of_p(s, scores.row_run), 1, True),
        ("P, dS read for dV, dK", lambda t: keys.row(t, 0), 4, True),
        ("dO, Q read for dV, dK", lambda t: keys.col(t, 0), 4, True),
        ("dS read for dQ", lambda t: queries.row(t, 0) * stride_of_p(s), 4, True),
        ("K read for dQ", lambda t: queries.col(t, 0), 4, True),
    ]


def banks():
    parts = []
    for s in (of_width(64), of_width(128)):
        rows = []
        for what, first, words, used in accesses(s):
            different = {first(t) + word for t in range(WARP) for word in range(words)}
            rows.append([f"**{what}**" if used else what, len(different), wavefronts(first, words), words])
        title = f"d = {s.width}, {s.thread['S'].along} × {s.thread['S'].lanes} lanes, {s.thread['S']} scores"
        parts.append(f"{title}:\n\n{table('access | different words | wavefronts | least', rows)}")
    return "\n\n".join(parts)


def repeats():
    """Step 2 beside step 1 in what a run needs beside time: bytes, and atomic additions."""
    used = newest("cpu", stage=STAGE, having="counters")
    rows = []
    for row in used:
        counters, dq = row["counters"], row["counters"]["tensors"]["dQ"]
        amounts = [counters["read_bytes"] + counters["written_bytes"], dq["read_bytes"] + dq["written_bytes"], counters["atomics"]]
        rows.append([describe(row["problem"]), step(row), *(f"{amount:,}" for amount in amounts)])
    head = "problem | variant | all bytes | of them dQ | atomic additions"
    return f"{table(head, rows)}\n\n{origin(used)}" if used else NOTHING_SAVED


def bank_map():
    """Which banks the lanes of each y write to, first row of each: for the ways to deal rows out to lanes."""
    s = of_width(128)
    scores = s.thread["S"]
    runs = [1, scores.row_run, scores.rows]
    lines = []
    for y in range(scores.along):
        cells = []
        for run in runs:
            words = [word_of_p(s, run)(y * scores.lanes + x) for x in range(scores.lanes)]
            if words != list(range(words[0], words[0] + scores.lanes)):
                raise SystemExit("fa2_backward.bank_map: the lanes of a row do not write side by side")
            cells += [y * run, f"{words[0] % 32} to {words[-1] % 32}"]
        lines.append([y, *cells])
    counts = [wavefronts(word_of_p(s, run), 1) for run in runs]
    lines.append(["**wavefronts**"] + [cell for count in counts for cell in ("", f"**{count}**")])
    return table(["lanes of y"] + [name for run in runs for name in (f"run of {run}: row", "banks")], lines)


@of_each_gpu
def walks(device):
    """Time of each walk, and for each product in it."""
    lines, used = [], []
    for row in newest(device, "compare.jsonl", stage=STAGE, having="profile"):
        for kernel in row["profile"]:
            count = {"dk_dv_kernel": 4, "dq_kernel": 3, "backward_kernel": 5}.get(kernel["kernel"])
            if count:
                time = kernel["time_us"]
                lines.append([step(row), f"`{kernel['kernel']}`", f"{time:,.0f}", count, f"{time / count:,.0f}"])
                used.append(row)
    head = "variant | kernel | µs | products | µs for each"
    return section("{problem}", head, lines, used)
