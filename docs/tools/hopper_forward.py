"""Of docs/08_hopper_forward.md: what each tile asks of an SM, the phases of a ring, registers, what scores that grow cost. The pictures are in
hopper_forward_pictures.py."""

from statistics import mean

from . import quotes
from .formatting import table, tabled
from .saved import origin, said

TENSOR_FLOPS, SHARED_BYTES, EX2, SCHEDULERS = 4096, 128, 16, 4  # of an SM in a clock; a scheduler issues one instruction
REGISTERS, WARPGROUP = 65536, 128
# d, rows of Q and keys of a tile, warpgroups that compute, registers of a thread of the producer and of the others
TILES = [
    (64, 128, 128, 2, 24, 240),
    (64, 256, 64, 4, 32, 112),
    (128, 128, 128, 2, 24, 240),
    (128, 192, 64, 3, 32, 160),
    (256, 128, 64, 2, 24, 240),
]
# Instructions of a warp for 16 rows and 128 keys at d = 128, counted in the code that nvcc 13.0 made: with a maximum in each tile, and without.
SOFTMAX = {"eager": 477, "lazy": 328}

FOLDER = "08_tensor_cores/hopper_forward"
STEPS = {
    "tma": ("1_tma.cuh", "one thread has the TMA load a tile; mbarriers count what has landed; products still by `mma.sync`"),
    "wgmma": ("2_wgmma.cuh", "`wgmma` multiplies 64 rows by a whole tile, and reads its operands in shared memory"),
    "specialized": ("3_specialized.cuh", "warp specialisation: a producer warp, rings, registers that change hands; persistent blocks"),
    "overlap": ("4_overlap.cuh", "$`S`$ of the next tile is issued before $`PV`$ of this one"),
    "lazy": ("5_lazy_maximum.cuh", "a maximum only where $`P`$ would overflow, repaired by one warp alone"),
    "tall": ("6_tall.cuh", "more warpgroups, each with fewer keys at a time, which skip what they do not see"),
    "scheduled": ("7_scheduled.cuh", "tiles from a counter, the longest first; a TMA store; the next $`Q`$ on its way"),
}


@tabled("step | file | variant | its idea")
def list_of_steps(folder, steps):
    for number, (variant, (file, idea)) in enumerate(steps.items(), 1):
        yield [number, f"[`{file}`](../{folder}/{file})", f"`{variant}`", idea]


def steps():
    return list_of_steps(FOLDER, STEPS)


def begin_of_loop(file, count):
    """So many lines of a step's loop over tiles of K."""
    lines = quotes.loop(f"{FOLDER}/{file}").split("\n")
    return "\n".join([*lines[: int(count) + 1], "  // ...", *lines[-2:]])


def shared_bytes(br, bc):
    """(8H.2)  In a clock in which the tensor cores never wait."""
    return 64 + 2048 / bc + 4096 / br


@tabled("d | Br × Bc | warpgroups | clocks of the products | exponentials, of these | shared memory, of these | L2, bytes a clock of an SM")
def budget():
    for d, br, bc, groups, *_ in TILES:
        clocks = 4 * br * bc * d / TENSOR_FLOPS
        shares = [f"{each:.2f}" for each in (br * bc / EX2 / clocks, shared_bytes(br, bc) / SHARED_BYTES)]
        yield [d, f"{br} × {bc}", groups, f"{clocks:,.0f}", *shares, f"{4096 / br:.0f}"]


def issue():
    """Of the issue slots of an SM, for tiles of 128 x 128 at d = 128."""
    clocks = 4 * 128 * 128 * 128 / TENSOR_FLOPS
    slots = {name: 8 * count / SCHEDULERS / clocks for name, count in SOFTMAX.items()}
    return (
        f"For 16 rows and 128 keys at $`d = 128`$ a warp issues {SOFTMAX['eager']} instructions with a maximum in each tile and "
        f"{SOFTMAX['lazy']} without (counted in what nvcc 13.0 makes of it): {slots['eager']:.2f} and {slots['lazy']:.2f} of the issue slots."
    )


@tabled("tile | stage | phase | the producer waits for | parity | consumers wait for | parity")
def ring():
    """(8H.4)  Five tiles through two stages."""
    for u in range(5):
        stage, phase = u % 2, u // 2
        yield [u, stage, phase, f"empty{stage}, phase {phase - 1}", (phase - 1) % 2, f"full{stage}, phase {phase}", phase % 2]


@tabled("d | Br × Bc | threads | registers at the launch | producer / consumer | sum | live: S + P + O")
def registers():
    """(8H.5), (8H.6)"""
    for d, br, bc, groups, producer, consumer in TILES:
        threads = (groups + 1) * WARPGROUP
        given, used = REGISTERS // threads // 8 * 8, producer + groups * consumer
        if used > (groups + 1) * given:
            raise SystemExit(f"hopper_forward.registers: {br} x {bc} at d = {d} takes {used} registers for each of 128 threads")
        live = f"{bc // 2} + {bc // 4} + {d // 2} = {bc // 2 + bc // 4 + d // 2}"
        yield [d, f"{br} × {bc}", threads, given, f"{producer} / {consumer}", f"{producer} + {groups} · {consumer} = {used}", live]


def growing():
    """TFLOP/s where scores fall or grow along the keys, beside those of the same run where they do neither."""
    saved = said("nvidia_h200", "growing.json")
    columns, speeds = [], {}  # {(run, nats, d, step): of each repetition}
    for run, rows in enumerate(saved["runs"]):
        columns += [(run, nats) for nats in dict.fromkeys(row["nats"] for row in rows)]
        for row in rows:
            speeds.setdefault((run, row["nats"], row["d"], row["step"]), []).append(row["tflops"])
    lines = []
    for d, step in dict.fromkeys((row["d"], row["step"]) for row in saved["runs"][0]):
        lines.append([d, f"`{step}`"])
        for run, nats in columns:
            here, level = (mean(speeds[run, change, d, step]) for change in (nats, 0))
            lines[-1].append(f"{here:.0f}" + (f" (× {here / level:.2f})" if nats else ""))
    head = ["d", "step", *(f"{nats:+d}".replace("-", "−") if nats else "0" for _, nats in columns)]
    title = (
        f"{saved['device']['name']}, forward, N = 4,096, fp16, no mask, 16,384 tokens, H·d = 2,048, TFLOP/s by the change of the scaled scores, "
        "in nats for each 128 keys; ×: over the 0 of the same run"
    )
    return f"{title}:\n\n{table(head, lines)}\n\nTwo runs, without the check. {origin([saved])}"
