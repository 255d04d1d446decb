"""Generated tables of chapter 06, from the shapes of its kernels."""

import json

from plots import h200
from rows.text import describe

from .constants import constant
from .fa2_shapes import FILES, STEPS, WARP, instructions, shape_of, shapes, share
from .formatting import number, table
from .fused_costs import SHARED_BYTES, fa2_least_ms
from .matmul_tables import wavefronts
from .saved import RESULTS, gpus, newest_rows, origin

LAST = list(FILES)[-1]
GROUP_FILE = "04_fa1_forward/thread_rows.cuh"  # GROUP of step 1


def fitting(amount):
    """The GPUs whose blocks can have so much shared memory."""
    return ", ".join(f"sm_{sm}" for sm, available in SHARED_BYTES.items() if amount <= available)


def tiles_06():
    """The compiled kernels of steps 2 to 6. Steps 2 to 5 have the same sizes."""
    middle = [variant for variant in FILES if variant not in ("loop_order", LAST)]
    if any([(s.width, s.br, s.bc, s.tm) for s in shapes(variant)] != [(s.width, s.br, s.bc, s.tm) for s in shapes(middle[0])] for variant in middle):
        raise SystemExit("the middle steps of 06 list different sizes; tiles_06 and chapter 06 show one list")
    rows = []
    for variant, step in [(middle[-1], f"{STEPS[middle[0]]} to {STEPS[middle[-1]]}"), (LAST, STEPS[LAST])]:
        for s in shapes(variant):
            amount = s.shared_bytes()
            rows.append(
                [step, s.width, f"{s.br} × {s.bc}", s.threads, f"{s.ly} × {s.lx}", f"{s.tm} × {s.tn}", f"{s.tm} × {s.td}"]
                + [f"{amount / 1024:.0f} KiB", fitting(amount), s.why]
            )
    head = ["step", "d, padded", "Br × Bc", "threads", "lanes", "S of a thread", "O of a thread", "shared memory", "fits", "as its source says"]
    return table(head, rows)


def loads_06():
    """Of the products: numbers that a thread reads from shared memory, and instructions for it."""
    group = constant(GROUP_FILE, "GROUP")
    rows = [["1", "any", f"1 × {group}", "1 × d", 4 * group * 2, 4 + 8 * group, 1 + 2 * group]]
    for variant in ["register_tiles", "vector_operands", LAST]:
        for width in [64, 128]:
            s = shape_of(variant, width)
            counts = instructions(s)
            registers = (s.tm + s.tn) * s.width + (s.tm + s.td) * s.bc
            rows.append([STEPS[variant], width, f"{s.tm} × {s.tn}", f"{s.tm} × {s.td}", counts["products"], registers, counts["loads"]])
    lines = []
    for *what, products, registers, loads in rows:
        lines.append([*what, f"{registers / products:.3g}", f"{loads / products:.3g}"])
    return table(["step", "d", "S at a time", "O of a thread", "numbers per multiply-add", "load instructions per multiply-add"], lines)


def instructions_06():
    """(6.8)  And the rate that it allows."""
    rows = []
    for variant, step in list(STEPS.items())[1:]:
        for width in [64, 128]:
            s = shape_of(variant, width)
            counts = instructions(s)
            rows.append(
                [step, width, f"{s.br} × {s.bc}"] + [f"{count:,}" for count in counts.values()]
                + [f"{100 * share(s):.0f} %", f"{share(s) * h200.FP32_FLOPS / 1e12:.0f}"]
            )
    head = ["step", "d", "tiles", *instructions(s), "μ", "TFLOP/s, at most"]
    return table(head, rows)


def steps_06():
    """Each step beside the one before it: the gain by the least times, and the one measured, on the problems of large.json and the demo's."""
    lines, used = [], []
    for device in gpus():
        rows = [row for row in newest_rows(device, "compare.json", "large.json") if row["stage"] == "06_fa2_forward" and row["pass"] == "forward" and "time" in row]
        for problem in dict.fromkeys(describe(row["problem"]) for row in rows):
            of = {row["variant"]: row for row in rows if describe(row["problem"]) == problem}
            for before, variant in zip(list(FILES), list(FILES)[1:]):
                if before in of and variant in of:
                    least = [fa2_least_ms(of[v]["problem"], v, of[v].get("tiles")) for v in (before, variant)]
                    gain = of[before]["time"]["median_ms"] / of[variant]["time"]["median_ms"]
                    lines.append([problem, STEPS[variant], f"`{variant}`", f"{least[0] / least[1]:.2f}", f"{gain:.2f}", number(of[variant]["tflops"])])
                    used += [of[before], of[variant]]
    if not lines:
        return "*No times of these steps saved yet.*"
    title = f"{used[0]['device']['name']}, forward, fp32; gains over the step before:"
    return f"{title}\n\n{table(['problem', 'step', '', 'gain, by least times', 'gain, measured', 'TFLOP/s'], lines)}\n\n{origin(used)}"


def chunk_06():
    """P whole, and in chunks: why the tiles of d = 128 fit."""
    rows = []
    limit = SHARED_BYTES[90]
    for width in [64, 128]:
        s = shape_of(LAST, width)
        for chunk in dict.fromkeys([s.bc, s.chunk, s.chunk // 2]):
            parts = [4 * s.br * s.width, 4 * s.bc * (2 * s.width + 4), 4 * chunk * (s.br + 4)]
            used = " **(used)**" if chunk == s.chunk else ""
            fits = max(0, (h200.SHARED_KB_PER_SM * 1024) // (sum(parts) + 1024)) if sum(parts) <= limit else 0
            rows.append([width, f"{s.br} × {s.bc}", f"{chunk}{used}"] + [f"{part:,}" for part in parts] + [f"{sum(parts):,}", fits or "none: too much"])
    head = ["d", "Br × Bc", "keys of P at a time", "Q, bytes", "K and V, bytes", "P, bytes", "all", "blocks on an SM of an H200"]
    return table(head, rows)


def accesses(s):
    """[(what, function of a lane: first word, words of a lane, used)] of the vector steps at step 0 of the products."""

    def lane(t):
        return t % s.lx, t // s.lx

    return [
        ("Q, transposed: read", lambda t: s.row(lane(t)[1], 0), 4, True),
        ("K: read, rows as they are", lambda t: lane(t)[0] * s.width, 4, False),
        ("K: read, rows padded by 4 (B.6)", lambda t: lane(t)[0] * (s.width + 4), 4, True),
        ("P, transposed: written, rows of Br", lambda t: lane(t)[0] * s.br + s.row(lane(t)[1], 0), 4, False),
        ("P, transposed: written, rows of Br + 4", lambda t: lane(t)[0] * (s.br + 4) + s.row(lane(t)[1], 0), 4, True),
        ("P, transposed: read", lambda t: s.row(lane(t)[1], 0), 4, True),
        ("V: read", lambda t: s.output_col(lane(t)[0], 0), 4, True),
    ]


def banks_06():
    rows = []
    each = {width: accesses(shape_of(LAST, width)) for width in [64, 128]}
    for (what, *_, used), narrow, wide in zip(each[64], each[64], each[128]):
        found = []
        for _, first, words, _ in (narrow, wide):
            different = {first(t) + w for t in range(WARP) for w in range(words)}
            found += [len(different), wavefronts(first, words)]
        rows.append([what if not used else f"**{what}**", *found])
    return table(["access", "d = 64: different words", "wavefronts", "d = 128: different words", "wavefronts"], rows)


def history():
    return json.loads((RESULTS / "nvidia_h200" / "step3_history.json").read_text())


def step3_history():
    """How the last step got its speed. Clocks per multiply-add are the peak divided by the rate."""
    saved = history()
    peak = saved["fp32_peak_tflops"]
    rows = []
    for line, row in enumerate(saved["rows"], 1):
        rates = row["tflops"]
        overall = [peak / (sum(rates[d]) / len(rates[d])) for d in ("64", "128")]
        rows.append(
            [line, row["what"]]
            + [" to ".join(f"{rate:.1f}" for rate in rates[d]) for d in ("64", "128")]
            + [f"{row[key]}" if key in row else "–" for key in ("multiply_add_percent", "issue_percent", "model_clocks")]
            + [f"{clocks:.2f}" for clocks in overall]
        )
    head = ["line", "last step with", "d = 64, TFLOP/s", "d = 128, TFLOP/s", "multiply-adds, % of instructions", "issue slots used, %"]
    head += ["clocks per multiply-add in the loops, by the model (6.10)", "over all, measured, d = 64", "d = 128"]
    problems = " and ".join(saved["problems"].values())
    title = f"{saved['device']} at {saved['clock_mhz']} MHz, fp32 peak {peak} TFLOP/s, {saved['pass']}, {problems} fp32, not causal:"
    return f"{title}\n\n{table(head, rows)}\n\nMeasured while the kernel was being made, from versions that were not kept; each line has the changes of those above it."


def step3_observed():
    return table(["seen on the way", "value"], [[row["what"], row["value"]] for row in history()["observed"]])
