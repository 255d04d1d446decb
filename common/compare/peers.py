"""Times torch's attention: each backend of scaled_dot_product_attention, a kernel in Triton, plain torch, and FlashAttention-3 if it is
installed. Part of `compare --only peer`, which needs torch and a GPU.

The timing is that of the stages: CUDA events around the pass alone, a cold L2, the median after a warm-up. A backward pass is timed without
its forward. fp32 is computed without TF32. Torch takes neither a bias nor another layout here, and a mask only with as many keys as queries,
since it aligns masks at the top left."""

import contextlib
import re
import statistics
import warnings

from .peer_table import PEERS
from .rows import PASSES, Failure, unusual

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from .peer_flash3 import attention as flash3
except ImportError as error:
    raise Failure(3, f"--only peer needs torch, which cannot be imported ({error})") from None

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WARM_UPS = 3
FLUSHES = 24


def stage():
    """The variants, as a stage program lists its own, and what every row has. Nothing is allocated: stages may run first."""
    if not torch.cuda.is_available():
        raise Failure(3, f"--only peer needs a GPU, and torch {torch.__version__} finds none")
    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.set_warn_always(True)  # the reason of a refusal each time, not only the first
    properties, cudnn = torch.cuda.get_device_properties(0), torch.backends.cudnn.version()  # 91900: 9.19.0
    device = {"kind": "gpu", "name": properties.name, "sm": properties.major * 10 + properties.minor, "cuda": torch.version.cuda}
    about = {"device": device, "torch": torch.__version__, "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"}
    variants = [{"name": name, "idea": peer.idea, "kernel": "", "passes": PASSES} for name, peer in PEERS.items()]
    return {"stage": "peer", "variants": variants, "about": about, "run": run}


def attention(backend, scale, causal, mask=None):
    """A function of Q, K, V. `mask`: of plain torch, True where a key is hidden; SDPA makes its own."""
    if backend is None:

        def plain(q, k, v):
            scores = torch.matmul(q, k.transpose(-2, -1)) * scale
            if mask is not None:
                scores = scores.masked_fill(mask, float("-inf"))
            return torch.matmul(torch.softmax(scores, dim=-1), v)

        return plain
    if backend == "TRITON":
        try:
            from .peer_triton import attention as in_triton
        except ImportError as error:
            raise RuntimeError(f"Triton cannot be imported ({error})") from None
        return lambda q, k, v: in_triton(q, k, v, scale, causal)
    if backend == "FLASH_3":
        return flash3(scale, causal)

    def fused(q, k, v):
        shared = q.shape[1] != k.shape[1]
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

    return fused


def time_ms(work, iterations, flush):
    """What `time` of a row says. Each timed call meets a cold L2."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for call in range(1 + WARM_UPS + iterations):
        torch.cuda.synchronize()
        for _ in range(FLUSHES if call > WARM_UPS else 0):
            flush.zero_()  # one would do for the L2; the others give Python the time to queue the work behind them
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
        if call == 0:
            torch.cuda.reset_peak_memory_stats()  # autotuning is no part of a run
    times = times[1 + WARM_UPS :]
    return {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times), "iterations": iterations, "cold_l2": True}


def measure(problem, backend, pass_, iterations):
    """`time` of a row, and the memory that the pass takes at its peak beyond inputs and outputs. What the forward pass leaves for the
    backward pass counts for the latter."""
    backward = pass_ == "backward"
    make = {"device": "cuda", "dtype": DTYPES[problem["dtype"]]}
    scratch = torch.ones(1, 1, device="cuda")
    torch.matmul(scratch, scratch)  # what cuBLAS allocates once is no memory of a run
    torch.manual_seed(problem["seed"])
    shapes = (
        (problem["batch"], problem[f"{of}heads"], problem[n], problem["head_dim"]) for of, n in (("", "seq_q"), *[("kv_", "seq_k")] * 2)
    )
    q, k, v = (torch.randn(shape, requires_grad=backward, **make) for shape in shapes)
    gradient = torch.randn(q.shape, **make) if backward else None
    flush = torch.empty(4 * getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20), device="cuda", dtype=torch.uint8)
    inputs, n = torch.cuda.memory_allocated(), problem["seq_q"]
    masked = backend is None and problem["causal"]
    mask = torch.ones(n, n, device="cuda", dtype=torch.bool).triu(1) if masked else None
    attend = attention(backend, problem["scale"], problem["causal"], mask)
    with torch.set_grad_enabled(backward):
        out = attend(q, k, v) if backward else None
        work = (lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)) if backward else (lambda: attend(q, k, v))
        timing = time_ms(work, iterations, flush)
    outputs = (q.numel() + (q.numel() + 2 * k.numel() if backward else 0)) * q.element_size()  # O, and dQ, dK, dV
    return timing, max(0, torch.cuda.max_memory_allocated() - inputs - outputs)


def flops(problem, pass_):
    """Two products of 2*pairs*d each forward, five backward; pairs (query, key) that the mask leaves visible. A mask needs equal lengths."""
    n = problem["seq_q"]
    pairs = n * (n + 1) // 2 if problem["causal"] else n * problem["seq_k"]
    return (4.0 if pass_ == "forward" else 10.0) * problem["batch"] * problem["heads"] * pairs * problem["head_dim"]


def not_taken(problem, variant):
    """What torch is not asked for: "" or why not."""
    causes = [f"{name} {value}" for name, value in unusual(problem) if name != "seed"]  # an option that is not known here is one
    if problem["heads"] != problem["kv_heads"] and not PEERS[variant].shares_heads:
        causes.append(f"{problem['heads']} heads with {problem['kv_heads']} for keys and values")
    if problem["seq_q"] != problem["seq_k"] and (problem["causal"] or variant == "triton"):
        causes.append(f"{problem['seq_q']} queries with {problem['seq_k']} keys")
    return f"{variant} is not timed with {', '.join(causes)}" if causes else ""


def reason(error, caught):
    """Why a backend does not take the problem: torch says so in warnings, each with the place in its sources."""
    texts = [re.sub(r"\s*\(Triggered internally.*", "", str(w.message), flags=re.S).strip() for w in caught]
    texts = [text for text in texts if text and not re.search(r"not used because|runtime disabled", text)]
    return " ".join(dict.fromkeys(texts)) or (str(error).strip() or type(error).__name__).splitlines()[0]


def run(problem, variant, pass_, iterations):
    """What a row says about its run: times, or why there are none."""
    if why := not_taken(problem, variant):
        return {"verdict": "refused", "message": why}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            timing, extra = measure(problem, PEERS[variant].backend, pass_, iterations)
        except Exception as error:  # of torch, Triton or FlashAttention-3: it costs one row
            if re.search("out of memory|ALLOC_FAILED", str(error)):
                return {"verdict": "cannot run", "message": "not enough GPU memory"}
            if "CUDA error" in str(error):
                return {"verdict": "STOPPED", "message": str(error).strip().splitlines()[0]}
            return {"verdict": "refused" if isinstance(error, RuntimeError) else "CRASHED", "message": reason(error, caught)}
        finally:
            with contextlib.suppress(RuntimeError):  # of a GPU that fails
                torch.cuda.empty_cache()
    return {"verdict": "ok", "time": timing, "flops": flops(problem, pass_), "extra_memory_bytes": extra}
