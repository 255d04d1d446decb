"""Of docs/08_tensor_cores.md and the backward chapter after it: tiles, registers, events; of the forward one alone: precision and banks.
What bounds the steps is in tensor_bounds.py, their times beside others' in tensor_results.py."""

import re

from rows import describe

from . import fragments as F
from .formatting import shown, step, table, tiles_text
from .saved import NOTHING_SAVED, RESULTS, newest, of_each_gpu, said, section
from .shapes import WARP, fullest_bank, shapes
from .tensor_bounds import BACKWARD, CHAPTERS, FORWARD, MMA_FLOPS, STAGE, VARIANTS, default

LAST = {"forward": FORWARD[-1], "backward": BACKWARD[-1]}
STEPS = {"forward": FORWARD, "backward": BACKWARD, **CHAPTERS}


def tiles(direction):
    """The tile sizes of the last step of a pass."""
    lines = [[s.width, s.tiles, s.threads, s.kib, s.fits, s.why] for s in shapes(STAGE, LAST[direction], direction)]
    return table("d, padded | Br × Bc | threads | shared memory | fits | as its source says", lines)


def tiles_of_steps():
    """Of the forward steps before the last one."""
    lines = {}
    for number, variant in list(enumerate(FORWARD, 1))[:-1]:
        for s in shapes(STAGE, variant, "forward"):
            lines.setdefault((number, s.width), []).append(s.tiles)
    return table("step | d, padded | Br × Bc", [[*of, ", ".join(sizes)] for of, sizes in lines.items()])


@of_each_gpu
def resources(device, chapter="forward"):
    """Registers of each kernel, the larger number of both types, by tile size; of the forward or backward steps by mma.sync, or of 08H or
    08B."""
    if not (RESULTS / device / "resources.json").exists():
        return None
    own = {"forward": ("forward_kernel",), "backward": ("prepare", "dk_dv", "dq_", "backward", "convert")}
    files = {v["kernel"]: name for name, v in VARIANTS.items()}
    order, found, compiled = list(VARIANTS), {}, said(device, "resources.json")
    for row in compiled:
        variant, name = files.get(row["file"]), row["kernel"].split("<")[0]
        if variant not in STEPS[chapter]:
            continue
        if not name.startswith(own["backward" if "backward" in VARIANTS[variant]["passes"] else "forward"]):
            continue
        shape = re.search(r"Shape<(?:[a-z_]\w*, )?(\d+), (\d+), (\d+)", row["kernel"])
        sizes = tuple(map(int, shape.groups() if shape else re.findall(r"\b\d+\b", row["kernel"])[:1]))
        registers, stack = found.get((order.index(variant), name, sizes), (0, 0))
        found[order.index(variant), name, sizes] = max(registers, row["registers"]), max(stack, row["stack_bytes"] + row["local_bytes"])
    every = [s for name in order for direction in LAST for s in shapes(STAGE, name, direction)]
    shared = {(s.variant, s.width, s.br, s.bc): s.kib for s in every}
    lines = [
        [f"`{order[at]}`", name, sizes[0] if sizes else "any", f"{sizes[1]} × {sizes[2]}" if len(sizes) == 3 else "–", *used]
        + [shared.get((order[at], *sizes), "–")]
        for (at, name, sizes), used in sorted(found.items())
    ]
    head = "step | kernel | d, padded | Br × Bc | registers | stack and local memory, bytes | shared memory"
    return f"Compiled for `{compiled[0]['arch']}`:\n\n{table(head, lines)}" if lines else None


def counts(direction):
    """Bank conflicts and other events of the steps of a pass, on one problem without a mask."""
    used = [row for row in newest("cpu", "tensor_io.jsonl", direction=direction) if row["variant"] in STEPS[direction]]
    lines = [
        [step(row), tiles_text(row["tiles"])]
        + [f"{2 * row['counters']['tensor_core_products'] // MMA_FLOPS:,}"]
        + [f"{row['counters'][name]:,}" for name in ("bank_conflicts", "barriers", "warp_operations", "atomics")]
        for row in used
    ]
    head = "step | tiles | `m16n8k16` | bank conflicts | barriers | warp operations | atomic additions"
    return section("{problem}, on the simulator", head, lines, used) or NOTHING_SAVED


def precision():
    """Largest errors of the last steps, beside those of the last fp32 stages on the same problem."""
    of_pass = {
        "forward": [("06_fa2_forward", "tuned"), (STAGE, LAST["forward"])],
        "backward": [("07_fa2_backward", "one_kernel"), (STAGE, LAST["backward"])],
    }
    used = [row for row in newest("cpu", "compare.jsonl", "tensor.jsonl") if (row["stage"], row["variant"]) in of_pass[row["pass"]]]
    found = {}  # the forward pass of a backward step is checked too
    for row in used:
        for name, entry in row["check"]["tensors"].items():
            if row["pass"] == "forward" or name not in ("o", "lse"):
                found[name, row["problem"]["dtype"]] = entry
    lines, dtypes = [], ("fp32", "fp16", "bf16")
    for name, title in {"o": "O", "lse": "L", "dq": "dQ", "dk": "dK", "dv": "dV"}.items():
        line = [title]
        for entry in (found.get((name, dtype)) for dtype in dtypes):
            of_allowed = entry and entry["max_abs"] / entry["tolerance"]
            line += [shown(entry and entry["max_abs"], ".1e"), shown(entry and entry["rel_l2"], ".1e"), shown(of_allowed, ".2f")]
        lines.append(line)
    head = [""] + [f"{dtype}: {what}" for dtype in dtypes for what in ("largest error", "relative, L2 norm", "of what is allowed")]
    sixteen = next((row for row in used if row["problem"]["dtype"] == "fp16"), None)
    title = f"{describe(sixteen['problem'])}, the same numbers in fp32 and bf16, on the simulator" if sixteen else ""
    return section(title, head, lines, used) if sixteen else NOTHING_SAVED


def accesses_of_step_1(s):
    """[(what, times of a warp for a pair of tiles, function of a lane: (row, column), numbers in a row)]"""
    tk, tn, td, rows = s.width // 16, s.bc // 8, s.width // 8, s.br // 16 // s.warps

    def word_of_a(lane):
        return F.a_row(lane), F.a_col(lane)

    return [
        ("Q read, words", tk * rows * 4, word_of_a, s.width),
        ("K read, words", tk * tn * 2, lambda lane: (F.b_col(lane), F.b_row(lane)), s.width),
        ("V read, halves of words", s.bc // 16 * td * 4, lambda lane: (F.b_row(lane), F.b_col(lane)), s.width),
        ("P written, words", rows * 2 * tn, lambda lane: (F.c_row(lane), F.c_col(lane)), s.bc),
        ("P read, words", s.bc // 16 * rows * 4, word_of_a, s.bc),
    ]


def wavefronts_of(place, stride):
    """Of a warp whose lanes touch a number at (row, column) in rows of `stride` numbers."""
    return fullest_bank((place(lane)[0] * stride + place(lane)[1]) // 2 for lane in range(WARP))


def banks():
    """What rows without padding would cost step 1, of a warp for a pair of tiles."""
    rows, sums = [], {}
    for s in (default("mma", 64), default("mma", 128)):
        for what, times, place, numbers in accesses_of_step_1(s):
            plain, padded = wavefronts_of(place, numbers), wavefronts_of(place, numbers + 8)
            rows.append([f"d = {s.width}, {s.tiles}: {what}", times, plain, padded, f"{times * (plain - 1):,}"])
            sums[s.width] = sums.get(s.width, 0) + times * (plain - 1)
    head = "access | times | wavefronts, rows as they are | rows padded by 8 | bank conflicts without padding"
    total = " and ".join(f"{count:,} for d = {width}" for width, count in sums.items())
    s, n = default("mma", 64), 1024
    _, written, place, _ = accesses_of_step_1(s)[3]
    leaving = written // (s.bc // 8) * (s.width // 8) * (wavefronts_of(place, s.width) - 1)  # O, as P is written
    count = n // s.br * s.warps * (n // s.bc * sums[64] + leaving)
    return (
        f"{table(head, rows)}\n\nIn all, of a warp for a pair of tiles: {total}; with padding none. For a head with N = {n:,} and d = 64 "
        f"it is {count:,}, O included, and with `Shape`'s `Pad` set to 0 the simulator counts as many."
    )
