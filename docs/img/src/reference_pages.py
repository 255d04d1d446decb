"""The pictures of docs/reference/numerics.md, decode.md, beyond_one_gpu.md, docs/howto/debugging.md and profiling.md."""

from math import sqrt

from docs.tools.svg import Picture


def chains():
    """Partial sums of 16 random terms, in one chain and in four: an addition's rounding error is a fixed share of its bar."""
    p = Picture(900, 330, "Sixteen terms added in one chain and in four chains of four: the partial sums of short chains stay small")
    base, unit, wide = 250, 42, 20
    for left, title, groups in [(40, "one chain of 16", [16]), (480, "four chains of 4, then their sums", [4, 4, 4, 4])]:
        p.label(left + 190, 32, title, 16, bold=True)
        x = left
        for terms in groups:
            for k in range(1, terms + 1):
                p.rect(x, base - unit * sqrt(k), wide - 4, unit * sqrt(k), "c1")
                x += wide
            x += 6 if len(groups) > 1 else 0
        if len(groups) > 1:
            for k in range(2, len(groups) + 1):
                p.rect(x, base - unit * sqrt(4 * k), wide - 4, unit * sqrt(4 * k), "c2")
                x += wide
        p.line(left - 6, base, x + 4, base)
    p.note(200, base + 22, "15 additions, the late ones to large sums", size=14)
    p.note(610, base + 22, "12 additions to small sums", size=14)
    p.note(842, base + 22, "3 to large ones", size=14)
    p.note(
        450,
        305,
        "A bar is the typical size of the sum after one more term, √k for k terms of size 1. Rounding it costs a fixed share of its height.",
    )
    return p


def which_tensor():
    """Which results depend on which, and the tensor that is wrong first."""
    p = Picture(900, 382, "The results of attention in the order in which they depend on each other")
    p.label(450, 24, "Which results depend on which", 17, bold=True)
    wide, high = 96, 40
    at = {
        "S": (40, 60),
        "m, ℓ → L": (200, 60),
        "O": (360, 60),
        "P": (200, 160),
        "dV": (360, 160),
        "dP": (200, 256),
        "dS": (520, 216),
        "D": (520, 60),
        "dQ": (700, 176),
        "dK": (700, 256),
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
            p.line(x1 + wide, y1 + high - 3, 500, y2 + high / 2 - 8)
            p.arrow(500, y2 + high / 2 - 8, x2, y2 + high / 2 - 8)
        else:
            p.arrow(x1 + wide, y1 + high / 2, x2, y2 + high / 2 + (8 if (start, end) == ("dP", "dS") else 0))
    for name, (x, y) in at.items():
        p.box(x, y, wide, high, "c3" if name in saved else "c0", name, 16)
        if name in saved:
            p.rect(x + 2, y + 2, wide - 4, high - 4, "strong")
    for x, y, others in [(88, 48, "Q, K, mask"), (408, 48, "V"), (568, 48, "dO"), (408, 152, "dO"), (248, 314, "dO, V")]:
        p.note(x, y, others, size=15)
    p.note(
        450,
        344,
        "Framed: what the program writes and a test can compare.",
        "The mistake comes before the first framed box that is wrong.",
        size=15,
    )
    return p


def five_questions():
    """The questions to a profile, and what each answer leads to."""
    p = Picture(900, 372, "Five questions to a profile, each with what to do if its answer is the limit")
    rows = [
        ("1. Are the tensor cores busy?", "yes", "done, unless products are computed twice or masked"),
        ("2. Are instructions issued?", "yes", "fewer instructions besides the products"),
        ("3. What do warps wait for?", "a reason", "its row in the table of stall reasons"),
        ("4. Does shared memory keep up?", "no", "swizzle, larger register tiles, wider loads"),
        ("5. Does HBM keep up?", "no", "fewer bytes, another order of the blocks"),
    ]
    for n, (question, answer, cure) in enumerate(rows):
        y = 20 + 66 * n
        p.box(40, y, 290, 40, "c1", question, 15)
        p.arrow(330, y + 20, 440, y + 20)
        p.label(382, y + 13, answer, 12)
        p.box(440, y, 420, 40, "c3", cure, 14)
        if n < len(rows) - 1:
            p.arrow(185, y + 40, 185, y + 66)
            if n < 2:
                p.label(197, y + 57, "no", 12, "start")
    p.note(450, 356, "Questions 4 and 5 are asked in any case if 3 names a wait for memory.")
    return p


def split_keys():
    """Keys of a decode step on the blocks of a GPU, with one block per head and with splits."""
    p = Picture(
        900,
        330,
        "A decode step of 32 heads on 8 heads of keys: one block per query head leaves most SMs idle, splits give every SM a block",
    )
    heads, splits, long, high = 8, 16, 360, 20
    for left, title, parts in [(50, "one block per query head", 1), (490, f"each head's keys in {splits} splits", splits)]:
        p.label(left + long / 2, 32, title, 16, bold=True)
        for h in range(heads):
            y = 58 + 26 * h
            for s in range(parts):
                p.rect(left + long / parts * s, y, long / parts - (3 if parts > 1 else 0), high, "c1")
            if left == 50:
                p.note(left - 8, y + 15, f"{h}", size=14, anchor="end")
        p.arrow(left, 282, left + long, 282)
        p.note(left + long / 2, 277, "keys", size=14)
    p.note(230, 306, "32 blocks on 132 SMs: four read all keys of each head")
    p.note(670, 306, f"{heads * splits} blocks on 132 SMs; a second kernel merges each row")
    return p


def placement():
    """Which rank computes which visible parts of the scores in which step, for two ranks and a causal mask."""
    p = Picture(
        900, 392, "Two ranks and a causal mask: with plain placement rank 1 has all the work of the second step, with zigzag both have half"
    )
    cell, top = 62, 84
    for left, title, ranks, work in [
        (146, "plain", (0, 0, 1, 1), ("step 0: both ranks 2", "step 1: only rank 1, 4")),
        (592, "zigzag", (0, 1, 1, 0), ("step 0: both ranks 2", "step 1: both ranks 2")),
    ]:
        p.label(left + 2 * cell, 28, title, 16, bold=True)
        p.note(left + 2 * cell, 52, "parts of the keys", size=14)
        for i, rank in enumerate(ranks):
            p.note(left - 10, top + cell * i + 36, f"queries {i}, rank {rank}", size=14, anchor="end")
            p.note(left + cell * (i + 0.5), top - 8, f"{i}", size=14)
            for j, other in enumerate(ranks):
                x, y = left + cell * j, top + cell * i
                p.rect(x, y, cell - 3, cell - 3, "c0" if j > i else "c1" if rank == other else "c2")
                if j <= i:
                    p.label(x + cell / 2 - 2, y + 26, "½" if i == j else "1", 16)
                    p.label(x + cell / 2 - 2, y + 47, "step 0" if rank == other else "step 1", 13)
        p.note(left + 2 * cell, top + 4 * cell + 20, "; ".join(work), size=14)
    p.note(450, 380, "Numbers: visible parts of the scores. Step 0: the rank's own keys. Step 1: the other rank's keys.", size=14)
    return p


PICTURES = [chains, which_tensor, five_questions, split_keys, placement]
