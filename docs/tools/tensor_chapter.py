"""Generated tables of chapter 08, but for its times (tensor_results.py)."""

import json
import re

from plots import h200
from rows.text import describe

from . import fragment_functions
from .counted import moved_lines, predicted
from .fa2_tables import fitting
from .formatting import table
from .saved import NOTHING_SAVED, RESULTS, gpus, origin, rows_of
from .tensor_shapes import BACKWARD, FILES, FORWARD, MMA_FLOPS, SCHEDULERS, backward_needs, default, default_needs, measured_rates, needs, shapes

F = fragment_functions.functions()
NOT_YET = "*Not saved yet.*"
OWN_KERNELS = {"forward": ["forward_kernel"], "backward": ["prepare", "dk_dv", "dq_", "backward", "convert"]}


def rates_08():
    """What an instruction beside a product costs."""
    saved = measured_rates()
    alone = saved["tflops_alone"]
    rows = []
    for row in saved["beside"]:
        most = max(row["tflops"], key=int)
        cost = max(0.0, alone / row["tflops"][most] - 1) / int(most)
        rows.append([f"`{row['instruction']}`", row["what"]] + [row["tflops"].get(n, "–") for n in "124"] + [f"{100 * cost:.0f} %"])
    head = ["beside each product", "", "one of it, TFLOP/s", "two", "four", "each adds, of a product's time"]
    warps = ", ".join(f"{rate} with {n} warps on an SM" for n, rate in saved["alone_by_warps"].items())
    return f"{saved['device']}, TFLOP/s of `m16n8k16` alone: {warps}. With {saved['warps_per_sm']} warps:\n\n{table(head, rows)}\n\nMeasured on {saved['date']}."


def rate_08():
    """The roof of the chapter, as a sentence."""
    alone = measured_rates()["tflops_alone"]
    clocks = [MMA_FLOPS * SCHEDULERS * h200.SMS * mhz * 1e6 / (alone * 1e12) for mhz in measured_rates()["clock_mhz_in_these_kernels"]]
    return (
        f"`mma.sync` with nothing beside it was measured at {alone} TFLOP/s, {100 * alone * 1e12 / h200.BF16_FLOPS:.0f} % of the "
        f"{h200.BF16_FLOPS / 1e12:.0f} of the data sheet: each of the {SCHEDULERS} schedulers of an SM starts an `m16n8k16` every "
        f"{clocks[0]:.1f} to {clocks[1]:.1f} clocks."
    )


def power_08():
    saved = measured_rates()
    low, high = saved["clock_mhz_in_these_kernels"]
    return (
        f"These kernels draw {saved['watts_in_these_kernels'][0]} to {saved['watts_in_these_kernels'][1]} W, and the GPU lowers its clock from "
        f"{saved['clock_mhz_idle']} MHz to somewhere between {low} and {high} to stay within its limit."
    )


def balance_08():
    """(8.9)"""
    rows = []
    for width in (64, 128):
        for step, variant in enumerate(FORWARD, 1):
            n = default_needs(variant, width)
            clocks = n.clocks()
            slowest = max(clocks, key=clocks.get)
            rows.append(
                [width, step, "{} × {}".format(*default(variant, width)), n.products, f"{n.beside():.2g}"]
                + [f"**{value:,.0f}**" if what == slowest else f"{value:,.0f}" for what, value in clocks.items()]
                + [f"{n.tflops():.0f}"]
            )
    head = ["d", "step", "tiles", "products", "others beside each", *(f"clocks: {what}" for what in needs("mma", 64).clocks()), "TFLOP/s, at most"]
    return table(head, rows)


def backward_balance_08():
    """(8.9)  Of the default tiles of the last step."""
    rows = []
    for width in (64, 128):
        shape = next((s for s in shapes(list(BACKWARD)[-1]) if s.width == width), None)
        if shape is None:
            continue
        n = backward_needs(shape)
        rows.append([width, f"{shape.br} × {shape.bc}", f"{n.products:,}", f"{n.beside():.2g}"] + [f"{value:,.0f}" for value in n.clocks().values()] + [f"{n.tflops():.0f}"])
    head = ["d", "Br × Bc", "products", "others beside each", *(f"clocks: {what}" for what in needs("mma", 64).clocks()), "TFLOP/s, at most"]
    return table(head, rows) if rows else NOT_YET


def rows_of_a_warp():
    """Why 32 rows: shared memory against products."""
    rows = []
    for width in (64, 128):
        for tiles_of_16 in (1, 2):
            n = needs("tuned", width, rows=tiles_of_16)
            clocks = n.clocks()
            rows.append([width, 16 * tiles_of_16, f"{clocks['shared memory']:,.0f}", f"{clocks['with softmax beside']:,.0f}", f"{n.tflops():.0f}"])
    return table(["d", "rows of a warp", "clocks of shared memory", "clocks of products with their softmax", "TFLOP/s, at most"], rows)


def tiles_08(direction):
    """The tile sizes of a pass as the program lists them."""
    lines = []
    saved = rows_of("cpu", "tensor_tiles.json")
    for row in saved:
        if row["pass"] != direction or row["problem"]["causal"]:
            continue
        for choice in row["tune"]["choices"]:
            amount = choice["shared_bytes"]
            lines.append([row["problem"]["head_dim"], f"{choice['br']} × {choice['bc']}", choice["threads"], f"{amount / 1024:.0f} KiB", fitting(amount), choice["why"]])
    head = ["d, padded", "Br × Bc", "threads", "shared memory", "fits", "as its source says"]
    return table(head, lines) if lines else NOT_YET


def steps_tiles_08():
    """Tiles of the forward steps before the last one."""
    lines = []
    for step, variant in list(enumerate(FORWARD, 1))[:-1]:
        for width in [32, 64, 96, 128, 256]:
            of_width = [f"{s.br} × {s.bc}" for s in shapes(variant) if s.width == width]
            if of_width:
                lines.append([step, width, ", ".join(of_width)])
    return table(["step", "d, padded", "Br × Bc"], lines) if lines else NOT_YET


def resources_08():
    """Registers of each kernel, the larger number of both types, by tile size."""
    shared = {(variant, s.width, s.br, s.bc): s.shared_bytes for variant in FILES for s in shapes(variant)}
    parts = []
    for device in gpus():
        path = RESULTS / device / "resources.json"
        found = {}
        for row in json.loads(path.read_text()) if path.exists() else []:
            variant = next((name for name, file in FILES.items() if row["file"] == f"08_tensor_cores/{file}"), None)
            name = row["kernel"].split("<")[0]
            direction = "forward" if variant in FORWARD else "backward"
            if variant is None or not name.startswith(tuple(OWN_KERNELS[direction])):
                continue
            shape = re.search(r"Shape<(?:[a-z_]\w*, )?(\d+), (\d+), (\d+)", row["kernel"])
            sizes = tuple(map(int, shape.groups())) if shape else tuple(map(int, re.findall(r"\b\d+\b", row["kernel"])[:1]))
            before = found.get((variant, name, sizes), (0, 0))
            found[variant, name, sizes] = (max(before[0], row["registers"]), max(before[1], row["stack_bytes"] + row["local_bytes"]))
        if not found:
            continue
        order = list(FILES)
        lines = []
        for (variant, name, sizes), (registers, stack) in sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1], item[0][2])):
            bytes_shared = shared.get((variant, *sizes))
            tiles = f"{sizes[1]} × {sizes[2]}" if len(sizes) == 3 else "–"
            lines.append([f"`{variant}`", name, sizes[0] if sizes else "any", tiles, registers, stack, f"{bytes_shared / 1024:.0f} KiB" if bytes_shared else "–"])
        head = ["step", "kernel", "d, padded", "Br × Bc", "registers", "stack and local memory, bytes", "shared memory"]
        parts.append(f"Compiled for `{json.loads(path.read_text())[0]['arch']}`:\n\n{table(head, lines)}")
    return "\n\n".join(parts) or NOTHING_SAVED


def bytes_08(direction):
    """Predicted beside counted, of the last step of the pass; a difference in any step ends the program."""
    last = list(FORWARD if direction == "forward" else BACKWARD)[-1]
    parts = []
    for row in rows_of("cpu", "tensor.json") + rows_of("cpu", "tensor_io.json") + rows_of("cpu", "tensor_odd.json"):
        of_step = (row["variant"] in BACKWARD) == (row["pass"] == "backward")
        if row["pass"] != direction or not of_step or not predicted(row):
            continue
        body = table(["", "predicted", "counted"], moved_lines([row]))
        if (row["variant"], row["problem"]["dtype"]) != (last, "fp16"):
            continue
        title = f"{direction.capitalize()}, `{last}`, {describe(row['problem'])}, tiles {row['tiles']['br']} × {row['tiles']['bc']}"
        body += f"\n\n{origin([row])}"
        parts.append(f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if parts else f"{title}:\n\n{body}")
    return "\n\n".join(parts) or NOT_YET


def counts_08():
    """Bank conflicts and other events of all steps, on one problem without a mask."""
    lines, used = [], []
    for row in rows_of("cpu", "tensor_io.json"):
        if row["problem"]["dtype"] == "fp16" and row["variant"] in FILES and (row["pass"] == "backward") == (row["variant"] in BACKWARD):
            c = row["counters"]
            products = 2 * c["tensor_core_products"] // MMA_FLOPS
            lines.append(
                [f"`{row['variant']}`", row["pass"], f"{row['tiles']['br']} × {row['tiles']['bc']}", f"{products:,}", f"{c['bank_conflicts']:,}"]
                + [f"{c['barriers']:,}", f"{c['warp_operations']:,}", f"{c['atomics']:,}"]
            )
            used.append(row)
    head = ["step", "pass", "tiles", "`m16n8k16`", "bank conflicts", "barriers", "warp operations", "atomic additions"]
    return f"{describe(used[0]['problem'])}, on the simulator:\n\n{table(head, lines)}\n\n{origin(used)}" if used else NOT_YET


def precision_08():
    """Largest errors of the last steps, beside those of the last fp32 stages on the same problem."""
    stages = [("06_fa2_forward", "tuned"), ("07_fa2_backward", "one_kernel"), ("08_tensor_cores", "tuned"), ("08_tensor_cores", "staggered")]
    found = {}
    rows = rows_of("cpu", "compare.json") + rows_of("cpu", "tensor.json")
    used = []
    for row in rows:
        key = (row["stage"], row["variant"])
        if key not in stages or (row["pass"] == "backward") != (key in (stages[1], stages[3])):
            continue
        used.append(row)
        for name, entry in row["check"]["tensors"].items():
            if row["pass"] == "forward" or name not in ("o", "lse"):
                found.setdefault(name, {})[row["problem"]["dtype"]] = entry
    if not any("fp16" in entry for entry in found.values()):
        return NOT_YET
    names = {"o": "O", "lse": "L", "dq": "dQ", "dk": "dK", "dv": "dV"}
    lines = []
    for name in names:
        line = [names[name]]
        for dtype in ("fp32", "fp16", "bf16"):
            entry = found.get(name, {}).get(dtype)
            line += [f"{entry['max_abs']:.1e}", f"{entry['rel_l2']:.1e}"] if entry else ["–", "–"]
            line += [f"{entry['max_abs'] / entry['tolerance']:.2f}" if entry else "–"]
        lines.append(line)
    head = [""] + [f"{dtype}: {what}" for dtype in ("fp32", "fp16", "bf16") for what in ("largest error", "relative, L2 norm", "of what is allowed")]
    sixteen = next(row for row in used if row["problem"]["dtype"] == "fp16")
    return f"{describe(sixteen['problem'])}, the same numbers in fp32 and bf16, on the simulator:\n\n{table(head, lines)}\n\n{origin(used)}"


def history():
    return json.loads((RESULTS / "nvidia_h200" / "tensor_history.json").read_text())


def forward_history_08():
    saved = history()
    lines = []
    for row in saved["forward"]:
        rates = [row["tflops"].get(d, "–") for d in ("64", "128")]
        lines.append([row["what"]] + [" to ".join(map(str, rate)) if isinstance(rate, list) else rate for rate in rates] + [row["taken"]])
    problems = " and ".join(saved["problems"].values())
    text = table(["`tuned` with", "d = 64, TFLOP/s", "d = 128, TFLOP/s", "taken"], lines)
    return f"{saved['device']}, forward, {problems} fp16, not causal:\n\n{text}\n\nMeasured while the kernel was being made, from versions that were not kept."


def backward_history_08():
    saved = history()
    head = ["line", "last step with", *saved["backward_columns"]]
    lines = [[n, row["what"], *row["tflops"]] for n, row in enumerate(saved["backward"], 1)]
    beside = [["–", row["what"], *("–" if rate is None else rate for rate in row["tflops"])] for row in saved["backward_observed"]]
    return (
        f"{saved['device']}, backward, TFLOP/s, fp16, 16,384 tokens, H·d = 2,048:\n\n{table(head, lines + beside)}\n\n"
        "Measured while the kernel was being made, from versions that were not kept; each numbered line has the changes of those above it."
    )




def accesses_of_step_1(width, br, bc, rows):
    """[(what, times of a warp for a pair of tiles, function of a lane: (row, column), bytes of a lane, which tile)] of step 1."""
    tk, tn, td = width // 16, bc // 8, width // 8

    def word_of_A(lane):
        return F.a_row(lane, 0), F.a_col(lane, 0)

    return [
        ("Q read, words", tk * rows * 4, word_of_A, 4, "d"),
        ("K read, words", tk * tn * 2, lambda lane: (F.b_col(lane), F.b_row(lane, 0)), 4, "d"),
        ("V read, halves of words", bc // 16 * td * 4, lambda lane: (F.b_row(lane, 0), F.b_col(lane)), 2, "d"),
        ("P written, words", rows * 2 * tn, lambda lane: (F.c_row(lane, 0), F.c_col(lane, 0)), 4, "Bc"),
        ("P read, words", bc // 16 * rows * 4, word_of_A, 4, "Bc"),
    ]


def wavefronts_of(place, size, stride):
    """Of a warp whose lanes touch `size` bytes at (row, column) in rows of `stride` numbers: words in the fullest bank."""
    banks = [set() for _ in range(32)]
    for lane in range(32):
        row, col = place(lane)
        word = 2 * (row * stride + col) // 4
        banks[word % 32].add(word)
    return max(map(len, banks))


def banks_08():
    """What rows without padding would cost step 1, of a warp for a pair of tiles."""
    rows, sums = [], {}
    for width in (64, 128):
        br, bc, tiles_of_16 = default("mma", width)
        for what, times, place, size, tile in accesses_of_step_1(width, br, bc, tiles_of_16):
            numbers = width if tile == "d" else bc
            plain, padded = (wavefronts_of(place, size, numbers + pad) for pad in (0, 8))
            rows.append([f"d = {width}, {br} × {bc}: {what}", times, plain, padded, f"{times * (plain - 1):,}"])
            sums[width] = sums.get(width, 0) + times * (plain - 1)
    head = ["access", "times", "wavefronts, rows as they are", "rows padded by 8", "bank conflicts without padding"]
    total = " and ".join(f"{count:,} for d = {width}" for width, count in sums.items())
    br, bc, tiles_of_16 = default("mma", 64)
    n, warps = 1024, br // (16 * tiles_of_16)
    leaving = tiles_of_16 * 2 * 8 * (wavefronts_of(lambda lane: (F.c_row(lane, 0), F.c_col(lane, 0)), 4, 64) - 1)  # O, as P is written
    count = n // br * warps * (n // bc * sums[64] + leaving)
    return (
        f"{table(head, rows)}\n\nIn all, of a warp for a pair of tiles: {total}; with padding none. For a head with N = {n:,} and d = 64 it is "
        f"{count:,}, O included, and with `Shape`'s `Pad` set to 0 the simulator counts as many."
    )
