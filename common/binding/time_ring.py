#!/usr/bin/env python3
"""Times ring.py and ulysses.py between the GPUs of a machine, in turns, next to one GPU alone and torch's own context parallelism.

  torchrun --nproc-per-node 2 common/binding/time_ring.py OUT.jsonl [--build DIR] [--tokens 32768,131072] [--heads 32/8,32/32] [...]

Appends one JSON object per line, of a `kind`:
  time    a problem, the scheme, the pass, the median of `rounds` times in ms, each the slowest rank's; `one_gpu_ms`, one GPU's time for the
          whole problem, and `share_ms`, its time for as many tokens as a rank has. If `one_gpu_tokens` is less than `tokens`, one_gpu_ms was
          measured on so many tokens and grows with their square.
  error   how far a scheme's results are from one GPU's: the largest difference over the largest value
  part    what the ring is made of: `link` (a move to the next rank), `merge`, `agreement` (of the ranks about their shapes, by the host's clock)
"""

import argparse
import contextlib
import datetime
import functools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
os.environ.setdefault(
    "TORCH_NCCL_HIGH_PRIORITY", "1"
)  # a transfer's blocks take the next free SM, not the one after the kernel's last block
sys.path.insert(0, str(Path(__file__).resolve().parent))
import flash_steps
import ring
import torch
import torch.distributed as dist
import ulysses
from torch.nn.attention import SDPBackend, sdpa_kernel

FASTEST = {"variant": "scheduled", "backward_variant": "resident"}
D = 128


def one_gpu(q, k, v, causal):
    return flash_steps.attention(q, k, v, causal=causal, **FASTEST)


def by_torch(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


SCHEMES = {  # how, and the placement of rows
    "ring": (lambda q, k, v, causal: ring.ring_attention(q, k, v, causal=causal, zigzag=False, **FASTEST), lambda causal: False),
    "zigzag": (lambda q, k, v, causal: ring.ring_attention(q, k, v, causal=causal, **FASTEST), lambda causal: True),
    "ulysses": (lambda q, k, v, causal: ulysses.ulysses_attention(q, k, v, causal=causal, **FASTEST), lambda causal: False),
    "torch, cuDNN": (by_torch, lambda causal: causal),
    "torch, flash": (by_torch, lambda causal: causal),
}
LEFT_OUT = {  # what stands for a part of zigzag that is left out, to see what the part costs; the results are wrong then
    "moves": [(ring._Ring, "pass_on", lambda self, tensors, step: lambda: tensors)],
    "sums": [
        (flash_steps, "merge", lambda *_, **__: None),
        (ring, "_sum", lambda so_far, terms, places, like, dtype: so_far or [torch.empty_like(x, dtype=dtype) for x in like]),
    ],
    "kernels": [
        (flash_steps, "_run_forward", lambda q, *_: flash_steps._outputs(q)),
        (flash_steps, "_run_backward", lambda dO, q, k, v, *_: [torch.empty_like(x) for x in (q, k, v)]),
    ],
}
PARTIAL = {f"zigzag without {' and '.join(parts)}": parts for parts in (["moves"], ["sums"], ["moves", "sums"], ["kernels", "sums"])}
BACKENDS = {"torch, cuDNN": SDPBackend.CUDNN_ATTENTION, "torch, flash": SDPBackend.FLASH_ATTENTION}


def scheme(name):
    return SCHEMES["zigzag" if name in PARTIAL else name]


@contextlib.contextmanager
def ready(name, causal, mesh):
    """torch replaces its own operation inside of such a context, the backward pass included."""
    if name not in BACKENDS:
        with contextlib.ExitStack() as changed:
            for place in (place for part in PARTIAL.get(name, ()) for place in LEFT_OUT[part]):
                changed.enter_context(mock.patch.object(*place))
            yield
        return
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._context_parallel import _attention

    _attention._cp_options.enable_load_balance = causal  # refused without a mask
    shared = torch.zeros(2 * world, device="cuda")  # it wants a tensor to divide; ours are divided already
    with sdpa_kernel(BACKENDS[name]), context_parallel(mesh, buffers=[shared], buffer_seq_dims=[0]):
        yield


def timed(f, calls=1):
    """ms of one of some calls in a row, the slowest rank's."""
    dist.barrier()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        f()
    end.record()
    torch.cuda.synchronize()
    slowest = torch.tensor([begin.elapsed_time(end) / calls])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def operands(tokens, heads, seed):
    """q, k, v and dO."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    shapes = [(1, h, tokens, D) for h in (heads[0], heads[1], heads[1], heads[0])]
    return [torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16) for shape in shapes]


def own(x, zigzag):
    """This rank's rows of a whole sequence."""
    rows = ring.rows_of([x.shape[2] // world] * world, rank, zigzag)
    return torch.cat([x[:, :, first : first + count] for first, count in rows], 2)


def call(attend, causal, passes, q, k, v, dO):
    """O, and of both passes the gradients."""
    if passes == "forward":
        with torch.no_grad():
            return [attend(q, k, v, causal)]
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    O = attend(q, k, v, causal)
    return [O.detach(), *torch.autograd.grad(O, (q, k, v), dO)]


def write(given, row):
    if rank == 0:
        with given.out.open("a") as out:
            out.write(json.dumps(row) + "\n")


def largest(x):
    """Of all ranks."""
    x = x.detach().float().abs().max().cpu()
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x.item()


class Alone:
    """Times of one GPU, which every rank measures at the same time."""

    def __init__(self, calls):
        self.times, self.calls = {}, calls

    def measure(self, tokens, heads, causal, passes, data):
        ms = timed(lambda: call(one_gpu, causal, passes, *data), self.calls)
        self.times.setdefault((tokens, heads, causal, passes), []).append(ms)

    def median(self, *problem):
        return statistics.median(self.times[problem])


def measure(tokens, heads, causal, given, mesh, alone, failed):
    began = time.monotonic()
    torch.cuda.empty_cache()
    problem = {"gpu": torch.cuda.get_device_name(), "ranks": world, "tokens": tokens, "heads": heads, "causal": causal}
    schemes = [name for name in given.schemes if name not in failed and (name not in BACKENDS or heads[0] == heads[1])]
    on_one = min(tokens, given.alone)
    whole, checked = operands(on_one, heads, seed=0), tokens <= given.check and tokens == on_one
    if checked:
        mine = {zigzag: [own(x, zigzag) for x in whole] for zigzag in (False, True)}
    else:
        mine = dict.fromkeys((False, True), operands(tokens // world, heads, seed=rank))
    share = mine[True]

    def run(name, passes):
        attend, placed = scheme(name)
        with ready(name, causal, mesh):
            return call(attend, causal, passes, *mine[placed(causal)])

    def attempt(name, f):
        try:
            return f()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}".split("\n")[0]
            write(given, problem | {"kind": "failed", "scheme": name, "why": failed[name]})
            return None

    if checked:  # which warms up, too
        wanted = call(one_gpu, causal, "both", *whole)
        for name in (name for name in schemes if name not in PARTIAL):
            found = attempt(name, lambda name=name: run(name, "both"))
            pairs = zip(("O", "dQ", "dK", "dV"), found or (), wanted)
            zigzag = SCHEMES[name][1](causal)
            errors = {what: largest(a.float() - own(b, zigzag).float()) / largest(b) for what, a, b in pairs}
            if found:
                write(given, problem | {"kind": "error", "scheme": name} | {what: float(f"{error:.3g}") for what, error in errors.items()})
            del found
        del wanted
    for passes in given.passes:
        times = {name: [] for name in schemes}
        for turn in range(given.rounds):
            if turn == 0 or on_one == tokens:
                for size, data in ((on_one, whole), (tokens // world, share)):
                    if size <= given.alone and (on_one == tokens or (size, heads, causal, passes) not in alone.times):
                        alone.measure(size, heads, causal, passes, data)
            for name in schemes:
                if name not in failed:
                    attend, placed = scheme(name)
                    with ready(name, causal, mesh):
                        f = functools.partial(call, attend, causal, passes, *mine[placed(causal)])
                        ms = attempt(name, lambda f=f: timed(f, given.calls))
                    times[name] += [ms] if ms else []
        one = alone.median(on_one, heads, causal, passes) * (tokens / on_one) ** 2
        of_share = (tokens // world, heads, causal, passes)
        row = problem | {"kind": "time", "passes": passes, "one_gpu_ms": round(one, 3), "one_gpu_tokens": on_one}
        row |= {"share_ms": round(alone.median(*of_share), 3)} if of_share in alone.times else {}
        found = {name: statistics.median(ms) for name, ms in times.items() if ms}
        for name, ms in found.items():
            write(given, row | {"scheme": name, "ms": round(ms, 3), "rounds": len(times[name]), "calls": given.calls})
        if rank == 0:
            shares = ", ".join(f"{name} {one / world / ms:.3f}" for name, ms in found.items())
            print(
                f"{tokens} {heads} {causal=} {passes}: ideal {one / world:.2f} ms; {shares} ({time.monotonic() - began:.0f} s)", flush=True
            )


def warm_up(given, mesh):
    """The first call of a kernel loads it, and the first move makes the ranks' connections: seconds."""
    data = operands(4096, (32, 32), seed=0)
    for name in ("one GPU", *given.schemes):
        with contextlib.suppress(Exception), ready(name, True, mesh):
            call(scheme(name)[0] if name != "one GPU" else one_gpu, True, "both", *data)


def parts(given):
    """What a call is made of, each alone."""

    def median(f, times=15):
        return statistics.median([timed(f) for _ in range(times + 2)][2:])

    for log in range(20, 31, 2):
        block = [torch.empty(1 << log, dtype=torch.uint8, device="cuda") for _ in range(2)]
        moves = [dist.P2POp(dist.isend, block[0], (rank + 1) % world), dist.P2POp(dist.irecv, block[1], (rank - 1) % world)]
        if world > 1:
            ms = median(lambda moves=moves: [work.wait() for work in dist.batch_isend_irecv(moves)])
            write(given, {"kind": "part", "part": "link", "bytes": 1 << log, "ms": round(ms, 4)})
    q, k, v, _ = operands(4096, (32, 8), seed=0)
    host = []
    for _ in range(50):
        dist.barrier()
        began = time.perf_counter()
        ring._Ring(q, k, v, True, 1.0, True, dist.group.WORLD)
        host.append(1e3 * (time.perf_counter() - began))
    write(given, {"kind": "part", "part": "agreement", "ranks": world, "ms": round(statistics.median(host), 4)})
    for n in (8192, 16384, 65536):
        part, _, _, _ = operands(n, (32, 32), seed=0)
        L, part_L = torch.zeros(2, 1, 32, n, device="cuda")
        for O in (part.clone(), part.float()):
            ms = median(lambda O=O, L=L, part=part, part_L=part_L: flash_steps.merge(O, L, part, part_L))
            row = {"kind": "part", "part": "merge", "gpu": torch.cuda.get_device_name(), "rows": 32 * n, "O": str(O.dtype)[6:]}
            write(given, row | {"bytes": O.numel() * (2 * O.element_size() + 2) + L.numel() * 12, "ms": round(ms, 4)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--build", default="build-binding")
    parser.add_argument("--tokens", default="32768,131072", help="in all")
    parser.add_argument("--heads", default="32/8,32/32", help="of queries and of keys")
    parser.add_argument("--masks", default="full,causal")
    parser.add_argument("--passes", default="forward,both", type=lambda text: text.split(","))
    parser.add_argument(
        "--schemes",
        default=";".join(SCHEMES),
        help=f"separated by semicolons; also {', '.join(PARTIAL)}",
        type=lambda text: text.split(";"),
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1, help="calls in a row, as of a model's layers; the times are of one of them")
    parser.add_argument("--alone", type=int, default=1 << 17, help="one GPU's time for more tokens than these is not measured")
    parser.add_argument("--check", type=int, default=1 << 15, help="results on more tokens than these are not compared with one GPU's")
    parser.add_argument("--parts", action="store_true", help="link, merge and agreement alone, too")
    given = parser.parse_args()
    flash_steps.use(given.build)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=datetime.timedelta(minutes=2))
    mesh = dist.init_device_mesh("cuda", (world,))
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    write(given, {"kind": "run", "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__, "nccl": nccl, "ranks": world})
    alone, failed = Alone(given.calls), {}
    sizes = [int(tokens) for tokens in given.tokens.split(",")]
    heads = [tuple(map(int, pair.split("/"))) for pair in given.heads.split(",")]
    warm_up(given, mesh)
    if given.parts:
        parts(given)
    for tokens in sizes:
        for pair in heads:
            for mask in given.masks.split(","):
                measure(tokens, pair, mask == "causal", given, mesh, alone, failed)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
