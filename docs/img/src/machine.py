"""Of docs/chapters/cuda_from_zero.md: an H200, and one of its SMs."""

from common.compare import h200
from docs.tools.svg import Picture

PARTS = 4  # of an SM, each with a scheduler: Hopper architecture white paper, like the units in them
BLOCK_KB = h200.SHARED_KB_PER_SM - 1  # CUDA C++ Programming Guide: CUDA keeps 1 KB per block
L1_KB = 256  # the same: with shared memory
SPECIAL_PER_PART = 4


def gpu():
    """132 SMs, what is shared between them, and the memory off the chip."""
    p = Picture(640, f"An H200: {h200.SMS} SMs with registers and shared memory, one L2 cache on the chip, and HBM off the chip")
    left, wide, cols, cell = 20, 600, 22, 27.27
    p.label(left, 28, f"{h200.SMS} SMs", 19, "start", bold=True)
    p.note(left + wide, 28, f"{h200.SMS * h200.FP32_UNITS_PER_SM:,} fp32 units, {h200.SMS * PARTS} tensor cores", anchor="end", size=18)
    for sm in range(h200.SMS):
        x, y = left + sm % cols * cell, 42 + sm // cols * 34
        p.rect(x, y, cell - 3, 13, "reg")
        p.rect(x, y + 13, cell - 3, 16, "smem")
    top = 42 + 34 * (h200.SMS // cols) + 32
    for x in (left + wide / 4, left + 3 * wide / 4):
        p.arrow(x, top - 34, x, top - 2)
        p.arrow(x + 24, top, x + 24, top - 32)
    p.box(left, top, wide, 54, "l2", f"L2 cache: {h200.L2_MB} MB for all SMs", 19)
    border = top + 82
    p.line(left - 12, border, left + wide + 12, border, "strong")
    p.note(left + wide, border - 9, "on the chip", anchor="end", size=18)
    p.note(left + wide, border + 22, "off the chip", anchor="end", size=18)
    for x in (left + wide / 4, left + 3 * wide / 4 - 60):
        p.arrow(x, top + 56, x, border + 46)
        p.arrow(x + 24, border + 46, x + 24, top + 56)
    p.label(left + wide / 4 + 40, border + 24, f"{h200.HBM_BYTES_PER_SECOND / 1e12} TB/s", 19, "start", bold=True)
    p.box(left, border + 48, wide, 62, "hbm", f"HBM3e: {h200.HBM_GB} GB", 19)
    p.legend(("reg", f"registers: {h200.REGISTER_KB_PER_SM} KB per SM"), ("smem", f"shared memory, L1: {L1_KB} KB per SM"), size=18)
    return p


def sm():
    """The four parts of an SM and what they share."""
    p = Picture(
        640, "One SM of an H200: four parts with a scheduler, registers, fp32 units, a tensor core and special units; shared memory"
    )
    wide, gap, left = 144, 8, 20
    for part in range(PARTS):
        x = left + part * (wide + gap)
        p.rect(x, 14, wide, 280, "bg")
        p.rect(x, 14, wide, 280, "line")
        y = 22
        for high, kind, *lines in [
            (44, "c0", "scheduler"),
            (64, "reg", "registers", f"{h200.REGISTER_KB_PER_SM // PARTS} KB"),
            (44, "c0", f"{h200.FP32_UNITS_PER_SM // PARTS} fp32 units"),
            (44, "c0", "tensor core"),
            (44, "c0", f"{SPECIAL_PER_PART} special units"),
        ]:
            p.rect(x + 6, y, wide - 12, high, kind)
            for n, line in enumerate(lines):
                p.label(x + wide / 2, y + high / 2 + 6 + 22 * n - 11 * (len(lines) - 1), line)
            y += high + 6
        p.arrow(x + wide / 2 - 10, 296, x + wide / 2 - 10, 326)
        p.arrow(x + wide / 2 + 10, 326, x + wide / 2 + 10, 296)
    full = PARTS * (wide + gap) - gap
    p.rect(left, 328, full, 72, "smem")
    p.label(320, 358, f"shared memory and L1 cache: {L1_KB} KB", 19, bold=True)
    p.label(320, 384, f"of it at most {BLOCK_KB} KB for one block", 18)
    p.box(left, 432, 190, 48, "c0", "TMA (chapter 08H)", 18)
    p.box(left + 290, 432, full - 290, 48, "l2", "L2 cache", 18)
    p.arrow(left + 288, 456, left + 192, 456)
    p.arrow(left + 95, 432, left + 95, 402)
    for x, y1, y2 in ((440, 432, 402), (460, 402, 431)):
        p.arrow(x, y1, x, y2)
    p.note(left + 450, 424, "loads, stores", size=18, anchor="start")
    p.caption(
        f"Of the {L1_KB} KB at most {h200.SHARED_KB_PER_SM} are shared memory. Special units compute exp2 and the like. "
        "A warp stays in one part; its scheduler issues one instruction per cycle.",
        size=18,
    )
    return p


PICTURES = [gpu, sm]
