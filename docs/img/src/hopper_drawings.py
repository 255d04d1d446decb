"""Pictures of the Hopper chapters that need no trace: boxes, operands, registers, an mbarrier, the two proxies, overlap, a repair, the tiles that a
warpgroup sees, work from a counter; of the backward pass where operands reside, the two buffers of dS,
the turns at dQ, and the relay."""

from docs.tools.svg import Picture

from .lanes import LEFT, TEXT, Lanes


def proxies_08h():
    p = Picture(960, 400, "Shared memory has two entrances, and each unit uses one of them")
    p.label(480, 28, p.title, 15, bold=True)
    p.box(40, 70, 190, 120, "c2", "threads of the block", TEXT)
    p.box(390, 60, 180, 140, "c0", "shared memory", TEXT)
    p.box(730, 60, 190, 56, "c1", "TMA", TEXT)
    p.box(730, 144, 190, 56, "c4", "wgmma", TEXT)
    p.label(310, 52, "generic proxy", TEXT, bold=True)
    p.label(650, 52, "asynchronous proxy", TEXT, bold=True)
    p.arrow(230, 105, 390, 105)
    p.note(310, 98, "st, stmatrix", size=TEXT)
    p.arrow(390, 160, 230, 160)
    p.note(310, 153, "ld, ldmatrix", size=TEXT)
    p.arrow(730, 80, 570, 80)
    p.note(650, 74, "loads write", size=TEXT)
    p.arrow(570, 106, 730, 106)
    p.note(650, 100, "stores read", size=TEXT)
    p.arrow(570, 172, 730, 172)
    p.note(650, 165, "operands are read", size=TEXT)
    rows = [
        ("into the block:", [("TMA writes K", "c1"), ("its bytes count: the phase ends", "c0"), ("wgmma or ldmatrix reads K", "c4")]),
        ("across:", [("threads store dS", "c2"), ("fence_proxy_async(), then a barrier", "c3"), ("wgmma reads dS", "c4")]),
        ("back:", [("wgmma reads K", "c4"), ("wgmma_wait, then arrive at empty", "c0"), ("TMA overwrites K", "c1")]),
    ]
    for y, (name, boxes) in zip((232, 284, 336), rows):
        p.note(120, y + 23, name, size=TEXT, anchor="end")
        for x, width, (text, kind) in zip((136, 376, 706), (190, 300, 214), boxes):
            p.box(x, y, width, 36, kind, text, TEXT)
        for x, to in ((326, 376), (676, 706)):
            p.arrow(x, y + 18, to, y + 18)
    return p


def box_08h():
    """The last tile of 150 keys, d = 80: two boxes, which reach beyond the tensor on two sides."""
    p = Picture(960, 402, "A tile of 64 keys is two boxes, and what lies outside the tensor arrives as zeros")
    p.label(480, 28, p.title, 15, bold=True)
    keys, d, tile, panel = 150, 80, 64, 64
    row0, scale, left, top = 2 * tile, 1.5, 130, 92
    x = [left + column * scale for column in (0, panel, d, 2 * panel)]
    y = [top + row * scale for row in (0, row0, keys, row0 + tile)]
    p.label((x[0] + x[2]) / 2, top - 30, "K of one head in HBM", TEXT, bold=True)
    p.note((x[0] + x[2]) / 2, top - 10, f"{keys} rows of d = {d}", size=TEXT)
    p.rect(x[0], y[0], d * scale, keys * scale, "c1")
    for side in range(2):
        p.line(x[side], y[1], x[side], y[3], "strong")
        p.line(x[2 * side] if side else x[0], y[1], x[3], y[1], "strong")
    p.line(x[3], y[1], x[3], y[3], "strong")
    p.line(x[0], y[3], x[3], y[3], "strong")
    p.note(left - 10, y[1] + 5, f"row {row0}", size=TEXT, anchor="end")
    p.note(left - 10, y[2] + 5, f"row {keys}", size=TEXT, anchor="end")
    for n, column in enumerate((0, panel)):
        p.label(left + (column + panel / 2) * scale, y[3] - 12, f"box {n}", TEXT)
    big, at, data = 2.9, (480, 720), keys - row0
    p.arrow(x[3] + 14, y[1] + 0.4 * tile * scale, at[0] - 18, top + tile * big - 20)
    p.note(x[3] + 20, y[1] - 22, "two tma_load", size=TEXT, anchor="start")
    for n, cols in enumerate((panel, d - panel)):
        p.label(at[n] + panel * big / 2, top - 30, f"panel {n}", TEXT, bold=True)
        p.note(at[n] + panel * big / 2, top - 10, f"columns {n * panel} to {(n + 1) * panel - 1}", size=TEXT)
        p.rect(at[n], top, panel * big, tile * big, "c0")
        p.rect(at[n], top, cols * big, data * big, "c1")
        p.label(at[n] + cols * big / 2, top + data * big / 2 + 5, "data", TEXT)
        p.label(at[n] + panel * big / 2, top + (data + tile) * big / 2, "zeros", TEXT)
    p.label(at[1] + (d - panel + panel) * big / 2, top + data * big / 2 + 5, "zeros", TEXT)
    p.note(
        (at[0] + at[1] + panel * big) / 2,
        top + tile * big + 30,
        "64 rows of 128 bytes each. Both boxes count in full:",
        "one mbarrier waits for 2 · 64 · 128 = 16,384 bytes.",
        size=TEXT,
    )
    return p


def mbarrier_08h():
    """One barrier through three phases, event by event."""
    events = ["init", "expect 8192", "box lands", "box lands", "expect 8192", "boxes land"]
    arrivals, missing, phases = [1, 0, 0, 1, 0, 1], [0, 8192, 4096, 0, 8192, 0], [0, 0, 0, 1, 1, 2]

    def runs(values):
        """(first, last, value) of neighbours that are equal."""
        starts = [n for n in range(len(values)) if n == 0 or values[n] != values[n - 1]]
        return [(first, last, values[first]) for first, last in zip(starts, [*starts[1:], len(values)])]

    it = Lanes("One mbarrier: a phase ends when no arrival and no byte is missing", 0, len(events))
    it.y += 22
    for n, event in enumerate(events):
        it.p.note(it.x(n) + 2, it.y - 8, event, size=TEXT, anchor="start")
    it.lane("current phase", [(first, last, "c1", f"phase {phase}") for first, last, phase in runs(phases)])
    it.lane("arrivals missing", [(first, last, "c2" if count else "c0", str(count)) for first, last, count in runs(arrivals)])
    it.lane("bytes missing", [(first, last, "c2" if count else "c0", str(count)) for first, last, count in runs(missing)])
    it.y += 10
    for parity in (0, 1):
        passes = [(phase - 1) % 2 == parity for phase in phases]
        it.lane(f"wait({parity})", [(a, b, "c3" if yes else "c4", "passes" if yes else "blocks") for a, b, yes in runs(passes)])
    return it.finish(22, 36, "From left to right: the events of the table. A wait passes if the phase that ended last has its parity.")


def operands_08h():
    """What one step along the depth reads of each operand, and what a lane holds of the result; d = 128, 64 rows or keys."""
    p, top, high = Picture(980, 356, "Operands in shared memory, step by step along the depth, and the accumulators"), 92, 144
    wide = 128  # of a panel

    def panel(x, name):
        p.rect(x, top, wide, high, "c0")
        p.note(x + wide / 2, top + high + 20, name, size=TEXT)

    def title(x, text, below):
        p.label(x, 30, text, 15, bold=True)
        p.note(x, 54, below, size=TEXT)

    title(158, "Q or K in S = Q Kᵀ: K-major", "a step: 32 bytes of each row")
    title(490, "V in O = P V: MN-major", "a step: 16 rows of 128 bytes")
    title(816, "S or O: accumulators", "64 rows, 16 per warp, tiles of 8 columns")
    for n in range(2):
        panel(24 + 140 * n, f"panel {n}")
        panel(356 + 140 * n, f"panel {n}")
        for step in range(4):
            here = "c2" if (n, step) == (0, 1) else "c0"
            p.box(24 + 140 * n + wide / 4 * step, top, wide / 4, high, here, str(4 * n + step), TEXT)
            here = "c2" if step == 1 else "c0"
            p.box(356 + 140 * n, top + high / 4 * step, wide, high / 4, here, str(step), TEXT)
    p.note(158, 284, "next step: + 32 bytes,", "after four steps the next panel", size=TEXT)
    p.note(490, 284, "next step: + 2,048 bytes;", "the leading offset leads to the next panel", size=TEXT)
    x, tile, row = 700, 30, high / 64
    for warp in range(4):
        y = top + 16 * row * warp
        p.rect(x, y, 8 * tile, 16 * row, "c1" if warp == 1 else "c0")
        p.note(x - 8, y + 23, f"warp {warp}", size=TEXT, anchor="end")
    for column in range(1, 8):
        p.line(x + column * tile, top, x + column * tile, top + high, "thin")
    for half in range(2):  # lane 9: row 2 of its warp and row 10, columns 2 and 3 of the tile
        p.rect(x + 2 * tile + 2 * tile / 8, top + (16 + 2 + 8 * half) * row - 1, 2 * tile / 8, row + 2, "c2")
    p.note(816, top + high + 20, "registers 4i to 4i + 3: tile i", size=TEXT)
    p.note(816, 284, "marked: what lane 9 of warp 1 holds of", "tile 2: two columns of two rows", size=TEXT)
    p.note(
        490,
        342,
        "Numbers are steps of 16 along the depth; step 1 is marked. The swizzle within rows is left out: hardware undoes it.",
        size=TEXT,
    )
    return p


def overlap_08h():
    """To scale for d = 128: S and P V take as long as the exponentials between them, and warpgroups share both units."""
    it = Lanes("Two warpgroups: in step at worst, with roles, with overlap", 0, 6)
    kinds = {"S": "c2", "softmax": "c1", "PV": "c3", "busy": "c2"}

    def section(title, lanes):
        it.p.label(LEFT, it.y + 14, title, 15, "start", bold=True)
        it.y += 26
        for name, step, parts in lanes:
            bars = [(step * n, step * (n + 1), kinds.get(part.partition(",")[0], "c0"), part) for n, part in enumerate(parts)]
            it.lane(name, bars)
        it.y += 12

    section(
        "Step 2 at worst, if the barrier keeps both in step: both multiply, then both exponentiate",
        [(f"warpgroup {w}", 2, ["S", "softmax", "PV"]) for w in range(2)] + [("tensor cores", 2, ["busy", "idle", "busy"])],
    )
    section(
        "Step 3, roles, at best: one exponentiates while the other multiplies",
        [
            ("warpgroup 0", 1, ["S", "softmax", "PV", "waits", "S"]),
            ("warpgroup 1", 1, ["waits", "S", "softmax", "PV", "waits"]),
            ("tensor cores", 1, ["S, group 0", "S, group 1", "PV, group 0", "PV, group 1", "S, group 0"]),
        ],
    )
    section(
        "Step 4, overlap, one warpgroup alone: its products run during its softmax",
        [
            ("threads", 1, [f"softmax, tile {n // 2 + 1}" if n % 2 else "waits" for n in range(6)]),
            ("in flight", 1, [f"PV, tile {n // 2}" if n % 2 else f"S, tile {n // 2 + 1}" for n in range(6)]),
        ],
    )
    return it.finish(
        14,
        30,
        "To scale for d = 128 if nothing but products and exponentials took time: the other latencies are what the steps have to hide.",
    )


def registers_08h():
    """Tiles of 192 x 64 at d = 128: before and after setmaxnreg, and what a consumer keeps."""
    p = Picture(960, 262, "Registers per thread, d = 128 and tiles of 192 x 64: the same 512 at launch and after the roles have split")
    p.label(480, 28, "d = 128, tiles of 192 × 64: registers per thread of each warpgroup", 15, bold=True)
    left, scale = 180, 1.46
    consumer = [("c1", 32, "S: 32"), ("c2", 16, "P: 16"), ("c3", 64, "O: 64"), ("c0", 48, "everything else: 48")]
    rows = [
        ("at launch", [("c0", 128, "any warpgroup: 128")] * 4),
        ("after setmaxnreg", [("c2", 32, "32"), *[("c4", 160, f"consumer {n}: 160") for n in range(3)]]),
    ]
    for n, (name, parts) in enumerate(rows):
        x, y = left, 50 + 50 * n
        p.label(left - 12, y + 24, name, TEXT, "end")
        for kind, count, text in parts:
            p.box(x, y, count * scale, 38, kind, text, TEXT)
            x += count * scale
    p.note(left + 16 * scale, 158, "producer", size=TEXT)
    big = 512 / 160 * scale  # as wide as a row above
    p.line(left + 352 * scale, 138, left, 184, "thin")
    p.line(left + 512 * scale, 138, left + 512 * scale, 184, "thin")
    p.label(left - 12, 208, "a consumer's 160", TEXT, "end")
    x = left
    for kind, count, text in consumer:
        p.box(x, 184, count * big, 38, kind, text, TEXT)
        x += count * big
    p.note(left + 256 * scale, 250, "A register of P holds two elements. Everything else: m, ℓ, addresses, temporaries.", size=TEXT)
    return p


def repair_08h():
    """The four warps of a warpgroup in step 5: one of them repeats its rows alone."""
    p = Picture(960, 292, "The vote of one warp failed: it alone repeats its 16 rows")
    p.label(480, 28, p.title, 15, bold=True)
    top, step, failed = 52, 40, 2

    def all_warps(x, wide, kind, *lines):
        p.rect(x, top, wide, 4 * step - 8, kind)
        for n, text in enumerate(lines):
            p.label(x + wide / 2, top + 2 * step - 9 + 20 * n, text, TEXT)

    all_warps(150, 110, "c1", "S = Q Kᵀ", "by wgmma")
    all_warps(456, 104, "c0", "wait until", "P V is done")
    all_warps(840, 104, "c1", "next S", "by wgmma")
    for warp in range(4):
        y = top + step * warp
        p.note(138, y + 21, f"warp {warp}, 16 rows", size=TEXT, anchor="end")
        fails = warp == failed
        p.box(264, y, 188, 32, "c2" if fails else "c3", "P, old m: vote fails" if fails else "P, old m: vote holds", TEXT)
        if fails:
            p.box(564, y, 188, 32, "c2", "S by mma.sync, new m", TEXT)
        p.box(756 if fails else 564, y, 80, 32, "c4", "pack P", TEXT)
        if not fails:
            p.box(648, y, 188, 32, "c0", "waits for warp 2", TEXT)
    p.note(
        480,
        top + 4 * step + 22,
        "From left to right in time, not to scale. Only the warp whose vote failed reads Q and K again, by ldmatrix.",
        "It releases the tile of K afterwards, so the tile cannot be overwritten before.",
        size=TEXT,
    )
    return p


def visible_08h():
    p, cell, left, top = (
        Picture(960, 262, "A tile of 192 queries at the diagonal: three warpgroups, which see different tiles of 64 keys"),
        (116, 40),
        220,
        76,
    )
    p.label(480, 28, p.title, 15, bold=True)
    for column in range(6):
        p.note(left + (column + 0.5) * cell[0], top - 10, f"keys {64 * column} to {64 * column + 63}", size=13)
    for group in range(3):
        first = 192 + 64 * group
        p.note(left - 12, top + (group + 0.5) * cell[1] + 5, f"{group}: queries {first} to {first + 63}", size=13, anchor="end")
        for column in range(6):
            seen = group + 3
            kind, text = ("c3", "computes") if column < seen else ("c2", "masks, too") if column == seen else ("c0", "passes on")
            p.box(left + column * cell[0], top + group * cell[1], cell[0] - 3, cell[1] - 3, kind, text, 13)
    p.note(
        480,
        222,
        "Tiles are visited from right to left. A warpgroup that sees nothing of a tile waits until it is full, and releases it unread;",
        "a fixed tile of 192 rows would multiply all 18.",
        size=TEXT,
    )
    return p


def on_blocks(tiles, blocks, counter):
    """[(block, begin, tile)]: tiles in this order, each as long as its number, to the next block in turn or to the first that is free."""
    busy, found = [0] * blocks, []
    for at, tile in enumerate(tiles):
        block = min(range(blocks), key=lambda b: (busy[b], -b)) if counter and at >= blocks else at % blocks
        found.append((block, busy[block], tile))
        busy[block] += tile
    return found


def schedule_08h():
    tiles, blocks = range(8, 0, -1), 4
    it = Lanes("Eight tiles of Q of a causal head on four blocks; a bar is as long as the keys that its tile sees", 0, 12)
    for counter, name in ((False, "fixed"), (True, "from a counter")):
        work = on_blocks(tiles, blocks, counter)
        end = max(begin + tile for _, begin, tile in work)
        it.p.label(it.x(0), it.y + 14, f"{name}: the last block ends after {end}", TEXT, "start", bold=True)
        it.y += 24
        for block in range(blocks):
            mine = [
                (begin, begin + tile, "c1", f"Q tile {tile - 1}, {tile} tiles of keys", f"Q tile {tile - 1}", f"Q{tile - 1}")
                for b, begin, tile in work
                if b == block
            ]
            idle = [(max(of + tile for b, of, tile in work if b == block), end, "c0", "idle")]
            it.lane(f"block {block}", [*mine, *(bar for bar in idle if bar[0] < bar[1])])
        it.y += 10
    return it.finish(
        16,
        32,
        "The four longest tiles are the same in both. Then the counter gives the longest remaining tile to the block that is free first.",
    )


def where_08b():
    memory, registers = ("c1", "shared memory"), ("c4", "registers")
    products = [
        ("Sᵀ =", ("K", memory), ("Qᵀ", memory), ("Sᵀ", registers)),
        ("dPᵀ =", ("V", memory), ("dOᵀ", memory), ("dPᵀ", registers)),
        ("dV +=", ("Pᵀ", registers), ("dO", memory), ("dV", registers)),
        ("dK +=", ("dSᵀ", registers), ("Q", memory), ("dK", registers)),
        ("dQ =", ("dS", memory), ("K", memory), ("dQ", ("c4", "registers, then HBM"))),
    ]
    p = Picture(960, 350, "Five products: where the operands and the results live")
    p.label(480, 28, p.title, 15, bold=True)
    for x, text in ((260, "left operand"), (520, "right operand"), (800, "result")):
        p.note(x, 60, text, size=15)
    for row, (name, *boxes) in enumerate(products):
        y = 72 + 46 * row
        p.label(132, y + 24, name, 16, "end", bold=True)
        for x, (matrix, (kind, place)) in zip((144, 416, 696), boxes):
            p.box(x, y, 210, 36, kind, f"{matrix}: {place}", 15)
        p.label(385, y + 24, "·", 20)
        p.label(660, y + 24, "→", 16)
    p.note(480, 330, "Only dS moves from registers to shared memory, stored by the warps that computed its transpose.", size=15)
    return p


def dS_08b():
    it = Lanes("Two buffers of dS: one barrier per tile separates writers from readers, in both directions", 0, 15.5)
    barriers, top = (3.2, 10), it.y
    groups = [
        ("warpgroup 0", [(0, 2, "w", 0), (3.2, 4.7, "r", 0), (5.4, 7.4, "w", 1), (10, 11.5, "r", 1), (12.6, 14.6, "w", 2)]),
        ("warpgroup 1", [(1.2, 3.2, "w", 0), (3.2, 7.1, "r", 0), (8, 10, "w", 1), (10, 13.2, "r", 1)]),
    ]
    for name, bars in groups:
        it.lane(
            name,
            [(a, b, "c2" if of == "w" else "c4", f"{'stores' if of == 'w' else 'reads'} dS{tile}", f"dS{tile}") for a, b, of, tile in bars],
        )
    it.y += 12
    for buffer in (0, 1):
        bars = [(a, b, of, tile) for _, each in groups for a, b, of, tile in each if tile % 2 == buffer]
        merged = []
        for tile in sorted({bar[3] for bar in bars}):
            for of, kind, text in (("w", "c2", "written"), ("r", "c4", "read")):
                times = [(a, b) for a, b, what, t in bars if (what, t) == (of, tile)]
                if times:
                    merged.append((min(a for a, _ in times), max(b for _, b in times), kind, f"dS{tile} {text}", f"dS{tile}"))
        it.lane(f"buffer {buffer}", merged)
    for number, at in enumerate(barriers):
        it.p.line(it.x(at), top - 8, it.x(at), it.y, "strong")
        it.p.label(it.x(at) + 6, it.y + 12, f"barrier {number}", TEXT, "start")
    return it.finish(
        40,
        92,
        "Warpgroup 0 stores dS1 while warpgroup 1 still reads dS0: with one buffer that is a race.",
        "dS2 may overwrite dS0: its writer has passed barrier 1, at which all warps arrive only after their last read of dS0.",
    )


def turns_08b():
    """When four blocks, which begin together, add their parts to the tiles of dQ: a staircase."""
    p = Picture(960, 316, "Turns: every tile of dQ takes the parts of the keys in the same order")
    p.label(480, 28, p.title, 15, bold=True)
    blocks, tiles, first, cell, top, step = 4, 6, 160, 84, 60, 46
    for block in range(blocks):
        y = top + step * block
        p.note(first - 12, y + 20, f"block of keys {block}", size=TEXT, anchor="end")
        if block:
            p.box(first, y, cell * block - 4, 30, "c0", "waits", TEXT)
        for n in range(tiles):
            tile = tiles - 1 - n
            p.box(first + cell * (block + n), y, cell - 4, 30, ("c1", "c2", "c4")[tile % 3], f"dQ{tile}", TEXT)
    for block in range(blocks - 1):
        for n in range(tiles):
            x = first + cell * (block + n + 1) - 4
            p.arrow(x, top + step * block + 30, x + 12, top + step * (block + 1))
    y = top + step * blocks
    p.arrow(first, y, first + 9 * cell, y)
    p.note(first + 9 * cell, y + 20, "time, in iterations", size=TEXT, anchor="end")
    p.note(
        480,
        y + 44,
        "An arrow passes the turn of one tile of dQ on. All blocks begin with the last tile of queries: each waits",
        "at its beginning, once, and then finds its turn whenever it needs it.",
        size=TEXT,
    )
    return p


def relay_08b():
    """The warpgroups of step 6 with the rings between them, and below them which tile each can be at."""
    p = Picture(960, 356, "The relay: three warpgroups share the products, and rings of two buffers separate them")
    p.label(480, 28, p.title, 15, bold=True)
    stages = [
        ("producer", "loads by the TMA", "c0"),
        ("warpgroup 0", "S, P; dV += P dO", "c1"),
        ("warpgroup 1", "dP, dS; dK += dS Q", "c2"),
        ("warpgroup 2", "dQ = dS K", "c4"),
    ]
    left, wide, step = 24, 170, 247
    for n, (name, work, kind) in enumerate(stages):
        x = left + step * n
        p.rect(x, 60, wide, 64, kind)
        p.label(x + wide / 2, 86, name, TEXT, bold=True)
        p.label(x + wide / 2, 110, work, TEXT)
    for n, ring in ((0, "Q, dO"), (1, "P"), (2, "dS")):
        x = left + step * n + wide
        p.arrow(x, 92, x + step - wide, 92)
        p.label(x + (step - wide) / 2, 84, ring, TEXT)
    p.line(left + wide / 2, 124, left + wide / 2, 146)
    p.line(left + wide / 2, 146, left + 2 * step + wide / 2, 146)
    p.arrow(left + 2 * step + wide / 2, 146, left + 2 * step + wide / 2, 124)
    p.note(left + step + wide / 2, 164, "Q, dO, too: a stage is free when both have released it", size=TEXT)
    x = left + 3 * step + wide / 2
    p.arrow(x, 124, x, 156)
    p.note(x, 172, "added to a sum in HBM", size=TEXT)
    cell, first = 76, 190
    for row, (n, shift) in enumerate(((1, 0), (2, 1), (3, 2))):
        y = 196 + 36 * row
        p.note(first - 12, y + 20, stages[n][0], size=TEXT, anchor="end")
        for tile in range(7):
            p.box(first + cell * (tile + shift), y, cell - 4, 30, stages[n][2], f"tile {tile}", TEXT)
    p.arrow(first, 312, first + 9 * cell, 312)
    p.note(480, 334, "A possible order in time: each warpgroup one tile behind the previous one. The rings bound the lead.", size=TEXT)
    return p


PICTURES = [
    box_08h,
    mbarrier_08h,
    operands_08h,
    overlap_08h,
    proxies_08h,
    registers_08h,
    repair_08h,
    visible_08h,
    schedule_08h,
    where_08b,
    dS_08b,
    turns_08b,
    relay_08b,
]
