"""The row of scores 1, 2, 4, 0 as chapters carry it along: what their typed tables should say. Gradients are also
compared with central differences."""

import math

from typed_tables import table


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


SCORES = [[1, 2, 4, 0], [3, 0, 1, 2]]  # (4.1): q k / sqrt(4)


@table("chapters/03_online_softmax.md", "of all so far")
def online(rows):
    m, l = -math.inf, 0.0
    for at, s in enumerate(SCORES[0]):
        before, m = m, max(m, s)
        l = l * math.exp(before - m) + math.exp(s - m)
        yield s, m, math.exp(before - m), math.exp(s - m), l, sum(math.exp(x - m) for x in SCORES[0][: at + 1])


def merged(scores):
    """(4.2) to (4.4), tile by tile, as lines of the page. The values are unit vectors: a row of O is a row of P."""
    m, l, o = -math.inf, 0.0, [0.0] * 4
    for first in (0, 2):
        s = scores[first : first + 2]
        tile_m, before = max(s), m
        p = [math.exp(x - tile_m) for x in s]
        pv = [0.0] * first + p + [0.0] * (2 - first)
        m = max(m, tile_m)
        old, new, total = math.exp(before - m), math.exp(tile_m - m), l
        l = old * l + new * sum(p)
        o = [(total * old * a + new * b) / l for a, b in zip(o, pv)]
        yield s, tile_m, p, sum(p), pv, m, old, new, l, [l * x for x in o], o
    assert all(abs(math.exp(s - m) / l - x) < 1e-12 and abs(sum(math.exp(t - m) for t in scores) - l) < 1e-12 for s, x in zip(scores, o))


@table("chapters/04_fa1_forward.md", "tile 0: keys 0, 1")
def by_hand(rows):
    yield from zip(*(tile for scores in SCORES for tile in merged(scores)))


@table("chapters/09_many_attentions.md", "weight with the cap")
def softcap(rows):
    c, scores = 2, SCORES[0]
    capped = [c * math.tanh(s / c) for s in scores]
    plain, bounded = (sum(map(math.exp, row)) for row in (scores, capped))
    for s, f in zip(scores, capped):
        yield s, math.exp(s) / plain, f, math.exp(f) / bounded, 1 - (f / c) ** 2, 1 - (s / c) ** 2


@table("chapters/06_fa2_forward.md", "tile 0: keys 0, 1")
def queries_outside(rows):
    """(6.2) to (6.5), both queries side by side."""
    columns = []
    for scores in SCORES:
        m, l, o = -math.inf, 0.0, [0.0] * 4
        for first in (0, 2):
            s, before = scores[first : first + 2], m
            m = max(m, *s)
            alpha, p = math.exp(before - m), [math.exp(x - m) for x in s]
            l = alpha * l + sum(p)
            o = [alpha * a + b for a, b in zip(o, [0.0] * first + p + [0.0] * (2 - first))]
            columns.append((s, m, alpha, p, l, o, [x / l for x in o] if first else "", m + math.log(l) if first else ""))
    yield from zip(*columns)


def gradients(scores_of, q, values, dO, tau, keys):
    """(5.1) to (5.6) of one row, and those of q and of a component of each key by central differences."""

    def row(q, keys):
        s = scores_of(q, keys)
        p = [math.exp(x) / sum(map(math.exp, s)) for x in s]
        return p, product([p], values)[0]

    def loss(q, keys):
        return sum(x * g for x, g in zip(row(q, keys)[1], dO))

    def slope(change, step=1e-5):
        return (loss(*change(step)) - loss(*change(-step))) / (2 * step)

    p, o = row(q, keys)
    dP = [sum(g * x for g, x in zip(dO, v)) for v in values]
    D = sum(a * b for a, b in zip(p, dP))
    dS = [a * (b - D) for a, b in zip(p, dP)]
    dQ = [tau * x for x in product([dS], keys)[0]]
    dK = [tau * x * q[0] for x in dS]
    by_q = [slope(lambda h, c=c: ([x + h * (n == c) for n, x in enumerate(q)], keys)) for c in range(4)]
    nudged = [lambda h, j=j: (q, [[x + h * (n == j and c == 0) for c, x in enumerate(k)] for n, k in enumerate(keys)]) for j in range(4)]
    assert all(abs(x - y) < 1e-8 for x, y in zip(dQ + dK, by_q + list(map(slope, nudged)))), "not what finite differences give"
    return p, o, dP, dS, dQ, dK


def row_by_hand():
    keys, values = [[1, 3, 0, 0], [2, 0, 0, 0], [4, 1, 0, 0], [0, 2, 0, 0]], [[int(i == j) for j in range(4)] for i in range(4)]
    tau, dO = 0.5, [1, 0, 0, 0]
    scores = lambda q, k: [tau * x for x in product([q], list(zip(*k)))[0]]  # noqa: E731
    return dO, *gradients(scores, [2, 0, 0, 0], values, dO, tau, keys)


@table("chapters/05_fa1_backward.md", "sum of the row")
def row_over_keys(rows):
    dO, p, _, dP, dS, _, dK = row_by_hand()
    weighted = [a * b for a, b in zip(p, dP)]
    yield *p, sum(p)
    yield *dP, ""
    yield *weighted, sum(weighted)
    yield *dS, abs(sum(dS))
    yield *dK, abs(sum(dK))
    yield *(x * dO[0] for x in p), sum(p)


@table("chapters/05_fa1_backward.md", "sum of the columns")
def row_over_columns(rows):
    dO, _, o, _, _, dQ, _ = row_by_hand()
    by_columns = [a * b for a, b in zip(dO, o)]
    yield *by_columns, sum(by_columns)
    yield *dQ, ""


@table("chapters/07_fa2_backward.md", "block of keys 0, 1")
def two_owners(rows):
    """(7.1) to (7.6) of the same row, two keys per block."""
    keys, s = [[1, 3], [2, 0], [4, 1], [0, 2]], SCORES[0]
    L, tau, q0 = math.log(sum(map(math.exp, s))), 0.5, 2
    P, dP = [math.exp(x - L) for x in s], [1, 0, 0, 0]
    dS = [p * (g - P[0]) for p, g in zip(P, dP)]
    dK = [tau * x * q0 for x in dS]
    blocks = [slice(0, 2), slice(2, 4)]
    for values in (s, P, dP, dS, P, dK):
        yield [values[block] for block in blocks]
    yield [[tau * sum(x * k[c] for x, k in zip(dS[block], keys[block])) for c in (0, 1)] for block in blocks]


@table("reference/decode.md", "part 0: keys 0, 1")
def two_parts(rows):
    """(K.3)"""
    s = SCORES[0]
    sums = [sum(map(math.exp, part)) for part in (s[:2], s[2:], s)]
    yield map(math.log, sums)
    yield sums[0] / sums[2], sums[1] / sums[2], 1
    weights = list(map(math.exp, s))
    yield [w / sums[0] for w in weights[:2]] + [0, 0], [0, 0] + [w / sums[1] for w in weights[2:]], [w / sums[2] for w in weights]
