#!/usr/bin/env python3
"""Times flash_steps.attention, with the steps that it chooses by itself, and torch's cuDNN on 43 problems, in turns, with a cold L2.

  time_problems.py OUT.csv [--build DIR] [--dtype bf16|fp16] [--rounds R]

One line per problem and pass: TFLOP/s of both from the median of R medians of 5 times, and, of the samples taken while each ran, the
highest power in W and the median clock in MHz; empty where cuDNN refuses. OUT.csv is written anew.
"""

import argparse
import csv
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]
import flash_steps

from common.compare import peers


def problems():
    """(B, H, Hkv, queries, keys, d, causal)"""
    masks = (False, True)
    for d in (64, 128):  # the twelve of the front page
        yield from ((16384 // n, 2048 // d, 2048 // d, n, n, d, causal) for n in (1024, 4096, 16384) for causal in masks)
    yield from ((1, 64, 8, n, n, 128, causal) for n in (1024, 4096, 16384, 32768) for causal in masks)
    yield from ((4, 32, 4, n, n, 64, True) for n in (2048, 8192))
    yield from ((1, h, h, n, n, d, False) for h, n, d in ((8, 4096, 64), (8, 2048, 128), (4, 8192, 128), (12, 2048, 64)))
    yield from ((4, 16, 16, n, n, 128, False) for n in (777, 3000, 4000))
    for d in (32, 80, 96, 160, 192, 256):
        yield from ((16384 // n, 2048 // d, 2048 // d, n, n, d, False) for n in (1024, 4096))
    yield from ((1, 16, 16, n, m, 128, False) for n, m in ((16384, 1024), (1024, 16384)))


class Card:
    """Samples the GPU's clock and power every 20 ms, as long as the program runs."""

    def __init__(self):
        query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits", "-lms", "20"]
        self.process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        self.samples = []  # (seconds, MHz, W)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            mhz, watts = line.split(",")
            self.samples.append((time.monotonic(), float(mhz), float(watts)))

    def during(self, spans):
        """MHz and W within `spans` of seconds; 0 where all were too short for a sample."""
        seen = [(mhz, watts) for at, mhz, watts in self.samples if any(begin <= at <= end for begin, end in spans)]
        return (round(statistics.median(mhz for mhz, _ in seen)), round(max(watts for _, watts in seen))) if seen else (0, 0)


def measure(torch, runs, problem, dtype, rounds, flush, card):
    """{pass: {name: [TFLOP/s, MHz, W]}} of each of `runs`, functions of Q, K, V."""
    B, H, Hkv, N, M, d, causal = problem
    q, k, v, dO = (torch.randn(B, h, n, d, device="cuda", dtype=dtype) for h, n in ((H, N), (Hkv, M), (Hkv, M), (H, N)))
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def forward(run):
        with torch.no_grad():
            return peers.time_ms(torch, lambda: run(*leaves), 5, flush, lambda: None)

    def backward(run):
        O = run(*leaves)
        return peers.time_ms(torch, lambda: torch.autograd.grad(O, leaves, dO, retain_graph=True), 5, flush, lambda: None)

    work = 4.0 * B * H * (N * (N + 1) // 2 if causal else N * M) * d
    found = {}
    for which, time_pass, flops in (("forward", forward, work), ("backward", backward, 2.5 * work)):
        times, spans = {name: [] for name in runs}, {name: [] for name in runs}
        for turn in range(rounds):
            for name in list(runs)[:: -1 if turn % 2 else 1]:
                began = time.monotonic()
                try:
                    times[name].append(time_pass(runs[name])["median_ms"])
                except RuntimeError as error:
                    print(problem, which, name, str(error).splitlines()[0], file=sys.stderr)
                spans[name].append((began, time.monotonic()))
        found[which] = {
            name: [f"{flops / statistics.median(ms) / 1e9:.1f}" if ms else "", *card.during(spans[name])] for name, ms in times.items()
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--build", default="build-binding")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    flash_steps.use(given.build)
    torch = peers.find_torch()
    dtype = getattr(torch, peers.DTYPES[given.dtype])
    flush = torch.empty(4 * torch.cuda.get_device_properties(0).L2_cache_size, device="cuda", dtype=torch.uint8)
    with given.out.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow("dtype B H Hkv queries keys d causal pass ours ours_mhz ours_watts cudnn cudnn_mhz cudnn_watts".split())
        card = Card()
        for problem in problems():
            cudnn = peers.attention(torch, "CUDNN_ATTENTION", problem[5] ** -0.5, problem[6])
            runs = {"ours": lambda q, k, v, causal=problem[6]: flash_steps.attention(q, k, v, causal=causal), "cudnn": cudnn}
            for which, seen in measure(torch, runs, problem, dtype, given.rounds, flush, card).items():
                out.writerow([given.dtype, *problem[:6], "yes" if problem[6] else "no", which, *seen["ours"], *seen["cudnn"]])
            file.flush()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
