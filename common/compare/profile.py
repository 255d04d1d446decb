"""Adds what Nsight Compute says about each kernel to rows that `compare --save`
wrote on a GPU.

Every row is run once more under ncu and gets a list "profile" with an object
for each kernel launch of the pass. Clocks and caches are left as they are:
every kernel starts with what the one before left behind, as in real use. The
file keeps its rows until all are there. Needs ncu on the PATH and permission to
read the counters; docs/howto/profiling.md explains them."""

import csv
import re
import subprocess
from pathlib import Path

from . import rows
from .options import Parser, to_arguments
from .rows import Failure

METRICS = {
    "time_us": "gpu__time_duration.sum",  # counted in ns
    "hbm_read_bytes": "dram__bytes_read.sum",
    "hbm_written_bytes": "dram__bytes_write.sum",
    "read_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "written_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "instructions": "smsp__inst_executed.sum",
    "hbm_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
}
STALLS = ["selected", "math_pipe_throttle", "wait", "short_scoreboard", "mio_throttle", "barrier", "long_scoreboard", "not_selected"]
# With --details.
DETAILS = {
    "tensor_percent": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_flops_fp16": "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32.sum",
    "tensor_flops_bf16": "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum",
    "wgmma_flops_fp16": "sm__ops_path_tensor_op_hgmma_src_fp16.sum",
    "wgmma_flops_bf16": "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps_per_scheduler": "smsp__warps_active.avg.per_cycle_active",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "copy_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "registers": "launch__registers_per_thread",
    **{f"stall_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS},
}


def profile(folder, row, details):
    """An object for each launch. None is the value of a metric that ncu did not give."""
    metrics = {**METRICS, **(DETAILS if details else {})}
    command = ["ncu", "--clock-control", "none", "--cache-control", "none", "--print-units", "base", "--csv", "--page", "raw"]
    command += ["--metrics", ",".join(metrics.values()), f"{folder}/{row.stage}", "--device", "gpu", "--variant", row.variant]
    command += ["--pass", row["pass"], "--no-check", *to_arguments(row.problem)]
    if row.tiles:
        command += [f"--tiles={row.tiles['br']},{row.tiles['bc']}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Failure(3, f"ncu cannot be started: {error.strerror}") from None
    lines = [*csv.reader(line for line in done.stdout.splitlines() if line.startswith('"'))]  # names, units, launches
    if done.returncode != 0 or len(lines) < 3:
        raise Failure(1, f"ncu failed on {row.label} {row['pass']}: {done.stdout[-500:]}{done.stderr[-500:]}")  # a GPU may lack a detail
    kernels = []
    for launch in lines[2:]:
        cell = {name: text.replace(",", "") for name, text in zip(lines[0], launch)}
        known = {key: cell.get(name, "") for key, name in metrics.items()}
        values = {key: float(text) if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", text) else None for key, text in known.items()}
        values["time_us"] /= 1000
        name = re.search(r"(\w+)(?:<.*?>)?\(", cell["Kernel Name"])[1]  # as in flash::<unnamed>::name(Problem, ...)
        kernels.append({"kernel": name, **values})
    return kernels


def main(arguments, folder):
    parser = Parser("compare profile", __doc__)
    parser.add_argument("file", metavar="FILE.jsonl")
    parser.add_argument("--details", action="store_true", help="also tensor cores, stalls, L2 and bank conflicts")
    options = parser.parse_args(arguments)
    found = rows.read(file := Path(options.file).resolve())  # so that a link stays one
    if not (wanted := [row for row in found if row.is_gpu and row.is_good and not row.is_peer]):
        raise Failure(2, f"'{options.file}' has no row of a kernel that ran on a GPU")
    for row in wanted:
        row["profile"] = profile(folder, row, options.details)
        if row["pass"] == "backward":  # it ran its forward pass first; the profile is of the backward pass alone
            del row.profile[: len(profile(folder, rows.Row({**row, "pass": "forward", "tiles": None}), False))]
        print(f"profiled {row.label} {row['pass']}: {len(row.profile)} launches")
    part = file.with_name(f"{file.name}.part")  # so that the file holds the old rows or the new ones
    part.write_text("".join(map(rows.line, found)), encoding="utf-8")
    part.replace(file)
