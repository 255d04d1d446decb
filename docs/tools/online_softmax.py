"""Of docs/03_online_softmax.md: the merge of two sets of scores."""

from math import exp

from .svg import Picture


def merge():
    a, b = [0.6, 1.7, 1.1], [2.6, 1.9, 0.9, 2.2]
    p = Picture(820, 282, "Merging the statistics of two sets of scores")
    height, width, base = 130, 30, 210

    def bars(x, scores, m, kind):
        for n, s in enumerate(scores):
            h = height * exp(s - m)
            p.rect(x + n * (width + 6), base - h, width, h, kind)
            p.note(x + n * (width + 6) + width / 2, base + 18, f"{s:g}", size=12)
        p.line(x - 8, base, x + len(scores) * (width + 6) + 2, base)

    ma, mb = max(a), max(b)
    m = max(ma, mb)
    la, lb = sum(exp(s - ma) for s in a), sum(exp(s - mb) for s in b)
    union = f"{la:.2f} · e^({ma:g} − {m:g}) + {lb:.2f} = {la * exp(ma - m) + lb:.2f}"
    for x, name, largest, l in [(100, "set a", ma, f"{la:.2f}"), (320, "set b", mb, f"{lb:.2f}"), (630, "union", m, union)]:
        p.label(x, 30, name, 15, bold=True)
        p.label(x, 52, f"m = {largest:g},  l = {l}")
    bars(46, a, ma, "c1")
    p.label(200, 150, "⊕", 24)
    bars(248, b, mb, "c3")
    p.label(430, 150, "=", 24)
    bars(494, a, m, "c1")
    bars(494 + 3 * (width + 6), b, m, "c3")
    p.line(30, base - height, 790, base - height, "thin")
    p.note(24, base - height + 4, "1", size=12, anchor="end")
    p.note(410, 262, "Bars: e^(s − m) of each score s. The bars of set a shrink together, by one factor, so their sum does too.")
    return p


PICTURES = [merge]
