#!/usr/bin/env python3
"""Adds clock and power to rows that `compare --save` wrote on a GPU.

    common/power_gpu.py BIN_DIR FILE.jsonl [--seconds N]

Every row that has a time is run once more, for N seconds (default: 2): a stage from BIN_DIR, a peer by torch. nvidia-smi says meanwhile
which clock the SMs have and what the card draws. A row gets "sustained": the median of both while the card is busy, and the rate of this long
run. That is the rate of a GPU which has lowered its clock to stay within its power limit; a short run may be over before it has. FILE.jsonl
keeps its rows until all are there.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys

from compare import rows as saved
from profile_gpu import command

PEERS = pathlib.Path(__file__).resolve().parent / "compare" / "peers.py"
SAMPLES = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "-lms", "20"]
BUSY = 0.5  # of the most that was drawn, which is the moment before the card lowers its clock: less is a program that prepares inputs


def row_of_long_run(bin_dir, row, seconds):
    """What the program says of a run of about so many seconds."""
    iterations = math.ceil(1e3 * seconds / row["time"]["median_ms"])
    if row["stage"] == "peer":
        asked = {"problem": row["problem"], "variant": row["variant"], "pass": row["pass"], "iterations": iterations, "cold_l2": False}
        done = subprocess.run([sys.executable, PEERS], input=json.dumps(asked), capture_output=True, text=True)
    else:
        words = command(bin_dir, row) + ["--bench", "--json", "--iterations", str(iterations)]
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"no long run of {row['stage']} {row['variant']} {row['pass']}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def samples(text):
    """(MHz, W) of each line that has both: a driver that cannot say puts words there."""
    lines = (re.fullmatch(r"\s*([\d.]+), ([\d.]+)\s*", line) for line in text.splitlines())
    return [(float(line[1]), float(line[2])) for line in lines if line]


def sustained(bin_dir, row, seconds):
    watch = subprocess.Popen(SAMPLES, stdout=subprocess.PIPE, text=True)
    try:
        long_run = row_of_long_run(bin_dir, row, seconds)
    finally:
        watch.terminate()
        seen = samples(watch.communicate()[0])
    if not seen:
        sys.exit("nvidia-smi says neither clock nor power")
    most = max(watts for _, watts in seen)
    busy = [sample for sample in seen if sample[1] >= BUSY * most]
    clocks, powers = zip(*busy)
    return {"tflops": long_run["tflops"], "clock_mhz": statistics.median(clocks), "watts": statistics.median(powers)}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("path", type=pathlib.Path, metavar="FILE.jsonl")
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args(arguments)
    rows = saved.read(options.path)
    for row in rows:
        if row.time and row.is_gpu:
            row.sustained = sustained(options.bin_dir, row, options.seconds)
            print(f"{row.label} {row.pass_}: {row.sustained}")
    saved.write(options.path, rows)
    return 0


if __name__ == "__main__":
    saved.run("power_gpu", main)
