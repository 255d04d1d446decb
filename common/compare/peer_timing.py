"""torch's attention: how it is called, what memory it needs, and its times on a GPU."""

import re
import statistics
import time
import warnings

from rows import Failure, size

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # names of torch
PEERS = {  # variant: (idea, backend of torch.nn.attention.SDPBackend, FLASH_3, TRITON, or None)
    "flash": ("torch SDPA, FlashAttention-2 (16-bit types only)", "FLASH_ATTENTION"),
    "flash3": ("FlashAttention-3 (16-bit types only)", "FLASH_3"),
    "cudnn": ("torch SDPA, cuDNN (16-bit types only)", "CUDNN_ATTENTION"),
    "memory_efficient": ("torch SDPA, memory-efficient attention", "EFFICIENT_ATTENTION"),
    "triton": ("FlashAttention-2 in Triton, autotuned", "TRITON"),
    "plain": ("plain torch: matmul, softmax, matmul", None),
}
WARM_UPS = 3
FLUSHES = 24


def flops(problem, which):
    """Two products of 2*pairs*d each forward, five backward; pairs (query, key) that the mask leaves visible. A mask needs equal lengths."""
    n = problem["seq_q"]
    pairs = n * (n + 1) // 2 if problem["causal"] else n * problem["seq_k"]
    forward = 4.0 * problem["batch"] * problem["heads"] * pairs * problem["head_dim"]
    return forward if which == "forward" else 2.5 * forward


def find_torch():
    try:
        import torch
    except ImportError as error:
        raise Failure(3, f"torch cannot be imported ({error}); it is only needed for this comparison") from None
    if not torch.cuda.is_available():
        raise Failure(3, f"torch {torch.__version__} finds no GPU")
    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.set_warn_always(True)  # the reason of a refusal each time, not only the first
    return torch


def attention(torch, backend, scale, causal, mask=None):
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
            from peer_triton import attention as in_triton
        except ImportError as error:
            raise RuntimeError(f"Triton cannot be imported ({error})") from None
        return lambda q, k, v: in_triton(q, k, v, scale, causal)

    if backend == "FLASH_3":
        from peer_flash3 import attention as flash3

        return flash3(scale, causal)

    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fused(q, k, v):
        shared = q.shape[1] != k.shape[1]
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)

    return fused


def causal_mask(torch, n, device):
    return torch.ones(n, n, device=device, dtype=torch.bool).triu(1)


def no_room(torch, problem, backend, which):
    """Why the problem cannot fit, or nothing. It needs at least Q, K, V, O and their gradients; in plain torch also S and P forward, P, dP and
    dS backward, and the mask."""
    n, m, backward = problem["seq_q"], problem["seq_k"], which == "backward"
    of_type = problem["batch"] * (4 if problem["dtype"] == "fp32" else 2)
    rows = problem["heads"] * n + problem["kv_heads"] * m
    needed, what = (4 if backward else 2) * of_type * rows * problem["head_dim"], "its tensors alone"
    if backend is None:
        needed += (3 if backward else 2) * of_type * problem["heads"] * n * m + (n * m if problem["causal"] else 0)
        what = "its tensors and matrices"
    free = torch.cuda.mem_get_info()[0]
    return f"{what} need {size(needed)} of GPU memory; {size(free)} are free" if needed > free else None


def time_ms(torch, work, iterations, flush, before_warm_up):
    """What `time` of a row says. Each timed call meets a cold L2, unless there is nothing to flush it with. enqueue_ms is what a clock beside
    the call reads that does not wait for the GPU, first_enqueue_ms the same of the first call, on an idle GPU: in a new process it loads the
    kernels."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    first = time.perf_counter() - began
    before_warm_up()
    for _ in range(WARM_UPS):
        work()
    torch.cuda.synchronize()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times, enqueued = [], []
    for _ in range(iterations):
        for _ in range(FLUSHES if flush.numel() > 0 else 0):
            flush.zero_()  # one would do for the L2; the others give Python the time to queue the work behind them
        start.record()
        began = time.perf_counter()
        work()
        enqueued.append(time.perf_counter() - began)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    gpu = {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times), "iterations": iterations}
    return {**gpu, "cold_l2": flush.numel() > 0, "enqueue_ms": 1e3 * statistics.median(enqueued), "first_enqueue_ms": 1e3 * first}


def measure(torch, problem, backend, which, iterations, cold_l2):
    """`time` of a row, and the memory that the pass takes at its peak beyond inputs and outputs. What the forward pass leaves for the
    backward pass counts for the latter."""
    dtype = getattr(torch, DTYPES[problem["dtype"]])
    shape = (problem["batch"], problem["heads"], problem["seq_q"], problem["head_dim"])
    kv_shape = (problem["batch"], problem["kv_heads"], problem["seq_k"], problem["head_dim"])
    backward = which == "backward"
    torch.manual_seed(problem["seed"])
    q, k, v = (torch.randn(of, device="cuda", dtype=dtype, requires_grad=backward) for of in (shape, kv_shape, kv_shape))
    gradient = torch.randn(shape, device="cuda", dtype=dtype) if backward else None
    l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    flush = torch.empty(4 * l2_bytes if cold_l2 else 0, device="cuda", dtype=torch.uint8)
    inputs = torch.cuda.memory_allocated()
    mask = causal_mask(torch, shape[2], "cuda") if backend is None and problem["causal"] else None
    run = attention(torch, backend, problem["scale"], problem["causal"], mask)
    reset = torch.cuda.reset_peak_memory_stats
    if backward:
        out = run(q, k, v)
        timing = time_ms(torch, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), iterations, flush, reset)
    else:
        with torch.no_grad():
            timing = time_ms(torch, lambda: run(q, k, v), iterations, flush, reset)
    outputs = (q.numel() + (q.numel() + 2 * k.numel() if backward else 0)) * q.element_size()  # O, and dQ, dK, dV
    return timing, max(0, torch.cuda.max_memory_allocated() - inputs - outputs)


def reason(error, caught):
    """Why a backend does not take the problem: torch says so in warnings, each with the place in its sources."""
    said = [re.sub(r"\s*\(Triggered internally.*", "", str(w.message), flags=re.S).strip() for w in caught]
    said = [text for text in said if text and not re.search(r"not used because|runtime disabled", text)]
    return " ".join(dict.fromkeys(said)) or str(error).strip().splitlines()[0]


def result_of(torch, problem, backend, which, iterations, cold_l2):
    """What a row says about the run: times, or why there are none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            timing, extra = measure(torch, problem, backend, which, iterations, cold_l2)
        except RuntimeError as error:
            if re.search("out of memory|ALLOC_FAILED", str(error)):
                return {"verdict": "cannot run", "message": "not enough GPU memory"}
            if "CUDA error" in str(error):  # nothing runs on this GPU any more
                raise Failure(1, f"the GPU fails: {str(error).strip().splitlines()[0]}") from None
            return {"verdict": "refused", "message": reason(error, caught)}
    tflops = flops(problem, which) / (timing["median_ms"] * 1e9)
    return {"time": timing, "tflops": tflops, "extra_memory_bytes": extra, "verdict": "ok"}
