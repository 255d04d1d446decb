"""The pictures of docs/reference/numerics.md, decode.md, beyond_one_gpu.md and docs/howto/debugging.md."""

from math import sqrt

from docs.tools.svg import Picture


def chains():
    """Partial sums of 16 random terms, in one chain and in four: an addition's rounding error is a fixed share of its bar."""
    p = Picture(720, "Sixteen terms added in one chain and in four chains of four: the partial sums of short chains stay small")
    base, unit, wide = 236, 42, 16
    for left, title, groups in [(14, "one chain of 16", [16]), (340, "four chains of 4, then their sums", [4, 4, 4, 4])]:
        p.label(left + (130 if groups == [16] else 180), 30, title, 18, bold=True)
        x = left
        for terms in groups:
            for k in range(1, terms + 1):
                p.rect(x, base - unit * sqrt(k), wide - 3, unit * sqrt(k), "c1")
                x += wide
            x += 6 if len(groups) > 1 else 0
        if len(groups) > 1:
            for k in range(2, len(groups) + 1):
                p.rect(x, base - unit * sqrt(4 * k), wide - 3, unit * sqrt(4 * k), "c2")
                x += wide
        p.line(left - 6, base, x + 4, base)
    p.note(140, base + 24, "15 additions, the late", "ones to large sums")
    p.note(450, base + 24, "12 additions to small sums")
    p.note(644, base + 24, "3 to large")
    p.caption(
        "A bar is the typical size of the sum after one more term, √k for k terms of size 1. Rounding it costs a fixed share of its height."
    )
    return p


def which_tensor():
    """Which results depend on which, and the tensor that is wrong first."""
    p = Picture(720, "The results of attention in the order in which they depend on each other", "Which results depend on which")
    wide, high = 88, 42
    at = {
        "S": (20, 70),
        "m, ℓ → L": (152, 70),
        "O": (294, 70),
        "P": (152, 176),
        "dV": (294, 176),
        "dP": (152, 278),
        "dS": (450, 232),
        "D": (450, 70),
        "dQ": (610, 190),
        "dK": (610, 278),
    }
    edges = [
        ("S", "m, ℓ → L"),
        ("m, ℓ → L", "O"),
        ("m, ℓ → L", "P"),
        ("P", "dV"),
        ("O", "D"),
        ("D", "dS"),
        ("P", "dS"),
        ("dP", "dS"),
        ("dS", "dQ"),
        ("dS", "dK"),
    ]
    saved = {"m, ℓ → L", "O", "dV", "dQ", "dK"}
    for start, end in edges:
        (x1, y1), (x2, y2) = at[start], at[end]
        if x1 == x2:
            p.arrow(x1 + wide / 2, y1 + high, x2 + wide / 2, y2)
        elif (start, end) == ("P", "dS"):
            p.line(x1 + wide, y1 + high - 3, 430, y2 + high / 2 - 8)
            p.arrow(430, y2 + high / 2 - 8, x2, y2 + high / 2 - 8)
        else:
            p.arrow(x1 + wide, y1 + high / 2, x2, y2 + high / 2 + (8 if (start, end) == ("dP", "dS") else 0))
    for name, (x, y) in at.items():
        p.box(x, y, wide, high, {"m, ℓ → L": "c0", "D": "c0"}.get(name, name.lower()), name)
        if name in saved:
            p.rect(x + 2, y + 2, wide - 4, high - 4, "strong")
    for x, y, others in [(64, 60, "Q, K, mask"), (338, 60, "V"), (494, 60, "dO"), (338, 166, "dO"), (196, 340, "dO, V")]:
        p.note(x, y, others)
    p.caption("Framed: what the program writes and a test can compare. The mistake comes before the first framed box that is wrong.")
    return p


def split_keys():
    """Keys of a decode step on the blocks of a GPU, with one block per head and with splits."""
    p = Picture(
        720, "A decode step of 32 heads on 8 heads of keys: one block per query head leaves most SMs idle, splits give every SM a block"
    )
    heads, splits, long, high = 8, 16, 320, 20
    for left, title, parts, notes in [
        (32, "one block per query head", 1, ("32 blocks on 132 SMs: four", "read all keys of each head")),
        (388, f"each head's keys in {splits} splits", splits, (f"{heads * splits} blocks on 132 SMs; a", "second kernel merges each row")),
    ]:
        p.label(left + long / 2, 28, title, 18, bold=True)
        for h in range(heads):
            y = 46 + 26 * h
            for s in range(parts):
                p.rect(left + long / parts * s, y, long / parts - (3 if parts > 1 else 0), high, "k")
            if parts == 1:
                p.note(left - 8, y + 16, f"{h}", anchor="end")
        p.arrow(left, 262, left + long, 262)
        p.note(left + long / 2, 284, "keys")
        p.note(left + long / 2, 312, *notes)
    return p


def placement():
    """Which rank computes which visible parts of the scores in which step, for two ranks and a causal mask."""
    p = Picture(
        720, "Two ranks and a causal mask: with plain placement rank 1 has all the work of the second step, with zigzag both have half"
    )
    cell, top = 58, 80
    for left, title, ranks, work in [
        (122, "plain", (0, 0, 1, 1), ("step 0: both ranks 2", "step 1: only rank 1, 4")),
        (482, "zigzag", (0, 1, 1, 0), ("step 0: both ranks 2", "step 1: both ranks 2")),
    ]:
        p.label(left + 2 * cell, 26, title, 18, bold=True)
        p.note(left + 2 * cell, 50, "parts of the keys")
        for i, rank in enumerate(ranks):
            p.note(left - 8, top + cell * i + 26, f"queries {i},", f"rank {rank}", anchor="end")
            p.note(left + cell * (i + 0.5), top - 8, f"{i}")
            for j, other in enumerate(ranks):
                x, y = left + cell * j, top + cell * i
                p.rect(x, y, cell - 3, cell - 3, "c0" if j > i else "s" if rank == other else "hit")
                if j <= i:
                    p.label(x + cell / 2 - 2, y + 34, "½" if i == j else "1", 18)
        p.note(left + 2 * cell, top + 4 * cell + 22, *work)
    p.legend(("s", "step 0: the rank's own keys"), ("hit", "step 1: the other's"))
    p.caption("Numbers: visible parts of the scores.")
    return p


PICTURES = [chains, which_tensor, split_keys, placement]
