#!/usr/bin/env python3
"""What each rank of a ring does when, by the clock of the machine: computes, merges, or waits for a neighbour. Through the simulator.

  trace_ring.py OUT.csv [--build DIR] [--ranks 2] [--tokens 512]

Writes one call of both passes for the plain placement and one for zigzag, each the quickest of CALLS.
"""

import argparse
import csv
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from unittest import mock

import flash_steps
import ring
import torch
import torch.distributed as dist

CALLS = 6
COLUMNS = ("placement", "rank", "pass", "what", "begin_ms", "end_ms")


class Stamped:
    """A transfer whose wait() is noted."""

    def __init__(self, work, note):
        self.work, self.note = work, note

    def wait(self):
        self.note("waits", self.work.wait)


def on_rank(rank, given, folder, zigzag, results):
    torch.set_num_threads(1)
    os.environ["FLASH_SIMT_THREADS"] = "1"
    flash_steps.use(given.build)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=given.ranks)
    generator = torch.Generator().manual_seed(rank)
    q, k, v = (torch.randn(1, 1, given.tokens // given.ranks, 16, generator=generator).requires_grad_() for _ in range(3))
    rows, which = [], "forward"

    def note(what, f, *arguments, **options):
        begin = time.monotonic()
        result = f(*arguments, **options)
        rows[-1].append([zigzag, rank, which, what, begin, time.monotonic()])
        return result

    def noted(what, f):
        return lambda *arguments, **options: note(what, f, *arguments, **options)

    def start(moves, f=dist.batch_isend_irecv):
        return [Stamped(work, note) for work in f(moves)]

    with (
        mock.patch.object(flash_steps, "_run_forward", noted("computes", flash_steps._run_forward)),
        mock.patch.object(flash_steps, "_run_backward", noted("computes", flash_steps._run_backward)),
        mock.patch.object(flash_steps, "merge", noted("merges", flash_steps.merge)),
        mock.patch.object(dist, "batch_isend_irecv", start),
    ):
        for _ in range(CALLS):
            rows.append([])
            which = "forward"
            dist.barrier()
            O = ring.ring_attention(q, k, v, causal=True, zigzag=zigzag, stage="07")
            which = "backward"
            dist.barrier()
            torch.autograd.grad(O.sum(), (q, k, v))
    results.put(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--build", default="build-binding")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=512, help="in all")
    given = parser.parse_args()
    context, found = multiprocessing.get_context("fork"), []
    for zigzag in (False, True):
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            ranks = [context.Process(target=on_rank, args=(rank, given, folder, zigzag, results)) for rank in range(given.ranks)]
            for process in ranks:
                process.start()
            calls = [sum(of_ranks, []) for of_ranks in zip(*(results.get(timeout=300) for _ in ranks))]
            for process in ranks:
                process.join()
        for which in ("forward", "backward"):
            passes = [sorted((row for row in rows if row[2] == which), key=lambda row: (row[1], row[4])) for rows in calls]
            of_pass = min(passes, key=lambda rows: max(row[5] for row in rows) - min(row[4] for row in rows))
            first = min(row[4] for row in of_pass)
            for _, rank, _, what, begin, end in of_pass:
                placement = "zigzag" if zigzag else "plain"
                found.append([placement, rank, which, what, round(1e3 * (begin - first), 3), round(1e3 * (end - first), 3)])
    with given.out.open("w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([COLUMNS, *found])


if __name__ == "__main__":
    main()
