"""The picture of the index: which chapter needs which, and how long each takes. Keep the times as the chapters give them."""

from docs.tools.svg import Picture

WIDE, HIGH, COLUMNS, TOP, STEP = 186, 52, (92, 310, 528), 40, 74
# (column, row, class, title, subject, time)
CHAPTERS = {
    "cuda": (0, 0, "c0", "CUDA", "from zero", "2 h"),
    "00": (1, 0, "c0", "00", "introduction", "40 min"),
    "01": (0, 1, "c1", "01", "naive", "2.5 h"),
    "02": (0, 2, "c1", "02, 03", "softmax", "2 h"),
    "04": (0, 3, "c1", "04", "FA-1", "2 h"),
    "06": (0, 4, "c1", "06, 06b", "FA-2", "4.5 h"),
    "08": (0, 5, "c2", "08", "tensor cores", "4 h"),
    "08H": (0, 6, "c3", "08H", "instruments", "an evening"),
    "08F": (0, 7, "c3", "08H", "forward", "an evening"),
    "05": (1, 3, "c1", "05", "FA-1", "2 h"),
    "07": (1, 4, "c1", "07", "FA-2", "2.5 h"),
    "08b": (1, 5, "c2", "08", "tensor cores", "2 h"),
    "08B": (1, 7, "c3", "08B", "backward", "an evening"),
    "09": (2, 4, "c1", "09", "options", "2 to 3 h"),
}

# Which chapter needs the one before it: in its column, and to its left or right.
ALONG = [(a, b) for row in (["cuda", "01", "02", "04", "06", "08", "08H", "08F"], ["05", "07", "08b", "08B"]) for a, b in zip(row, row[1:])]
ACROSS = [("00", "cuda"), ("04", "05"), ("06", "07"), ("08", "08b"), ("08F", "08B"), ("07", "09")]


def place(name):
    column, row, *_ = CHAPTERS[name]
    return COLUMNS[column], TOP + STEP * row


def road():
    p = Picture(720, "Which chapter needs which: the forward chapters left, the backward chapters right, with their times")
    for column, text in enumerate(("forward", "backward")):
        p.label(COLUMNS[column] + WIDE / 2, 26, text, 18, bold=True)
    for first, last, lines in ((1, 4, ("fp32,", "any GPU", "or none")), (5, 5, ("16 bits",)), (6, 7, ("16 bits,", "Hopper"))):
        y1, y2 = TOP + STEP * first, TOP + STEP * last + HIGH
        p.line(COLUMNS[0] - 10, y1, COLUMNS[0] - 10, y2)
        for n, line in enumerate(lines):
            p.label(6, (y1 + y2) / 2 + 6 - 11 * (len(lines) - 1) + 22 * n, line, anchor="start")
    for name, (_, _, kind, title, what, time) in CHAPTERS.items():
        x, y = place(name)
        p.rect(x, y, WIDE, HIGH, kind)
        p.label(x + WIDE / 2, y + 22, f"{title}  {what}")
        p.label(x + WIDE / 2, y + 44, time)
    for a, b in ALONG:
        (x, y1), (_, y2) = place(a), place(b)
        p.arrow(x + WIDE / 2, y1 + HIGH, x + WIDE / 2, y2 - 1)
    for a, b in ACROSS:
        (x1, y), (x2, _) = place(a), place(b)
        p.arrow(*((x1 + WIDE, y + HIGH / 2, x2 - 1, y + HIGH / 2) if x1 < x2 else (x1, y + HIGH / 2, x2 + WIDE + 1, y + HIGH / 2)))
    p.caption("An arrow points from each chapter to those that build on it. Times are for reading, not for all exercises.")
    return p


PICTURES = [road]
