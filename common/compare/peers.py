#!/usr/bin/env python3
"""Times torch's attention: each backend of scaled_dot_product_attention, a
kernel in Triton, and plain torch. `compare --peers` runs it beside the stages,
with sweeps, progress, a time limit, --save and --resume:

    build/bin/compare --only peer --tokens 16384 --width 2048 --sweep d=64,128

By itself it reads a problem a line, and prints the rows of each as they come:

    echo '{"problem": {"seq_q": 4096}, "variant": "plain"}' | compare/peers.py
    compare/peers.py --list

A line is a JSON object of a "problem", with sizes as rows have them (batch,
heads, seq_q, head_dim), causal and dtype; a "variant" (flash, cudnn,
memory_efficient, triton or plain), a "pass" (forward or backward),
"iterations", and "cold_l2", false if each iteration may find in L2 what the one
before has left there. What it leaves out is as in `compare`: batch 8, 12 heads,
1024 queries, head dimension 64, causal, fp32, every variant, both passes, 20
iterations. {"list": true} asks for what --list prints.

Rows are those of `compare`, with "peer" as their stage. Timing is compare's
too: CUDA events around the pass alone, a cold L2, the median after a warm-up;
enqueue_ms is what a clock on the host shows that does not wait for the GPU. A
backward pass is timed without its forward. fp32 is computed without TF32. Torch
takes neither a bias nor another layout here, no shared heads, and as many keys
as queries.

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
from rows import PASSES, USUAL, Failure, options, run, wrong_in

DEFAULTS = {"batch": 8, "heads": 12, "seq_q": 1024, "head_dim": 64, "causal": True, "dtype": "fp32", **USUAL}


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


def one_of(asked, key, allowed):
    """The value, or all of them if none is given."""
    if key in asked and asked[key] not in allowed:
        raise Failure(2, f"{key} is {json.dumps(asked[key])}; allowed: {', '.join(allowed)}")
    return [asked[key]] if key in asked else list(allowed)


def parse(line):
    """The rows that a line asks for, without results, the iterations, and whether L2 is cold in each."""
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Failure(2, f"a line of the input is no JSON ({error})") from None
    given = asked.get("problem", {}) if isinstance(asked, dict) else None
    if not isinstance(given, dict) or set(asked) - {"problem", "variant", "pass", "iterations", "cold_l2"}:
        raise Failure(2, "a line of the input is no object with problem, variant, pass, iterations and cold_l2, or some of them")
    problem = DEFAULTS | given
    problem = {"kv_heads": problem["heads"], "seq_k": problem["seq_q"]} | problem
    iterations, cold_l2 = asked.get("iterations", 20), asked.get("cold_l2", True)
    if wrong := wrong_in("problem", problem):
        raise Failure(2, wrong)
    one_of(problem, "dtype", DTYPES)
    if type(iterations) is not int or iterations < 1:
        raise Failure(2, f"iterations is {json.dumps(iterations)}; allowed: whole numbers from 1")
    if type(cold_l2) is not bool:
        raise Failure(2, f"cold_l2 is {json.dumps(cold_l2)}; allowed: true, false")
    problem.setdefault("scale", problem["head_dim"] ** -0.5)
    rows = [
        {"stage": "peer", "variant": variant, "pass": which, "idea": PEERS[variant][0], "problem": problem}
        for which in one_of(asked, "pass", PASSES)
        for variant in one_of(asked, "variant", PEERS)
    ]
    return rows, iterations, cold_l2


def not_taken(problem):
    """What torch is not asked for: "" or why not."""
    said = [f"{name} {value}" for name, value in options(problem) if name != "seed"]  # an option that is not known here is one
    said += [f"{problem['heads']} heads with {problem['kv_heads']} for keys and values"] if problem["heads"] != problem["kv_heads"] else []
    said += [f"{problem['seq_q']} queries with {problem['seq_k']} keys"] if problem["seq_q"] != problem["seq_k"] else []
    return f"torch is not timed with {', '.join(said)}" if said else ""


def result(torch, row, iterations, cold_l2):
    """What the row says about its run."""
    problem, backend = row["problem"], PEERS[row["variant"]][1]
    if why := not_taken(problem):
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
        raise Failure(2, "no problems on standard input; allowed: a JSON object a line, as --help says, or compare --peers")
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
        rows, *how = parse(line)
        for row in rows:
            work = peer_timing.flops(row["problem"], row["pass"])
            print(json.dumps({**row, "flops": work, **known, **result(torch, row, *how)}), flush=True)


if __name__ == "__main__":
    run("peers", main)
