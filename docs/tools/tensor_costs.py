"""(8.8), (8.10), (8.17)  Bytes that stage 08 asks for, in closed form: {tensor: (read, written)} in bytes."""

from .fused_costs import fa2_tiles, up, visits

SIZE = 2  # of a 16-bit number
ROW_BLOCK = 128  # queries are padded to it where L, D and the sum of dQ lie side by side


def width_of(d):
    return up(d, 32) if d <= 128 else 256


def whole_chunks(d):
    return up(d, 8)


def padded(p, names):
    """(8.10)  Read and written once: {tensor: (read, written)} of the tensors whose copies are made, and the name under which kernels read
    a tensor."""
    d, d8 = p["head_dim"], whole_chunks(p["head_dim"])
    if d == d8:
        return {}, lambda name: name
    counts = {}
    for name in names:
        rows = p["kv_heads"] * p["seq_k"] if name in ("K", "V") else p["heads"] * p["seq_q"]
        counts[name] = (SIZE * p["batch"] * rows * d, 0)
        counts[f"{name}_padded"] = (0, SIZE * p["batch"] * rows * d8)
    return counts, lambda name: f"{name}_padded"


def add(counts, name, read, written=0):
    before = counts.get(name, (0, 0))
    counts[name] = (before[0] + read, before[1] + written)


def forward(p, tiles, threads):
    """(8.8)"""
    counts, named = padded(p, ["Q", "K", "V"])
    heads, d8 = p["batch"] * p["heads"], whole_chunks(p["head_dim"])
    visited = fa2_tiles(p, tiles)
    add(counts, named("Q"), SIZE * heads * d8 * sum(rows for rows, pairs, _ in visited if pairs))
    for name in "KV":
        add(counts, named(name), SIZE * heads * d8 * sum(keys for _, _, keys in visited))
    add(counts, "O", 0, SIZE * heads * p["seq_q"] * p["head_dim"])
    add(counts, "L", 0, 4 * heads * p["seq_q"])
    if p["bias"] == "alibi":  # each thread its slope, for each tile
        add(counts, "bias", 4 * heads * threads * sum(pairs for _, pairs, _ in visited))
    elif p["bias"] != "none":  # of all pairs in the tiles, seen or not
        add(counts, "bias", 4 * heads * sum(rows * keys for rows, _, keys in visited))
    return counts


def bias_of_visits(p, br, bc):
    """Pairs in the pairs of tiles with a visible pair, of one head."""
    nq, nk, found = p["seq_q"], p["seq_k"], 0
    for j in range(0, nk, bc):
        for i in range(0, nq, br):
            end = min(i + br, nq)
            if not p["causal"] or j <= end - 1 + nk - nq:
                found += (end - i) * (min(j + bc, nk) - j)
    return found


def sums_in_hbm(p, tiles, threads, variant):
    """(8.17)  parts: blocks that share a tile of keys."""
    parts = 2 if variant == "one_kernel" and p["head_dim"] > 128 else 1
    counts, named = padded(p, ["dO"])  # those of Q, K, V are still there from the forward pass
    heads, kv_heads, nq, nk = p["batch"] * p["heads"], p["batch"] * p["kv_heads"], p["seq_q"], p["seq_k"]
    d, d8, width, rows_padded = p["head_dim"], whole_chunks(p["head_dim"]), width_of(p["head_dim"]), up(p["seq_q"], ROW_BLOCK)
    pairs, rows = visits(p, tiles["br"], tiles["bc"])
    add(counts, "O", SIZE * heads * nq * d)  # prepare
    add(counts, "dO", SIZE * heads * nq * d)
    add(counts, "L", 4 * heads * nq)
    for name in ["Q", "dO"]:
        add(counts, named(name), parts * SIZE * heads * rows * d8)
    for name in ["K", "V"]:
        add(counts, named(name), parts * SIZE * kv_heads * nk * d8)
    add(counts, "LD", 8 * parts * heads * pairs * tiles["br"], 8 * heads * rows_padded)
    visited = 4 * heads * pairs * tiles["br"] * width
    in_order = 16 * (nq // 16) + 2 * min(nq % 16, 8)  # a thread of the last kernel reads rows g and g + 8, if there is a row g
    add(counts, "sum_dQ", visited + 4 * heads * in_order * d8, visited + 4 * heads * rows_padded * width)
    add(counts, "dQ", 0, SIZE * heads * nq * d)
    for name in ["dK", "dV"]:
        add(counts, name, 0, SIZE * kv_heads * nk * d)
    if p["bias"] == "alibi":  # each thread that has scores its slope, for each tile
        add(counts, "bias", 4 * parts * heads * pairs * (threads // 2 if variant == "staggered" else threads))
    elif p["bias"] != "none":
        add(counts, "bias", 4 * parts * heads * bias_of_visits(p, tiles["br"], tiles["bc"]))
    return counts


def predicted(direction, variant, p, tiles, threads):
    """None where no formula is known."""
    if direction == "forward":
        return forward(p, tiles, threads)
    if variant in ("one_kernel", "staggered"):
        return sums_in_hbm(p, tiles, threads, variant)
    return None
