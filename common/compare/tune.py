#!/usr/bin/env python3
"""Runs `--tune` of the stages that have tile sizes to choose from, over head dimensions, masks and passes, and saves what it found.

    common/compare/tune.py BIN_DIR [--save FILE.json] [--only LIST] [--iterations N] [--tokens N] [--device gpu|cpu]

Each row is the JSON object of one `--tune` run (all compiled tile sizes with their times, the default and the fastest), plus commit, date
and sources (kernel file -> git blob id) as in the rows of `compare --save`. Problems: N queries and keys with N = 4096, batch and heads so
that batch * N and heads * head_dim are about 16,384 and 2048. A row is for the default dtype of its stage. Of each pass the
last variant of a stage that is about it is tuned. --only takes numbers of stages, such as 06,08. Rows go to FILE.json.partial as they
come, which takes the place of FILE.json at the end. Exit codes: 0 good; 1 a run failed; 2 bad usage.
"""
import datetime
import json
import pathlib
import re
import subprocess
import sys

import saved_rows
from provenance import commit
from usage import Failure, Parser, run, whole_number

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_json(command):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    except OSError as error:
        raise Failure(1, f"{command[0]} cannot be started: {error.strerror}") from None
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
    try:
        answer = subprocess.run(["git", "hash-object", "--", *files], cwd=ROOT, capture_output=True, text=True).stdout.split()
    except OSError:  # no git here
        answer = []
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


def tune(program, variant, which, d, causal, options):
    """The row of one `--tune`; None if it failed, which run_json has said."""
    length = min(4096, options.tokens)
    sizes = ["--batch", options.tokens // length, "--heads", max(1, options.tokens // 8 // d), "--seq", length, "--head-dim", d]
    command = [program, "--tune", "--json", "--device", options.device, "--variant", variant, "--pass", which, *sizes]
    return run_json([*command, "--iterations", options.iterations] + (["--causal"] if causal else []))


def main(arguments):
    parser = Parser("tune", __doc__)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--iterations", type=whole_number, default=5)
    parser.add_argument("--tokens", type=whole_number, default=16384)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options = parser.parse_args(arguments)
    partial = options.save and options.save.with_name(options.save.name + ".partial")
    if partial and partial.exists():
        raise Failure(2, f"{partial} has the rows of a run that was interrupted; allowed: move it away")
    wanted = [number for number in options.only.split(",") if number]
    programs = [program for program in sorted(options.bin_dir.glob("[0-9][0-9]_*")) if not wanted or program.name[:2] in wanted]
    if not programs:
        raise Failure(2, f"no stage program in {options.bin_dir}" + (f" is of {options.only}" if wanted else ""))
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows, failed = [], False
    for program in programs:
        listed = run_json([program, "--list", "--json"])
        failed = failed or listed is None
        chosen = to_tune(listed) if listed else []
        for variant, which, d, causal in [(variant, which, d, causal) for variant, which, dims in chosen for d in dims for causal in (False, True)]:
            row = tune(program, variant, which, d, causal, options)
            if row is None:
                failed = True
                continue
            row.update(commit=commit(), date=date, sources=blob_ids(row["kernel"]))
            rows.append(row)
            if partial:
                saved_rows.write(partial, rows)
            print(f"{program.name} {variant} {which} d={d}{' causal' if causal else ''}: default {tiles_text(row['tune']['default'])}, "
                  f"fastest {tiles_text(row['tune']['fastest'])}", flush=True)  # fmt: skip
    if rows and partial:
        partial.replace(options.save)
    return 1 if failed else 0


def tiles_text(tiles):
    return f"{tiles['br']},{tiles['bc']}" if tiles else "-"


if __name__ == "__main__":
    run("tune", main)
