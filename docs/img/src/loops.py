"""Which tile of the scores comes when, and what that costs: the loop orders of docs/chapters/04, 05 and 06."""

from docs.tools.svg import Picture

ROWS, COLS = 4, 5  # tiles of queries and of keys
CELL, GAP = (42, 42), 3


def scores(p, x, y, number, across):
    """The tiles of S with their numbers, and an arrow along each inner loop."""
    wide, high = CELL
    for r in range(ROWS):
        for c in range(COLS):
            p.rect(x + c * wide, y + r * high, wide - GAP, high - GAP, "s")
            p.label(x + c * wide + 15, y + r * high + 21, str(number(r, c)))
    for n in range(ROWS if across else COLS):
        if across:
            p.arrow(x + 5, y + n * high + 31, x + COLS * wide - GAP - 4, y + n * high + 31)
        else:
            p.arrow(x + n * wide + 33, y + 6, x + n * wide + 33, y + ROWS * high - GAP - 4)


def heads(p, x, y, above, rows):
    """The names of tiles: lines of matrices `above`, `rows` to the left; each with its colour."""
    wide, high = CELL
    for line, names in enumerate(reversed(above)):
        for c in range(COLS):
            for n, name in enumerate(names):
                part = (wide - GAP) / len(names)
                p.box(x + c * wide + n * part, y - 32 - 28 * line, part, 26, name.lower(), name + (str(c) if len(names) == 1 else ""))
    for r in range(ROWS):
        left = x - 6
        for width, name, text in reversed(rows):
            left -= width
            p.box(left, y + r * high, width - GAP, high - GAP, name.lower(), text.format(r))


def requested(p, x, y, scale, rows):
    """Bars: tiles that a block requests. `rows` = [(matrices, tiles of each, what, when)]."""
    for n, (matrices, tiles, what, when) in enumerate(rows):
        at = y + 50 * n
        p.label(x, at, what, anchor="start", bold=True)
        p.note(x, at + 21, when, anchor="start")
        left = x + 224
        for name in matrices:
            p.rect(left, at - 12, scale * tiles, 24, name.lower())
            left += scale * tiles
        p.label(left + 8, at + 6, str(tiles * len(matrices)), anchor="start")


def loop_orders():
    p = Picture(720, "The two loop orders: K and V outside (FlashAttention-1), and Q outside (FlashAttention-2)")
    all_tiles = ROWS * COLS
    for y, title, how, number, across, state, rows in [
        (
            28,
            "FlashAttention-1: keys outside",
            "one block per head, column after column",
            lambda r, c: ROWS * c + r + 1,
            False,
            "O, m, ℓ",
            [
                ("KV", COLS, "K, V read", "once per column"),
                ("Q", all_tiles, "Q read", "every visit"),
                ("OO", all_tiles, "O, m, ℓ read, written", "every visit"),
            ],
        ),
        (
            348,
            "FlashAttention-2: queries outside",
            "one block per query tile, all at once",
            lambda r, c: c + 1,
            True,
            "O, L",
            [
                ("KV", all_tiles, "K, V read", "every visit"),
                ("Q", ROWS, "Q read", "once per query tile"),
                ("O", ROWS, "O, L written", "at the end of a query tile"),
            ],
        ),
    ]:
        p.label(8, y, title, 18, "start", bold=True)
        p.note(712, y, how, anchor="end")
        left = 116
        heads(p, left, y + 84, ["K", "V"], [(38, "Q", "Q{}"), (66, "O", state)])
        scores(p, left, y + 84, number, across)
        p.label(344, y + 56, f"tiles requested: {sum(tiles * len(of) for of, tiles, *_ in rows)}", 18, "start", bold=True)
        requested(p, 344, y + 100, 2.4, rows)
    p.line(8, 312, 712, 312, "thin")
    return p


def loop_backward():
    p = Picture(720, "The loops of the backward pass, and the tiles that they request")
    top, all_tiles = 168, ROWS * COLS
    p.label(8, 28, "Backward: keys outside", 18, "start", bold=True)
    p.note(712, 28, "one block per head, column after column", anchor="end")
    heads(p, 168, top, ["K", "V", ["dK"], ["dV"]], [(32, "Q", "Q"), (32, "O", "O"), (38, "dO", "dO"), (50, "dQ", "dQ{}")])
    scores(p, 168, top, lambda r, c: ROWS * c + r + 1, False)
    rows = [
        ("KV", COLS, "K, V read", "once per column"),
        (["Q", "O", "dO"], all_tiles, "Q, O, dO read", "every visit"),
        (["dQ", "dQ"], all_tiles, "dQ read, written", "every visit, added to"),
        (["dK", "dV"], COLS, "dK, dV written", "once per column"),
    ]
    p.label(388, 72, f"tiles requested: {sum(tiles * len(of) for of, tiles, *_ in rows)}", 18, "start", bold=True)
    requested(p, 388, 112, 1, rows)
    p.caption("dK, dV of a column sum over its queries, on the chip. dQ of a row sums over its keys, and waits in HBM.")
    return p


PICTURES = [loop_orders, loop_backward]
