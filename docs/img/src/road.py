"""The picture of the index: which chapter needs which, and how long each takes. Keep the times as the chapters give them."""

from docs.tools.svg import Picture

WIDE, HIGH, GAP, LEFT, ROWS = 94, 74, 16, 8, (62, 178, 294)
# (column, row, class, title, subject, time)
CHAPTERS = {
    "cuda": (0, 0, "c0", "CUDA", "from zero", "2 h"),
    "00": (0, 1, "c0", "00", "introduction", "40 min"),
    "01": (1, 0, "c1", "01", "naive", "2.5 h"),
    "02": (2, 0, "c1", "02, 03", "softmax", "2 h"),
    "04": (3, 0, "c1", "04", "FA-1", "2 h"),
    "06": (4, 0, "c1", "06, 06b", "FA-2", "4.5 h"),
    "08": (5, 0, "c2", "08", "tensor cores", "4 h"),
    "08H": (6, 0, "c3", "08H", "instruments", "an evening"),
    "08F": (7, 0, "c3", "08H", "forward", "an evening"),
    "05": (3, 1, "c1", "05", "FA-1", "2 h"),
    "07": (4, 1, "c1", "07", "FA-2", "2.5 h"),
    "08b": (5, 1, "c2", "08", "tensor cores", "2 h"),
    "08B": (7, 1, "c3", "08B", "backward", "an evening"),
    "09": (4, 2, "c1", "09", "options", "2 to 3 h"),
}

# Which chapter needs the one before it: in its row, and above it.
ALONG = [(a, b) for row in (["cuda", "01", "02", "04", "06", "08", "08H", "08F"], ["05", "07", "08b", "08B"]) for a, b in zip(row, row[1:])]
DOWN = [("04", "05"), ("06", "07"), ("08", "08b"), ("08F", "08B"), ("07", "09")]


def place(name):
    column, row, *_ = CHAPTERS[name]
    return LEFT + column * (WIDE + GAP), ROWS[row]


def road():
    p = Picture(880, 392, "Which chapter needs which: the forward chapters above, the backward chapters below, with their times")
    for first, last, text in ((1, 4, "fp32, any GPU or none"), (5, 5, "16 bits"), (6, 7, "16 bits, Hopper")):
        x1, x2 = LEFT + first * (WIDE + GAP), LEFT + last * (WIDE + GAP) + WIDE
        p.label((x1 + x2) / 2, 24, text, 14, bold=True)
        p.line(x1, 34, x2, 34)
    p.label(LEFT + 2 * (WIDE + GAP) + WIDE, ROWS[1] + HIGH / 2 + 5, "backward:", 14, "end", bold=True)
    p.label(LEFT + 1 * (WIDE + GAP), 54, "forward:", 14, "start", bold=True)
    for name, (_, _, kind, title, what, time) in CHAPTERS.items():
        x, y = place(name)
        p.rect(x, y, WIDE, HIGH, kind)
        p.label(x + WIDE / 2, y + 22, title, 14, bold=True)
        p.label(x + WIDE / 2, y + 42, what, 13)
        p.label(x + WIDE / 2, y + 62, time, 13, kind="dim" if kind == "c0" else "fg")
    for a, b in ALONG:
        (x1, y1), (x2, _) = place(a), place(b)
        p.arrow(x1 + WIDE, y1 + HIGH / 2, x2 - 1, y1 + HIGH / 2)
    for a, b in DOWN:
        (x, y1), (_, y2) = place(a), place(b)
        p.arrow(x + WIDE / 2, y1 + HIGH, x + WIDE / 2, y2 - 1)
    x, y = place("00")
    p.arrow(x + WIDE / 2, y, x + WIDE / 2, ROWS[0] + HIGH + 1)
    p.note(
        LEFT,
        ROWS[2] + 36,
        "An arrow points from each chapter to those that build on it.",
        "Times are for reading, not for all exercises.",
        anchor="start",
    )
    return p


PICTURES = [road]
