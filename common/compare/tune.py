#!/usr/bin/env python3
"""Runs `--tune` of the stages that have tile sizes to choose from, over head dimensions, masks and passes, and saves what it found.

    common/compare/tune.py BIN_DIR [--save FILE.json [--resume | --force]] [--only LIST] [--iterations N] [--tokens N] [--device gpu|cpu]

Each row is the JSON object of one `--tune` run (all compiled tile sizes with their times, the default and the fastest), plus commit, date
and sources (kernel file -> git blob id) as in the rows of `compare --save`. Problems: N queries and keys with N = 4096, batch and heads so
that batch * N and heads * head_dim are about 16,384 and 2048. A row is for the default dtype of its stage. Of each pass the
last variant of a stage that is about it is tuned. --only takes numbers of stages, such as 06,08. Rows go to FILE.json.partial as they
come, which takes the place of FILE.json once all are there; --resume goes on with what either has, as far as kernels and iterations are the
same. A FILE.json that exists is replaced only if it holds such rows, and those of a GPU by those of the CPU only with --force. Exit codes: 0 good; 1 a run failed; 2 bad usage.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import saved_rows
from provenance import commit
from rows.usage import Failure, Parser, run, whole_number

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


def key(row):
    """What a row is about; of a run to come, what task() gives."""
    p = row["problem"]
    return row["stage"], row["variant"], row["pass"], p["head_dim"], p["causal"], p["batch"], p["heads"], p["seq_q"]


def is_row(row):
    known = saved_rows.has(row, stage=str, variant=str, problem=dict, device=dict, kernel=str, tune=dict, sources=dict, **{"pass": str})
    return known and saved_rows.has(row["problem"], head_dim=int, causal=bool, batch=int, heads=int, seq_q=int)


TUNED = saved_rows.Kind("tune.py", key, is_row)


def tasks(programs, options):
    """(program, key of its row) of all runs; and how many programs did not say what they have."""
    found, silent = [], 0
    length = min(4096, options.tokens)
    for program in programs:
        listed = run_json([program, "--list", "--json"])
        silent += listed is None
        for variant, which, dims in to_tune(listed) if listed else []:
            sizes = [(d, causal, options.tokens // length, max(1, options.tokens // 8 // d), length) for d in dims for causal in (False, True)]
            found += [(program, (program.name, variant, which, *one)) for one in sizes]
    return found, silent


def tune(program, of, options):
    """The row of one `--tune`; None if it failed, which run_json has said."""
    _, variant, which, d, causal, batch, heads, length = of
    command = [program, "--tune", "--json", "--device", options.device, "--variant", variant, "--pass", which, "--batch", batch, "--heads", heads]
    return run_json([*command, "--seq", length, "--head-dim", d, "--iterations", options.iterations] + (["--causal"] if causal else []))


def holds(row, options):
    """Need it not be measured again?"""
    same = all(choice.get("time", {}).get("iterations", options.iterations) == options.iterations for choice in row["tune"].get("choices", []))
    sources = blob_ids(row["kernel"])
    same = same and str(row["device"].get("simulates_sm", 90)) == (os.environ.get("FLASH_SIMT_TARGET") or "90")
    return same and row["device"].get("kind") == options.device and row["sources"] == sources and None not in sources.values()


def main(arguments):
    parser = Parser("tune", __doc__)
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--iterations", type=whole_number, default=5)
    parser.add_argument("--tokens", type=whole_number, default=16384)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options = parser.parse_args(arguments)
    if (options.resume or options.force) and not options.save:
        raise Failure(2, f"{'--resume' if options.resume else '--force'} needs --save")
    saved = saved_rows.SavedRows(options.save, options.resume, TUNED)
    of_gpu = next((row["device"].get("name", "a GPU") for row in saved.replaced if row["device"].get("kind") == "gpu"), None)
    if of_gpu and options.device == "cpu" and not options.force:
        raise Failure(2, f"{options.save} holds rows of {of_gpu}, which this run would replace by its own; allowed: a new name, or --force")
    wanted = [number for number in options.only.split(",") if number]
    programs = [program for program in sorted(options.bin_dir.glob("[0-9][0-9]_*")) if not wanted or program.name[:2] in wanted]
    if not programs:
        raise Failure(2, f"no stage program in {options.bin_dir}" + (f" is of {options.only}" if wanted else ""))
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    found, failed = tasks(programs, options)
    rows = []
    for program, of in found:
        row = saved.old.get(of)
        if row is None or not holds(row, options):
            row = tune(program, of, options)
            if row is None:
                failed += 1
                continue
            row.update(commit=commit(), date=date, sources=blob_ids(row["kernel"]))
        rows.append(row)
        saved.keep(rows)
        print(f"{program.name} {of[1]} {of[2]} d={of[3]}{' causal' if of[4] else ''}: default {tiles_text(row['tune']['default'])}, "
              f"fastest {tiles_text(row['tune']['fastest'])}", flush=True)  # fmt: skip
    if failed:
        kept = f"; {saved.partial} has the rows of the others, --resume goes on" if saved.partial and rows else ""
        raise Failure(1, f"{failed} of {len(found)} runs failed{kept}")
    saved.finish(rows)
    return 0


def tiles_text(tiles):
    return f"{tiles['br']},{tiles['bc']}" if tiles else "-"


if __name__ == "__main__":
    run("tune", main)
