"""Groups of bars over N, as the FlashAttention papers show speed: TFLOP/s, a panel for each width and mask.

Which problems: those without a bias, with as many keys as queries and own heads for all; of these the family (batch and heads fixed, or
B·N and H·d) with the most cells (d, mask, N), and at most two widths, those with the most cells. In 16 bits stage 08's best step and the
peers, in fp32 stages 04 to 07, plain attention of stage 01 and the peers. The best step is the one that is fastest at the largest N of a
panel. forward+backward is 3.5 times the forward FLOPs over the sum of both medians, a stage that has no backward pass with the stage
that has it."""

from . import choose
from .choose import Unfit, absence, best_variants, device_of, is_plain, is_timed, latest, median, series_of, sixteen_bit, slice_of, tflops
from .picture import Picture

STAGES = {"fp32": ("01", "04", "05", "06", "07"), "fp16": ("08",), "bf16": ("08",)}
PARTNERS = {"04": "05", "06": "07"}  # the stage with the backward pass
LABELS = {"forward": "forward pass", "backward": "backward pass", "both": "forward and backward pass together"}


def cells(rows):
    return len({(slice_of(row), row["problem"]["seq_q"]) for row in rows})


def of_type(rows, wide):
    rows = [row for row in rows if row["problem"]["dtype"] == "fp32"] if wide else sixteen_bit(rows)
    return [row for row in rows if row["stage"] == "peer" or series_of(row) in STAGES[row["problem"]["dtype"]]]


def tflops_of(which, wide):
    """The function that selects the picture of a pass (or "both"), in fp32 if `wide`."""

    def select(rows):
        passes = ("forward", "backward") if which == "both" else (which,)
        rows = [row for row in of_type(rows, wide) if is_plain(row["problem"]) and row["pass"] in passes]
        timed = latest([row for row in rows if is_timed(row)])
        if {row["pass"] for row in timed if row["stage"] != "peer"} != set(passes):
            raise Unfit(f"no {LABELS[which]} of a stage was timed in {'fp32' if wide else 'fp16 or bf16'}")
        timed, family = choose.best_family(timed, cells)
        widths = sorted({slice_of(row)[0] for row in timed}, key=lambda d: (-cells([row for row in timed if slice_of(row)[0] == d]), d != 64, d != 128, d))
        untimed = latest([row for row in rows if not is_timed(row) and choose.belongs(row["problem"], family)])
        panels, used = [], []
        for one in sorted({slice_of(row) for row in timed if slice_of(row)[0] in widths[:2]}):
            mine = [row for row in timed if slice_of(row) == one]
            panels.append(panel(choose.slice_text(*one), mine, [row for row in untimed if slice_of(row) == one], passes))
            used += mine
        panels = [panel for panel in panels if panel["series"]]
        if not panels:
            raise Unfit(f"no problem has times of the {LABELS[which]}")
        dtype = timed[0]["problem"]["dtype"]
        note = f"{device_of(used)}, {dtype}, {choose.family_text(family)}; medians with a cold L2, of each stage the best step."
        return Picture(f"{LABELS[which].capitalize()}: TFLOP/s against the length N, {'fp32' if wide else 'tensor cores'}", note, {"panels": panels}, used)

    return select


def panel(title, rows, untimed, passes):
    """{"lengths", "series": [{"series", "label", "values": TFLOP/s or why there is none, or None, for each length}]}"""
    lengths = sorted(choose.lengths(rows))
    of_pass = [best_variants([row for row in rows if row["pass"] == which]) for which in passes]
    series = []
    for name in list(of_pass[0]) + [name for name in of_pass[-1] if name not in of_pass[0]]:
        names = [name, PARTNERS.get(name, name)][: len(passes)]
        parts = [best.get(one, []) for best, one in zip(of_pass, names)]
        values = [value_at(n, parts) or gap_at(n, names, passes, untimed) for n in lengths]
        if any(isinstance(value, float) for value in values):
            series.append({"series": name, "label": label(names, parts), "values": values})
    return {"title": title, "lengths": lengths, "series": series}


def value_at(n, parts):
    rows = [next((row for row in part if row["problem"]["seq_q"] == n), None) for part in parts]
    if None in rows:
        return None
    return tflops(rows[0]) if len(rows) == 1 else sum(row["flops"] for row in rows) / sum(map(median, rows)) / 1e9


def gap_at(n, names, passes, untimed):
    """Why there is no bar, if a row says so."""
    found = [row for row in untimed if row["problem"]["seq_q"] == n and any(series_of(row) == name and row["pass"] == which for name, which in zip(names, passes))]
    return absence(found[0]) if found else None


def label(names, parts):
    if names[0].startswith("peer"):
        return choose.name_of(parts[0][0])
    if len(set(names)) == 2:
        return " + ".join(names)
    variants = list(dict.fromkeys(part[0]["variant"] for part in parts))
    return f"{names[0]} {' + '.join(variants)}"
