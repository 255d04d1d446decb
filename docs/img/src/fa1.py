"""The pictures of docs/chapters/04_fa1_forward.md and 05_fa1_backward.md that show who owns what in a block: d = 64, on sm_90."""

from docs.lab.typed_tables import rows_of, value
from docs.tools.svg import Picture

WIDTH = 64  # d
GROUP = 8  # keys at a time
THREAD = 20


def tiles(chapter, words, column):
    """Br and Bc of the chapter's table, which a test computes from (4.6) and (5.8)."""
    rows = rows_of(f"chapters/{chapter}.md", words)
    return next(map(int, value(row[column])) for row in rows if row[0].startswith("sm_90") and value(row[1]) == WIDTH)


def over(p, start, up, y, above, down, end):
    """An arrow that passes above the box in its way."""
    for line in ((start, y, up, y), (up, y, up, above), (up, above, down, above), (down, above, down, y)):
        p.line(*line)
    p.arrow(down, y, end, y)


def attention_tiles():
    """From Q, K, V to O, as in (4.1) to (4.4)."""
    p, top = Picture(720, "One step of attention by tiles: scores, weights, and the merge of their product with V into O"), 62
    p.label(360, 30, "S = τ Q Kᵀ,  P̃ = exp(S − m̃),  then P̃ V is merged into O", 18, bold=True)
    middle = top + 65
    for x, y, wide, high, name, shape in [
        (8, top + 13, 98, 104, "Q", "Br × d"),
        (136, top, 74, 130, "Kᵀ", "d × Bc"),
        (240, top + 13, 74, 104, "S", "Br × Bc"),
        (384, top + 13, 74, 104, "P̃", "Br × Bc"),
        (488, top + 29, 98, 72, "V", "Bc × d"),
        (614, top + 13, 98, 104, "O", "Br × d"),
    ]:
        p.rect(x, y, wide, high, name[0].lower())
        p.label(x + wide / 2, middle - 4, name, 19, bold=True)
        p.label(x + wide / 2, middle + 19, shape)
    for x, sign in ((121, "·"), (225, "="), (473, "·"), (600, "→")):
        p.label(x, middle + 8, sign, 24)
    p.arrow(318, middle + 4, 380, middle + 4)
    p.label(349, middle - 8, "exp")
    for x, lines in (
        (57, ("from HBM:", "queries")),
        (173, ("from HBM:", "keys")),
        (349, ("on the chip only,", "dropped after the step")),
        (537, ("from HBM:", "values")),
        (663, ("the result", "so far")),
    ):
        p.note(x, top + 160, *lines)
    p.caption("m̃: the maximum of a row within this tile. A row of S, P̃ and O belongs to a query; its m and ℓ go with it.")
    return p


def owners_04():
    """Above: which thread loads which four elements of a tile. Below: what the owner of a row reads, keeps and writes."""
    br, bc = tiles("04_fa1_forward", "paper, Br × Bc", 3)
    p = Picture(560, "A tile is loaded by all threads, neighbours taking neighbours; then each thread computes its own row")
    p.label(8, 28, "Loading: all threads, four elements each", 18, "start", bold=True)
    cell, left, top, chunks = 21, 68, 46, WIDTH // 4
    of_thread = divmod(THREAD, chunks)
    p.grid(left, top, 6, chunks, (cell, 22), lambda r, c: "hit" if (r, c) == of_thread else "q" if r < 2 else "c0")
    for r in range(6):
        p.note(left - 8, top + 22 * r + 17, f"row {r}", anchor="end")
        p.note(left + chunks * cell + 8, top + 22 * r + 17, f"threads {chunks * r}–{chunks * (r + 1) - 1}", anchor="start")
    p.note(
        8,
        top + 6 * 22 + 26,
        f"Q_smem, the first of {br} rows. Blue: the first warp, which",
        "reads 512 bytes in a row, 16 sectors, each used in full.",
        f"Yellow: thread {THREAD}.",
        anchor="start",
    )
    head = 292
    p.label(8, head, f"Computing: thread {THREAD} owns row {THREAD}", 18, "start", bold=True)
    wide, scale, top = 66, 0.8, head + 42
    x = {"Q": 14, "K": 101, "V": 393, "O": 480}
    for name, rows in (("Q", br), ("K", bc), ("V", bc), ("O", br)):
        p.rect(x[name], top, wide, rows * scale, "smem")
        p.label(x[name] + wide / 2, top - 12, f"{name}_smem")
        p.note(x[name] + wide / 2, top + bc * scale + 22, f"{rows} rows")
    row = top + THREAD * scale * 2  # drawn lower and higher than to scale
    band = top + 96
    for name in "QO":
        p.rect(x[name], row, wide, 9, name.lower())
        p.label(x[name] + wide / 2, row + 30, f"row {THREAD}")
    for name in "KV":
        p.rect(x[name], band, wide, 22, name.lower())
        p.label(x[name] + wide / 2, band + 42, f"{GROUP} rows")
    at, room = 198, 164
    p.rect(at, top - 2, room, 152, "reg")
    p.label(at + room / 2, top + 24, "registers", bold=True)
    for n, line in enumerate(("m, ℓ of the row", f"S: {GROUP} scores", "m̃, ℓ̃ of the tile", f"P̃V: {WIDTH} sums")):
        p.label(at + room / 2, top + 52 + 26 * n, line)
    over(p, x["Q"] + wide + 2, x["K"] - 13, row + 4, top - 32, at - 16, at - 2)
    p.arrow(x["K"] + wide + 2, band + 10, at - 2, band + 10)
    p.arrow(x["V"] - 2, band + 10, at + room + 2, band + 10)
    over(p, at + room + 2, at + room + 16, row + 4, top - 32, x["O"] - 13, x["O"] - 2)
    p.legend(("smem", "shared memory"), ("reg", "registers"))
    p.caption(
        f"All threads read the same {GROUP} keys and values: one access serves a warp. Rows of Q and O are read and written by their owners "
        "alone."
    )
    return p


def phases_05():
    """The same map of a block's memory in each phase: what two threads read and write."""
    br, bc = tiles("05_fa1_backward", "shared memory of a block", 2)
    other = bc + THREAD
    p = Picture(560, f"What threads {THREAD} and {other} of a block read and write in the phases A, B and C of one iteration")
    wide, gap, scale, top = 51, 4, 0.8, 66
    high = dict.fromkeys(("K", "V", "dK", "dV"), bc * scale) | dict.fromkeys(("Q", "dO", "P", "dS", "O", "dQ"), br * scale)
    own = (THREAD, other)  # rows of the Q tile
    phases = [
        ("A: rows of P and dS", {"Q": "read", "dO": "read", "O": "read", "P": "write", "dS": "write"}, ("K", "V")),
        ("B: rows of dQ", {"dS": "read", "dQ": "add"}, ("K",)),
        ("C: rows of dV and dK", {"dV": "add", "dK": "add", "P": "read", "dS": "read"}, ("Q", "dO")),
    ]
    for n, (title, rows, by_all) in enumerate(phases):
        y = top + n * (max(high.values()) + 86)
        p.label(8, y - 36, title, 18, "start", bold=True)
        p.note(8 + 8 * (wide + gap), y - 36, "in HBM:", anchor="start")
        for column, name in enumerate(high):
            x = 6 + column * (wide + gap)
            does = "all" if name in by_all else rows.get(name)
            p.rect(x, y, wide, high[name], name.lower() if does == "all" else "c0")
            p.label(x + wide / 2, y - 9, name)
            columns = n == 2 and does == "read"
            if columns:
                p.rect(x + THREAD * wide / bc - 3, y, 6, high[name], name.lower())
                p.label(x + 36, y + high[name] / 2 + 6, str(other if name == "dS" else THREAD), 16)
            elif does and does != "all":
                for row in own[:1] if n == 2 else own:
                    p.rect(x, y + row * scale - 4, wide, 8, name.lower())
                    p.label(x + wide / 2, y + row * scale + 20, str(other if name == "dK" else row), 16)
            if does:
                p.label(x + wide / 2, y + high[name] + 20, does)
    p.caption(
        f"Bars: what threads {THREAD} and {other} read, write or add to. In C both add to row {THREAD}. "
        "All threads read the same rows of coloured tiles."
    )
    return p


PICTURES = [attention_tiles, owners_04, phases_05]
