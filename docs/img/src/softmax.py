"""The pictures of docs/chapters/02_safe_softmax.md and 04_fa1_forward.md: which sectors a load of a warp touches, and a row after each tile."""

from math import exp

from docs.tools.svg import Picture

SECTOR, LANES = 8, 32  # elements of 4 bytes; threads of a warp
SCORES, TILE = [1, 2, 4, 0], 2  # the running example


def row_owners_02():
    """The rows of S that a warp reads: a thread per row, and a warp per row."""
    p = Picture(720, "One load of a warp: with a thread per row 32 sectors in 32 rows, with a warp per row four sectors of one row")
    rows, cell, left = 8, 16, 80
    for top, title, subtitle, thread_per_row in [
        (64, "a thread per row", f"{LANES} sectors, {4 * LANES} of {SECTOR * 4 * LANES} bytes used", True),
        (324, "a warp per row", f"{LANES // SECTOR} sectors, all {4 * LANES} bytes used", False),
    ]:
        p.label(left, top - 36, title, 18, "start", bold=True)
        p.note(left + LANES * cell, top - 36, subtitle, anchor="end")

        def kind(r, c, thread_per_row=thread_per_row):
            if thread_per_row:
                return "c0" if c >= SECTOR else "hit" if c == 3 else "s"
            return "hit" if r == 0 else "c0"

        p.grid(left, top, rows, LANES, (cell, 24), kind)
        for c in range(0, LANES + 1, SECTOR):
            p.line(left + c * cell, top - 6, left + c * cell, top + rows * 24, "strong")
        for s in range(LANES // SECTOR):
            p.note(left + (s + 0.5) * SECTOR * cell, top - 10, "a sector")
        for r in range(rows):
            p.note(left - 8, top + 24 * r + 18, f"row {r}", anchor="end")
            if thread_per_row or r == 0:
                p.label(left + LANES * cell + 8, top + 24 * r + 18, f"lane {r}" if thread_per_row else "all lanes", anchor="start")
    p.legend(("hit", "read by one load"), ("s", "moved with it"))
    p.caption(
        "The first 8 rows and 32 columns of S. Above, each lane reads column 3 of its row and gets the other seven elements of the "
        "sector, which it needs in its next iterations, if they are still in the cache by then. Below, a warp uses its four sectors at once."
    )
    return p


def merge():
    """The two halves of the row 1, 2, 4, 0, and their union."""
    p = Picture(720, "Two partial results are rewritten under the larger maximum, then added")
    base, high, wide, step = 246, 130, 46, 58
    parts = [("set a", SCORES[:TILE], 34), ("set b", SCORES[TILE:], 234), ("union", SCORES, 452)]
    p.line(28, base - high, 700, base - high, "thin")
    p.note(20, base - high + 6, "1", anchor="end")
    for name, scores, left in parts:
        m, middle = max(scores), left + step / 2 * len(scores)
        total = sum(exp(s - m) for s in scores)
        p.label(middle, 28, name, 18, bold=True)
        p.label(middle, 54, f"m = {m}, ℓ = {total:.3f}")
        if name == "union":
            old = max(SCORES[:TILE])
            inner = sum(exp(s - old) for s in SCORES[:TILE])
            p.note(middle - 12, 78, f"{inner:.3f} · e^({old} − {m}) + {total - inner * exp(old - m):.3f} = {total:.3f}", size=16)
        for at, s in enumerate(scores):
            x, height = left + 6 + step * at, max(high * exp(s - m), 1.5)
            p.rect(x, base - height, wide, height, "p" if name == "set a" or (name == "union" and at < TILE) else "hit")
            p.label(x + wide / 2, base - height - 6, f"{exp(s - m):.3f}", 16)
            p.note(x + wide / 2, base + 20, f"{s}")
        p.line(left, base, left + step * len(scores), base)
        p.note(middle, base + 42, "scores")
    p.label(192, base - 50, "⊕", 26)
    p.label(408, base - 50, "=", 26)
    p.legend(("p", "set a"), ("hit", "set b"))
    p.caption("Bars are e^(s − m) of each score s. The bars of set a shrink together, by one factor, so their sum does too.")
    return p


def two_tiles_04():
    """Query 0 of the example by hand: its output as bars, after each tile."""
    p = Picture(720, "The row of scores 1, 2, 4, 0 in two tiles: after tile 1 everything from tile 0 has shrunk by e to the power of 2 - 4")
    base, high, wide, step = 270, 170, 50, 72
    for left, seen, title in [(8, TILE, "after tile 0"), (416, 2 * TILE, "after tile 1")]:
        m = max(SCORES[:seen])
        weights = [exp(s - m) for s in SCORES[:seen]]
        total = sum(weights)
        p.label(left + 148, 30, title, 18, bold=True)
        p.note(left + 148, 56, f"m = {m}, ℓ = {total:.3f}")
        for key, weight in enumerate(weights):
            x, height = left + 14 + step * key, max(weight / total * high, 1.5)
            p.rect(x, base - height, wide, height, "p" if key < TILE else "hit")
            p.label(x + wide / 2, base - height - 8, f"{weight / total:.3f}")
        for key, score in enumerate(SCORES):
            x = left + 14 + step * key + wide / 2
            p.label(x, base + 22, f"key {key}")
            p.note(x, base + 44, f"score {score}" if key < seen else "(tile 1)")
        p.line(left + 4, base, left + 296, base)
    p.arrow(316, base - 90, 402, base - 90)
    p.label(359, base - 102, "× 0.154")
    p.note(359, base - 68, "(4.4)")
    p.legend(("p", "tile 0"), ("hit", "tile 1"))
    p.caption("Bars are the elements of O, since the values are unit vectors: the weights of the keys so far, which sum to 1.")
    return p


def tile_loop_03():
    """The loop of section 7 on the running example: the state after each tile of keys."""
    p = Picture(
        720,
        "Tiles of keys and values arrive one after another; the triple of each is merged into the state and the tile is discarded",
        "One triple is the state, and each tile is merged into it",
    )
    wide, top, low = 168, 84, 222

    def stats(scores):
        return max(scores), sum(exp(s - max(scores)) for s in scores)

    def triple(values, name):
        return f"({values[0]:g}, {values[1]:.4g}, {name})"

    p.label(10, low - 14, "state", 18, "start", bold=True)
    p.label(10, top + 30, "tile", 18, "start", bold=True)
    p.box(10, low, 112, 48, "c0", "(−∞, 0, 0)")
    for n in range(0, len(SCORES), TILE):
        tile, x = SCORES[n : n + TILE], 164 + (wide + 42) * (n // TILE)
        p.note(x + wide / 2, top - 12, f"keys {n}, {n + 1}: used once")
        p.box(x, top, wide / 2, 48, "s", f"S: {', '.join(map(str, tile))}")
        p.box(x + wide / 2, top, wide / 2, 48, "v", f"{TILE} values")
        p.arrow(x + wide / 2, top + 48, x + wide / 2, low - 2)
        p.label(x + wide / 2 + 10, (top + 48 + low) / 2 + 6, triple(stats(tile), "õ"), 16, "start")
        p.arrow(x - 42, low + 24, x - 1, low + 24)
        p.label(x - 22, low + 12, "⊕", 20)
        p.box(x, low, wide, 48, "o", triple(stats(SCORES[: n + TILE]), "o"))
    end = 164 + (wide + 42) * (len(SCORES) // TILE) - 42
    p.arrow(end, low + 24, end + 38, low + 24)
    p.box(end + 40, low, 98, 48, "o", "O = o / ℓ")
    p.caption("A triple is (m, ℓ, o), and ⊕ is the merge (3.6). The state has d + 2 elements, however many tiles there are.")
    return p


def butterfly():
    """A warp's reduction by xor shuffles, for 8 lanes; each box names the lanes whose values it combines."""
    lanes, distances = 8, [4, 2, 1]
    p = Picture(720, "Reduction of a warp by xor shuffles: after each step twice as many lanes are combined")
    left, step, top, gap = 116, 79, 58, 76
    held = [{lane} for lane in range(lanes)]
    for level in range(len(distances) + 1):
        y = top + level * gap
        for lane, of in enumerate(held):
            if level == 0:
                p.note(left + lane * step, 28, f"lane {lane}")
            shown = "all" if len(of) == lanes else ("+" if len(of) == 2 else ",").join(map(str, sorted(of)))
            p.box(left + lane * step - 37, y - 15, 74, 30, f"c{[0, 1, 3, 4][level]}", shown)
        if level == len(distances):
            break
        p.label(8, y + gap / 2 + 5, f"xor {distances[level]}", 18, "start", bold=True)
        for lane in range(lanes):
            x, partner = left + lane * step, left + (lane ^ distances[level]) * step
            p.arrow(x, y + 15, x, y + gap - 16)
            p.arrow(x, y + 15, partner + (6 if partner < x else -6), y + gap - 16)
        held = [of | held[lane ^ distances[level]] for lane, of in enumerate(held)]
    far = [str(LANES >> k) for k in range(1, LANES.bit_length())]
    p.caption(f"A warp has {LANES} lanes and needs {len(far)} steps: xor {', '.join(far)}.")
    return p


PICTURES = [tile_loop_03, row_owners_02, merge, two_tiles_04, butterfly]
