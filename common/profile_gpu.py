#!/usr/bin/env python3
"""Adds what Nsight Compute says about each kernel to rows that `compare --save` wrote on a GPU.

    common/profile_gpu.py BIN_DIR FILE.json [--seconds N]

Every row of the file is run once more under ncu, from the stage programs in BIN_DIR, and gets a list "profile" with an object for
each kernel launch of the pass. The clocks are left as they are (--clock-control none), and so are caches: every kernel starts with what the
one before left behind, as in real use (--cache-control none). Needs ncu on the PATH and permission to read the counters.
"""
import argparse
import csv
import json
import pathlib
import re
import subprocess
import sys
import time

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


def command(bin_dir, row):
    problem = row["problem"]
    sizes = {"batch": "batch", "heads": "heads", "kv-heads": "kv_heads", "seq-q": "seq_q", "seq-k": "seq_k", "head-dim": "head_dim"}
    words = [str(bin_dir / row["stage"]), "--device", "gpu", "--variant", row["variant"], "--pass", row["pass"], "--no-check"]
    words += [word for option, key in sizes.items() for word in ("--" + option, str(problem[key]))]
    words += [word for option in ("bias", "dtype", "layout", "input", "seed") for word in ("--" + option, str(problem[option]))]
    if row.get("tiles"):
        words += ["--tiles", f"{row['tiles']['br']},{row['tiles']['bc']}"]
    return words + ["--scale", repr(problem["scale"])] + (["--causal"] if problem["causal"] else [])


def profile(bin_dir, row):
    metrics = ",".join(name for name, _ in METRICS.values())
    ncu = ["ncu", "--clock-control", "none", "--cache-control", "none", "--print-units", "base", "--csv", "--page", "raw"]
    done = subprocess.run(ncu + ["--metrics", metrics] + command(bin_dir, row), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode != 0 or len(lines) < 3:
        sys.exit(f"ncu failed on {row['stage']} {row['variant']} {row['pass']}:\n{done.stdout}{done.stderr}")
    head, _, *launches = csv.reader(lines)
    kernels = []
    for launch in launches:
        cell = dict(zip(head, launch))
        values = {key: float(cell[name].replace(",", "")) * factor for key, (name, factor) in METRICS.items()}
        name = re.search(r"(\w+)(?:<.*?>)?\(", cell["Kernel Name"]).group(1)  # of flash::<unnamed>::name(Problem, ...)
        kernels.append({"kernel": name, **values})
    return kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("path", type=pathlib.Path, metavar="FILE.json")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run later than that; the rest has no profile")
    options = parser.parse_args()
    began = time.monotonic()
    rows = json.loads(options.path.read_text())
    forward_launches = {}
    for row in rows:
        if "problem" not in row or row.get("device", {}).get("kind") != "gpu":
            continue
        name = f"{row['stage']} {row['variant']} {row['pass']}"
        variant = (row["stage"], row["variant"])
        late = time.monotonic() - began > options.seconds
        if late or (row["pass"] == "backward" and variant not in forward_launches):
            print(f"not profiled for lack of time: {name}")
            continue
        row["profile"] = profile(options.bin_dir, row)
        if row["pass"] == "forward":
            forward_launches[variant] = len(row["profile"])
        else:  # it ran its forward pass first; the profile is of the backward pass alone
            del row["profile"][: forward_launches[variant]]
        print(f"profiled {name}: {len(row['profile'])} launches")
    options.path.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
