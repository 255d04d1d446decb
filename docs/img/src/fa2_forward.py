"""The pictures of chapters 06 and 06b: which thread holds what, operands, instructions, and what a causal mask leaves of the tiles."""

from docs.tools.svg import Picture

from .shapes import FORWARD, ThreadTile, visited


def blocks_06():
    """Eight causal heads of 4096 queries on 132 SMs: the work of each SM with a block per head, and with a block per tile of queries."""
    p = Picture(
        860, 396, "Eight causal heads on 132 SMs: a block per head gives 8 SMs all the work, a block per tile of 128 queries divides it"
    )
    cell, per_head = 24, 4096 // 128
    tiles = [tile + 0.5 for tile in range(per_head)]  # of 128 x 128 that a tile of queries sees; half of the one on the diagonal
    mean = 8 * sum(tiles) / 132
    for left, title, blocks, note in [
        (60, "chapter 04: a block per head", 8 * [sum(tiles)], "8 SMs do 512 each, and 124 have nothing to do"),
        (470, "chapter 06: a block per query tile", 8 * tiles, "most SMs have two blocks, the unluckiest does {:.0f}"),
    ]:
        works = [sum(blocks[sm::132]) for sm in range(132)]
        p.label(left + 6 * cell, 30, title, 16, bold=True)
        p.note(left + 6 * cell, 54, "132 SMs, with the tiles that each computes", size=14)
        for sm, work in enumerate(works):
            x, y = left + sm % 12 * cell, 72 + sm // 12 * cell
            p.box(x, y, cell - 3, cell - 3, "c0" if not work else "c2" if work > mean else "c3", f"{int(work + 0.5)}" if work else "", 10)
        p.note(left + 6 * cell, 72 + 11 * cell + 22, note.format(max(works)), size=14)
    p.note(
        430,
        72 + 11 * cell + 48,
        f"Tiles of 128 × 128, causal, rounded, if blocks n and n + 132 share an SM. Orange: more than the mean of {mean:.0f}.",
        size=14,
    )
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
    p = Picture(900, 322, "Causal tiles on three SMs: in the order of step 1 and with the longest first")
    tiles, sms, left, scale = 8, 3, 70, 24
    in_order = [i for _ in range(2) for i in range(tiles)]
    for y, title, order in [
        (58, "step 1: head by head, Q0 first", in_order),
        (196, "step 7: every head's last tile first", sorted(in_order)[::-1]),
    ]:
        found, end = schedule([i + 1 for i in order], sms)
        p.label(left, y - 14, title, 15, "start", bold=True)
        for sm in range(sms):
            p.note(left - 8, y + 32 * sm + 19, f"SM {sm}", anchor="end")
        for sm, start, block in found:
            wide = (order[block] + 1) * scale
            p.box(left + start * scale, y + 32 * sm, wide, 28, "c1" if order[block] < tiles - 2 else "c2", f"Q{order[block]}", 12)
        p.label(left + end * scale + 10, y + 50, f"ends at {end}", 14, "start")
    p.note(
        450,
        312,
        "A block's length is the number of key tiles that it visits. Both orders have the same work, 72 tiles, 24 per SM.",
        size=14,
    )
    return p


def register_tile_06():
    """A step of S = Q K^T in step 2, d = 64: the elements of one lane, and what it reads for them."""
    tile, warp, lane, cell = ThreadTile(8, 8, 8, 1, 1), 1, 13, (11, 10)
    y, x = divmod(lane, tile.lanes)
    first, cols = warp * tile.warp_rows, tile.cols * tile.lanes
    p = Picture(960, 520, "Step 2, d = 64: a lane reads 8 elements of Q and 8 of K for 64 multiply-adds")
    p.label(480, 28, f"Step 2, d = 64: warp {warp}, lane {lane}, which is (y, x) = ({y}, {x})", 16, bold=True)
    left, top = 150, 130
    rows_held, cols_held = {tile.row(lane, r) for r in range(tile.rows)}, {tile.col(lane, c) for c in range(tile.cols)}
    p.label(left - 34, top - 12, "Q, column k", 14)
    p.grid(left - 40, top, tile.warp_rows, 1, cell, lambda r, _: "c2" if r in rows_held else "c0")
    p.label(left + cols * cell[0] / 2, top - 50, "Kᵀ, row k", 14)
    p.grid(left, top - 40, 1, cols, cell, lambda _, c: "c2" if c in cols_held else "c0")
    p.label(left + cols * cell[0] + 10, top + 20, f"S [{tile.warp_rows}, {cols}]", 14, "start", bold=True)
    p.grid(left, top, tile.warp_rows, cols, cell, lambda r, c: "c3" if (r in rows_held and c in cols_held) else "c0")
    for r in sorted(rows_held)[:2] + [max(rows_held)]:
        p.note(left - 48, top + r * cell[1] + 9, f"{first + r}", size=14, anchor="end")
    for c in sorted(cols_held)[:2] + [max(cols_held)]:
        p.note(left + c * cell[0] + 6, top + tile.warp_rows * cell[1] + 16, f"{c}", size=14)
    for x1, y1, x2, y2 in [(0, 4, 8, 4), (8, 0, 8, 4)]:
        p.line(left + x1 * cell[0], top + y1 * cell[1], left + x2 * cell[0], top + y2 * cell[1], "strong")
    p.label(left + 24, top - 8, "32 lanes", 14, "start", bold=True)
    p.note(
        480,
        top + tile.warp_rows * cell[1] + 44,
        "Corner frame: the warp's 4 × 8 lanes, a grid that repeats over the tile. Marked in S: the 64 elements of this lane.",
        "In step k the lane reads the marked 8 elements of Q and 8 of K, and adds all 64 products.",
        size=14,
    )
    return p


def operands_06():
    """A float4 that runs along the inner dimension, and one that runs across it."""
    p = Picture(940, 372, "Two kinds of operands: a float4 holds four steps of one row, or one step of four columns")
    wide, high = 46, 30
    steps = ["k", "k+1", "k+2", "k+3"]
    for left, name, title, notes in [
        (90, "along", "KMajor: K, row by row", ["8 loads hold 8 keys, four steps each.", "Eight lanes read eight rows: padding needed."]),
        (560, "down", "MnMajor: Qᵀ, Pᵀ or V", ["2 loads hold 8 elements of one step.", "The elements must be neighbours: runs of four."]),
    ]:
        p.label(left + 3.5 * wide, 36, title, 16, bold=True)
        p.note(left + 3.5 * wide, 60, "columns: the inner index" if name == "along" else "columns: queries, or columns of O", size=13)
        for r in range(6):
            for c in range(7):
                p.rect(left + c * wide, 76 + r * high, wide, high, "c0")
        if name == "along":
            for r, key in ((0, "x"), (4, "x+8")):
                for c in range(4):
                    p.box(left + (c + 1) * wide, 76 + r * high, wide, high, "c3", steps[c], 13)
                p.note(left - 8, 76 + r * high + 20, f"key {key}", anchor="end")
            p.note(left - 8, 76 + 2.5 * high + 8, "...", anchor="end")
        else:
            for r in range(4):
                for c in range(4):
                    p.box(left + (c + 1) * wide, 76 + (r + 1) * high, wide, high, "c3" if r == 0 else "c1", f"4y+{c}" if c else "4y", 13)
                p.note(left - 8, 76 + (r + 1) * high + 20, f"step {steps[r]}", anchor="end")
        p.note(left + 3.5 * wide, 76 + 6 * high + 30, *notes, size=14)
    p.note(
        470,
        348,
        "Four neighbouring marked cells are one float4. Right: each step is a load; left: one load per key serves four steps.",
        size=14,
    )
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
    p = Picture(900, 382, "Instructions that are no multiply-adds of the products, per 100 of them, d = 64")
    p.label(450, 28, "Other instructions per 100 multiply-adds, d = 64, by (6.8)", 16, bold=True)
    kinds = [("c1", "loads"), ("c2", "softmax"), ("c4", "scale, mask"), ("c3", "O, P"), ("c0", "copies")]
    left, scale = 190, 23
    for at, (step, name) in enumerate(
        [(2, "register tiles"), (3, "async copies"), (4, "powers of 2"), (5, "masks at edges"), (6, "vector operands")]
    ):
        products, others = issued(step, 64)
        x, y = left, 56 + 52 * at
        p.label(left - 12, y + 22, f"{step} {name}", 14, "end")
        for (kind, what), count in zip(kinds, others):
            wide = 100 * count / products * scale
            p.rect(x, y, wide, 34, kind)
            parts = [what] if wide > 7 * len(what) else what.split(" ")
            if wide > 7 * max(map(len, parts)):
                for line, part in enumerate(parts):
                    p.label(x + wide / 2, y + 22 - 7 * (len(parts) - 1) + 14 * line, part, 13)
            x += wide
        p.label(x + 10, y + 22, f"{100 * sum(others) / products:.0f}", 14, "start", bold=True)
    p.note(450, 342, "Steps 7 and 8 issue the same as step 6. O, P: O rescaled and P stored. At the end: copies.", size=13)
    return p


def lanes(width, steps):
    """A warp of the last step."""
    s, lane_y, lane_x, y, high = FORWARD[width], 1, 5, 96, 6
    scores, outputs = s.thread["S"], s.thread["O"]
    warp_rows, lane = scores.warp_rows, lane_y * scores.lanes + lane_x
    below = y + warp_rows * high
    p = Picture(960, below + 100, f"{steps}: the rows and columns of S and O that one lane of a warp holds, for d = {width}")
    p.label(
        480,
        y - 46,
        f"d = {width}: {scores.along} × {scores.lanes} lanes, {warp_rows} rows per warp, {s.warps} warps per block",
        16,
        bold=True,
    )
    for left, cols, tile, name, text in [
        (30, s.bc, scores, "S, then P", f"columns x + {scores.lanes} c: {scores} scores per lane"),
        (500, width, outputs, "O", f"columns 4x to 4x + 3 of each {4 * outputs.lanes}: {outputs} outputs per lane"),
    ]:
        held = tile.places(lane)
        p.rect(left, y, 430, warp_rows * high, "c0")
        for row in range(warp_rows):
            for col in range(cols):
                if (row, col) in held or row == tile.row(lane, 0):
                    p.rect(left + col * 430 / cols, y + row * high, 430 / cols, high, "c3" if (row, col) in held else "c2")
        for row in range(4, warp_rows, 4):
            p.line(left, y + row * high, left + 430, y + row * high, "thin")
        p.label(left + 215, y - 10, f"{name}   [{warp_rows}, {cols}]", bold=True)
        p.note(left + 215, below + 22, text, size=14)
    p.note(
        480,
        below + 64,
        f"Blocks four rows high: the elements of lane (y, x) = ({lane_y}, {lane_x}), rows 4y to 4y + 3 of each group, the same in S and O.",
        "Thin line across: the rest of its first row, held by the lanes of the same y, among which shuffles find the maximum.",
        size=14,
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
    p = Picture(820, 400, "Causal mask: plain, masked and skipped tiles, and the order in which blocks start")
    p.label(410, 28, f"Nq = Nk = {n}, tiles of {s.tiles}, causal", 16, bold=True)
    cell, left, top = (36, 40), 200, 76
    seen = visited({"seq_q": n, "seq_k": n, "causal": True}, s.br, s.bc)
    rows, cols = len(seen), -(-n // s.bc)
    kinds = {(i, j): "c3" if (j + 1) * s.bc <= i * s.br + 1 else "c2" if j < seen[i] else "c0" for i in range(rows) for j in range(cols)}
    for (i, j), kind in kinds.items():
        p.box(left + j * cell[0], top + i * cell[1], cell[0] - 2, cell[1] - 2, kind, {"c3": "all", "c2": "part", "c0": ""}[kind], 14)
    p.note(left - 60, top - 12, "starts as", size=14)
    for i in range(rows):
        p.label(left - 60, top + i * cell[1] + 25, f"no. {rows - i}", 13)
        p.label(left - 12, top + i * cell[1] + 25, f"Q{i}", 13, "end")
    for j in range(cols):
        p.note(left + j * cell[0] + 17, top - 12, f"K{j}", size=14)
    plain, masked, skipped = (list(kinds.values()).count(kind) for kind in ("c3", "c2", "c0"))
    p.note(
        410,
        top + rows * cell[1] + 26,
        f"all: plain, no mask ({plain} tiles).  part: masked pair by pair ({masked}).  Empty: not visited ({skipped}).",
        size=14,
    )
    return p


def k_banks():
    """Eight rows of K in shared memory, as they are and padded: where a float4 of each is."""
    width, read, pad, cell, text = 64, 5, 4, 27, 14
    fours = width // 4
    p = Picture(996, 372, "A column of K read by eight lanes: banks without and with four floats more in each row")
    for left, title, stride in [(58, "rows of 64 floats, as they are", width), (548, "rows padded by 4 floats", width + pad)]:
        middle = left + fours * cell / 2
        p.label(middle, 32, title, 17, bold=True)
        for half in range(0, fours, 8):
            p.note(left + (half + 4) * cell, 60, "8 float4: banks 0 to 31", size=text)
            p.line(left + half * cell + 2, 68, left + (half + 8) * cell - 4, 68)
        for row in range(8):
            y = 76 + row * cell
            p.note(left - 8, y + 18, f"x = {row}", size=text, anchor="end")
            for four in range(fours):
                at = (four + row * (stride - width) // 4) % fours
                p.box(left + at * cell, y, cell - 2, cell - 2, "c3" if four == read else "c0", str(four), text)
                if four == read:
                    p.rect(left + at * cell + 1, y + 1, cell - 4, cell - 4, "strong")
        groups = len({(row * stride + 4 * read) % 32 for row in range(8)})
        waves = 8 // groups
        p.label(middle, 318, f"quarter of a warp: {4 * groups} of 32 banks, {waves} wavefront{'s' if waves > 1 else ''}", 16, bold=True)
    p.note(
        498,
        346,
        f"A cell is a float4; number n holds columns 4n to 4n + 3 of K, d = {width}. Framed: what lanes x = 0 to 7 read of keys 0 to 7.",
        size=text,
    )
    return p


def serpentine():
    """The order of the multiply-adds of one outer product."""
    n, cell, left, top, text = 8, 38, 74, 104, 15
    p = Picture(640, 426, "The order of the 64 multiply-adds of one step: down one column, up the next")
    p.label(320, 32, f"One step: {n * n} multiply-adds, {2 * n} elements", 17, bold=True)
    for c in range(n):
        p.box(left + c * cell, top - 40, cell - 3, 30, "c2", f"b{c}", text)
        p.box(left - 46, top + c * cell, 36, cell - 3, "c1", f"a{c}", text)
        for k in range(n):
            r = k if c % 2 == 0 else n - 1 - k
            p.box(left + c * cell, top + r * cell, cell - 3, cell - 3, "c3" if n * c + k <= n else "c0", str(n * c + k + 1), text)
    p.note(
        left + n * cell + 18,
        top + 60,
        "a0 to a7: rows of Q or P",
        "b0 to b7: columns of K or V",
        "",
        "1 to 8 share b0,",
        "8 and 9 share a7,",
        "9 to 16 share b1, ...",
        size=text,
        anchor="start",
    )
    return p


PICTURES = [blocks_06, tail_06, register_tile_06, operands_06, instructions_06, lanes_06, lanes_06_wide, masked_tiles, k_banks, serpentine]
