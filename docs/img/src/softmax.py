"""The pictures of docs/chapters/02_safe_softmax.md and 04_fa1_forward.md: which sectors a load of a warp touches, and a row after each tile."""

from math import exp

from docs.tools.svg import Picture

SECTOR, LANES = 8, 32  # elements of 4 bytes; threads of a warp
SCORES, TILE = [1, 2, 4, 0], 2  # the running example


def row_owners_02():
    """The rows of S that a warp reads: a thread per row, and a warp per row."""
    p = Picture(980, 320, "One load of a warp: with a thread per row 32 sectors in 32 rows, with a warp per row four sectors of one row")
    rows, cell, top = 8, 11, 86
    for left, title, subtitle, thread_per_row in [
        (60, "a thread per row", f"one load: {LANES} sectors, {4 * LANES} of {SECTOR * 4 * LANES} bytes used", True),
        (530, "a warp per row", f"one load: {LANES // SECTOR} sectors, all {4 * LANES} bytes used", False),
    ]:
        p.label(left + LANES * cell / 2, 32, title, 16, bold=True)
        p.note(left + LANES * cell / 2, 54, subtitle, size=14)

        def kind(r, c, thread_per_row=thread_per_row):
            if thread_per_row:
                return "c0" if c >= SECTOR else "c2" if c == 3 else "c1"
            return "c2" if r == 0 else "c0"

        p.grid(left, top, rows, LANES, (cell, 20), kind)
        for c in range(0, LANES + 1, SECTOR):
            p.line(left + c * cell, top - 6, left + c * cell, top + rows * 20, "strong")
        for s in range(LANES // SECTOR):
            p.note(left + (s + 0.5) * SECTOR * cell, top - 10, "a sector", size=14)
        for r in range(rows):
            p.note(left - 8, top + 20 * r + 15, f"row {r}", size=14, anchor="end")
        if thread_per_row:
            for r in range(rows):
                p.label(left + LANES * cell + 8, top + 20 * r + 15, f"lane {r}", 14, "start")
        else:
            p.label(left + LANES * cell + 8, top + 15, "all lanes", 14, "start")
    p.note(
        490,
        top + rows * 20 + 32,
        "The first 8 rows and 32 columns of S. On the left each lane reads column 3 of its row and gets the other seven elements of the sector,",
        "which it needs in its next iterations, if they are still in the cache by then. On the right a warp uses its four sectors at once.",
        size=14,
    )
    return p


def merge():
    """The two halves of the row 1, 2, 4, 0, and their union."""
    p = Picture(820, 306, "Two partial results are rewritten under the larger maximum, then added")
    base, high, wide = 240, 130, 44
    parts = [("set a", SCORES[:TILE], 40), ("set b", SCORES[TILE:], 270), ("union", SCORES, 530)]
    p.line(34, base - high, 776, base - high, "thin")
    p.note(24, base - high + 5, "1", anchor="end")
    for name, scores, left in parts:
        m, middle = max(scores), left + 28 * len(scores)
        total = sum(exp(s - m) for s in scores)
        p.label(middle, 30, name, 15, bold=True)
        p.label(middle, 54, f"m = {m}, ℓ = {total:.3f}", 14)
        if name == "union":
            old = max(SCORES[:TILE])
            inner = sum(exp(s - old) for s in SCORES[:TILE])
            p.note(middle, 76, f"{inner:.3f} · e^({old} − {m}) + {total - inner * exp(old - m):.3f} = {total:.3f}")
        for at, s in enumerate(scores):
            x, height = left + 6 + 56 * at, max(high * exp(s - m), 1.5)
            p.rect(x, base - height, wide, height, "c1" if name == "set a" or (name == "union" and at < TILE) else "c2")
            p.label(x + wide / 2, base - height - 6, f"{exp(s - m):.3f}", 13)
            p.note(x + wide / 2, base + 20, f"score {s}")
        p.line(left, base, left + 56 * len(scores), base)
    p.label(212, base - 50, "⊕", 24)
    p.label(460, base - 50, "=", 24)
    p.note(
        410, 292, "Bars are e^(s − m) of each score s. The bars of set a shrink together, by one factor, so their sum does too.", size=13
    )
    return p


def two_tiles_04():
    """Query 0 of the example by hand: its output as bars, after each tile."""
    p = Picture(
        820, 350, "The row of scores 1, 2, 4, 0 in two tiles: after tile 1 everything from tile 0 has shrunk by e to the power of 2 - 4"
    )
    base, high, wide = 268, 170, 44
    for left, seen, title in [(70, TILE, "after tile 0"), (450, 2 * TILE, "after tile 1")]:
        m = max(SCORES[:seen])
        weights = [exp(s - m) for s in SCORES[:seen]]
        total = sum(weights)
        p.label(left + 150, 32, title, 16, bold=True)
        p.note(left + 150, 54, f"m = {m}, ℓ = {total:.3f}")
        for key, weight in enumerate(weights):
            x, height = left + 20 + 68 * key, max(weight / total * high, 1.5)
            p.rect(x, base - height, wide, height, "c1" if key < TILE else "c2")
            p.label(x + wide / 2, base - height - 8, f"{weight / total:.3f}", 13)
        for key, score in enumerate(SCORES):
            x = left + 20 + 68 * key + wide / 2
            p.label(x, base + 20, f"key {key}", 14)
            p.note(x, base + 38, f"score {score}" if key < seen else "in tile 1", size=14)
        p.line(left + 10, base, left + 290, base)
    p.arrow(372, base - 90, 440, base - 90)
    p.label(405, base - 100, "× 0.154", 12)
    p.note(405, base - 72, "(4.4)", size=14)
    p.note(410, 338, "Bars are the elements of O, since the values are unit vectors: the weights of the keys so far, which sum to 1.")
    return p


def tile_loop_03():
    """The loop of section 7 on the running example: the state after each tile of keys."""
    p = Picture(
        900, 330, "Tiles of keys and values arrive one after another; the triple of each is merged into the state and the tile is discarded"
    )
    wide, top, low = 190, 76, 216

    def stats(scores):
        return max(scores), sum(exp(s - max(scores)) for s in scores)

    def triple(values, name):
        return f"({values[0]:g}, {values[1]:.4g}, {name})"

    p.label(450, 30, "One triple is the state, and each tile is merged into it", 17, bold=True)
    p.label(20, low + 30, "state", 15, "start", bold=True)
    p.label(20, top + 30, "tile", 15, "start", bold=True)
    p.box(84, low, 120, 48, "c0", "(−∞, 0, 0)", 15)
    for n in range(0, len(SCORES), TILE):
        tile, x = SCORES[n : n + TILE], 250 + (wide + 70) * (n // TILE)
        p.box(x, top, wide, 48, "c1", f"scores {', '.join(map(str, tile))}, and {TILE} values", 14)
        p.arrow(x + wide / 2, top + 48, x + wide / 2, low - 4)
        p.label(x + wide / 2 + 10, (top + 48 + low) / 2, triple(stats(tile), "õ"), 15, "start")
        p.arrow(204 if n == 0 else x - 70, low + 24, x - 4, low + 24)
        p.label(x - 22 if n == 0 else x - 36, low + 14, "⊕", 18)
        p.box(x, low, wide, 48, "c3", triple(stats(SCORES[: n + TILE]), "o"), 15)
        p.note(x + wide / 2, top - 14, f"keys {n}, {n + 1}: loaded, used, discarded", size=14)
    end = 250 + (wide + 70) * (len(SCORES) // TILE) - 70
    p.arrow(end, low + 24, end + 46, low + 24)
    p.box(end + 50, low, 110, 48, "c4", "O = o / ℓ", 15)
    p.note(
        450,
        low + 86,
        "A triple is (m, ℓ, o), and ⊕ is the merge (3.6). The state has d + 2 elements, however many tiles there are.",
        size=14,
    )
    return p


def butterfly():
    """A warp's reduction by xor shuffles, for 8 lanes; each box names the lanes whose values it combines."""
    lanes, distances = 8, [4, 2, 1]
    p, left, step, top, gap, text = (
        Picture(820, 352, "Reduction of a warp by xor shuffles: after each step twice as many lanes are combined"),
        150,
        84,
        62,
        76,
        15,
    )
    held = [{lane} for lane in range(lanes)]
    for level in range(len(distances) + 1):
        y = top + level * gap
        for lane, of in enumerate(held):
            if level == 0:
                p.note(left + lane * step, 30, f"lane {lane}", size=text)
            shown = "all" if len(of) == lanes else ("+" if len(of) == 2 else ",").join(map(str, sorted(of)))
            p.box(left + lane * step - 34, y - 15, 68, 30, f"c{[0, 1, 3, 4][level]}", shown, text)
        if level == len(distances):
            break
        p.label(20, y + gap / 2 + 5, f"xor {distances[level]}", 16, "start", bold=True)
        for lane in range(lanes):
            x, partner = left + lane * step, left + (lane ^ distances[level]) * step
            p.arrow(x, y + 15, x, y + gap - 16)
            p.arrow(x, y + 15, partner + (6 if partner < x else -6), y + gap - 16)
        held = [of | held[lane ^ distances[level]] for lane, of in enumerate(held)]
    far = [str(LANES >> k) for k in range(1, LANES.bit_length())]
    p.note(410, top + 3 * gap + 46, f"A warp has {LANES} lanes and needs {len(far)} steps: xor {', '.join(far)}.", size=text)
    return p


PICTURES = [tile_loop_03, row_owners_02, merge, two_tiles_04, butterfly]
