#!/usr/bin/env python3
"""Adds what Nsight Compute says about each kernel to rows that `compare --save` wrote on a GPU.

    common/profile_gpu.py BIN_DIR FILE.jsonl [--details] [--seconds N]

--details adds what docs/howto/profiling.md explains: tensor cores, reasons why warps wait, L2 hits, bank conflicts. It also runs one head
of each row on the CPU simulator, with the same tiles, and notes its exact counts as "counters_of_a_head" (some seconds each).

Every row of the file is run once more under ncu, from the stage programs in BIN_DIR, and gets a list "profile" with an object for
each kernel launch of the pass. The clocks are left as they are (--clock-control none), and so are caches: every kernel starts with what the
one before left behind, as in real use (--cache-control none). FILE.jsonl keeps its rows until all are there. Needs ncu on the PATH and permission to read the counters.
"""

import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys
import time

from compare import rows as saved

METRICS = {
    "time_us": ("gpu__time_duration.sum", 1e-3),
    "hbm_read_bytes": ("dram__bytes_read.sum", 1),
    "hbm_written_bytes": ("dram__bytes_write.sum", 1),
    "read_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1),
    "written_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 1),
    "instructions": ("smsp__inst_executed.sum", 1),
    "hbm_percent": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "l1_percent": ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "sm_percent": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 1),
}

# With --details. Names differ between generations of GPUs: the first that the GPU has is taken; one that it has not is left out.
DETAILS = {
    "tensor_percent": [
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ],
    "tensor_flops_fp16": ["sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32.sum"],
    "tensor_flops_bf16": ["sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum"],
    "wgmma_flops_fp16": ["sm__ops_path_tensor_op_hgmma_src_fp16.sum"],
    "wgmma_flops_bf16": ["sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum"],
    "issue_percent": ["smsp__issue_active.avg.pct_of_peak_sustained_active"],
    "warps_per_scheduler": ["smsp__warps_active.avg.per_cycle_active"],
    "eligible_warps": ["smsp__warps_eligible.avg.per_cycle_active"],
    "l2_hit_percent": ["lts__t_sector_hit_rate.pct"],
    "shared_wavefronts": ["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"],
    "load_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"],
    "store_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"],
    "copy_conflicts": ["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"],
    "registers": ["launch__registers_per_thread"],
}
STALLS = ["selected", "math_pipe_throttle", "wait", "short_scoreboard", "mio_throttle", "barrier", "long_scoreboard", "not_selected"]
STALLS += ["dispatch_stall", "no_instruction", "lg_throttle", "branch_resolving", "membar", "sleeping", "imc_miss", "drain"]
DETAILS |= {f"stall_{reason}": [f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"] for reason in STALLS}


def available(candidates):
    """{key: metric} of those that this GPU has, as far as ncu tells. What belongs to the launch it does not list."""
    listed = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True).stdout
    known = set(re.findall(r"^(\w+__\w+)", listed, re.MULTILINE))
    found = {}
    for key, names in candidates.items():
        name = next((name for name in names if not known or name.startswith("launch__") or name.split(".")[0] in known), None)
        if name:
            found[key] = name
        else:
            print(f"this GPU does not count {' or '.join(names)}")
    return found


def command(bin_dir, row):
    problem = row["problem"]
    sizes = {"batch": "batch", "heads": "heads", "kv-heads": "kv_heads", "seq-q": "seq_q", "seq-k": "seq_k", "head-dim": "head_dim"}
    words = [str(bin_dir / row["stage"]), "--device", "gpu", "--variant", row["variant"], "--pass", row["pass"], "--no-check"]
    words += [word for option, key in sizes.items() for word in ("--" + option, str(problem[key]))]
    words += [word for option in ("bias", "dtype", "layout", "input", "seed") for word in ("--" + option, str(problem[option]))]
    words += [
        f"--{option}={problem[option]}" for option in ("window", "softcap", "lengths", "dropout", "score", "values") if option in problem
    ]
    words += [f"--dropout-seed={problem['dropout_seed']}"] if "dropout" in problem else []
    words += ["--bias-gradient"] if problem.get("bias_gradient") else []
    if row.get("tiles"):
        words += ["--tiles", f"{row['tiles']['br']},{row['tiles']['bc']}"]
    return words + ["--scale", repr(problem["scale"])] + (["--causal"] if problem["causal"] else [])


def profile(bin_dir, row, details):
    """An object for each launch. `details`: {key: metric} beyond METRICS; None is the value of one that ncu did not give."""
    metrics = {key: name for key, (name, _) in METRICS.items()} | details
    ncu = ["ncu", "--clock-control", "none", "--cache-control", "none", "--print-units", "base", "--csv", "--page", "raw"]
    done = subprocess.run(ncu + ["--metrics", ",".join(metrics.values())] + command(bin_dir, row), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode != 0 or len(lines) < 3:
        where = f"ncu failed on {row['stage']} {row['variant']} {row['pass']}"
        if details:  # a name that ncu lists and yet refuses: what every GPU has is better than nothing
            print(f"{where}, details left out:\n{done.stdout[-500:]}{done.stderr[-500:]}")
            return profile(bin_dir, row, {})
        sys.exit(f"{where}:\n{done.stdout}{done.stderr}")
    head, _, *launches = csv.reader(lines)
    kernels = []
    for launch in launches:
        cell = dict(zip(head, launch))
        values = {key: float(cell[name].replace(",", "")) * factor for key, (name, factor) in METRICS.items()}
        for key, name in details.items():
            text = cell.get(name, "").replace(",", "")
            values[key] = float(text) if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", text) else None
        name = re.search(r"(\w+)(?:<.*?>)?\(", cell["Kernel Name"]).group(1)  # of flash::<unnamed>::name(Problem, ...)
        kernels.append({"kernel": name, **values})
    return kernels


def count_one_head(bin_dir, row):
    """What the simulator counts for one head of one batch."""
    one = {**row, "problem": row.problem | {"batch": 1, "heads": 1, "kv_heads": 1}}
    words = command(bin_dir, one)
    words[words.index("gpu")] = "cpu"
    done = subprocess.run(words + ["--json"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"no counts of {row['stage']} {row['variant']} {row['pass']}: {done.stderr.strip()[-300:]}")
        return None
    return json.loads(done.stdout)["counters"]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("path", type=pathlib.Path, metavar="FILE.jsonl")
    parser.add_argument(
        "--details", action="store_true", help="also tensor cores, stalls, L2 and bank conflicts, and the simulator's counts"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run later than that; the rest has no profile")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    details = available(DETAILS) if options.details else {}
    rows = saved.read(options.path)
    forward_launches = {}
    for row in rows:
        if not row.is_gpu:
            continue
        name = f"{row.label} {row.pass_}"
        late = time.monotonic() - began > options.seconds
        if late:
            print(f"not profiled for lack of time: {name}")
            continue
        if row.pass_ == "backward" and row.label not in forward_launches:  # its forward pass is another step's, and has no row
            forward = {**row, "pass": "forward", "tiles": None}
            forward_launches[row.label] = len(profile(options.bin_dir, forward, {}))
        row.profile = profile(options.bin_dir, row, details)
        if options.details:
            row.counters_of_a_head = count_one_head(options.bin_dir, row)
        if row.pass_ == "forward":
            forward_launches[row.label] = len(row.profile)
        else:  # it ran its forward pass first; the profile is of the backward pass alone
            del row.profile[: forward_launches[row.label]]
        print(f"profiled {name}: {len(row.profile)} launches")
    saved.write(options.path, rows)
    return 0


if __name__ == "__main__":
    saved.run("profile_gpu", main)
