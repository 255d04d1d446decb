"""Of docs/02_safe_softmax.md: the reduction of a warp."""

from .shapes import WARP
from .svg import Picture


def butterfly():
    lanes, distances = 8, [4, 2, 1]
    p = Picture(760, 330, "Reduction of a warp by xor shuffles")
    left, step_x, top, gap = 150, 78, 60, 74
    held = [{lane} for lane in range(lanes)]
    for level in range(len(distances) + 1):
        y = top + level * gap
        for lane, numbers in enumerate(held):
            if level == 0:
                p.note(left + lane * step_x, 30, f"lane {lane}")
            text = "all" if len(numbers) == lanes else ("+" if len(numbers) == 2 else ",").join(map(str, sorted(numbers)))
            p.box(left + lane * step_x - 28, y - 14, 56, 28, f"c{[0, 1, 3, 4][level]}", text, 11 if len(numbers) == 4 else 13, radius=6)
        if level == len(distances):
            break
        p.label(24, y + gap / 2 + 5, f"xor {distances[level]}", anchor="start", bold=True)
        for lane in range(lanes):
            x, target = left + lane * step_x, left + (lane ^ distances[level]) * step_x
            p.arrow(x, y + 15, x, y + gap - 16)
            p.line(x, y + 15, target + (5 if target < x else -5), y + gap - 17)
        held = [held[lane] | held[lane ^ distances[level]] for lane in range(lanes)]
    steps = WARP.bit_length() - 1
    far = ", ".join(str(WARP >> k) for k in range(1, steps + 1))
    p.note(left + 3.5 * step_x, top + 3 * gap + 38, f"A warp has {WARP} lanes and needs {steps} steps: xor {far}.")
    return p


PICTURES = [butterfly]
