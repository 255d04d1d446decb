"""Pictures of the Hopper chapters that need no trace: boxes, operands, registers, an mbarrier, the two proxies, overlap, a repair, the tiles that a
warpgroup sees, work from a counter; of the backward pass where operands reside, the two buffers of dS, the turns at dQ, and the relay."""

from docs.tools.svg import Picture

from .lanes import TEXT, Lanes


def proxies_08h():
    p = Picture(720, "Shared memory has two entrances, and each unit uses one of them")
    p.box(8, 52, 150, 130, "reg", "threads, registers", 16)
    p.box(300, 44, 140, 146, "smem", "shared memory", TEXT)
    p.box(592, 44, 120, 60, "c0", "TMA", TEXT)
    p.box(592, 130, 120, 60, "c0", "wgmma", TEXT)
    p.label(229, 26, "generic proxy", 18, bold=True)
    p.label(516, 26, "asynchronous proxy", 18, bold=True)
    for x1, x2, y, text in [
        (158, 300, 92, "st, stmatrix"),
        (300, 158, 148, "ld, ldmatrix"),
        (592, 440, 66, "loads write"),
        (440, 592, 96, "stores read"),
        (440, 592, 166, "operands read"),
    ]:
        p.arrow(x1, y, x2, y)
        p.note((x1 + x2) / 2, y - 7, text)
    rows = [
        ("into the block:", [("TMA writes K", "k"), ("its bytes count: phase ends", "c0"), ("wgmma reads K", "k")]),
        ("across:", [("threads store dS", "ds"), ("fence_proxy_async(), barrier", "c0"), ("wgmma reads dS", "ds")]),
        ("back:", [("wgmma reads K", "k"), ("wait, then arrive at empty", "c0"), ("TMA overwrites K", "k")]),
    ]
    for y, (name, boxes) in zip((238, 312, 386), rows):
        p.label(8, y - 8, name, 18, "start", bold=True)
        for x, width, (text, kind) in zip((8, 212, 530), (164, 278, 182), boxes):
            p.box(x, y, width, 38, kind, text, TEXT)
        for x, to in ((172, 212), (490, 530)):
            p.arrow(x, y + 19, to, y + 19)
    return p


def box_08h():
    """The last tile of 150 keys, d = 80: two boxes, which reach beyond the tensor on two sides."""
    p = Picture(
        720,
        "A tile of 64 keys is two boxes, and what lies outside the tensor arrives as zeros",
        "A tile of 64 keys is two boxes; outside the tensor are zeros",
    )
    keys, d, tile, panel = 150, 80, 64, 64
    row0, scale, left, top = 2 * tile, 1.4, 86, 98
    x = [left + column * scale for column in (0, panel, d, 2 * panel)]
    y = [top + row * scale for row in (0, row0, keys, row0 + tile)]
    p.label((x[0] + x[2]) / 2, top - 36, "K in HBM", 18, bold=True)
    p.note((x[0] + x[2]) / 2, top - 12, f"{keys} rows, d = {d}")
    p.rect(x[0], y[0], d * scale, keys * scale, "k")
    for side in range(2):
        p.line(x[side], y[1], x[side], y[3], "strong")
        p.line(x[2 * side] if side else x[0], y[1], x[3], y[1], "strong")
    p.line(x[3], y[1], x[3], y[3], "strong")
    p.line(x[0], y[3], x[3], y[3], "strong")
    p.note(left - 8, y[1] + 6, f"row {row0}", anchor="end")
    p.note(left - 8, y[2] + 6, f"row {keys}", anchor="end")
    for n, column in enumerate((0, panel)):
        p.label(left + (column + panel / 2) * scale, y[3] - 12, f"box {n}")
    big, at, data = 2.9, (318, 520), keys - row0
    p.arrow(x[3] + 8, y[1] + 0.3 * tile * scale, at[0] - 6, top + tile * big - 30)
    p.note(x[2] + 8, y[1] - 40, "two", "tma_load", anchor="start")
    for n, cols in enumerate((panel, d - panel)):
        middle = at[n] + panel * big / 2
        p.label(middle, top - 36, f"panel {n}", 18, bold=True)
        p.note(middle, top - 12, f"columns {n * panel} to {(n + 1) * panel - 1}")
        p.rect(at[n], top, panel * big, tile * big, "smem")
        p.rect(at[n], top, cols * big, data * big, "k")
        p.label(at[n] + cols * big / 2, top + data * big / 2 + 6, "data", 16 if n else TEXT)
        p.label(middle, top + (data + tile) * big / 2, "zeros")
    p.label(at[1] + (d - panel + panel) * big / 2, top + data * big / 2 + 6, "zeros")
    p.note(
        (at[0] + at[1] + panel * big) / 2,
        top + tile * big + 28,
        "64 rows of 128 bytes each. Both boxes count",
        "in full: one mbarrier waits for 16,384 bytes.",
    )
    return p


def mbarrier_08h():
    """One barrier through three phases, event by event."""
    events = ["init", "expect", "box lands", "box lands", "expect", "both land"]
    arrivals, missing, phases = [1, 0, 0, 1, 0, 1], [0, 8192, 4096, 0, 8192, 0], [0, 0, 0, 1, 1, 2]

    def runs(values):
        """(first, last, value) of neighbours that are equal."""
        starts = [n for n in range(len(values)) if n == 0 or values[n] != values[n - 1]]
        return [(first, last, values[first]) for first, last in zip(starts, [*starts[1:], len(values)])]

    it = Lanes("One mbarrier: a phase ends when no arrival and no byte is missing", 0, len(events))
    it.y += 24
    for n, event in enumerate(events):
        it.p.note(it.x(n) + 2, it.y - 8, event, anchor="start")
    it.lane("current phase", [(first, last, "s", f"phase {phase}") for first, last, phase in runs(phases)])
    it.lane("arrivals due", [(first, last, "ds" if count else "c0", str(count)) for first, last, count in runs(arrivals)])
    it.lane("bytes due", [(first, last, "ds" if count else "c0", str(count)) for first, last, count in runs(missing)])
    it.y += 10
    for parity in (0, 1):
        passes = [(phase - 1) % 2 == parity for phase in phases]
        it.lane(f"wait({parity})", [(a, b, "hit" if yes else "s", "passes" if yes else "blocks") for a, b, yes in runs(passes)])
    return it.finish(
        "From left to right: what happens; expect is of 8,192 bytes. A wait passes if the phase that ended last has its parity."
    )


def operands_08h():
    """What one step along the depth reads of each operand, and what a lane holds of the result; d = 128, 64 rows or keys."""
    p, high, wide = Picture(720, "Operands in shared memory, step by step along the depth, and the accumulators"), 144, 150  # of a panel
    for top, kind, title, below in [
        (
            80,
            "q",
            "Q or K in S = Q Kᵀ: K-major",
            ("a step reads 32 bytes of each row;", "the next step: + 32 bytes,", "after four steps the next panel"),
        ),
        (
            306,
            "v",
            "V in O = P V: MN-major",
            ("a step reads 16 rows of 128 bytes;", "the next step: + 2,048 bytes; the", "leading offset leads to the next panel"),
        ),
    ]:
        p.label(8, top - 54, title, 18, "start", bold=True)
        for n in range(2):
            x = 8 + (wide + 12) * n
            p.note(x + wide / 2, top - 12, f"panel {n}")
            p.rect(x, top, wide, high, "smem")
            for step in range(4):
                if kind == "q":
                    here = "q" if (n, step) == (0, 1) else "smem"
                    p.box(x + wide / 4 * step, top, wide / 4, high, here, str(4 * n + step), TEXT)
                else:
                    p.box(x, top + high / 4 * step, wide, high / 4, "v" if step == 1 else "smem", str(step), TEXT)
        p.note(356, top + high / 2 - 16, *below, anchor="start")
    top, x, tile, row = 496, 92, 40, high / 64
    p.label(8, top - 20, "S or O: accumulators, 64 rows, tiles of 8 columns", 18, "start", bold=True)
    for warp in range(4):
        y = top + 16 * row * warp
        p.rect(x, y, 8 * tile, 16 * row, "s" if warp == 1 else "c0")
        p.note(x - 8, y + 23, f"warp {warp}", anchor="end")
    for column in range(1, 8):
        p.line(x + column * tile, top, x + column * tile, top + high, "thin")
    for half in range(2):  # lane 9: row 2 of its warp and row 10, columns 2 and 3 of the tile
        p.rect(x + 2 * tile + 2 * tile / 8, top + (16 + 2 + 8 * half) * row - 2, 2 * tile / 8, row + 4, "hit")
    p.note(
        x + 8 * tile + 16,
        top + 40,
        "registers 4i to 4i + 3: tile i",
        "yellow: what lane 9 of warp 1",
        "holds of tile 2: two columns",
        "of two rows",
        anchor="start",
    )
    p.caption("Numbers are steps of 16 along the depth; step 1 is coloured. The swizzle within rows is left out: hardware undoes it.")
    return p


def overlap_08h():
    """To scale for d = 128: S and P V take as long as the exponentials between them, and warpgroups share both units."""
    it = Lanes("Two warpgroups: in step, taking turns, with overlap", 0, 6, left=122)
    kinds = {"S": "s", "PV": "o"}

    def section(title, lanes):
        it.p.label(8, it.y + 18, title, 18, "start", bold=True)
        it.y += 30
        for name, step, parts in lanes:
            bars = [
                (
                    step * n,
                    step * (n + 1),
                    "hit" if part.startswith("soft") else kinds.get(part.partition(",")[0], "c0"),
                    part,
                    part.partition(",")[0],
                )
                for n, part in enumerate(parts)
            ]
            it.lane(name, bars)
        it.y += 6

    section(
        "Both in step, at worst",
        [(f"group {w}", 2, ["S", "softmax", "PV"]) for w in range(2)]
        + [("tensor cores", 1, ["S, of 0", "S, of 1", "idle", "idle", "PV, of 0", "PV, of 1"])],
    )
    section(
        "Taking turns, at best: one exponentiates, the other multiplies",
        [
            ("group 0", 1, ["S", "softmax", "PV", "waits", "S"]),
            ("group 1", 1, ["waits", "S", "softmax", "PV", "waits"]),
            ("tensor cores", 1, ["S, of 0", "S, of 1", "PV, of 0", "PV, of 1", "S, of 0"]),
        ],
    )
    section(
        "Products during its own softmax, one group alone",
        [
            ("threads", 1, [f"softmax, {n // 2 + 1}" if n % 2 else "waits" for n in range(6)]),
            ("in flight", 1, [f"PV, tile {n // 2}" if n % 2 else f"S, tile {n // 2 + 1}" for n in range(6)]),
        ],
    )
    return it.finish(
        "To scale for d = 128 if nothing but products and exponentials took time. Two groups in step share each unit, so that everything takes "
        "twice as long."
    )


def registers_08h():
    """Tiles of 192 x 64 at d = 128: before and after setmaxnreg, and what a consumer keeps."""
    p = Picture(
        720,
        "Registers per thread, d = 128 and tiles of 192 x 64: the same 512 at launch and after the roles have split",
        "Registers per thread of each warpgroup, tiles of 192 × 64",
    )
    left, scale = 12, 1.36
    rows = [
        ("at launch", [("reg", 128, "any: 128")] * 4),
        ("after setmaxnreg: a producer with 32", [("c0", 32, "32"), *[("reg", 160, f"consumer {n}: 160") for n in range(3)]]),
        ("a consumer's 160", [("s", 32, "S: 32"), ("p", 16, "P: 16"), ("o", 64, "O: 64"), ("c0", 48, "everything else: 48")]),
    ]
    for n, (name, parts) in enumerate(rows):
        x, y, wide = left, 74 + 80 * n, scale * 512 / sum(count for _, count, _ in parts)
        p.label(left, y - 10, name, anchor="start")
        for kind, count, text in parts:
            p.box(x, y, count * wide, 40, kind, text, TEXT)
            x += count * wide
    p.line(left + 352 * scale, 194, left, 234, "thin")
    p.line(left + 512 * scale, 194, left + 512 * scale, 234, "thin")
    p.caption("d = 128. A register of P holds two elements. Everything else: m, ℓ, addresses, temporaries.")
    return p


def repair_08h():
    """The four warps of a warpgroup in step 5: one of them repeats its rows alone."""
    p = Picture(
        720, "The vote of one warp failed: it alone repeats its 16 rows", "The vote of one warp failed: it alone repeats its 16 rows"
    )
    top, step, failed = 50, 42, 2

    def all_warps(x, wide, kind, *lines):
        p.rect(x, top, wide, 4 * step - 8, kind)
        for n, text in enumerate(lines):
            p.label(x + wide / 2, top + 2 * step - 9 + 22 * n, text, TEXT)

    all_warps(74, 80, "s", "S by", "wgmma")
    all_warps(280, 66, "c0", "wait", "for PV")
    all_warps(644, 68, "s", "next S")
    for warp in range(4):
        y = top + step * warp
        p.note(70, y + 23, f"warp {warp}", anchor="end")
        fails = warp == failed
        p.box(157, y, 120, 34, "hit" if fails else "p", "vote fails" if fails else "P, vote holds", TEXT)
        if fails:
            p.box(350, y, 214, 34, "hit", "S by mma.sync, new m", 16)
        p.box(568 if fails else 350, y, 72, 34, "p", "pack P", TEXT)
        if not fails:
            p.box(426, y, 214, 34, "c0", "waits for warp 2", TEXT)
    p.caption(
        "From left to right in time, not to scale; P is by the old m. Only the warp whose vote failed reads Q and K again, by ldmatrix. "
        "It releases the tile of K afterwards, so the tile cannot be overwritten before."
    )
    return p


def visible_08h():
    p, cell, left, top = (
        Picture(720, "A tile of 192 queries at the diagonal: three warpgroups, which see different tiles of 64 keys"),
        (94, 42),
        148,
        60,
    )
    p.note(left - 10, top - 12, "keys", anchor="end")
    for column in range(6):
        p.note(left + (column + 0.5) * cell[0], top - 12, f"{64 * column}–{64 * column + 63}")
    for group in range(3):
        first = 192 + 64 * group
        p.note(left - 8, top + (group + 0.5) * cell[1] + 5, f"queries {first}–{first + 63}", size=16, anchor="end")
        for column in range(6):
            seen = group + 3
            kind, text = ("s", "computes") if column < seen else ("hit", "masks") if column == seen else ("c0", "passes")
            p.box(left + column * cell[0], top + group * cell[1], cell[0] - 3, cell[1] - 3, kind, text)
    p.caption(
        "A row of the picture is a warpgroup. Tiles are visited from right to left. A warpgroup that sees nothing of a tile waits until it is "
        "full, and releases it unread; a fixed tile of 192 rows would multiply all 18."
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
    it = Lanes("Eight tiles of Q of a causal head on four blocks", 0, 12, left=76)
    for counter, name in ((False, "fixed"), (True, "from a counter")):
        work = on_blocks(tiles, blocks, counter)
        end = max(begin + tile for _, begin, tile in work)
        it.p.label(8, it.y + 18, f"{name}: the last block ends after {end}", 18, "start", bold=True)
        it.y += 30
        for block in range(blocks):
            mine = [
                (begin, begin + tile, "q", f"Q tile {tile - 1}, {tile} tiles of keys", f"Q tile {tile - 1}", f"Q{tile - 1}")
                for b, begin, tile in work
                if b == block
            ]
            idle = [(max(of + tile for b, of, tile in work if b == block), end, "c0", "idle")]
            it.lane(f"block {block}", [*mine, *(bar for bar in idle if bar[0] < bar[1])])
        it.y += 8
    return it.finish(
        "A bar is as long as the keys that its tile sees. The four longest tiles are the same in both; then the counter gives the longest "
        "remaining tile to the block that is free first."
    )


def where_08b():
    memory, registers = ("smem", "shared memory"), ("reg", "registers")
    products = [
        ("Sᵀ =", ("K", memory), ("Qᵀ", memory), ("Sᵀ", registers)),
        ("dPᵀ =", ("V", memory), ("dOᵀ", memory), ("dPᵀ", registers)),
        ("dV +=", ("Pᵀ", registers), ("dO", memory), ("dV", registers)),
        ("dK +=", ("dSᵀ", registers), ("Q", memory), ("dK", registers)),
        ("dQ =", ("dS", memory), ("K", memory), ("dQ", ("reg", "then to HBM"))),
    ]
    p = Picture(720, "Five products: where the operands and the results live")
    for x, text in ((168, "left operand"), (394, "right operand"), (620, "result")):
        p.label(x, 26, text, 18, bold=True)
    for row, (name, *boxes) in enumerate(products):
        y = 40 + 50 * row
        p.label(66, y + 27, name, 18, "end", bold=True)
        for x, (matrix, (kind, place)) in zip((76, 302, 528), boxes):
            p.box(x, y, 52, 40, matrix.removesuffix("ᵀ").lower(), matrix, 18)
            p.box(x + 52, y, 132, 40, kind, place, 16)
        p.label(281, y + 27, "·", 22)
        p.label(507, y + 27, "→", 18)
    p.caption("Only dS moves from registers to shared memory, stored by the warps that computed its transpose.")
    return p


def dS_08b():
    it = Lanes("Two buffers of dS: a barrier per tile parts writers from readers", 0, 15.5, left=84)
    barriers, top = (3.2, 10), it.y
    groups = [
        ("group 0", [(0, 2, "w", 0), (3.2, 4.7, "r", 0), (5.4, 7.4, "w", 1), (10, 11.5, "r", 1), (12.6, 14.6, "w", 2)]),
        ("group 1", [(1.2, 3.2, "w", 0), (3.2, 7.1, "r", 0), (8, 10, "w", 1), (10, 13.2, "r", 1)]),
    ]
    for name, bars in groups:
        it.lane(
            name,
            [(a, b, "ds" if of == "w" else "dq", f"{'stores' if of == 'w' else 'reads'} dS{tile}", f"dS{tile}") for a, b, of, tile in bars],
        )
    it.y += 12
    for buffer in (0, 1):
        bars = [(a, b, of, tile) for _, each in groups for a, b, of, tile in each if tile % 2 == buffer]
        merged = []
        for tile in sorted({bar[3] for bar in bars}):
            for of, kind, text in (("w", "ds", "written"), ("r", "dq", "read")):
                times = [(a, b) for a, b, what, t in bars if (what, t) == (of, tile)]
                if times:
                    merged.append((min(a for a, _ in times), max(b for _, b in times), kind, f"dS{tile} {text}", f"dS{tile}"))
        it.lane(f"buffer {buffer}", merged)
    for number, at in enumerate(barriers):
        it.p.line(it.x(at), top - 8, it.x(at), it.y + 4, "strong")
        it.p.label(it.x(at) + 6, it.y + 14, f"barrier {number}", TEXT, "start")
    it.p.legend(("ds", "dS is stored"), ("dq", "dS is read, for dQ"))
    return it.finish(
        "Warpgroup 0 stores dS1 while warpgroup 1 still reads dS0: with one buffer that is a race. "
        "dS2 may overwrite dS0: its writer has passed barrier 1, at which all warps arrive only after their last read of dS0."
    )


def turns_08b():
    """When four blocks, which begin together, add their parts to the tiles of dQ: a staircase."""
    p = Picture(
        720,
        "Turns: every tile of dQ takes the parts of the keys in the same order",
        "Every tile of dQ takes the parts of the keys in the same order",
    )
    blocks, tiles, first, cell, top, step = 4, 6, 70, 71, 52, 48
    for block in range(blocks):
        y = top + step * block
        p.note(first - 8, y + 21, f"keys {block}", anchor="end")
        if block:
            p.box(first, y, cell * block - 4, 30, "c0", "waits", TEXT)
        for n in range(tiles):
            tile = tiles - 1 - n
            p.box(first + cell * (block + n), y, cell - 4, 30, "dq", f"dQ{tile}", TEXT)
    for block in range(blocks - 1):
        for n in range(tiles):
            x = first + cell * (block + n + 1) - 4
            p.arrow(x, top + step * block + 30, x + 12, top + step * (block + 1))
    y = top + step * blocks
    p.arrow(first, y, first + 9 * cell, y)
    p.note(first + 9 * cell, y + 22, "time, in iterations", anchor="end")
    p.caption(
        "A row is a block of keys. An arrow passes the turn of one tile of dQ on. All blocks begin with "
        "the last tile of queries: each waits at its beginning, once, and then finds its turn whenever it needs it."
    )
    return p


def relay_08b():
    """The warpgroups of `relay` with the rings between them, and below them which tile each can be at."""
    p = Picture(
        720,
        "The relay: three warpgroups share the products, and rings of two buffers separate them",
        "Three warpgroups share the products; rings separate them",
    )
    stages = [
        ("producer", ("loads by", "the TMA"), "c0"),
        ("warpgroup 0", ("S, P", "dV += P dO"), "dv"),
        ("warpgroup 1", ("dP, dS", "dK += dS Q"), "dk"),
        ("warpgroup 2", ("dQ = dS K",), "dq"),
    ]
    left, wide, step = 8, 134, 190
    for n, (name, work, kind) in enumerate(stages):
        x = left + step * n
        p.rect(x, 52, wide, 88, kind)
        p.label(x + wide / 2, 78, name, bold=True)
        for line, text in enumerate(work):
            p.label(x + wide / 2, 102 + 22 * line, text)
    for n, ring in ((0, "Q, dO"), (1, "P"), (2, "dS")):
        x = left + step * n + wide
        p.arrow(x, 96, x + step - wide, 96)
        p.label(x + (step - wide) / 2, 86, ring)
    p.line(left + wide / 2, 140, left + wide / 2, 160)
    p.line(left + wide / 2, 160, left + 2 * step + wide / 2, 160)
    p.arrow(left + 2 * step + wide / 2, 160, left + 2 * step + wide / 2, 140)
    p.note(left + step + wide / 2 - 20, 180, "Q, dO, too: free when both released it")
    x = left + 3 * step + wide / 2
    p.arrow(x, 140, x, 166)
    p.note(x, 184, "sum in HBM")
    cell, first = 65, 124
    for row, (n, shift) in enumerate(((1, 0), (2, 1), (3, 2))):
        y = 204 + 38 * row
        p.note(first - 8, y + 21, stages[n][0], anchor="end")
        for tile in range(7):
            p.box(first + cell * (tile + shift), y, cell - 4, 32, stages[n][2], f"tile {tile}", TEXT)
    p.arrow(first, 324, first + 9 * cell, 324)
    p.caption("A possible order in time: each warpgroup one tile behind the previous one. The rings of two buffers bound the lead.")
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
