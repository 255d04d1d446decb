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
        720, f"Window {LEFT},{RIGHT} with Nq = {NQ} and Nk = {NK}: each query sees its own key, {LEFT} before it and {RIGHT} after it"
    )
    cell, left, top = 44, 52, 78
    for j in range(NK):
        p.label(left + j * cell + cell / 2, top - 12, f"k{j}")
    for i in range(NQ):
        p.label(left - 10, top + i * cell + 27, f"q{i}", anchor="end")
        for j in range(NK):
            own = j == i + NK - NQ
            text = "own" if own else ""
            p.box(left + j * cell, top + i * cell, cell - 3, cell - 3, "hit" if own else "s" if sees(i, j) else "c0", text)
    for j in range(0, NK + 1, TILE):
        p.line(left + j * cell - 1.5, top - 34, left + j * cell - 1.5, top + NQ * cell - 1.5, "strong")
        if j < NK:
            p.note(left + (j + TILE / 2) * cell, top - 42, f"key tile {j // TILE}")
    for i in range(0, NQ + 1, TILE):
        p.line(left - 36, top + i * cell - 1.5, left + NK * cell - 1.5, top + i * cell - 1.5, "strong")
    y = top + NQ * cell + 26
    visited = [(i0 // TILE, j0 // TILE) for i0 in range(0, NQ, TILE) for j0 in range(0, NK, TILE) if tile_class(i0, j0)]
    rows = {i: [j for a, j in visited if a == i] for i in range(NQ // TILE)}
    for i, tiles in rows.items():
        keys = f"k{tiles[0] * TILE} to k{tiles[-1] * TILE + TILE - 1}"
        p.note(
            left,
            y + 23 * i,
            f"queries q{i * TILE} to q{i * TILE + TILE - 1}: key tiles {', '.join(map(str, tiles))}, {keys}",
            anchor="start",
        )
    x = left + NK * cell + 14
    p.note(
        x, top + 26, "q0 has the place", "of k3 = 0 + Nk - Nq;", "first key: 3 - 3 = 0,", "end: 3 + 1 + 1 = 5,", "not seen", anchor="start"
    )
    p.note(x, top + 5 * cell + 16, "q5 has the place", "of the last key", anchor="start")
    return p


N, BACK = 1024, 256  # tokens; keys that the window reaches back


def window_tiles():
    """All tiles of both passes under the window 256,0: which are left out, which need a comparison, and one block's way."""
    p = Picture(720, f"Window {BACK},0 with N = {N}: the tiles that both passes visit, and the way of one block in each")
    scale, top = 336 / N, 74
    passes = [(8, "forward: block of 128 queries", 128, 64, True, 5), (376, "backward: block of 128 keys", 64, 128, False, 2)]
    for left, name, high, wide, forward, shown in passes:
        p.label(left + 168, 26, name, 18, bold=True)
        p.note(left + 168, top - 18, f"tiles of {high} queries, down, {wide} keys")
        counts = dict.fromkeys(("c0", "s", "hit"), 0)
        way = []
        for i0 in range(0, N, high):
            for j0 in range(0, N, wide):
                first, last = i0 - (j0 + wide - 1), i0 + high - 1 - j0  # the smallest and the largest distance i - j in the tile
                kind = "c0" if last < 0 or first > BACK else "s" if first >= 0 and last <= BACK else "hit"
                counts[kind] += 1
                p.rect(left + j0 * scale, top + i0 * scale, wide * scale - 2, high * scale - 2, kind)
                if kind != "c0" and shown == (i0 if forward else j0) // 128:
                    way.append((left + (j0 + wide / 2) * scale - 1, top + (i0 + high / 2) * scale - 1))
        p.arrow(*way[0], *way[-1])
        at, reach, length = shown * 128, 128 + BACK, N * scale
        for end in (at * scale - 1, (at + 128) * scale - 1):
            ends = (left - 1, top + end, left + length - 1, top + end) if forward else (left + end, top - 1, left + end, top + length - 1)
            p.line(*ends, "strong")
        visited = counts["s"] + counts["hit"]
        own, other = (f"queries {at} to {at + 127}", "keys") if forward else (f"keys {at} to {at + 127}", "queries")
        begin = at - BACK if forward else at
        lines = (
            f"{own} need",
            f"{other} {begin} to {begin + reach - 1}",
            f"{visited} of {sum(counts.values())} tiles, {counts['hit']} at an edge",
        )
        p.note(left + 168, top + length + 22, *lines)
    p.legend(("s", "every pair visible"), ("hit", "at an edge: a comparison per pair"), ("c0", "left out"))
    return p


LENGTHS, ROWS = (7, 2, 4), 3  # of three sequences; of a tile


def ragged():
    """Sequences in one tensor: offsets, P under a causal mask, and the tiles in the order in which blocks take them."""
    p = Picture(720, "Three sequences in one tensor: offsets, a block-diagonal P, and the list of tiles, longest first")
    cell, left, top, kinds = 21, 78, 122, ("c1", "c2", "c3")
    offsets = [sum(LENGTHS[:s]) for s in range(len(LENGTHS) + 1)]
    p.note(left - 10, 58, "keys", anchor="end")
    p.note(left - 10, 86, "offsets", anchor="end")
    for begin in offsets:
        p.label(left + begin * cell, 86, str(begin))
        p.label(left - 10, top + begin * cell + 6, str(begin), anchor="end")
    for s, length in enumerate(LENGTHS):
        at, size = offsets[s], length * cell
        p.box(left + at * cell, 40, size, 26, kinds[s], f"s = {s}" if length > 2 else f"{s}")
        for i in range(length):
            for j in range(length):
                p.rect(left + (at + j) * cell, top + (at + i) * cell, cell - 2, cell - 2, kinds[s] if j <= i else "c0")
        for i in range(0, length + ROWS, ROWS):
            y = top + (at + min(i, length)) * cell - 1
            p.line(left + at * cell - 1, y, left + at * cell + size - 1, y, "strong")
    p.label(left + offsets[-1] * cell / 2, 26, "one tensor of keys, and P", 18, bold=True)
    p.note(left + offsets[-1] * cell / 2, top + offsets[-1] * cell + 22, "nothing outside the blocks")
    x, y, wide = 396, 44, 66
    p.label(x, 26, f"tiles of {ROWS} queries, longest first", 18, "start", bold=True)
    tiles = [(-(-min(first + ROWS, n) // ROWS), s, first) for s, n in enumerate(LENGTHS) for first in range(0, n, ROWS)]
    for keys, s, first in sorted(tiles, key=lambda tile: -tile[0]):
        p.label(x, y + 22, f"s = {s}, row {first}", anchor="start")
        for n in range(keys):
            p.box(x + 116 + n * wide, y, wide - 4, 32, kinds[s], f"key {n * ROWS}")
        y += 44
    p.note(
        x, y + 20, "a bar per tile of 3 keys, with the", "first of them; rows count from the", "beginning of the sequence", anchor="start"
    )
    return p


SHOWN = 3.0  # scores from -3c to 3c


def softcap():
    """The cap, its slope, and what the slope would be with s in the place of f(s)."""
    p = Picture(
        720,
        "A softcap and its slope, in units of c: the slope with s instead of f(s) is right near 0 only",
        "The slope with s instead of f(s) is right near 0 only",
    )
    panels = [
        (36, "f(s) / c", [("strong", tanh), ("line", lambda s: s)]),
        (400, "f'(s)", [("strong", lambda s: 1 - tanh(s) ** 2), ("line", lambda s: 1 - s * s)]),
    ]
    high, low, top, bottom, wide = 1.25, -1.25, 72, 328, 306
    for left, name, curves in panels:

        def at(s, value, left=left):
            return left + (s + SHOWN) / (2 * SHOWN) * wide, bottom - (value - low) / (high - low) * (bottom - top)

        p.note(left + wide / 2, 60, name)
        for value in (-1, 0, 1):
            p.line(*at(-SHOWN, value), *at(SHOWN, value), "thin")
            p.note(left - 6, at(0, value)[1] + 6, f"{value}", anchor="end")
        for s in range(-3, 4):
            p.note(at(s, 0)[0], bottom + 20, f"{s}c" if s else "0")
        for kind, f in curves:
            steps = [-SHOWN + SHOWN * n / 60 for n in range(121)]
            for a, b in zip(steps, steps[1:]):
                if low <= f(a) <= high and low <= f(b) <= high:
                    p.line(*at(a, f(a)), *at(b, f(b)), kind)
    p.label(262, 138, "tanh(s/c)", anchor="start")
    p.note(226, 88, "s/c", anchor="end")
    p.label(600, 136, "1-(f(s)/c)²", anchor="start")
    p.note(632, 250, "1-(s/c)²:", "wrong", anchor="start")
    p.caption("Below -c and above c the wrong slope is negative: the gradient would point the other way.")
    return p


PICTURES = [window, window_tiles, ragged, softcap]
