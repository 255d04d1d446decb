"""Of docs/layouts.md: the order of elements in memory."""

from .svg import Picture


def layouts():
    heads, n = range(2), range(3)
    p = Picture(900, 344, "The order of elements in memory for four layouts")
    cell, left = 40, 130
    p.note(left, 26, f"one batch, H = Hkv = {len(heads)} heads, N = {len(n)} rows; a cell is one row of d elements: head.row", anchor="start")
    strips = [  # with the cells of one row of Q or K to the next
        ("bhnd", [(h, f"{h}.{i}") for h in heads for i in n], 1, "row stride d"),
        ("bnhd", [(h, f"{h}.{i}") for i in n for h in heads], 2, "row stride H d"),
        ("qkv", [(h if t == "Q" else None, f"{t}{h}.{i}") for i in n for t in "QKV" for h in heads], 6,
         "row stride 3 H d, from one row of Q to the next"),
        ("kv", [(h if t == "K" else None, f"{t}{h}.{i}") for i in n for t in "KV" for h in heads], 4,
         "row stride 2 Hkv d, from one row of K to the next"),
    ]  # fmt: skip
    for at, (name, cells, count, stride) in enumerate(strips):
        y = 44 + 74 * at
        p.label(left - 14, y + 25, name, 15, "end", bold=True)
        for k, (head, text) in enumerate(cells):
            p.box(left + k * cell, y, cell, cell, "c0" if head is None else ["c1", "c3"][head], text, 12)
        x = left + cell / 2
        p.arrow(x, y + 48, x + count * cell, y + 48)
        p.note(x, y + 63, stride, size=12, anchor="start")
    p.note(left + 6 * cell + 20, 69, "a head's rows are adjacent", anchor="start")
    p.note(left + 6 * cell + 20, 143, "a token's heads are adjacent", anchor="start")
    return p


PICTURES = [layouts]
