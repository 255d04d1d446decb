"""The picture of the index: which chapter needs which, and how long each takes, by the chapters' own lines where they have one."""

import re

from docs.lab.typed_tables import PAGES
from docs.tools.svg import Picture

WIDE, HIGH, COLUMNS, TOP, STEP = 166, 50, (6, 187, 368, 548), 40, 66
# (column, row, class, title, page, time if the page says none)
CHAPTERS = {
    "00": (1, 0, "c0", "00 introduction", "00_introduction", "40 min"),
    "cuda": (0, 1, "c0", "CUDA from zero", "cuda_from_zero", "2 h"),
    "01": (1, 1, "c1", "01 naive", "01_naive", "1.5 h"),
    "02": (1, 2, "c1", "02 safe softmax", "02_safe_softmax", "1 h"),
    "03": (1, 3, "c1", "03 online softmax", "03_online_softmax", "1 h"),
    "04": (1, 4, "c1", "04 FA-1", "04_fa1_forward", ""),
    "05": (2, 4, "c1", "05 FA-1", "05_fa1_backward", ""),
    "06b": (0, 5, "c1", "06b fast product", "06b_fast_product", ""),
    "06": (1, 5, "c1", "06 FA-2", "06_fa2_forward", ""),
    "07": (2, 5, "c1", "07 FA-2", "07_fa2_backward", ""),
    "09": (3, 5, "c1", "09 variants", "09_many_attentions", ""),
    "08": (1, 6, "c2", "08 tensor cores", "08_tensor_cores", ""),
    "08b": (2, 6, "c2", "08 tensor cores", "08_tensor_cores_backward", ""),
    "08H": (1, 7, "c3", "08H instruments", "08h_instruments", ""),
    "08F": (1, 8, "c3", "08H forward", "08_hopper_forward", ""),
    "08B": (2, 8, "c3", "08B backward", "08_hopper_backward", ""),
}
TIMES = {"an hour and a half": "1.5 h", "two hours": "2 h", "two and a half hours": "2.5 h", "an evening": "an evening"}

# Which chapter needs the one before it: in its column, and to its left or right.
ALONG = [
    (a, b) for row in (["00", "01", "02", "03", "04", "06", "08", "08H", "08F"], ["05", "07", "08b", "08B"]) for a, b in zip(row, row[1:])
]
ACROSS = [("cuda", "01"), ("04", "05"), ("06", "06b"), ("06", "07"), ("08", "08b"), ("08F", "08B"), ("07", "09")]


def place(name):
    column, row, *_ = CHAPTERS[name]
    return COLUMNS[column], TOP + STEP * row


def time_of(page, otherwise):
    said = re.search(rf"\*\*Time:\*\* ({'|'.join(TIMES)})", (PAGES / f"chapters/{page}.md").read_text())
    return TIMES[said[1]] if said else otherwise


def road():
    p = Picture(720, "Which chapter needs which, with times: forward, backward to the right, side roads to the left")
    for column, text in enumerate(("side road", "forward", "backward", "further")):
        p.label(COLUMNS[column] + WIDE / 2, 26, text, 18, bold=True)
    for name, (_, _, kind, title, page, time) in CHAPTERS.items():
        x, y = place(name)
        p.rect(x, y, WIDE, HIGH, kind)
        p.label(x + WIDE / 2, y + 21, title)
        p.label(x + WIDE / 2, y + 43, time_of(page, time))
    for a, b in ALONG:
        (x, y1), (_, y2) = place(a), place(b)
        p.arrow(x + WIDE / 2, y1 + HIGH, x + WIDE / 2, y2 - 1)
    for a, b in ACROSS:
        (x1, y), (x2, _) = place(a), place(b)
        p.arrow(*((x1 + WIDE, y + HIGH / 2, x2 - 1, y + HIGH / 2) if x1 < x2 else (x1, y + HIGH / 2, x2 + WIDE + 1, y + HIGH / 2)))
    (x, y), to = place("06b"), [COLUMNS[2] + WIDE / 4, COLUMNS[3] + WIDE / 2]  # dashed, above the boxes between them
    p.line(x + WIDE / 2, y, x + WIDE / 2, y - 12)
    for dash in range(round(x + WIDE / 2), round(to[1]), 9):
        p.line(dash, y - 12, dash + 5, y - 12)
    for at in to:
        p.arrow(at, y - 12, at, y - 1)
    p.legend(("c1", "fp32: any GPU, or none"), ("c2", "16 bits"), ("c3", "16 bits, Hopper"))
    p.caption("An arrow points from each chapter to those that build on it, dashed if a part does. Times: reading, not all exercises.")
    return p


PICTURES = [road]
