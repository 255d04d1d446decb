#!/usr/bin/env python3
"""ring.py and ulysses.py over gloo: 1, 2, 3, 4 and 8 processes of this machine, through the simulator or, with --gpu, on its GPU, against
fp64 on the whole sequence, gradients included.

  test_ring.py BUILD [--gpu]    exits with 77 if torch or the libraries are not there
"""

import datetime
import os
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    import flash_steps
    import ring
    import torch
    import torch.distributed as dist
    import ulysses
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from test_torch import TOLERANCE, exact

DEVICE = "cuda" if "--gpu" in sys.argv else "cpu"
BUILD = next((word for word in sys.argv[1:] if not word.startswith("-")), "build-binding")
LIMIT = datetime.timedelta(seconds=60)


def on_ranks(world, work, *arguments, limit=LIMIT):
    """[what work(rank, *arguments) gives on each of `world` new processes, or the text of its exception]"""
    context = torch.multiprocessing.get_context(
        "forkserver" if DEVICE == "cuda" else "fork"
    )  # CUDA takes no fork of a process that asked for it
    context.set_forkserver_preload(["torch", "torch.distributed"])
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_rank, args=(rank, world, folder, limit, work, arguments)) for rank in range(world)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        files = [Path(folder) / str(rank) for rank in range(world)]
        return [file.read_text() if file.exists() else "died" for file in files]


def _rank(rank, world, folder, limit, work, arguments):
    torch.set_num_threads(1)
    os.environ["FLASH_SIMT_THREADS"] = "1"
    flash_steps.use(BUILD)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=limit)
    try:
        said = work(rank, *arguments) or "right"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        if "assert" in said.lower():
            said += traceback.format_exc()
    (Path(folder) / str(rank)).write_text(said)


def whole(lengths, keys, dtype, heads=(2, 1), d=16):
    """q, k, v and dO of the whole sequence."""
    generator = torch.Generator().manual_seed(len(lengths))
    shapes = [(1, heads[0], sum(lengths), d), *[(1, heads[1], sum(keys), d)] * 2, (1, heads[0], sum(lengths), d)]
    return [torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes]


def own(x, lengths, rank, zigzag):
    return torch.cat([x[:, :, first : first + count] for first, count in ring.rows_of(lengths, rank, zigzag)], 2)


def compare(rank, attend, lengths, keys, dtype, causal, zigzag, heads):
    q, k, v, dO = whole(lengths, keys, dtype, heads)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    wanted = exact(q, k, v, causal, 0.3).nan_to_num()  # rows that see no key
    gradients = torch.autograd.grad(wanted, (q, k, v), dO.double())
    mine = [own(x.detach(), n, rank, zigzag).requires_grad_() for x, n in ((q, lengths), (k, keys), (v, keys))]
    O = attend(*mine, causal, zigzag)
    found = [O, *torch.autograd.grad(O, mine, own(dO, lengths, rank, zigzag))]
    for name, a, b, n in zip(("O", "dQ", "dK", "dV"), found, (wanted, *gradients), (lengths, lengths, keys, keys)):
        b = own(b, n, rank, zigzag).nan_to_num()
        assert a.dtype == dtype and a.shape == b.shape, name
        error, most = ((a - b).abs().max().item(), b.abs().max().item()) if b.numel() else (0, 0)
        assert error < TOLERANCE[dtype] * max(1, most), f"{name} is off by {error} in {dtype}, lengths {lengths}, {causal=}, {zigzag=}"


def by_ring(q, k, v, causal, zigzag):
    return ring.ring_attention(q, k, v, causal=causal, zigzag=zigzag, scale=0.3, stage="07" if q.dtype == torch.float32 else "08")


def by_ulysses(q, k, v, causal, _):
    assert ulysses.ulysses_attention(q, k, v, stage="07").isfinite().all()  # with the default scale
    return ulysses.ulysses_attention(q, k, v, causal=causal, scale=0.3, stage="07" if q.dtype == torch.float32 else "08")


def on_all_problems(rank, world):
    lengths = [9 + 5 * (r % 3) for r in range(world)]
    sparse = [0 if r == 1 else 12 for r in range(world)]
    for dtype in TOLERANCE:
        for causal in (False, True):
            for zigzag in (False, True):
                compare(rank, by_ring, lengths, lengths, dtype, causal, zigzag, (2, 1))
    for causal in (False, True):
        compare(rank, by_ring, sparse, sparse, torch.float32, causal, True, (2, 2))
        compare(rank, by_ring, lengths, [n + 4 for n in lengths], torch.float32, causal, True, (2, 1))
        compare(rank, by_ring, lengths, sparse, torch.float32, causal, False, (1, 1))  # more queries than keys: some rows see none


def on_all_heads(rank, world):
    lengths = [9 + 5 * (r % 3) for r in range(world)]
    for heads in ((2 * world, world), (world, 1), (2 * world, 2)):
        if heads[1] % world and world % heads[1]:
            continue
        for causal in (False, True):
            compare(rank, by_ulysses, lengths, lengths, torch.float32, causal, False, heads)


def with_another_dtype(rank):
    q, k, v, _ = whole([8], [8], torch.float16 if rank == 1 else torch.bfloat16)
    ring.ring_attention(q, k, v)


def without_rank_1(rank):
    q, k, v, _ = whole([8], [8], torch.float32)
    if rank == 1:
        forward = flash_steps._run_forward
        flash_steps._run_forward = lambda *given: os._exit(1) if given else forward
    ring.ring_attention(q, k, v, stage="07")


class Ring(unittest.TestCase):
    def test_every_world(self):
        for world in (1, 2, 3, 4, 8):
            for work in (on_all_problems, on_all_heads):
                with self.subTest(world=world, work=work.__name__):
                    self.assertEqual(on_ranks(world, work, world), ["right"] * world)

    def test_ranks_that_disagree(self):
        said = on_ranks(3, with_another_dtype)
        self.assertEqual(said, ["ValueError: flash_steps: bf16 is 0 on rank 1 and 1 on rank 0"] * 3)

    def test_a_rank_that_dies(self):
        began = time.monotonic()
        said = on_ranks(3, without_rank_1, limit=datetime.timedelta(seconds=10))
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(said[1], "died")
        for rank in (0, 2):
            self.assertRegex(said[rank], rf"^RuntimeError: ring attention, rank {rank} of 3: a neighbour is gone or late: [^\n]+$")

    def test_the_same_work_for_each_rank(self):
        """Zigzag: no rank has more pairs than another under a mask; plain: the last has nearly all of a step."""
        for world in (2, 3, 8):
            lengths = [16] * world
            pairs = {}
            for zigzag in (False, True):
                pairs[zigzag] = [[0] * world for _ in range(world)]
                for rank in range(world):
                    for step in range(world):
                        parts = ring.visible(*(ring.rows_of(lengths, r, zigzag) for r in (rank, (rank - step) % world)), 0)
                        sizes = [((rows.stop - rows.start), (cols.stop - cols.start), causal) for rows, cols, causal in parts]
                        pairs[zigzag][step][rank] = sum(n * (n + 1) // 2 + n * (m - n) if causal else n * m for n, m, causal in sizes)
            self.assertEqual(sum(map(sum, pairs[True])), sum(map(sum, pairs[False])))
            for step in pairs[True]:
                self.assertEqual(len(set(step)), 1)
            self.assertEqual(pairs[False][1][0], 0)

    def test_every_visible_pair_once(self):
        for rows, cols, shift in (([(3, 4), (9, 2)], [(0, 5), (8, 3)], 0), ([(0, 3)], [(0, 9)], 6), ([(2, 5)], [(1, 0), (4, 9)], -2)):
            seen = {}
            at = [[first + i for first, count in segments for i in range(count)] for segments in (rows, cols)]
            for part_rows, part_cols, causal in ring.visible(rows, cols, shift):
                n, m = part_rows.stop - part_rows.start, part_cols.stop - part_cols.start
                for i in range(n):
                    for j in range(m - n + i + 1 if causal else m):
                        pair = at[0][part_rows.start + i], at[1][part_cols.start + j]
                        self.assertNotIn(pair, seen)
                        seen[pair] = True
            self.assertEqual(set(seen), {(i, j) for i in at[0] for j in at[1] if j <= i + shift})


if __name__ == "__main__":
    if not list((Path(BUILD) / "lib").glob("libflash_08*")):
        print(f"skipped: {BUILD} has no libraries")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0]])
