"""The pictures of chapters 06 and 06b: which thread holds what, operands, instructions, and what a causal mask leaves of the tiles."""

from math import exp, inf, log

from docs.tools.svg import Picture

from .shapes import FORWARD, ThreadTile, visited

SCORES, TILE = [1, 2, 4, 0], 2  # the running row; its values are the unit vectors


def numbers(values):
    return "(" + ", ".join(f"{x:.3f}" if x % 1 else f"{x:g}" for x in values) + ")"


def fa2_film():
    """FlashAttention-2's loop for one tile of Q, frame by frame: tiles of K and V stream past, and m, l, o of the running row change."""
    p = Picture(
        720, "Four frames of FlashAttention-2's loop: one tile of Q stays, tiles of K and V stream past, and m, l and o of a row change"
    )
    m, l, o, tiles, high = -inf, 0.0, [0.0] * len(SCORES), len(SCORES) // TILE, 176
    for frame in range(tiles + 2):
        y, tile, last = 44 + (high + 44) * frame, frame - 1, frame == tiles + 1
        inside = 0 <= tile < tiles
        steps = []
        if inside:
            scores = SCORES[tile * TILE : (tile + 1) * TILE]
            before, m = m, max(m, *scores)
            scale, weights = exp(before - m), [exp(s - m) for s in scores]
            l = scale * l + sum(weights)
            o = [scale * x for x in o]
            o[tile * TILE : (tile + 1) * TILE] = weights  # weight times unit vector
            steps = [("s", f"S = Q K{tile}ᵀ = {numbers(scores)}"), ("p", f"P = exp(S − {m}) = {numbers(weights)}")]
        title = "Before the loop: Q is loaded, once" if frame == 0 else f"After the loop: O = o / ℓ and L = {m + log(l):.3f} are written"
        if inside:
            first = scale == 0
            title = f"Tile {tile}: m = {m}" + ("" if first else f" instead of {before}: ℓ and o shrink by e^({before} − {m}) = {scale:.3f}")
        p.label(8, y - 10, title, 18, "start", bold=True)
        for x, wide, kind, name in ((8, 152, "hbm", "HBM"), (172, 124, "smem", "shared"), (308, 404, "reg", "registers")):
            p.rect(x, y, wide, high, kind)
            p.label(x + 8, y + 21, name, anchor="start")
        for j in range(tiles):  # what is to come, what is there, and what has been used
            for n, name in enumerate("KV"):
                p.box(20 + 66 * n, y + 32 + 46 * j, 60, 38, "c0" if j < frame else name.lower(), f"{name}{j}")
        p.box(20, y + 126, 60, 38, "o" if last else "c0", "O")
        p.box(86, y + 126, 60, 38, "c0" if frame else "q", "Q")
        p.box(184, y + 126, 100, 38, "q", "Q")
        if inside:
            for n, name in enumerate("KV"):
                p.box(184, y + 34 + 46 * n, 100, 38, name.lower(), f"{name}{tile}")
                p.arrow(147, y + 47 + 46 * tile + 8 * n, 183, y + 53 + 46 * n)
        elif frame == 0:
            p.arrow(147, y + 145, 183, y + 145)
        state = f"m = {str(m).replace('-inf', '−∞')},  ℓ = {l:.4g}"
        rows = [*steps, ("bg", state), ("o", ("O" if last else "o") + f" = {numbers(x / (l if last else 1) for x in o)}")]
        for n, (kind, text) in enumerate(rows):
            at = y + 30 + 35 * (n + 4 - len(rows))
            p.rect(320, at, 380, 31, kind)
            p.label(332, at + 22, text, anchor="start")
        if last:
            for x1, y1, x2, y2 in ((320, 151, 302, 151), (302, 151, 302, 170), (302, 170, 50, 170)):
                p.line(x1, y + y1, x2, y + y2)
            p.arrow(50, y + 172, 50, y + 163)
    p.legend(("c0", "used, or not there yet"))
    p.caption("The row of scores 1, 2, 4, 0, two keys per tile; its values are the four unit vectors, so that O shows its weights.")
    return p


def blocks_06():
    """Eight causal heads of 4096 queries on 132 SMs: the work of each SM with a block per head, and with a block per tile of queries."""
    p = Picture(720, "Eight causal heads on 132 SMs: a block per head gives 8 SMs all the work, a block per tile of 128 queries divides it")
    cols, cell, per_head = 22, (32, 26), 4096 // 128
    tiles = [tile + 0.5 for tile in range(per_head)]  # of 128 x 128 that a tile of queries sees; half of the one on the diagonal
    mean = 8 * sum(tiles) / 132
    for y, title, blocks, note in [
        (28, "chapter 04: a block per head", 8 * [sum(tiles)], "8 SMs do 512 each"),
        (232, "chapter 06: a block per query tile", 8 * tiles, "the unluckiest does {:.0f}"),
    ]:
        works = [sum(blocks[sm::132]) for sm in range(132)]
        p.label(8, y, title, 18, "start", bold=True)
        p.note(712, y, note.format(max(works)), anchor="end")
        for sm, work in enumerate(works):
            x, top = 8 + sm % cols * cell[0], y + 12 + sm // cols * cell[1]
            kind = "c0" if not work else "c2" if work > mean else "c3"
            p.box(x, top, cell[0] - 3, cell[1] - 3, kind, f"{int(work + 0.5)}" if work else "", 15)
    p.legend(("c2", f"more than the mean of {mean:.0f}"), ("c3", "less"), ("c0", "nothing"))
    p.caption("A model: causal tiles of 128 × 128 per SM, rounded, if blocks n and n + 132 share one; tiles on the diagonal count half.")
    return p


def schedule(lengths, sms):
    """[(SM, start, block)]: blocks launch in index order, each on the SM that is free first."""
    free, found = [0] * sms, []
    for block, length in enumerate(lengths):
        sm = free.index(min(free))
        found.append((sm, free[sm], block))
        free[sm] += length
    return found, max(free)


def tail_06():
    """Two heads of eight causal tiles on three SMs: index order of step 1, and the longest first."""
    p = Picture(720, "Causal tiles on three SMs: in the order of step 1 and with the longest first")
    tiles, sms, left, scale = 8, 3, 66, 22.8
    in_order = [i for _ in range(2) for i in range(tiles)]
    for y, title, order in [
        (42, "step 1: head by head, Q0 first", in_order),
        (192, "step 7: every head's last tile first", sorted(in_order)[::-1]),
    ]:
        found, end = schedule([i + 1 for i in order], sms)
        p.label(left, y - 14, f"{title}; ends at {end}", 18, "start", bold=True)
        for sm in range(sms):
            p.note(left - 8, y + 36 * sm + 22, f"SM {sm}", anchor="end")
        for sm, start, block in found:
            wide, tile = (order[block] + 1) * scale, order[block]
            p.box(left + start * scale, y + 36 * sm, wide, 32, "q" if tile < tiles - 2 else "hit", f"Q{tile}" if tile else "0", 16)
    p.caption("A block's length is the number of key tiles that it visits. Both orders have the same work, 72 tiles, 24 per SM.")
    return p


def register_tile_06():
    """A step of S = Q K^T in step 2, d = 64: the elements of one lane, and what it reads for them."""
    tile, warp, lane, cell = ThreadTile(8, 8, 8, 1, 1), 1, 13, (7, 11)
    y, x = divmod(lane, tile.lanes)
    first, cols = warp * tile.warp_rows, tile.cols * tile.lanes
    p = Picture(
        560,
        "Step 2, d = 64: a lane reads 8 elements of Q and 8 of K for 64 multiply-adds",
        f"Step 2, d = 64: warp {warp}, lane {lane}, which is (y, x) = ({y}, {x})",
    )
    left, top = 104, 150
    rows_held, cols_held = {tile.row(lane, r) for r in range(tile.rows)}, {tile.col(lane, c) for c in range(tile.cols)}
    p.note(8, top - 34, "Q,", "column k", anchor="start")
    p.grid(left - 28, top, tile.warp_rows, 1, (20, cell[1]), lambda r, _: "q" if r in rows_held else "c0")
    p.label(left + cols * cell[0] / 2, top - 50, "Kᵀ, row k")
    p.grid(left, top - 40, 1, cols, (cell[0], 20), lambda _, c: "k" if c in cols_held else "c0")
    p.grid(left, top, tile.warp_rows, cols, cell, lambda r, c: "hit" if (r in rows_held and c in cols_held) else "s")
    for r in sorted(rows_held)[:2] + [max(rows_held)]:
        p.note(left - 36, top + r * cell[1] + 11, f"{first + r}", anchor="end")
    for c in sorted(cols_held)[:2] + [max(cols_held)]:
        p.note(left + c * cell[0] + 6, top + tile.warp_rows * cell[1] + 18, f"{c}")
    for x1, y1, x2, y2 in [(0, 4, 8, 4), (8, 0, 8, 4)]:
        p.line(left + x1 * cell[0], top + y1 * cell[1], left + x2 * cell[0], top + y2 * cell[1], "strong")
    p.legend(("s", f"S [{tile.warp_rows}, {cols}]"), ("hit", "the lane's 64 elements"), ("q", "Q it reads"), ("k", "K it reads"))
    p.caption("Corner frame: the warp's 4 × 8 lanes, a grid that repeats over the tile. In step k the lane adds 8 × 8 products.")
    return p


def operands_06():
    """A float4 that runs along the inner dimension, and one that runs across it."""
    p = Picture(720, "Two kinds of operands: a float4 holds four steps of one row, or one step of four columns")
    wide, high = 44, 30
    steps = ["k", "k+1", "k+2", "k+3"]
    for left, along, title, subtitle, notes in [
        (
            80,
            True,
            "KMajor: K, by rows",
            "columns: inner index",
            ["8 loads hold 8 keys, four", "steps each; 8 lanes read", "8 rows: padding needed"],
        ),
        (
            446,
            False,
            "MnMajor: Qᵀ, Pᵀ or V",
            "columns: queries, or of O",
            ["2 loads hold 8 elements", "of one step, which must", "be neighbours: runs of 4"],
        ),
    ]:
        middle = left + 3 * wide
        p.label(middle - 20, 28, title, 18, bold=True)
        p.note(middle - 20, 54, subtitle)
        p.grid(left, 68, 6, 6, (wide, high), lambda r, c: "c0")
        if along:
            for r, key in ((0, "key x"), (4, "x + 8")):
                for c in range(4):
                    p.box(left + (c + 1) * wide, 68 + r * high, wide, high, "k", steps[c], 16)
                p.note(left - 8, 68 + r * high + 21, key, anchor="end")
            p.note(left - 8, 68 + 2.5 * high + 8, "...", anchor="end")
        else:
            for r in range(4):
                for c in range(4):
                    p.box(left + (c + 1) * wide, 68 + (r + 1) * high, wide, high, "hit" if r == 0 else "v", f"4y+{c}" if c else "4y", 15)
                p.note(left - 8, 68 + (r + 1) * high + 21, f"step {steps[r]}", anchor="end")
        p.note(middle - 20, 68 + 6 * high + 26, *notes)
    p.caption("Four neighbouring marked cells are one float4. Right: each step is a load; left: one load per key serves four steps.")
    return p


def issued(step, d):
    """(6.8)  Instructions per thread and pair of tiles."""
    if d == 64:
        (sr, sc), oc, bc, lanes, threads = (8, 8), 8, 64, 8, 128
    else:
        (sr, sc), oc, bc, lanes, threads = ((8, 8), 8, 128, 16, 256) if step == 8 else ((4, 4), 16, 32, 8, 128)
    vector, exp, masked = step >= 6, 2 if step >= 4 else 8, 4 if step < 4 else 3 if step == 4 else 0
    loads = ((sr + sc) * d + sr * bc) / 4 + oc * bc / (4 if vector else 1)
    softmax = (3 + exp) * sr * sc + sr * (3 + exp + 2 * (lanes.bit_length() - 1))
    output = sr * oc + sr * sc / (4 if vector else 1)
    copies = 2 * bc * d / 4 / threads * (1 if step >= 3 else 2)
    return sr * sc * d + sr * oc * bc, [loads, softmax, masked * sr * sc, output, copies]


def instructions_06():
    """Everything but multiply-adds, per 100 of them."""
    p = Picture(
        720,
        "Instructions that are no multiply-adds of the products, per 100 of them, d = 64",
        "Other instructions per 100 multiply-adds, d = 64, by (6.8)",
    )
    kinds = [("smem", "loads"), ("s", "softmax"), ("hit", "scale, mask"), ("o", "O rescaled, P stored"), ("c0", "copies")]
    left, scale = 180, 18.5
    for at, (step, name) in enumerate(
        [(2, "register tiles"), (3, "async copies"), (4, "powers of 2"), (5, "masks at edges"), (6, "vector operands")]
    ):
        products, others = issued(step, 64)
        x, y = left, 52 + 46 * at
        p.label(left - 10, y + 23, f"{step} {name}", anchor="end")
        for (kind, _), count in zip(kinds, others):
            wide = 100 * count / products * scale
            p.box(x, y, wide, 34, kind, f"{100 * count / products:.1f}" if wide > 40 else "")
            x += wide
        p.label(x + 10, y + 23, f"{100 * sum(others) / products:.0f}", 18, "start", bold=True)
    p.legend(*kinds)
    p.caption("Steps 7 and 8 issue the same as step 6.")
    return p


def lanes(width, steps):
    """A warp of the last step."""
    s, lane_y, lane_x, high = FORWARD[width], 1, 5, 6
    scores, outputs = s.thread["S"], s.thread["O"]
    warp_rows, lane = scores.warp_rows, lane_y * scores.lanes + lane_x
    p = Picture(
        720,
        f"{steps}: the rows and columns of S and O that one lane of a warp holds, for d = {width}",
        f"d = {width}: {scores.along} × {scores.lanes} lanes, {warp_rows} rows per warp, {s.warps} warps per block",
    )
    for n, (cols, tile, name, text) in enumerate(
        [
            (s.bc, scores, "S", f"columns x + {scores.lanes} c: {scores} scores per lane"),
            (width, outputs, "O", f"4x to 4x + 3 of each {4 * outputs.lanes}: {outputs} outputs per lane"),
        ]
    ):
        held, left, y, wide = tile.places(lane), 8, 80 + n * (warp_rows * high + 48), 704
        p.label(left, y - 12, f"{'S, then P' if name == 'S' else name}  [{warp_rows}, {cols}]", 18, "start", bold=True)
        p.note(left + wide, y - 12, text, anchor="end")
        p.rect(left, y, wide, warp_rows * high, name.lower())
        for row in range(4, warp_rows, 4):
            p.line(left, y + row * high, left + wide, y + row * high, "thin")
        p.rect(left, y + tile.row(lane, 0) * high, wide, high, "ds" if name == "S" else "do")
        for row, col in sorted(held):
            p.rect(left + col * wide / cols, y + row * high, wide / cols, high, "hit")
    p.caption(
        f"Yellow: the elements of lane (y, x) = ({lane_y}, {lane_x}), rows 4y to 4y + 3 of each group, the same in S and O. "
        "Band: the rest of its first row, held by the lanes of the same y, among which shuffles find the maximum."
    )
    return p


def lanes_06():
    return lanes(64, "Steps 6 to 8")


def lanes_06_wide():
    return lanes(128, "Step 8")


def masked_tiles():
    """Plain, masked and skipped tiles of a causal problem, and the order in which its blocks start."""
    s = FORWARD[64]
    n = 6 * s.br + s.bc // 2
    p = Picture(
        720,
        "Causal mask: plain, masked and skipped tiles, and the order in which blocks start",
        f"Nq = Nk = {n}, tiles of {s.tiles}, causal",
    )
    cell, left, top = (43, 38), 144, 74
    seen = visited({"seq_q": n, "seq_k": n, "causal": True}, s.br, s.bc)
    rows, cols = len(seen), -(-n // s.bc)
    kinds = {(i, j): "s" if (j + 1) * s.bc <= i * s.br + 1 else "hit" if j < seen[i] else "c0" for i in range(rows) for j in range(cols)}
    for (i, j), kind in kinds.items():
        p.box(left + j * cell[0], top + i * cell[1], cell[0] - 2, cell[1] - 2, kind, {"s": "all", "hit": "part", "c0": ""}[kind], 16)
    p.note(8, top - 12, "starts as", anchor="start")
    for i in range(rows):
        p.label(40, top + i * cell[1] + 25, f"no. {rows - i}")
        p.label(left - 10, top + i * cell[1] + 25, f"Q{i}", anchor="end")
    for j in range(cols):
        p.note(left + j * cell[0] + 20, top - 12, f"K{j}")
    plain, masked, skipped = (list(kinds.values()).count(kind) for kind in ("s", "hit", "c0"))
    p.legend(("s", f"plain, no mask: {plain} tiles"), ("hit", f"masked pair by pair: {masked}"), ("c0", f"not visited: {skipped}"))
    return p


def k_banks():
    """Eight rows of K in shared memory, as they are and padded: where a float4 of each is."""
    width, read, pad, cell, left = 64, 5, 4, (40, 28), 66
    fours = width // 4
    p = Picture(720, "A column of K read by eight lanes: banks without and with four floats more in each row")
    for n, (title, stride) in enumerate([("rows of 64 floats, as they are", width), ("rows padded by 4 floats", width + pad)]):
        top = 74 + 328 * n
        groups = len({(row * stride + 4 * read) % 32 for row in range(8)})
        waves = 8 // groups
        p.label(left, top - 46, title, 18, "start", bold=True)
        for half in range(0, fours, 8):
            p.note(left + (half + 4) * cell[0], top - 16, "8 float4: banks 0 to 31")
            p.line(left + half * cell[0] + 2, top - 8, left + (half + 8) * cell[0] - 4, top - 8)
        for row in range(8):
            y = top + row * cell[1]
            p.note(left - 8, y + 19, f"x = {row}", anchor="end")
            for four in range(fours):
                at = (four + row * (stride - width) // 4) % fours
                p.box(left + at * cell[0], y, cell[0] - 2, cell[1] - 2, "k" if four == read else "c0", str(four))
                if four == read:
                    p.rect(left + at * cell[0] + 1, y + 1, cell[0] - 4, cell[1] - 4, "strong")
        p.label(
            left,
            top + 8 * cell[1] + 22,
            f"quarter of a warp: {4 * groups} of 32 banks, {waves} wavefront{'s' if waves > 1 else ''}",
            18,
            "start",
        )
    p.caption(
        f"A cell is a float4; number n holds columns 4n to 4n + 3 of K, d = {width}. Framed: what lanes x = 0 to 7 read of keys 0 to 7."
    )
    return p


def serpentine():
    """The order of the multiply-adds of one outer product."""
    n, cell, left, top = 8, 38, 60, 92
    p = Picture(
        640,
        "The order of the 64 multiply-adds of one step: down one column, up the next",
        f"One step: {n * n} multiply-adds, {2 * n} elements",
    )
    for c in range(n):
        p.box(left + c * cell, top - 40, cell - 3, 30, "c2", f"b{c}")
        p.box(left - 46, top + c * cell, 36, cell - 3, "c1", f"a{c}")
        for k in range(n):
            r = k if c % 2 == 0 else n - 1 - k
            p.box(left + c * cell, top + r * cell, cell - 3, cell - 3, "hit" if n * c + k <= n else "c0", str(n * c + k + 1))
    p.note(
        left + n * cell + 16,
        top + 60,
        "a0 to a7: rows of Q or P",
        "b0 to b7: columns of K or V",
        "",
        "1 to 8 share b0,",
        "8 and 9 share a7,",
        "9 to 16 share b1, ...",
        anchor="start",
    )
    return p


PICTURES = [
    fa2_film,
    blocks_06,
    tail_06,
    register_tile_06,
    operands_06,
    instructions_06,
    lanes_06,
    lanes_06_wide,
    masked_tiles,
    k_banks,
    serpentine,
]
