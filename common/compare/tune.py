#!/usr/bin/env python3
"""Runs `--tune` of the stages that have tile sizes to choose from, over head dimensions, masks and passes, and saves what it found.

    common/compare/tune.py BIN_DIR [--save FILE.json] [--only LIST] [--iterations N] [--tokens N] [--device gpu|cpu]

Each row is the JSON object of one `--tune` run (all compiled tile sizes with their times, the default and the fastest), plus commit, date
and sources (kernel file -> git blob id) as in the rows of `compare --save`. Problems: N queries and keys with N = 4096, batch and heads so
that batch * N and heads * head_dim are about 16,384 and 2048. A row is for the default dtype of its stage. Of each pass the
last variant of a stage that is about it is tuned. Exit codes: 0 good; 1 a run failed; 2 bad usage.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

from provenance import commit

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_json(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"FAILED ({done.returncode}): {' '.join(str(word) for word in command)}\n{done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def kernel_files(path, seen=None):
    """The file, and all .cuh files of stages that it includes."""
    seen = {} if seen is None else seen
    if path in seen or not (ROOT / path).exists():
        return seen
    text = (ROOT / path).read_text()
    seen[path] = "__global__" in text or path[0].isdigit()
    for included in re.findall(r'#include "([^"]+\.cuh)"', text):
        kernel_files(included, seen)
    return seen


def blob_ids(kernel):
    files = [path for path, is_kernel in kernel_files(kernel).items() if is_kernel]
    answer = subprocess.run(["git", "hash-object", "--", *files], cwd=ROOT, capture_output=True, text=True).stdout.split()
    return dict(zip(files, answer)) if len(answer) == len(files) else {path: None for path in files}


def to_tune(listed):
    """(variant, pass, head dimensions) of a stage: of each pass the last variant that is about it and has tile sizes."""
    chosen = {}
    for variant in listed["variants"]:
        for which in {tiles["pass"] for tiles in variant["tiles"]}:
            if which == "forward" and "backward" in variant["passes"]:
                continue  # its forward pass is that of another variant or stage
            dims = sorted(d for tiles in variant["tiles"] if tiles["pass"] == which for d in tiles["head_dims"])
            chosen[which] = (variant["name"], which, dims)
    return [chosen[which] for which in ("forward", "backward") if which in chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--only", default="", help="numbers of stages, such as 06,08")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options = parser.parse_args()
    length = min(4096, options.tokens)
    wanted = [number for number in options.only.split(",") if number]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows, failed = [], False
    for program in sorted(options.bin_dir.glob("[0-9][0-9]_*")):
        if wanted and program.name[:2] not in wanted:
            continue
        listed = run_json([program, "--list", "--json"])
        for variant, which, dims in to_tune(listed) if listed else []:
            for d in dims:
                for causal in (False, True):
                    sizes = ["--batch", options.tokens // length, "--heads", max(1, options.tokens // 8 // d), "--seq", length, "--head-dim", d]
                    command = [program, "--tune", "--json", "--device", options.device, "--variant", variant, "--pass", which, *sizes]
                    command += ["--iterations", options.iterations] + (["--causal"] if causal else [])
                    row = run_json(command)
                    failed = failed or row is None
                    if row is None:
                        continue
                    row.update(commit=commit(), date=date, sources=blob_ids(row["kernel"]))
                    rows.append(row)
                    tune = row["tune"]
                    print(f"{program.name} {variant} {which} d={d}{' causal' if causal else ''}: default {tiles_text(tune['default'])}, "
                          f"fastest {tiles_text(tune['fastest'])}", flush=True)  # fmt: skip
    if options.save:
        options.save.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(1 if failed else 0 if rows else 2)


def tiles_text(tiles):
    return f"{tiles['br']},{tiles['bc']}" if tiles else "-"


if __name__ == "__main__":
    main()
