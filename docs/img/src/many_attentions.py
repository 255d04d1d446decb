"""The pictures of chapter 09: a sliding window, pair by pair and tile by tile, a ragged batch, and a softcap with its slopes."""

from math import tanh

from docs.tools.svg import Picture

NQ, NK, LEFT, RIGHT, TILE = 6, 9, 3, 1, 3


def sees(i, j):
    own = i + NK - NQ
    return own - LEFT <= j <= own + RIGHT


def tile_class(i0, j0):
    """None: not visited; else whether a comparison is needed."""
    pairs = [sees(i, j) for i in range(i0, i0 + TILE) for j in range(j0, j0 + TILE)]
    return None if not any(pairs) else "edge" if not all(pairs) else "inside"


def window():
    """Six queries, nine keys, the window 3,1: who sees whom, and which tiles of 3 x 3 are visited."""
    p = Picture(
        820, 392, f"Window {LEFT},{RIGHT} with Nq = {NQ} and Nk = {NK}: each query sees its own key, {LEFT} before it and {RIGHT} after it"
    )
    cell, left, top = 44, 110, 66
    for j in range(NK):
        p.label(left + j * cell + cell / 2, top - 12, f"k{j}", 14)
    for i in range(NQ):
        p.label(left - 12, top + i * cell + 27, f"q{i}", 14, "end")
        for j in range(NK):
            own = j == i + NK - NQ
            text = "own" if own else ""
            p.box(left + j * cell, top + i * cell, cell - 3, cell - 3, "c2" if own else "c1" if sees(i, j) else "c0", text, 12)
    for j in range(0, NK + 1, TILE):
        p.line(left + j * cell - 1.5, top - 32, left + j * cell - 1.5, top + NQ * cell - 1.5, "strong")
        if j < NK:
            p.note(left + (j + TILE / 2) * cell, top - 36, f"key tile {j // TILE}", size=14)
    for i in range(0, NQ + 1, TILE):
        p.line(left - 36, top + i * cell - 1.5, left + NK * cell - 1.5, top + i * cell - 1.5, "strong")
    y = top + NQ * cell + 24
    visited = [(i0 // TILE, j0 // TILE) for i0 in range(0, NQ, TILE) for j0 in range(0, NK, TILE) if tile_class(i0, j0)]
    rows = {i: [j for a, j in visited if a == i] for i in range(NQ // TILE)}
    for i, tiles in rows.items():
        keys = f"k{tiles[0] * TILE} to k{tiles[-1] * TILE + TILE - 1}"
        p.note(
            left,
            y + 22 * i,
            f"queries q{i * TILE} to q{i * TILE + TILE - 1}: key tiles {', '.join(map(str, tiles))}, {keys}",
            anchor="start",
            size=14,
        )
    x = left + NK * cell + 24
    p.note(x, top + 26, "q0 has the place of k3 = 0 + Nk - Nq", anchor="start", size=14)
    p.note(x, top + 52, "first key: 3 - 3 = 0", anchor="start", size=14)
    p.note(x, top + 78, "end: 3 + 1 + 1 = 5, not seen", anchor="start", size=14)
    p.note(x, top + 5 * cell + 26, "q5 has the place of the last key", anchor="start", size=14)
    return p


N, BACK = 1024, 256  # tokens; keys that the window reaches back


def window_tiles():
    """All tiles of both passes under the window 256,0: which are left out, which need a comparison, and one block's way."""
    p = Picture(900, 516, f"Window {BACK},0 with N = {N}: the tiles that both passes visit, and the way of one block in each")
    scale, top = 360 / N, 66
    passes = [(56, "forward: a block owns 128 queries", 128, 64, True, 5), (496, "backward: a block owns 128 keys", 64, 128, False, 2)]
    for left, name, high, wide, forward, shown in passes:
        p.label(left + 180, 26, name, 15, bold=True)
        p.note(left + 180, top - 14, f"tiles of {high} queries, downwards, and {wide} keys", size=14)
        counts = dict.fromkeys(("c0", "c1", "c2"), 0)
        way = []
        for i0 in range(0, N, high):
            for j0 in range(0, N, wide):
                first, last = i0 - (j0 + wide - 1), i0 + high - 1 - j0  # the smallest and the largest distance i - j in the tile
                kind = "c0" if last < 0 or first > BACK else "c1" if first >= 0 and last <= BACK else "c2"
                counts[kind] += 1
                p.rect(left + j0 * scale, top + i0 * scale, wide * scale - 2, high * scale - 2, kind)
                if kind != "c0" and shown == (i0 if forward else j0) // 128:
                    way.append((left + (j0 + wide / 2) * scale - 1, top + (i0 + high / 2) * scale - 1))
        p.arrow(*way[0], *way[-1])
        at, reach, length = shown * 128, 128 + BACK, N * scale
        for end in (at * scale - 1, (at + 128) * scale - 1):
            ends = (left - 1, top + end, left + length - 1, top + end) if forward else (left + end, top - 1, left + end, top + length - 1)
            p.line(*ends, "strong")
        visited = counts["c1"] + counts["c2"]
        own, other = (f"queries {at} to {at + 127}", "keys") if forward else (f"keys {at} to {at + 127}", "queries")
        begin = at - BACK if forward else at
        lines = (
            f"{own} need {other} {begin} to {begin + reach - 1}",
            f"{visited} of {sum(counts.values())} tiles visited, {counts['c2']} of them at an edge",
        )
        p.note(left + 180, top + length + 20, *lines, size=14)
    for x, kind, text in ((170, "c1", "every pair visible"), (366, "c2", "at an edge: a comparison per pair"), (660, "c0", "left out")):
        p.rect(x, 486, 16, 16, kind)
        p.note(x + 24, 499, text, size=14, anchor="start")
    return p


LENGTHS, ROWS = (7, 2, 4), 3  # of three sequences; of a tile


def ragged():
    """Sequences in one tensor: offsets, P under a causal mask, and the tiles in the order in which blocks take them."""
    p = Picture(860, 424, "Three sequences in one tensor: offsets, a block-diagonal P, and the list of tiles, longest first")
    cell, left, top, kinds = 21, 84, 118, ("c1", "c2", "c3")
    offsets = [sum(LENGTHS[:s]) for s in range(len(LENGTHS) + 1)]
    p.note(left - 12, 51, "keys", size=14, anchor="end")
    p.note(left - 12, 80, "offsets", size=14, anchor="end")
    for begin in offsets:
        p.label(left + begin * cell, 80, str(begin), 14)
        p.label(left - 12, top + begin * cell + 5, str(begin), 14, "end")
    for s, length in enumerate(LENGTHS):
        at, size = offsets[s], length * cell
        p.box(left + at * cell, 36, size, 22, kinds[s], f"s = {s}", 13)
        for i in range(length):
            for j in range(length):
                p.rect(left + (at + j) * cell, top + (at + i) * cell, cell - 2, cell - 2, kinds[s] if j <= i else "c0")
        for i in range(0, length + ROWS, ROWS):
            y = top + (at + min(i, length)) * cell - 1
            p.line(left + at * cell - 1, y, left + at * cell + size - 1, y, "strong")
    p.label(left + offsets[-1] * cell / 2, 22, "one tensor of keys, and P", 15, bold=True)
    p.note(left + offsets[-1] * cell / 2, top + offsets[-1] * cell + 24, "outside the blocks nothing is computed", size=14)
    x, y, wide = 470, 62, 68
    p.label(x, 22, f"tiles of {ROWS} queries, longest first", 15, "start", bold=True)
    tiles = [(-(-min(first + ROWS, n) // ROWS), s, first) for s, n in enumerate(LENGTHS) for first in range(0, n, ROWS)]
    for keys, s, first in sorted(tiles, key=lambda tile: -tile[0]):
        p.label(x, y + 20, f"s = {s}, row {first}", 14, "start")
        for n in range(keys):
            p.box(x + 122 + n * wide, y, wide - 4, 30, kinds[s], f"key {n * ROWS}", 12)
        y += 42
    p.note(x, y + 16, "a bar per tile of 3 keys, with the first of them", size=14, anchor="start")
    p.note(x, y + 44, "rows count from the beginning of the sequence", size=14, anchor="start")
    return p


SHOWN = 3.0  # scores from -3c to 3c


def softcap():
    """The cap, its slope, and what the slope would be with s in the place of f(s)."""
    p = Picture(900, 372, "A softcap and its slope, in units of c: the slope with s instead of f(s) is right near 0 only")
    p.label(450, 28, p.title, 15, bold=True)
    panels = [
        (60, "f(s) / c", [("strong", tanh), ("line", lambda s: s)]),
        (500, "f'(s)", [("strong", lambda s: 1 - tanh(s) ** 2), ("line", lambda s: 1 - s * s)]),
    ]
    high, low, top, bottom, wide = 1.25, -1.25, 64, 320, 340
    for left, name, curves in panels:

        def at(s, value, left=left):
            return left + (s + SHOWN) / (2 * SHOWN) * wide, bottom - (value - low) / (high - low) * (bottom - top)

        p.note(left + wide / 2, 52, name, size=14)
        for value in (-1, 0, 1):
            p.line(*at(-SHOWN, value), *at(SHOWN, value), "thin")
            p.note(left - 8, at(0, value)[1] + 5, f"{value}", size=13, anchor="end")
        for s in range(-3, 4):
            p.note(at(s, 0)[0], bottom + 18, f"{s}c" if s else "0", size=13)
        for kind, f in curves:
            steps = [-SHOWN + SHOWN * n / 60 for n in range(121)]
            for a, b in zip(steps, steps[1:]):
                if low <= f(a) <= high and low <= f(b) <= high:
                    p.line(*at(a, f(a)), *at(b, f(b)), kind)
    p.label(300, 132, "tanh(s/c)", 14, "start")
    p.note(276, 76, "s/c", size=14, anchor="end")
    p.label(716, 122, "1 - (f(s)/c)²", 14, "start")
    p.note(752, 250, "1 - (s/c)²: wrong", size=14, anchor="start")
    p.note(450, 362, "Below -c and above c the wrong slope is negative: the gradient would point the other way.", size=14)
    return p


PICTURES = [window, window_tiles, ragged, softcap]
