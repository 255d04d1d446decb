#!/usr/bin/env python3
"""Times torch's attention: each backend of scaled_dot_product_attention, a
kernel in Triton, plain torch, and FlashAttention-3 if it is installed. `compare
--only peer` runs it, alone or in turns with stages, with sweeps, progress, a
time limit, --save and --resume:

    build/bin/compare --only peer --tokens 16384 --width 2048 --sweep d=64,128

It answers each line of its input by a row. A line is a JSON object of a
"problem" as rows have it, a "variant" (flash, flash3, cudnn, memory_efficient,
triton or plain), a "pass" (forward or backward), "iterations", and perhaps
"cold_l2", false if each iteration may find in L2 what the previous one left
there. --list, or the line {"list": true}, asks for the variants.

Rows are those of `compare`, with "peer" as their stage. Timing is compare's
too: CUDA events around the pass alone, a cold L2, the median after a warm-up;
enqueue_ms is what a clock on the host shows that does not wait for the GPU. A
backward pass is timed without its forward. fp32 is computed without TF32. Torch
takes neither a bias nor another layout here, and a mask only with as many keys
as queries, since it aligns masks at the top left. Heads share keys and values
in flash, flash3 and cudnn alone.

Needs torch and a GPU. Exit codes: 0 good; 1 the GPU fails; 2 bad usage; 3 no
torch or no GPU.
"""

import argparse
import json
import pathlib
import re
import sys

import peer_timing
from peer_timing import DTYPES, PEERS
from rows import PASSES, Failure, options, run, wrong_in


def driver_version():
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if re.fullmatch(r"[0-9]+(\.[0-9]+)+", word)), "")


def about(torch):
    """What every row has."""
    properties = torch.cuda.get_device_properties(0)
    device = {"kind": "gpu", "name": properties.name, "sm": properties.major * 10 + properties.minor}
    device |= {"cuda": torch.version.cuda, "driver": driver_version()}
    cudnn = torch.backends.cudnn.version()  # 91900: 9.19.0
    version = f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"
    return {"device": device, "torch": torch.__version__, "cudnn": version}


def listing(about):
    """What a stage program answers to --list --json, and what every row has."""
    variants = [{"name": name, "idea": idea, "kernel": "", "passes": PASSES, "dtypes": list(DTYPES)} for name, (idea, _) in PEERS.items()]
    return {"stage": "peer", "variants": variants, "about": about}


def parse(line):
    """The row that a line asks for, without results, the iterations, and whether L2 is cold in each."""
    try:
        asked = json.loads(line)
        problem, variant, which, iterations = (asked[key] for key in ("problem", "variant", "pass", "iterations"))
        cold_l2 = asked.get("cold_l2", True)
        wrong = wrong_in("problem", problem)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise Failure(2, f"a line of the input is no question ({error!r}); --help says what one is") from None
    if wrong:
        raise Failure(2, wrong)
    choices = (
        ("dtype", problem["dtype"], DTYPES),
        ("variant", variant, PEERS),
        ("pass", which, PASSES),
        ("cold_l2", cold_l2, (True, False)),
    )
    for key, value, allowed in choices:
        if value not in [*allowed]:
            raise Failure(2, f"{key} is {json.dumps(value)}; allowed: {', '.join(map(json.dumps, allowed))}")
    if type(iterations) is not int or iterations < 1:
        raise Failure(2, f"iterations is {json.dumps(iterations)}; allowed: whole numbers from 1")
    problem.setdefault("scale", problem["head_dim"] ** -0.5)
    return {"stage": "peer", "variant": variant, "pass": which, "idea": PEERS[variant][0], "problem": problem}, iterations, cold_l2


def not_taken(problem, variant):
    """What torch is not asked for: "" or why not."""
    said = [f"{name} {value}" for name, value in options(problem) if name != "seed"]  # an option that is not known here is one
    if problem["heads"] != problem["kv_heads"] and variant not in ("flash", "flash3", "cudnn"):
        said.append(f"{problem['heads']} heads with {problem['kv_heads']} for keys and values")
    if problem["seq_q"] != problem["seq_k"] and (problem["causal"] or variant == "triton"):
        said.append(f"{problem['seq_q']} queries with {problem['seq_k']} keys")
    return f"{variant} is not timed with {', '.join(said)}" if said else ""


def result(torch, row, iterations, cold_l2):
    """What the row says about its run."""
    problem, backend = row["problem"], PEERS[row["variant"]][1]
    if why := not_taken(problem, row["variant"]):
        return {"verdict": "refused", "message": why}
    if why := peer_timing.no_room(torch, problem, backend, row["pass"]):
        return {"verdict": "cannot run", "message": why}
    try:
        return peer_timing.result_of(torch, problem, backend, row["pass"], iterations, cold_l2)
    finally:
        torch.cuda.empty_cache()


def main(arguments):
    parser = argparse.ArgumentParser("peers.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    wants_list = parser.parse_args(arguments).list
    if not wants_list and sys.stdin.isatty():
        raise Failure(2, "no questions on standard input; allowed: a JSON object a line, as --help says, or compare --only peer")
    torch = peer_timing.find_torch()
    known = about(torch)
    if wants_list:
        print(json.dumps(listing(known)))
        return
    one = torch.ones(1, 1, device="cuda", dtype=torch.float32)
    torch.matmul(one, one)  # what cuBLAS allocates once is no memory of a run
    for line in sys.stdin:
        if line.strip() == '{"list": true}':
            print(json.dumps(listing(known)), flush=True)
            continue
        row, *how = parse(line)
        work = peer_timing.flops(row["problem"], row["pass"])
        print(json.dumps({**row, "flops": work, **known, **result(torch, row, *how)}), flush=True)


if __name__ == "__main__":
    run("peers", main)
