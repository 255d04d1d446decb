"""Of docs/04_fa1_forward.md: the tiles that fit, events, sectors and least times; the tiles of a step, and the two loop orders."""

from plots import h200

from .formatting import table
from .shapes import SHARED_BYTES, up, visible_pairs, visited
from .svg import Picture

WARP_ROWS, MAX_ROWS, GROUP, PAD = 32, 256, 8, 4  # as in kernel.cuh and thread_rows.cuh; with others, events would not be those counted


def tiles_of(p, sm=90):
    """(4.6)  (Br, Bc)"""
    longest = SHARED_BYTES[sm] // 4 // (4 * (up(p["head_dim"], 32) + PAD))
    br = max(min(longest, MAX_ROWS) // WARP_ROWS, 1) * WARP_ROWS
    return min(br, up(p["seq_q"], WARP_ROWS)), min(longest // GROUP * GROUP, up(p["seq_k"], GROUP))


def tiles():
    """(4.6)  On three generations of GPUs, for long sequences."""
    rows = []
    for sm, available in SHARED_BYTES.items():
        for d in [32, 64, 96, 128]:
            br, bc = tiles_of({"head_dim": d, "seq_q": 10**6, "seq_k": 10**6}, sm)
            paper, width = -(-available // 4 // (4 * d)), up(d, 32)
            used = 4 * (2 * bc * width + 2 * br * (width + PAD))
            rows.append([f"sm_{sm}, {available // 1024} KiB", d, f"{min(paper, d)} × {paper}", f"{br} × {bc}", f"{used / 1024:.0f} KiB"])
    return table(["shared memory of a block", "d", "paper, Br × Bc", "here, Br × Bc", "used"], rows)


def events(row):
    """Two barriers for each visited pair of tiles."""
    p = row["problem"]
    return {"barriers": 2 * sum(visited(p, *tiles_of(p))) * p["batch"] * p["heads"], "warp_operations": 0}


def sectors(row, moved):
    """Tiles are loaded along rows, a sector for eight elements."""
    return sum(map(sum, moved.values())) // 8


def by_shared_memory(p, clocks_per_pair, blocks):
    """Milliseconds on an H200 of kernels with a thread per row: shared memory of the SM that has most of the blocks, so many of a batch."""
    clocks = visible_pairs(p) * p["heads"] / blocks * clocks_per_pair * up(p["head_dim"], 32) / 256  # of a block
    return 1e3 * -(-p["batch"] * blocks // h200.SMS) * clocks / h200.CLOCK_HZ


def least_ms(row):
    """(4.8)"""
    return by_shared_memory(row["problem"], 9, row["problem"]["heads"])


def attention_tiles():
    """One step of the forward pass, with its shapes."""
    p = Picture(900, 330, "The tiles of one step: shapes and places")
    y, br, bc, d = 110, 104, 72, 130
    s = 40 + d + bc + 82  # where S begins
    for x, top, w, h, kind, name, shape in [
        (40, y, d, br, "c1", "Q tile", "Br × d"),
        (80 + d, y - 14, bc, d, "c3", "K tileᵀ", "d × Bc"),
        (s, y, bc, br, "c2", "S tile", "Br × Bc"),
        (s + bc + 72, y, bc, br, "c2", "P tile", "Br × Bc"),
        (s + 2 * bc + 108, y + (br - bc) / 2, d, bc, "c3", "V tile", "Bc × d"),
        (s + 2 * bc + d + 148, y, d, br, "c4", "O tile", "Br × d"),
    ]:
        p.rect(x, top, w, h, kind)
        p.label(x + w / 2, top + h / 2 + 1, name, 15, bold=True)
        p.label(x + w / 2, top + h / 2 + 19, shape, 12)
    for x, sign, size in [(60 + d, "·", 26), (s - 22, "=", 22), (s + 2 * bc + 90, "·", 26), (s + 2 * bc + d + 128, "→", 20)]:
        p.label(x, y + br / 2 + 5, sign, size)
    p.arrow(s + bc + 6, y + br / 2, s + bc + 66, y + br / 2)
    p.label(s + bc + 36, y + br / 2 - 12, "exp(S − m)", 12)
    p.label(450, 30, "S = τ Q Kᵀ,  then O ← O + P V, a tile at a time", 16, bold=True)
    p.note(450, 56, "a row of S, P and O belongs to a query: its m and l go with it")
    where = "blue: a tile of queries. green: a tile of keys and values. orange: exists on the chip only, and is forgotten after the step."
    p.note(450, 286, where, "violet: the result so far, rescaled when the maximum of a row grows.")
    return p


TR, TC = 4, 5  # tiles in the picture; any numbers would do


def loop_order(p, left, k_outer, title, subtitle, *texts):
    """The tiles of S in the order in which they are computed, with what is read for them at the sides."""
    cell, x, y, middle = 48, left + 118, 120, left + 232
    end = cell - 4
    p.label(middle, 26, title, 16, bold=True)
    p.note(middle, 48, subtitle)
    of_keys, of_queries = ("c3", "c2") if k_outer else ("c2", "c3")  # loaded once; loaded again and again
    for j in range(TC):
        for n, name in enumerate("KV"):
            p.box(x + j * cell, y - 50 + 24 * n, end, 20, of_keys, f"{name}{j}", 12)
    for i in range(TR):
        p.box(x - 104, y + i * cell, 28, end, of_queries, f"Q{i}", 12)
        p.box(x - 72, y + i * cell, 66, end, of_queries, f"O, m, l {i}", 12)
        for j in range(TC):
            kind = "c1" if k_outer else ["c1", "c4"][i % 2]
            p.box(x + j * cell, y + i * cell, end, end, kind, str(j * TR + i + 1 if k_outer else j + 1), 14)
    for n in range(TC if k_outer else TR):
        side = (x if k_outer else y) + n * cell + end - 7
        p.arrow(*((side, y + 6, side, y + TR * cell - 10) if k_outer else (x + 6, side, x + TC * cell - 10, side)))
    p.note(middle, y + TR * cell + 22, *texts)


def loop_orders():
    p = Picture(940, 402, "The two loop orders: K/V outer (FlashAttention-1) and Q outer (FlashAttention-2)")
    loop_order(
        p, 0, True, "FlashAttention-1: K, V outside, Q inside", "one block for all tiles, column after column",
        "green: loaded once", f"orange: read for each of the Tc = {TC} columns,", "and O, m, l written back each time",
    )  # fmt: skip
    p.line(470, 14, 470, 388, "thin")
    loop_order(
        p, 472, False, "FlashAttention-2: Q outside, K, V inside", "a block for each row of tiles, all at once",
        "green: loaded once, then in registers;", "O and L written once, at the end", f"orange: read by each of the Tr = {TR} blocks",
    )  # fmt: skip
    return p


PICTURES = [attention_tiles, loop_orders]
