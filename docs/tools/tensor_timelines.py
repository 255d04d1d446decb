"""Draws who does what when in the loops of stage 08, in the order in which the kernels have it."""

import re

from .svg import Picture
from .tensor_shapes import FILES, STAGE

# Calls, as patterns, and what they are in the pictures.
FORWARD_EVENTS = {
    r"cp_async_wait_all\(": "wait",
    r"__syncthreads\(": "barrier",
    r"\bload_tile\(": "issue",
    r"\badd_product\(S,": "S",
    r"\braise\(": "maximum",
    r"\bexponentiate\(": "exp",
    r"\badd_product\(O,": "PV",
}
BACKWARD_EVENTS = {
    r"cp_async_wait_all\(": "wait",
    r"__syncthreads\(": "barrier",
    r"\bload_tile\(": "issue",
    r"\bsum_dQ\(": "dQ",
    r"\badd_product\(S,": "S or dP",
    r"\bexponentiate\(": "P",
    r"\bmultiply_by_blocks\(": "dS",
    r"\badd_product\(gradient,": "dV or dK",
}


def order(variant, begin, end, events):
    """The events between two lines of a kernel, as they stand there."""
    text = (STAGE / FILES[variant]).read_text()
    at = text.index(begin)
    body = re.sub(r"//.*", "", text[at : text.index(end, at)])
    found = re.finditer("|".join(f"({pattern})" for pattern in events), body)
    return [list(events.values())[match.lastindex - 1] for match in found]


def expect(variant, found, expected, picture):
    if found != expected:
        raise SystemExit(f"{FILES[variant]}: the loop's order is {found}; the picture {picture} and its chapter tell of {expected}")


def pipeline_08():
    """Two stages of K and V: while tile j is computed, the next one is in flight."""
    found = order("tuned", "for (int j = Tc - 1", "write_output(", FORWARD_EVENTS)
    expect("tuned", found, ["wait", "barrier", "issue", "S", "maximum", "exp", "PV"], "pipeline_08")
    p = Picture(960, 330, "Double buffering: what a block computes and what it copies, in the order of the code")
    p.label(480, 28, "Two turns of the loop, from step 3 on", 16, bold=True)
    wide = {"wait": 22, "barrier": 12, "issue": 26, "S": 120, "maximum": 34, "exp": 70, "PV": 120}
    x, y, turns = 118, 96, []
    p.label(108, y + 30, "threads", 13, "end")
    for n, row in enumerate(["stage 0: K, V", "stage 1: K, V"]):
        p.label(108, y + 96 + 40 * n, row, 13, "end")
    for turn in range(2):
        turns.append(x)
        j = ["j", "j−1"][turn]
        p.label(x + 200, y - 12, f"tile {j}", 13, kind="dim")
        for event in found:
            w = wide[event]
            if event == "barrier":
                p.rect(x, y, w - 3, 48, "c4")
            elif event == "maximum":
                p.rect(x, y + 12, w - 3, 24, "c0")
                p.label(x + w / 2 - 2, y + 29, "max", 11)
            else:
                p.rect(x, y, w - 3, 48, {"wait": "c0", "issue": "c2"}.get(event, "c1"))
                text = {"S": "S = Q Kᵀ", "exp": "P", "PV": "O += P V"}.get(event, "")
                p.label(x + w / 2 - 2, y + 29, text, 13)
            x += w
        x += 4
    first, second = turns
    issue = wide["wait"] + wide["barrier"]
    p.rect(118, y + 80, second - 122, 24, "c3")
    p.label((118 + second) / 2, y + 97, "tile j: read", 12)
    p.rect(second + issue, y + 80, x - second - issue, 24, "c2")
    p.label((second + issue + x) / 2, y + 97, "tile j−2 in flight", 12)
    p.rect(first + issue, y + 120, second - first - issue + wide["wait"] - 3, 24, "c2")
    p.label((first + issue + second) / 2, y + 137, "tile j−1 in flight", 12)
    p.rect(second + issue, y + 120, x - second - issue, 24, "c3")
    p.label((second + issue + x) / 2, y + 137, "tile j−1: read", 12)
    p.label(480, 282, "violet: __syncthreads(), the only one of a tile. grey: wait for copies; max: steps 3 and 4 in each tile, steps 5 and 6 if they have to.", 13, kind="dim")
    p.label(480, 304, "orange: issued, in flight. Steps 5 and 6 visit tiles from the last to the first, 3 and 4 from the first to the last. Widths are not to scale.", 13, kind="dim")
    return p


def halves_08():
    """The backward loop: half 0 one tile ahead of half 1."""
    found = order("staggered", "for (int step = 0;", "gradient.each(", BACKWARD_EVENTS)
    expected = ["wait", "barrier", "issue", "dQ", "S or dP", "P", "dS", "dV or dK", "dQ", "barrier"]
    expect("staggered", found, expected, "halves_08")
    p = Picture(960, 360, "The backward pass: two halves of a block, one tile of queries apart")
    p.label(480, 28, "Three steps of the loop: half 0 is one tile of queries ahead", 16, bold=True)
    x, top, gap = 96, 70, 12
    column = 274
    p.label(80, top + 30, "half 0", 14, "end")
    p.label(80, top + 98, "half 1", 14, "end")
    for name, y in [("Q, dO", 210), ("P, dS", 246)]:
        p.label(80, y + 17, name, 13, "end")
    kind = {"S": "c1", "P": "c3", "dV": "c1", "dQ": "c2", "dP": "c1", "dS": "c3", "dK": "c1"}
    for turn in range(3):
        i = ["i", "i+1", "i+2"][turn]
        before = ["i−1", "i", "i+1"][turn]
        oldest = ["i−2", "i−1", "i"][turn]
        left = x + turn * (column + gap)
        p.rect(left - gap + 2, top - 6, gap - 5, 122, "c4")
        for y, events in [(top, [("S", 76, i), ("P", 56, i), ("dV", 76, i), ("dQ", 66, oldest)]), (top + 68, [("dQ", 66, oldest), ("dP", 76, before), ("dS", 56, before), ("dK", 76, before)])]:
            at = left
            for event, wide, tile in events:
                p.rect(at, y, wide - 3, 46, kind[event])
                p.label(at + wide / 2 - 2, y + 20, event, 14)
                p.label(at + wide / 2 - 2, y + 37, tile, 11, kind="dim")
                at += wide
        p.rect(left, 206, column - 3, 24, "c2")
        p.label(left + column / 2, 223, f"tile {['i+1', 'i+2', 'i+3'][turn]} in flight", 12)
        p.rect(left, 242, column - 3, 24, "c3")
        p.label(left + column / 2, 259, f"P of {i} in; {before}: P to dS; dS of {oldest} read", 11)
    p.label(480, 302, "violet: the one __syncthreads() of a step. blue: products of a half; green: exponentials and dS; orange: dQ, by all warps.", 13, kind="dim")
    p.label(480, 324, "While one half is busy with green, the other one has products. Three tiles of Q, dO and of P or dS lie in shared memory.", 13, kind="dim")
    return p


PICTURES = [pipeline_08, halves_08]
