#!/usr/bin/env python3
"""Times ring.py and ulysses.py between the GPUs of a machine, in turns, beside one GPU alone and torch's own context parallelism.

  torchrun --nproc-per-node 2 common/binding/time_ring.py OUT.jsonl [--build DIR] [--rounds R] [--most TOKENS]

One JSON object per line: the problem, the scheme, the pass, the median of R times in ms, each the slowest rank's, and `ideal_ms`, one GPU's
time for the whole problem over the number of ranks. Appends to OUT.jsonl.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("LOCAL_RANK", "0")  # the kernels run on a process's first GPU
os.environ["LOCAL_RANK"] = "0"  # which is the only one
sys.path.insert(0, str(Path(__file__).resolve().parent))
import flash_steps
import ring
import torch
import torch.distributed as dist
import ulysses

FASTEST = {"variant": "scheduled", "backward_variant": "resident"}
STREAMED = 1 << 17  # beyond so many tokens one GPU's time follows from its time for as many, which grows with their square


def timed(f):
    """ms of one call, the slowest rank's."""
    dist.barrier()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    f()
    end.record()
    torch.cuda.synchronize()
    slowest = torch.tensor([begin.elapsed_time(end)], device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def operands(tokens, heads, d=128):
    generator = torch.Generator(device="cuda").manual_seed(rank)
    return [torch.randn(1, h, tokens, d, generator=generator, device="cuda", dtype=torch.bfloat16) for h in (heads[0], heads[1], heads[1])]


def both(attend, q, k, v):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    O = attend(q, k, v)
    O.backward(q.detach())  # any values do


def by_torch(causal, mesh):
    from torch.distributed.tensor.experimental import context_parallel

    def attend(q, k, v):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))  # it takes equal heads alone
        with context_parallel(mesh, buffers=[], buffer_seq_dims=[]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


def schemes(causal, mesh):
    return {
        "ring": lambda q, k, v: ring.ring_attention(q, k, v, causal=causal, zigzag=False, **FASTEST),
        "zigzag": lambda q, k, v: ring.ring_attention(q, k, v, causal=causal, **FASTEST),
        "ulysses": lambda q, k, v: ulysses.ulysses_attention(q, k, v, causal=causal, **FASTEST),
        "torch": by_torch(causal, mesh),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--build", default="build-binding")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=1 << 20, help="tokens in all (default: 1048576)")
    given = parser.parse_args()
    flash_steps.use(given.build)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    mesh = dist.init_device_mesh("cuda", (world,))
    failed = {}
    for tokens in (1 << 15, 1 << 17, 1 << 18, 1 << 20):
        for heads in ((32, 8), (32, 32)):
            for causal in (False, True):
                for passes in ("forward", "both"):
                    if tokens <= given.most:
                        row = {"gpu": torch.cuda.get_device_name(), "ranks": world, "tokens": tokens, "heads": heads, "causal": causal}
                        measure(row | {"passes": passes, "dtype": "bf16", "head_dim": 128}, schemes(causal, mesh), failed, given)
    dist.destroy_process_group()


def measure(row, all_schemes, failed, given):
    began = time.monotonic()
    tokens, heads, forward = row["tokens"], row["heads"], row["passes"] == "forward"
    rounds = given.rounds if tokens <= STREAMED else 1
    alone = min(tokens, STREAMED)

    def call(attend, operands):
        if forward:
            with torch.no_grad():
                attend(*operands)
        else:
            both(attend, *operands)

    def one_gpu(q, k, v):
        return flash_steps.attention(q, k, v, causal=row["causal"], **FASTEST)

    whole, mine = operands(alone, heads), operands(tokens // world, heads)
    runs = {"one GPU": (one_gpu, whole)} | {name: (attend, mine) for name, attend in all_schemes.items() if name not in failed}
    if tokens > STREAMED:  # one form each: others have been measured on shorter sequences
        runs = {name: run for name, run in runs.items() if name in ("one GPU", "zigzag", "ulysses")}
    times = {name: [] for name in runs}
    for turn in range(rounds + 1):  # the first is a warm-up
        for name, run in runs.items():
            if name in failed:
                continue
            try:
                ms = timed(lambda run=run: call(*run))
            except Exception as error:
                failed[name] = str(error).split("\n")[0]
                if rank == 0:
                    print(f"{name}: {failed[name]}", flush=True)
                continue
            if turn or rounds == 1:
                times[name].append(ms)
    medians = {name: statistics.median(found) for name, found in times.items() if found}
    ideal = medians.pop("one GPU") * (tokens / alone) ** 2 / world
    if rank:
        return
    with given.out.open("a") as out:
        for name, ms in medians.items():
            out.write(json.dumps(row | {"scheme": name, "ms": round(ms, 3), "ideal_ms": round(ideal, 3), "rounds": rounds}) + "\n")
    share = ", ".join(f"{name} {ideal / ms:.3f}" for name, ms in medians.items())
    print(
        f"{tokens} {heads} causal={row['causal']} {row['passes']}: ideal {ideal:.2f} ms; {share} ({time.monotonic() - began:.0f} s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
