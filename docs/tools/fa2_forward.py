"""Of docs/06_fa2_forward.md: tiles, loads, instructions, banks, gains of the steps; events, sectors and least times; the example of
section 4. Its pictures are in fa2_forward_pictures.py."""

from plots import h200
from rows import describe

from .fa1_forward import GROUP
from .formatting import number, step, table, tabled
from .saved import newest, of_each_gpu, of_today, section
from .shapes import SHARED_BYTES, WARP, ThreadTile, shape_of, shapes, up, variants, visible_pairs, visited, wavefronts
from .timed import by_problem

STAGE = "06_fa2_forward"
STEPS = {variant: str(number) for number, variant in enumerate(variants(STAGE), 1)}
LAST = list(STEPS)[-1]
SHORT = ("short_softmax", LAST)


def of_width(variant, width, tiles=None):
    return shape_of(STAGE, variant, "forward", width, tiles)


@tabled("step | d, padded | Br × Bc | threads | lanes | S of a thread | O of a thread | shared memory | fits | as its source says")
def tiles():
    """The compiled kernels of steps 2 to 6. Steps 2 to 5 have the same sizes."""
    middle = [variant for variant in STEPS if variant not in ("loop_order", LAST)]
    sizes = [[(s.width, s.tiles, str(s.thread["S"])) for s in shapes(STAGE, variant, "forward")] for variant in middle]
    if any(of_step != sizes[0] for of_step in sizes):
        raise SystemExit("the middle steps of 06 list different sizes; fa2_forward.tiles and chapter 06 show one list")
    for variant, number_of in [(middle[-1], f"{STEPS[middle[0]]} to {STEPS[middle[-1]]}"), (LAST, STEPS[LAST])]:
        for s in shapes(STAGE, variant, "forward"):
            scores = s.thread["S"]
            lanes = f"{scores.along} × {scores.lanes}"
            yield [number_of, s.width, s.tiles, s.threads, lanes, scores, s.thread["O"], s.kib, s.fits, s.why]


def instructions(s):
    """(6.8)  What a thread issues for a pair of tiles, at least: {what: instructions}."""
    scores, outputs = s.thread["S"], s.thread["O"]
    vector, short = s.variant != "register_tiles", s.variant in SHORT
    along = scores.sides * s.width + scores.rows * s.bc  # Q, K, P: nvcc reads four steps along a row at once
    down = outputs.cols * s.bc  # V
    copies = 2 * s.bc * s.width // 4 // s.threads  # of 16 bytes
    return {
        "products": scores.size * s.width + outputs.size * s.bc,
        "loads": along // 4 + (down // 4 if vector else down),
        "softmax": (5 if short else 6) * scores.size + scores.rows * (5 + 2 * (scores.lanes.bit_length() - 1)),
        "O rescaled": outputs.size,
        "P stored": scores.size // 4 if vector else scores.size,
        "scale and mask": 0 if short else 4 * scores.size,
        "copies": copies if short or s.variant == "async_copies" else 2 * copies,
    }


def share(counts):
    """(6.8), (7.8)  Of multiply-adds of the products in all instructions, at most."""
    return counts["products"] / sum(counts.values())


def loads():
    """Of the products: numbers that a thread reads from shared memory, and instructions for it."""
    rows = [["1", "any", f"1 × {GROUP}", "1 × d", 4 * GROUP * 2, 4 + 8 * GROUP, 1 + 2 * GROUP]]  # GROUP keys at once
    for variant in ["register_tiles", "vector_operands", LAST]:
        for s in (of_width(variant, width) for width in (64, 128)):
            counts, scores, outputs = instructions(s), s.thread["S"], s.thread["O"]
            registers = scores.sides * s.width + outputs.sides * s.bc
            rows.append([STEPS[variant], s.width, scores, outputs, counts["products"], registers, counts["loads"]])
    lines = [[*what, f"{registers / products:.3g}", f"{issued / products:.3g}"] for *what, products, registers, issued in rows]
    return table("step | d | S at a time | O of a thread | numbers per multiply-add | load instructions per multiply-add", lines)


def issued():
    """(6.8)  And the rate that it allows."""
    every = [of_width(variant, width) for variant in list(STEPS)[1:] for width in (64, 128)]
    rows = []
    for s, counts in zip(every, map(instructions, every)):
        cells = [f"{100 * share(counts):.0f} %", f"{share(counts) * h200.FP32_FLOPS / 1e12:.0f}"]
        rows.append([STEPS[s.variant], s.width, s.tiles, *(f"{count:,}" for count in counts.values()), *cells])
    return table(["step", "d", "tiles", *instructions(every[0]), "μ", "TFLOP/s, at most"], rows)


def events(row):
    """Barriers: two for each pair of tiles, and in step 1 two for each tile of Q. Warp operations: a shuffle for each row of a thread and
    each halving of its lanes, per tile for the maximum and once for the sum; a __syncwarp() before P is read, and between chunks of P."""
    p, variant = row["problem"], row["variant"]
    of_tiles = visited(p, row["tiles"]["br"], row["tiles"]["bc"])
    pairs, heads = sum(of_tiles), p["batch"] * p["heads"]
    if variant == "loop_order":
        return {"barriers": 2 * heads * (pairs + len(of_tiles)), "warp_operations": 0}
    s = of_width(variant, up(p["head_dim"], 32), row["tiles"])
    shuffles = s.thread["S"].rows * (s.thread["S"].lanes.bit_length() - 1)
    of_warp = pairs * (shuffles + 2 * (s.bc // chunk_of(s)) - 1) + len(of_tiles) * shuffles
    return {"barriers": 2 * heads * pairs, "warp_operations": heads * of_warp * s.warps}


def sectors(row, moved):
    """All move along rows, but Q from step 3 on: a sector for each element. L is written by some lanes of a warp: those of step 2 stand on
    4 neighbouring rows, those of the steps after it on every fourth row."""
    variant = row["variant"]
    along = {"Q": 8 if variant in ("loop_order", "register_tiles") else 1, "L": {"loop_order": 8, "register_tiles": 4}.get(variant, 2)}
    return sum(sum(both) // along.get(name, 8) for name, both in moved.items())


def least_ms(row):
    """(6.7), (6.9)  On an H200 whose SMs share the work evenly: step 1 by shared memory, the others by what they issue."""
    p, variant = row["problem"], row["variant"]
    pairs, width = visible_pairs(p) * p["heads"] * p["batch"], up(p["head_dim"], 32)
    if variant == "loop_order":
        return 1e3 * pairs * 9 * width / 256 / (h200.SMS * h200.CLOCK_HZ)
    return 1e3 * 4 * pairs * p["head_dim"] / (share(instructions(of_width(variant, width, row.get("tiles")))) * h200.FP32_FLOPS)


@of_each_gpu
def gains(device):
    """Each step beside the one before it: by the least times, and measured, on the problems of large.jsonl and the demo's."""
    lines, used = [], []
    for rows in by_problem(filter(of_today, newest(device, "compare.jsonl", "large.jsonl", stage=STAGE, having="time"))):
        for before, row in zip(rows, rows[1:]):
            if int(STEPS.get(row["variant"], 0)) == int(STEPS.get(before["variant"], 0)) + 1:
                by_bounds, measured = least_ms(before) / least_ms(row), before["time"]["median_ms"] / row["time"]["median_ms"]
                name = describe(row["problem"]), STEPS[row["variant"]], step(row)
                lines.append([*name, f"{by_bounds:.2f}", f"{measured:.2f}", number(row["tflops"])])
                used += [before, row]
    head = "problem | step |  | gain, by least times | gain, measured | TFLOP/s"
    return section("forward, fp32; gains over the step before", head, lines, used)


def chunk_of(s):
    """Keys whose P lies in shared memory at a time."""
    return min(s.bc, 64) if s.variant == LAST else s.bc


@tabled("d | Br × Bc | keys of P at a time | Q, bytes | K and V, bytes | P, bytes | all | blocks on an SM of an H200")
def chunks():
    """P whole, and in chunks: why the tiles of d = 128 fit."""
    for s in (of_width(LAST, width) for width in (64, 128)):
        for chunk in dict.fromkeys([s.bc, chunk_of(s), chunk_of(s) // 2]):
            parts = [4 * s.br * s.width, 4 * s.bc * (2 * s.width + 4), 4 * chunk * (s.br + 4)]
            amount = sum(parts)
            if chunk == chunk_of(s) and amount != s.shared_bytes:
                raise SystemExit(f"fa2_forward.chunks: {amount} bytes of shared memory, but the program says {s.shared_bytes}")
            blocks = h200.SHARED_KB_PER_SM * 1024 // (amount + 1024) if amount <= SHARED_BYTES[90] else "none: too much"
            keys = f"{chunk}{' **(used)**' if chunk == chunk_of(s) else ''}"
            yield [s.width, s.tiles, keys, *(f"{part:,}" for part in parts), f"{amount:,}", blocks]


def accesses(s):
    """[(what, function of a lane: first of four words, used)] of the vector steps at step 0 of the products."""
    scores, outputs = s.thread["S"], s.thread["O"]
    return [
        ("Q, transposed: read", lambda t: scores.row(t, 0), True),
        ("K: read, rows as they are", lambda t: scores.col(t, 0) * s.width, False),
        ("K: read, rows padded by 4 (B.6)", lambda t: scores.col(t, 0) * (s.width + 4), True),
        ("P, transposed: written, rows of Br", lambda t: scores.col(t, 0) * s.br + scores.row(t, 0), False),
        ("P, transposed: written, rows of Br + 4", lambda t: scores.col(t, 0) * (s.br + 4) + scores.row(t, 0), True),
        ("P, transposed: read", lambda t: outputs.row(t, 0), True),
        ("V: read", lambda t: outputs.col(t, 0), True),
    ]


@tabled("access | d = 64: different words | wavefronts | d = 128: different words | wavefronts")
def banks():
    for of_both in zip(*(accesses(of_width(LAST, width)) for width in (64, 128))):
        what, _, used = of_both[0]
        found = []
        for _, first, _ in of_both:
            found += [len({first(t) + word for t in range(WARP) for word in range(4)}), wavefronts(first, 4)]
        yield [f"**{what}**" if used else what, *found]


class SmallTile(ThreadTile):
    """In the example of section 4 a warp has 4 lanes, a vector 2 words, shared memory 4 banks."""

    along = property(lambda t: 4 // t.lanes)


SMALL_S, SMALL_O = SmallTile(2, 4, 2, 2, 1), SmallTile(2, 4, 2, 2, 2)
SMALL_LANE, SMALL_WORDS, SMALL_BANKS, SMALL_D = 2, 2, 4, 4  # lane 2 stands at (y, x) = (1, 0)
SMALL_Q = [[1, 0, 2, 1], [0, 1, 1, 0], [2, 1, 0, 1], [1, 1, 1, 0]]
SMALL_K = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [2, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 2], [1, 2, 0, 1], [0, 0, 1, 1]]


def small_places():
    """The rows and the columns of S, and the columns of O, that the lane of the example holds."""
    t, n = SMALL_LANE, range(4)
    return [SMALL_S.row(t, r) for r in n[:2]], [SMALL_S.col(t, c) for c in n], [SMALL_O.col(t, c) for c in n]


def small_products():
    """S = Q K^T of 4 queries and 8 keys, as outer products: what one lane has after each step."""
    rows, keys, _ = small_places()
    S = [[0] * len(keys) for _ in rows]
    lines = []
    for k in range(SMALL_D):
        a, b = [SMALL_Q[row][k] for row in rows], [SMALL_K[key][k] for key in keys]
        S = [[s + x * y for s, y in zip(of_row, b)] for of_row, x in zip(S, a)]
        lines.append([k, *(", ".join(map(str, numbers)) for numbers in (a, b, *S))])
    if S != [[sum(x * y for x, y in zip(SMALL_Q[row], SMALL_K[key])) for key in keys] for row in rows]:
        raise SystemExit("fa2_forward.small_products: the outer products do not sum to Q K^T")
    queries, columns = (", ".join(map(str, places)) for places in (rows, keys))
    names = [f"`a`: queries {queries}", f"`b`: keys {columns}", *(f"S({row}, ·) so far" for row in rows)]
    return table(["k", *names], lines)


def small_loads():
    """The same lane's accesses to shared memory, stored in two ways."""
    rows, keys, cols = small_places()
    d, queries, n = SMALL_D, len(SMALL_Q), len(SMALL_K)
    pair = range(SMALL_WORDS)

    def line(what, lies, words, steps):
        accesses = []
        for word in words:
            fits = accesses and word == accesses[-1][-1] + 1 and word % SMALL_WORDS
            accesses[-1:] = [[*accesses[-1], word]] if fits else [*accesses[-1:], [word]]
        return [what, lies, "; ".join(", ".join(map(str, access)) for access in accesses), len(accesses), steps]

    lines = [
        line("$`QK^T`$ reads Q", "row by row, `Along`", [row * d + k for row in rows for k in pair], 2),
        line("", "**transposed, `Down`**", rows, 1),
        line("$`QK^T`$ reads K", "**row by row, `Along`**", [key * d + k for key in keys for k in pair], 2),
        line("P is stored", "row by row", [row * n + key for row in rows for key in keys], "–"),
        line("", "**transposed**", [key * queries + row for key in keys for row in rows], "–"),
        line("$`PV`$ reads V", "row by row, columns of O one by one", keys, 1),
        line("", "**row by row, columns of O in runs of two, `Down`**", cols, 1),
    ]
    return table("access | the matrix lies | words of this lane | accesses | steps that they serve", lines)


@tabled("rows of K | lane x = 0 reads K(0, 0..1) | lane x = 1 reads K(1, 0..1) | wavefronts")
def small_banks():
    """Two lanes read the beginning of two keys: rows as they are, padded, swizzled."""
    for how, first in [
        (f"as they are, {SMALL_D} words apart", lambda key: key * SMALL_D),
        (f"padded by {SMALL_WORDS}, {SMALL_D + SMALL_WORDS} words apart", lambda key: key * (SMALL_D + SMALL_WORDS)),
        ("swizzled: the pairs of every second row change places", lambda key: key * SMALL_D + SMALL_WORDS * (key % 2)),
    ]:
        words = [[first(SMALL_S.col(x, 0)) + word for word in range(SMALL_WORDS)] for x in range(SMALL_S.lanes)]
        banks = [word % SMALL_BANKS for of_lane in words for word in of_lane]
        both = [f"words {', '.join(map(str, w))}: banks {', '.join(str(word % SMALL_BANKS) for word in w)}" for w in words]
        yield [how, *both, max(map(banks.count, banks))]
