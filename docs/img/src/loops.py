"""Which tile of the scores comes when, and what that costs: the loop orders of docs/chapters/04, 05 and 06."""

from docs.tools.svg import Picture

ROWS, COLS = 4, 5  # tiles of queries and of keys
CELL, GAP = (46, 42), 4
TEXT = 14


def scores(p, x, y, number, across):
    """The tiles of S with their numbers, and an arrow along each inner loop."""
    wide, high = CELL
    for r in range(ROWS):
        for c in range(COLS):
            p.rect(x + c * wide, y + r * high, wide - GAP, high - GAP, "c1")
            p.label(x + c * wide + 17, y + r * high + 21, str(number(r, c)), 15)
    for n in range(ROWS if across else COLS):
        if across:
            p.arrow(x + 5, y + n * high + 31, x + COLS * wide - GAP - 4, y + n * high + 31)
        else:
            p.arrow(x + n * wide + 35, y + 6, x + n * wide + 35, y + ROWS * high - GAP - 4)


def heads(p, x, y, columns, rows):
    """The names of tiles: `columns` above, a line each, `rows` = [(width, name)] to the left."""
    wide, high = CELL
    for line, names in enumerate(reversed(columns)):
        for c in range(COLS):
            p.box(x + c * wide, y - 30 - 24 * line, wide - GAP, 22, "c3", names.format(c), TEXT)
    for r in range(ROWS):
        left = x - 6
        for width, name in reversed(rows):
            left -= width
            p.box(left, y + r * high, width - GAP, high - GAP, "c2", name.format(r), TEXT)


def requested(p, x, y, scale, rows):
    """Bars: tiles that a block requests. `rows` = [(kind, tiles, what, when)]."""
    for n, (kind, tiles, what, when) in enumerate(rows):
        at = y + 42 * n
        p.label(x, at, what, TEXT, "start", bold=True)
        p.note(x + 352, at, when, size=TEXT, anchor="end")
        p.rect(x, at + 7, scale * tiles, 12, kind)
        p.label(x + scale * tiles + 6, at + 18, str(tiles), TEXT, "start")


def loop_orders():
    p = Picture(880, 478, "The two loop orders: K and V outside (FlashAttention-1), and Q outside (FlashAttention-2)")
    all_tiles, top, scale = ROWS * COLS, 134, 8
    for x, title, how, number, across, rows in [
        (
            24,
            "FlashAttention-1: keys outside",
            "one block per head, column after column",
            lambda r, c: ROWS * c + r + 1,
            False,
            [
                ("c3", 2 * COLS, "K, V read", "once per column"),
                ("c2", all_tiles, "Q read", "every visit"),
                ("c2", 2 * all_tiles, "O, m, ℓ read and written", "every visit"),
            ],
        ),
        (
            476,
            "FlashAttention-2: queries outside",
            "one block per query tile, all of them at once",
            lambda r, c: c + 1,
            True,
            [
                ("c3", 2 * all_tiles, "K, V read", "every visit"),
                ("c2", ROWS, "Q read", "once per query tile"),
                ("c2", ROWS, "O, L written", "once per query tile, at its end"),
            ],
        ),
    ]:
        p.label(x + 188, 28, title, 16, bold=True)
        p.note(x + 188, 50, how, size=TEXT)
        left = x + 130
        heads(p, left, top, ["K{}", "V{}"], [(44, "Q{}"), (80, "O, L {}" if across else "O, m, ℓ {}")])
        scores(p, left, top, number, across)
        p.label(x, 330, f"Tiles requested, all of one size: {sum(tiles for _, tiles, *_ in rows)}", 15, "start", bold=True)
        requested(p, x, 358, scale, rows)
    p.line(446, 20, 446, 458, "thin")
    return p


def loop_backward():
    p, top = Picture(880, 366, "The loops of the backward pass, and the tiles that they request"), 132
    all_tiles = ROWS * COLS
    p.label(206, 28, "The backward pass: keys outside", 16, bold=True)
    p.note(206, 50, "one block per head, column after column", size=TEXT)
    heads(p, 168, top, ["K,V {}", "dK,dV"], [(92, "Q, O, dO {}"), (54, "dQ {}")])
    scores(p, 168, top, lambda r, c: ROWS * c + r + 1, False)
    p.note(
        16,
        326,
        "dK, dV of a column sum over its queries, on the chip.",
        "dQ of a row sums over its keys, and waits in HBM.",
        size=TEXT,
        anchor="start",
    )
    p.line(446, 20, 446, 346, "thin")
    rows = [
        ("c3", 2 * COLS, "K, V read", "once per column"),
        ("c2", 3 * all_tiles, "Q, O, dO read", "every visit"),
        ("c2", 2 * all_tiles, "dQ read and written", "every visit, added to"),
        ("c3", 2 * COLS, "dK, dV written", "once per column, complete"),
    ]
    p.label(652, 28, f"Tiles requested: {sum(tiles for _, tiles, *_ in rows)}", 15, bold=True)
    requested(p, 476, 110, 5.4, rows)
    return p


PICTURES = [loop_orders, loop_backward]
