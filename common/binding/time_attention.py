#!/usr/bin/env python3
"""Times flash_steps.attention on GPUs, in turns with others, and appends lines to a CSV file. A time is the median of R rounds.

time_attention.py problems OUT.csv [--dtype bf16|fp16]   43 problems, next to cuDNN, with a cold L2: TFLOP/s
time_attention.py decode OUT.csv [--dtype bf16|fp32]     decode steps, next to torch's kernels and a copy of K to V, which reads and
                                                         writes as many bytes as a step reads: ms
torchrun --nproc-per-node 4 time_attention.py ring OUT.csv [--tokens 32768,131072] [--heads 32/8,32/32]
                                                         a sequence shared by the GPUs of a machine: ms, the slowest rank's, next to one GPU's
                                                         time over their number (ideal_ms; of more tokens than one_gpu_tokens it is scaled by
                                                         their square) and for a rank's share of the tokens (share_ms)
"""

import argparse
import contextlib
import csv
import functools
import itertools
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import flash_steps
import ring
import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
MASKS = {False: "no", True: "yes"}
DECODE = [*((1, 32, 8, 1, 1 << n) for n in (13, 15, 17, 19)), (1, 32, 8, 4, 1 << 17)]  # B, H, Hkv, queries, keys
DECODE += [(B, 32, Hkv, 1, 1 << n) for B, Hkv, n in ((1, 32, 15), (1, 32, 17), (8, 8, 15), (8, 8, 17), (8, 32, 15))]
ONE_GPU = 1 << 17  # tokens that one GPU computes alone
FASTEST = {"variant": "scheduled", "backward_variant": "lead"}
SCHEMES = {
    "ring": functools.partial(ring.ring_attention, zigzag=False, **FASTEST),
    "zigzag": functools.partial(ring.ring_attention, **FASTEST),
    "ulysses": functools.partial(ring.ulysses_attention, **FASTEST),
}


def problems():
    """(B, H, Hkv, queries, keys, d, causal)"""
    for d in (64, 128):  # the twelve of the front page
        yield from ((16384 // n, 2048 // d, 2048 // d, n, n, d, causal) for n in (1024, 4096, 16384) for causal in MASKS)
    yield from ((1, 64, 8, n, n, 128, causal) for n in (1024, 4096, 16384, 32768) for causal in MASKS)
    yield from ((4, 32, 4, n, n, 64, True) for n in (2048, 8192))
    yield from ((1, h, h, n, n, d, False) for h, n, d in ((8, 4096, 64), (8, 2048, 128), (4, 8192, 128), (12, 2048, 64)))
    yield from ((4, 16, 16, n, n, 128, False) for n in (777, 3000, 4000))
    for d in (32, 80, 96, 160, 192, 256):
        yield from ((16384 // n, 2048 // d, 2048 // d, n, n, d, False) for n in (1024, 4096))
    yield from ((1, 16, 16, n, m, 128, False) for n, m in ((16384, 1024), (1024, 16384)))


def tensors(B, H, Hkv, queries, keys, d, dtype, seed=0):
    """q, k, v and dO."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shapes = ((B, H, queries, d), (B, Hkv, keys, d), (B, Hkv, keys, d), (B, H, queries, d))
    return [torch.randn(shape, generator=generator, device="cuda", dtype=dtype) for shape in shapes]


def by_torch(backend, q, k, v, causal=False):
    with sdpa_kernel(backend):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def both_passes(attend, q, k, v, dO):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(attend(*leaves), leaves, dO)


def between_events(f):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    f()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def cold(f):
    """ms with a cold L2: the median of 5, after 3 that warm up."""
    flush, times = torch.empty(256 << 20, dtype=torch.uint8, device="cuda"), []
    for _ in range(8):
        for _ in range(24):  # one would do for the L2; the others give Python the time to queue the work behind them
            flush.zero_()
        times.append(between_events(f))
    return statistics.median(times[3:])


def slowest(f):
    """ms of the slowest rank."""
    dist.barrier()
    torch.cuda.synchronize()
    ms = torch.tensor([between_events(f)])
    dist.all_reduce(ms, dist.ReduceOp.MAX)
    return ms.item()


def in_turns(runs, rounds, clock=cold):
    """{name: ms} of what runs."""
    times = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            try:
                times[name].append(clock(runs[name]))
            except (RuntimeError, ValueError) as error:  # a kernel that does not take the problem
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {name: statistics.median(ms) for name, ms in times.items() if ms}


def time_problems(given):
    for *shape, causal in problems():
        B, H, Hkv, N, M, d = shape
        *qkv, dO = tensors(*shape, DTYPES[given.dtype])
        attends = {"ours": flash_steps.attention, "cudnn": functools.partial(by_torch, SDPBackend.CUDNN_ATTENTION)}
        runs = {name: functools.partial(f, *qkv, causal=causal) for name, f in attends.items()}
        work = 4.0 * B * H * (N * (N + 1) // 2 if causal else N * M) * d
        for which, flops in (("forward", work), ("backward", 2.5 * work)):
            if which == "backward":
                leaves, outputs = [x.requires_grad_() for x in qkv], {}
                for name, run in runs.items():
                    with contextlib.suppress(RuntimeError):  # the forward pass has said why
                        outputs[name] = run()
                runs = {name: functools.partial(torch.autograd.grad, O, leaves, dO, retain_graph=True) for name, O in outputs.items()}
            rates = {name: f"{flops / ms / 1e9:.1f}" for name, ms in in_turns(runs, given.rounds).items()}
            row = dict(zip("dtype B H Hkv queries keys d causal pass".split(), (given.dtype, *shape, MASKS[causal], which)))
            yield row | {"ours": "", "cudnn": ""} | rates


def time_decode(given):
    stage, steps = ("06", ("decode", "tuned")) if given.dtype == "fp32" else ("08", ("decode", "scheduled"))
    attends = {step: functools.partial(flash_steps.attention, stage=stage, variant=step) for step in steps}
    if given.dtype != "fp32":
        attends["flash"] = functools.partial(by_torch, SDPBackend.FLASH_ATTENTION)
        attends["cudnn"] = functools.partial(by_torch, SDPBackend.CUDNN_ATTENTION)
    for B, H, Hkv, queries, keys in DECODE:
        q, k, v, _ = tensors(B, H, Hkv, queries, keys, 128, DTYPES[given.dtype])
        runs = {"copy": functools.partial(torch.empty_like(k).copy_, k)}
        runs |= {name: functools.partial(f, q, k, v) for name, f in attends.items()}
        times = in_turns(runs, given.rounds)
        about = {"batch": B, "heads": H, "kv_heads": Hkv, "seq_q": queries, "seq_k": keys, "dtype": given.dtype}
        for name, ms in times.items():
            yield about | {"kernel": name, "ms": round(ms, 4), "of_copy": round(times["copy"] / ms, 3)}


def time_ring(given):
    os.environ.setdefault("TORCH_NCCL_HIGH_PRIORITY", "1")  # a transfer's blocks take the next free SM, not the one after the kernel's last
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    for attend in SCHEMES.values():  # the first call of a kernel loads it, and the first move makes the ranks' connections: seconds
        both_passes(attend, *tensors(1, 32, 32, 4096, 4096, 128, torch.bfloat16))
    pairs = [map(int, pair.split("/")) for pair in given.heads.split(",")]
    for tokens, (H, Hkv), causal in itertools.product(map(int, given.tokens.split(",")), map(tuple, pairs), MASKS):
        alone = min(tokens, ONE_GPU)
        whole, mine = (tensors(1, H, Hkv, n, n, 128, torch.bfloat16, rank) for n in (alone, tokens // world))
        attends = {name: functools.partial(f, causal=causal) for name, f in SCHEMES.items()}
        one_gpu = functools.partial(flash_steps.attention, causal=causal, **FASTEST)
        for which, run in (("forward", lambda f, q, k, v, _: f(q, k, v)), ("forward and backward", both_passes)):
            runs = {name: functools.partial(run, f, *mine) for name, f in (attends | {"share": one_gpu}).items()}
            times = in_turns(runs | {"one GPU": functools.partial(run, one_gpu, *whole)}, given.rounds, slowest)
            about = {"gpus": world, "tokens": tokens, "heads": H, "kv_heads": Hkv, "causal": MASKS[causal], "pass": which}
            ideal = {
                "ideal_ms": round(times.pop("one GPU") * (tokens / alone) ** 2 / world, 3),
                "one_gpu_tokens": alone if alone < tokens else "",
            }
            share = round(times.pop("share"), 3)
            for name, ms in times.items():
                yield about | {"scheme": name, "ms": round(ms, 3)} | ideal | {"share_ms": share}
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("problems", "decode", "ring"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--build", default="build-binding")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", default="32768,131072", help="in all")
    parser.add_argument("--heads", default="32/8,32/32", help="of queries and of keys")
    given = parser.parse_args()
    flash_steps.use(given.build)
    for row in {"problems": time_problems, "decode": time_decode, "ring": time_ring}[given.what](given):
        if os.environ.get("RANK", "0") != "0":
            continue
        with given.out.open("a", newline="") as file:
            out = csv.DictWriter(file, row)
            if file.tell() == 0:
                out.writeheader()
            out.writerow(row)
        print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
