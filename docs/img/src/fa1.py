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
    p, top = Picture(900, 306, "One step of attention by tiles: scores, weights, and the merge of their product with V into O"), 110
    for x, y, wide, high, kind, name, shape in [
        (40, top, 130, 104, "c1", "Q tile", "Br × d"),
        (210, top - 14, 72, 130, "c3", "K tileᵀ", "d × Bc"),
        (314, top, 72, 104, "c2", "S tile", "Br × Bc"),
        (476, top, 72, 104, "c2", "P̃ tile", "Br × Bc"),
        (576, top + 16, 130, 72, "c3", "V tile", "Bc × d"),
        (746, top, 130, 104, "c4", "O tile", "Br × d"),
    ]:
        p.rect(x, y, wide, high, kind)
        p.label(x + wide / 2, 163, name, 15, bold=True)
        p.label(x + wide / 2, 182, shape, 13)
    for x, sign in ((190, "·"), (298, "="), (562, "·"), (726, "→")):
        p.label(x, 168, sign, 22)
    p.arrow(392, 162, 470, 162)
    p.label(431, 150, "exp(S − m̃)", 14)
    p.label(450, 30, "S = τ Q Kᵀ,  P̃ = exp(S − m̃),  then P̃ V is merged into O, a tile at a time", 16, bold=True)
    p.note(450, 56, "m̃: the maximum of a row within this tile. A row of S, P̃ and O belongs to a query: its m and ℓ go with it", size=14)
    for x, lines in (
        (105, ("from HBM:", "queries")),
        (246, ("from HBM:", "keys")),
        (432, ("on the chip only,", "discarded after the step")),
        (641, ("from HBM:", "values")),
        (800, ("the result so far and P̃ V,", "each with its weight")),
    ):
        p.note(x, 266, *lines, size=14)
    return p


def busy_units(p, units, left, scale):
    """Per unit a bar of its parts: (cycles, kind, text)."""
    for y, name, parts in units:
        p.label(left - 10, y + 27, name, 17, "end")
        x = left
        for cycles, kind, text in parts:
            p.box(x, y, cycles * scale, 42, kind, text, 17)
            x += cycles * scale


def cycles_04():
    """What a warp keeps busy for 8 keys and 4 columns: the table of section 5."""
    p = Picture(820, 214, "Shared memory is busy for 36 cycles, arithmetic for 16 of them")
    p.label(410, 30, "One warp, 8 keys, 4 columns: shared memory is busy 36 cycles, arithmetic 16", 17, bold=True)
    units = [
        (56, "shared memory", [(4, "c1", "Q: 4"), (16, "c3", "8 keys: 16"), (16, "c4", "8 values: 16")]),
        (110, "arithmetic", [(8, "c2", "q · k: 8"), (8, "c2", "P̃ V: 8"), (20, "c0", "idle: 20")]),
    ]
    busy_units(p, units, 160, 17.5)
    p.note(410, 186, "Bars show how many cycles each unit is busy, in arbitrary order.", size=16)
    return p


def cycles_05():
    """What the five products keep busy, per column and 256 pairs: the table of section 6."""
    rows = rows_of("chapters/05_fa1_backward.md", "per column and 256 pairs")
    (*shared, busy), (*arithmetic, needed) = ([value(row[column]) for row in rows] for column in (-2, -1))
    names, kinds = ["A: S, dP", "B: dQ", "C: dV", "C: dK"], ["c1", "c3", "c4", "c2"]
    p = Picture(820, 214, f"Shared memory is busy for {busy} cycles, arithmetic for {needed:g} of them")
    p.label(410, 30, f"Per column and 256 pairs: shared memory is busy {busy} cycles, arithmetic {needed:g}", 17, bold=True)
    units = [
        (56, "shared memory", [(n, kind, f"{name}: {n:g}") for n, kind, name in zip(shared, kinds, names)]),
        (
            110,
            "arithmetic",
            [(n, kind, f"{n:g}") for n, kind in zip(arithmetic, kinds)] + [(busy - needed, "c0", f"idle: {busy - needed:g}")],
        ),
    ]
    busy_units(p, units, 160, 27.5)
    p.note(410, 186, "Colours are rows of the table. Bars show how many cycles each unit is busy, in arbitrary order.", size=16)
    return p


def owners_04():
    """Left: which thread loads which four elements of a tile. Right: what the owner of a row reads, keeps and writes."""
    (br, bc), text = tiles("04_fa1_forward", "paper, Br × Bc", 3), 15
    p = Picture(960, 386, "A tile is loaded by all threads, neighbours taking neighbours; then each thread computes its own row")
    p.label(196, 30, "Loading: all threads together", 16, bold=True)
    p.note(196, 52, "four elements each, neighbours take neighbours", size=text)
    cell, left, top, chunks = 18, 36, 108, WIDTH // 4
    of_thread = divmod(THREAD, chunks)
    p.grid(left, top, 8, chunks, (cell, cell), lambda r, c: "c2" if (r, c) == of_thread else "c1" if r < 2 else "c0")
    p.note(left + chunks * cell / 2, top - 12, f"Q_smem, the first of {br} rows", size=text)
    for r in range(8):
        p.note(left + chunks * cell + 8, top + cell * r + 14, f"{chunks * r} to {chunks * (r + 1) - 1}", size=14, anchor="start")
    bottom = top + 8 * cell
    said = (
        "Right: the threads that load a row. Marked: the",
        f"first warp, and thread {THREAD} in it. A warp reads 512",
        "bytes in a row: 16 sectors, each used in full.",
    )
    p.note(left, bottom + 30, *said, size=text, anchor="start")

    p.label(676, 30, f"Computing: thread {THREAD} owns row {THREAD}", 16, bold=True)
    p.note(676, 52, "no thread waits for another", size=text)
    wide, scale, top = 64, 0.8, 108
    x = {"Q": 430, "K": 520, "V": 764, "O": 854}
    for name, rows in (("Q", br), ("K", bc), ("V", bc), ("O", br)):
        p.rect(x[name], top, wide, rows * scale, "c0")
        p.label(x[name] + wide / 2, top - 12, f"{name}_smem", text)
        p.note(x[name] + wide / 2, top + bc * scale + 22, f"{rows} rows", size=text)
    row = top + THREAD * scale * 2  # drawn lower and higher than to scale
    band = top + 96
    for name in "QO":
        p.rect(x[name], row, wide, 8, "c2")
        p.note(x[name] + wide / 2, row + 26, f"row {THREAD}", size=14)
    for name in "KV":
        p.rect(x[name], band, wide, 20, "c1")
        p.note(x[name] + wide / 2, band + 38, f"{GROUP} rows", size=14)
    at, room = 612, 124
    p.rect(at, top - 2, room, 152, "c3")
    p.label(at + room / 2, top + 22, "registers", text, bold=True)
    for n, line in enumerate(("m, ℓ of the row", f"S: {GROUP} scores", "m̃, ℓ̃ of the tile", f"P̃V: {WIDTH} sums")):
        p.label(at + room / 2, top + 50 + 26 * n, line, text)
    over(p, x["Q"] + wide + 2, x["K"] - 13, row + 4, top - 6, at - 14, at - 4)
    p.arrow(x["K"] + wide + 2, band + 10, at - 4, band + 10)
    p.arrow(x["V"] - 2, band + 10, at + room + 4, band + 10)
    over(p, at + room + 2, at + room + 12, row + 4, top - 6, x["O"] - 13, x["O"] - 4)
    p.note(676, top + bc * scale + 62, f"All threads read the same {GROUP} keys and values: one access serves a warp.", size=text)
    p.note(676, top + bc * scale + 84, "Rows of Q and O are read and written by their owners alone.", size=text)
    return p


def phases_05():
    """The same map of a block's memory in each phase: what two threads read and write."""
    (br, bc), text = tiles("05_fa1_backward", "shared memory of a block", 2), 15
    other = bc + THREAD
    p = Picture(980, 528, f"What threads {THREAD} and {other} of a block read and write in the phases A, B and C of one iteration")
    wide, gap, panel = 60, 12, 326
    scale = 0.8
    high = dict.fromkeys(("K", "V", "dK", "dV"), bc * scale) | dict.fromkeys(("Q", "dO", "P", "dS", "O", "dQ"), br * scale)
    places = {
        "K": (0, 0),
        "V": (1, 0),
        "dK": (2, 0),
        "dV": (3, 0),
        "Q": (0, 1),
        "dO": (1, 1),
        "P": (2, 1),
        "dS": (3, 1),
        "O": (0, 2),
        "dQ": (1, 2),
    }
    tops = (92, 178, 330)
    own = (THREAD, other)  # rows of the Q tile
    phases = [
        (
            "A: rows of P and dS",
            "a thread owns a row of the Q tile",
            {"Q": "read", "dO": "read", "O": "read", "P": "write", "dS": "write"},
            ("K", "V"),
        ),
        ("B: rows of dQ", "a thread owns a row of the Q tile", {"dS": "read", "dQ": "add"}, ("K",)),
        ("C: rows of dV and dK", "a thread owns a row of the K tile", {"dV": "add", "dK": "add", "P": "read", "dS": "read"}, ("Q", "dO")),
    ]
    kinds = {"read": "c1", "write": "c2", "add": "c2"}
    for n, (title, subtitle, rows, by_all) in enumerate(phases):
        left = 14 + n * panel
        p.label(left + 138, 28, title, 16, bold=True)
        p.note(left + 138, 50, subtitle, size=text)
        for name, (column, line) in places.items():
            x, y = left + column * (wide + gap), tops[line]
            p.rect(x, y, wide, high[name], "c3" if name in by_all else "c0")
            p.label(x + wide / 2, y - 6, name, text)
            does = "all" if name in by_all else rows.get(name)
            columns = n == 2 and does == "read"
            if columns:
                p.rect(x + THREAD * wide / bc - 3, y, 6, high[name], kinds[does])
            elif does in kinds:
                for row in own[:1] if n == 2 else own:
                    p.rect(x, y + row * scale - 3, wide, 6, kinds[does])
            if does:
                p.label(x + wide / 2 + 10.5 * columns, y + high[name] / 2 + (12 if n == 2 and does == "add" else 5), does, text)
        p.note(left + 2 * (wide + gap), tops[2] + 46, "in HBM", size=text, anchor="start")
        if n:
            p.line(left - 24, 14, left - 24, 436, "thin")
    p.note(
        490,
        466,
        f"Threads {THREAD} and {other} read blue bars, and write or add to orange ones. All threads read the same rows of green tiles.",
        f"In A and B they own rows {THREAD} and {other} of the Q tile. In C thread {THREAD} adds to row {THREAD} of dV what it computes",
        f"from P and dO, and thread {other} adds to row {THREAD} of dK what it computes from dS and Q.",
        size=text,
    )
    return p


PICTURES = [attention_tiles, cycles_04, cycles_05, owners_04, phases_05]
