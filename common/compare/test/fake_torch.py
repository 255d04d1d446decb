"""What peers.py uses of torch, for its test.

A GPU is there unless NO_GPU is set. Timed runs take 2, 4, 6, ... ms. A pass over HANG queries takes for ever, one over DIE queries ends the
program, over BROKEN queries the GPU fails. flash and cudnn refuse fp32. Loading torch takes LOAD_S. 10 GB are free; a pass takes 77 bytes more
than its inputs and outputs.
"""

import contextlib
import itertools
import math
import os
import signal
import time
import types
import warnings

time.sleep(float(os.environ.get("LOAD_S", "0")))
__version__ = os.environ.get("TORCH", "9.9")
float32, float16, bfloat16, bool, uint8 = "float32", "float16", "bfloat16", "bool", "uint8"
version = types.SimpleNamespace(cuda="13.0")
memory, chosen = [], []
state = {"idle": True, "new": True}
manual_seed = set_warn_always = set_float32_matmul_precision = lambda _: None
no_grad = contextlib.nullcontext


def work(moved):
    """A pass that is to be timed: the first one on new tensors has to find an idle GPU."""
    assert state["idle"] or not state["new"]
    state.update(idle=False, new=False)
    memory.append(moved + 77)


class Tensor:
    def __init__(self, shape=(), dtype=None, requires_grad=False):
        self.shape, self.dtype, self.requires_grad = shape, dtype, requires_grad

    numel, element_size, zero_ = (
        lambda self: math.prod(self.shape),
        lambda self: 4 if self.dtype == float32 else 2,
        lambda self: state.update(idle=False),
    )
    triu = transpose = masked_fill = __mul__ = lambda self, *ignored: self


def randn(shape, device, dtype, requires_grad=False):
    state.update(idle=False, new=True)
    return Tensor(shape, dtype, requires_grad)


def ones(*shape, device, dtype):
    return Tensor(shape)


def forward(q):
    if not q.requires_grad:
        work(q.numel() * q.element_size())
    return q


def scaled_dot_product_attention(q, k, v, is_causal, enable_gqa):
    if (q.shape[1] != k.shape[1]) != enable_gqa:
        raise RuntimeError("heads do not agree")
    if q.dtype == float32 and chosen[-1] != "EFFICIENT_ATTENTION":
        warnings.warn("Expected fp16 or bf16. (Triggered internally at /x.cpp:1.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")
    over = {name for name in ("HANG", "DIE", "BROKEN") if os.environ.get(name) == str(q.shape[2])}
    if "HANG" in over:
        time.sleep(100)
    if "DIE" in over:
        os.kill(os.getpid(), signal.SIGKILL)
    if "BROKEN" in over:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
    return forward(q)


@contextlib.contextmanager
def sdpa_kernel(backend):
    chosen.append(backend)
    yield
    chosen.pop()


times = itertools.count(2, 2)
Event, matmul, softmax, empty = (
    lambda enable_timing: types.SimpleNamespace(record=lambda: None, elapsed_time=lambda other: float(next(times))),
    lambda a, b: forward(a) if len(a.shape) > 2 else a,
    lambda x, dim: x,
    lambda count, device, dtype: Tensor((count,)),
)
cuda = types.SimpleNamespace(Event=Event, reset_peak_memory_stats=memory.clear, empty_cache=lambda: None)
cuda.synchronize = lambda: state.update(idle=True)
cuda.is_available = lambda: not os.environ.get("NO_GPU")
cuda.mem_get_info = lambda: (10**10, 10**11)
cuda.memory_allocated = lambda: 5
cuda.max_memory_allocated = lambda: 5 + max(memory)
cuda.get_device_properties = lambda i: types.SimpleNamespace(name="Test GPU", major=9, minor=0, L2_cache_size=1000)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91900))
autograd = types.SimpleNamespace(grad=lambda out, *_, retain_graph: work(4 * out.numel() * out.element_size()), Function=object)
ops = types.SimpleNamespace(flash_attn_3=types.SimpleNamespace())
functional = types.SimpleNamespace(scaled_dot_product_attention=scaled_dot_product_attention)
SDPBackend = types.SimpleNamespace(**{name: name for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")})
