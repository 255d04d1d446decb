#!/usr/bin/env python3
"""Times decode steps on a GPU, cold L2, in turns: the steps of stage 08, torch's FlashAttention-2 with split keys, cuDNN, and a copy of K to V.
The copy reads as many bytes as K has and writes as many, which is what a decode step reads of K and V.

  time_decode.py OUT.jsonl [--build DIR] [--rounds R] [--dtype bf16|fp32]

One JSON object per line: the problem, the kernel, the median of R medians of 5 times in ms, and of_copy, the copy's time over this time.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]
import flash_steps
import torch

from common.compare import peers

PROBLEMS = [  # B, H, Hkv, queries, keys
    (1, 32, 8, 1, 8192),
    (1, 32, 8, 1, 32768),
    (1, 32, 8, 1, 131072),
    (1, 32, 8, 1, 524288),
    (1, 32, 8, 4, 131072),
    (1, 32, 32, 1, 32768),
    (1, 32, 32, 1, 131072),
    (8, 32, 8, 1, 32768),
    (8, 32, 8, 1, 131072),
    (8, 32, 32, 1, 32768),
]


def kernels(q, k, v, target):
    """By name. The copy is of K."""
    stage, steps = ("06", ("decode", "tuned")) if q.dtype == torch.float32 else ("08", ("decode", "scheduled"))
    found = {"copy": lambda: target.copy_(k)}
    for step in steps:
        found[step] = lambda step=step: flash_steps.attention(q, k, v, stage=stage, variant=step)
    if q.dtype != torch.float32:
        for name in ("flash", "cudnn"):
            attention = peers.attention(torch, peers.PEERS[name][1], q.shape[3] ** -0.5, causal=False)
            found[name] = lambda attention=attention: attention(q, k, v)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--build", default="build-binding")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    given = parser.parse_args()
    flash_steps.use(given.build)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[given.dtype]
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for B, H, Hkv, queries, keys in PROBLEMS:
        q = torch.randn(B, H, queries, 128, device="cuda", dtype=dtype)
        k, v = (torch.randn(B, Hkv, keys, 128, device="cuda", dtype=dtype) for _ in range(2))
        target = torch.empty_like(k)
        runs, times = kernels(q, k, v, target), {}
        for _ in range(given.rounds):
            for name, run in list(runs.items()):
                try:
                    times.setdefault(name, []).append(peers.time_ms(torch, run, 5, flush, lambda: None)["median_ms"])
                except Exception as error:  # a kernel that does not take the problem
                    print(f"{name}: {str(error).splitlines()[0]}", flush=True)
                    del runs[name], times[name]
        copy = statistics.median(times["copy"])
        row = about | {"batch": B, "heads": H, "kv_heads": Hkv, "seq_q": queries, "seq_k": keys, "head_dim": 128, "dtype": given.dtype}
        with given.out.open("a") as out:
            for name, found in times.items():
                ms = statistics.median(found)
                out.write(json.dumps(row | {"kernel": name, "ms": round(ms, 4), "of_copy": round(copy / ms, 3)}) + "\n")
                rate = f"{ms:8.4f} ms {2 * k.nbytes / ms * 1e-6:6.0f} GB/s, {copy / ms:.3f} of the copy"
                print(f"B={B} H={H}:{Hkv} {queries}x{keys} {name:10} {rate}", flush=True)


if __name__ == "__main__":
    main()
