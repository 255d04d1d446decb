"""The roofline: where each step sits under the roofs of its GPU.

Steps whose rows have a profile (common/profile_gpu.py): bytes that crossed the border to HBM. Of each type and pass the problem with the most
such steps; of several the larger. The roofs of an H200 are those of h200.py. Of other GPUs the peaks follow from the rows'
percent_of_peak, and the slope of HBM is left out."""

from . import h200
from .choose import Unfit, by_type, device_of, is_timed, latest, name_of, number, series_of, tflops
from .picture import Picture
from .steps import problem, problem_text, work

UNITS = {"fp32": "fp32", "fp16": "16-bit tensor cores", "bf16": "16-bit tensor cores"}


def hbm_bytes(row):
    """Of all kernels of the pass; None without a profile."""
    kernels = row.get("profile")
    if not isinstance(kernels, list) or not kernels:
        return None
    moved = [number(kernel, key) for kernel in kernels for key in ("hbm_read_bytes", "hbm_written_bytes")]
    return None if None in moved or not sum(moved) else sum(moved)


def profiled(rows):
    """The rows that the picture and the table of docs/roofline.md show, forward first."""
    rows = latest([row for row in rows if is_timed(row) and hbm_bytes(row) and row["stage"] != "peer" and (row.get("check") or {}).get("passed") is True])
    chosen = []
    for _, members in by_type(rows):
        for direction in ("forward", "backward"):
            groups = {}
            for row in members:
                if row["pass"] == direction:
                    groups.setdefault(problem(row), []).append(row)
            if groups:
                chosen += groups[max(groups, key=lambda of: (len(groups[of]), work(of)))]
    return sorted(chosen, key=lambda row: (row["pass"] != "forward", row["stage"]))


def intensity(row):
    """FLOP for each byte between the chip and HBM."""
    return row["flops"] / hbm_bytes(row)


def roofs(rows):
    """({unit: peak in TFLOP/s}, TB/s of HBM or None) of the rows' GPU."""
    if "H200" in device_of(rows):
        peaks = {"fp32": h200.FP32_FLOPS / 1e12, "16-bit tensor cores": h200.BF16_FLOPS / 1e12}
        return {unit: peak for unit, peak in peaks.items() if any(UNITS[row["problem"]["dtype"]] == unit for row in rows)}, h200.HBM_BYTES_PER_SECOND / 1e12
    peaks = {}
    for row in rows:
        if number(row, "percent_of_peak"):
            peaks[UNITS[row["problem"]["dtype"]]] = 100 * tflops(row) / row["percent_of_peak"]
    return peaks, None


def roofline(rows):
    chosen = profiled(rows)
    if not chosen:
        raise Unfit("no row has a profile with bytes of HBM (common/profile_gpu.py)")
    peaks, bandwidth = roofs(chosen)
    marks = [
        {"series": series_of(row), "label": name_of(row), "pass": row["pass"], "x": intensity(row), "y": tflops(row)} for row in chosen
    ]
    problems = dict.fromkeys(f"{'fp32' if row['problem']['dtype'] == 'fp32' else '08'}: {problem_text(problem(row))}" for row in chosen)
    content = {"marks": marks, "peaks": peaks, "bandwidth": bandwidth, "notes": [*problems, *([] if bandwidth else ["HBM's slope is not known for this GPU."])]}
    note = f"{device_of(chosen)}. Filled: forward, hollow: backward. Useful FLOPs only, HBM bytes as the profiler counts them. Both axes logarithmic."
    return Picture("Roofline: where the steps sit, and what is above them", note, content, chosen)
