#!/usr/bin/env python3
"""ring.py over gloo: 1, 2, 3, 4 and 8 processes of this machine, through the simulator or, with --gpu, on its GPU, against fp64 on the whole
sequence, gradients included.

  test_ring.py BUILD [--gpu]    exits with 77 if torch or the libraries are not there
"""

import datetime
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    import flash_steps
    import ring
    import torch
    import torch.distributed as dist
    from flash_steps import operation
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from test_torch import TOLERANCE, by_formula, passes, too_far

DEVICE = "cuda" if "--gpu" in sys.argv else "cpu"
BUILD = next((word for word in sys.argv[1:] if not word.startswith("-")), "build-binding")


def on_ranks(world, work, *arguments, seconds=60):
    """[what work(rank, *arguments) gives on each of `world` new processes, or the text of its exception]"""
    context = torch.multiprocessing.get_context("forkserver" if DEVICE == "cuda" else "fork")  # CUDA is asked for before a fork
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_rank, args=(rank, world, folder, seconds, work, arguments)) for rank in range(world)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        files = [Path(folder) / str(rank) for rank in range(world)]
        return [file.read_text() if file.exists() else "died" for file in files]


def _rank(rank, world, folder, seconds, work, arguments):
    torch.set_num_threads(1)
    os.environ["FLASH_SIMT_THREADS"] = "1"
    flash_steps.use(BUILD)
    limit = datetime.timedelta(seconds=seconds)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=limit)
    try:
        said = work(rank, *arguments) or "right"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    (Path(folder) / str(rank)).write_text(said)


def whole(lengths, keys, dtype, heads=(2, 1)):
    """q, k, v and dO of the whole sequence."""
    generator = torch.Generator().manual_seed(len(lengths))
    shapes = [(1, heads[0], sum(lengths), 16), *[(1, heads[1], sum(keys), 16)] * 2, (1, heads[0], sum(lengths), 16)]
    return [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes]


def own(x, lengths, rank, zigzag):
    return torch.cat([x[:, :, first : first + count] for first, count in ring.rows_of(lengths, rank, zigzag)], 2)


def compare(rank, attention, lengths, keys, dtype, causal, heads, **options):
    *qkv, dO = whole(lengths, keys, dtype, heads)
    zigzag, stage = options.get("zigzag", False), "07" if dtype == torch.float32 else "08"
    wanted = passes(lambda *qkv: by_formula(*qkv, causal=causal, scale=0.3)[0], qkv, dO)
    mine = [own(x, n, rank, zigzag) for x, n in zip(qkv, (lengths, keys, keys))]
    found = passes(lambda *qkv: attention(*qkv, causal=causal, scale=0.3, stage=stage, **options), mine, own(dO, lengths, rank, zigzag))
    wanted = [own(x, n, rank, zigzag) for x, n in zip(wanted, (lengths, lengths, keys, keys))]
    assert all(a.dtype == dtype and a.shape == b.shape for a, b in zip(found, wanted))
    errors = too_far(found, wanted, dtype)
    assert not errors, f"{errors} in {dtype}, lengths {lengths}, {causal=}, {options}"


def on_all_problems(rank, world):
    lengths, sparse = [9 + 5 * (r % 3) for r in range(world)], [0 if r == 1 else 12 for r in range(world)]
    longer = [n + 4 for n in lengths]
    for causal in (False, True):
        for dtype in TOLERANCE:
            for zigzag in (False, True):
                compare(rank, ring.ring_attention, lengths, lengths, dtype, causal, (2, 1), zigzag=zigzag)
        # without any row on a rank, with more keys than queries, and with fewer, so that some rows see none
        for n, m, heads, zigzag in ((sparse, sparse, (2, 2), True), (lengths, longer, (2, 1), True), (lengths, sparse, (1, 1), False)):
            compare(rank, ring.ring_attention, n, m, torch.float32, causal, heads, zigzag=zigzag)
        compare(rank, ring.ulysses_attention, lengths, lengths, torch.float32, causal, (2 * world, world))


def with_another_dtype(rank):
    q, k, v, _ = whole([8], [8], torch.float16 if rank == 1 else torch.bfloat16)
    ring.ring_attention(q, k, v)


def without_rank_1(rank):
    q, k, v, _ = whole([8], [8], torch.float32)
    if rank == 1:
        operation.run_forward = lambda *_: os._exit(1)
    ring.ring_attention(q, k, v, stage="07")


class Ring(unittest.TestCase):
    def test_every_world(self):
        for world in (1, 2, 3, 4, 8):
            with self.subTest(world=world):
                self.assertEqual(on_ranks(world, on_all_problems, world), ["right"] * world)

    def test_ranks_that_disagree(self):
        said = on_ranks(3, with_another_dtype)
        self.assertEqual(said, ["ValueError: flash_steps: bf16 is 0 on rank 1 and 1 on rank 0"] * 3)

    def test_a_rank_that_dies(self):
        began = time.monotonic()
        said = on_ranks(3, without_rank_1, seconds=10)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(said[1], "died")
        for rank in (0, 2):
            self.assertRegex(said[rank], rf"^RuntimeError: ring attention, rank {rank} of 3: a neighbour is gone or late: [^\n]+$")

    def test_zigzag_gives_each_rank_the_same_work(self):
        for world in (2, 3, 8):
            for step in range(world):
                pairs = []
                for rank in range(world):
                    parts = ring.visible(*(ring.rows_of([16] * world, r, True) for r in (rank, (rank - step) % world)), 0)
                    sizes = [(rows.stop - rows.start, cols.stop - cols.start, causal) for rows, cols, causal in parts]
                    pairs.append(sum(n * (n + 1) // 2 + n * (m - n) if causal else n * m for n, m, causal in sizes))
                self.assertEqual(len(set(pairs)), 1)


if __name__ == "__main__":
    if not list((Path(BUILD) / "lib").glob("libflash_08*")):
        print(f"skipped: {BUILD} has no libraries")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0]])
