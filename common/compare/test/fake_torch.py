"""What peers.py uses of torch, for its test.

A GPU is there unless NO_GPU is set. Timed runs take 2, 4, 6, ... ms. A pass over HANG queries takes for ever, one over DIE queries ends the
program. flash and cudnn refuse fp32; plain torch runs out of memory beyond 4096 queries; over BROKEN queries the GPU fails. The first call of
SDPA takes 20 ms of the host, each synchronisation SYNC_S, loading torch LOAD_S. 10 GB are free; a pass takes 77 bytes more than its inputs and
outputs.
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
calls, memory, chosen = [], [], []
state = {"idle": True, "new": True}
manual_seed = set_warn_always = lambda _: None
no_grad = contextlib.nullcontext


def work():
    """A pass that is to be timed: the first one on new tensors has to find an idle GPU."""
    assert state["idle"] or not state["new"]
    state.update(idle=False, new=False)


class Tensor:
    def __init__(self, shape=(), dtype=None, requires_grad=False):
        self.shape, self.dtype, self.requires_grad = shape, dtype, requires_grad

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return 4 if self.dtype == float32 else 2

    def zero_(self):
        state["idle"] = False

    def triu(self, k):
        assert k == 1
        return self

    transpose = masked_fill = __mul__ = lambda self, *ignored: self


def randn(shape, device, dtype, requires_grad=False):
    assert device == "cuda"
    state.update(idle=False, new=True)
    return Tensor(shape, dtype, requires_grad)


def empty(count, device, dtype):
    assert count in (0, 4 * 1000) and dtype == uint8
    return Tensor((count,))


def ones(*shape, device, dtype):
    return Tensor(shape)


def forward(q):
    if not q.requires_grad:
        work()
    memory.append(q.numel() * q.element_size() + 77)
    return q


def matmul(a, b):
    if len(a.shape) > 2 and a.shape[2] > 4096:
        raise RuntimeError("CUDA out of memory. Tried to allocate")
    return forward(a) if len(a.shape) > 2 else a


def softmax(x, dim):
    return x


def grad(out, inputs, gradient, retain_graph):
    assert retain_graph and len(inputs) == 3
    work()
    memory.append(4 * out.numel() * out.element_size() + 77)


def scaled_dot_product_attention(q, k, v, is_causal):
    if q.dtype == float32 and chosen[-1] != "EFFICIENT_ATTENTION":
        for reason in ("Flash attention kernel not used because:", "Expected fp16 or bf16.", "Other attention has been runtime disabled."):
            warnings.warn(f"{reason} (Triggered internally at /x.cpp:1.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")
    over = {name for name in ("HANG", "DIE", "BROKEN") if os.environ.get(name) == str(q.shape[2])}
    if "HANG" in over:
        time.sleep(100)
    if "DIE" in over:
        os.kill(os.getpid(), signal.SIGKILL)
    if "BROKEN" in over:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
    if not calls:
        time.sleep(0.02)
    calls.append(q)
    return forward(q)


@contextlib.contextmanager
def sdpa_kernel(backend):
    chosen.append(backend)
    yield
    chosen.pop()


class Event:
    times = itertools.count(2, 2)

    def __init__(self, enable_timing):
        self.record = lambda: None

    def elapsed_time(self, other):
        return float(next(self.times))


def synchronize():
    time.sleep(float(os.environ.get("SYNC_S", "0")))
    state["idle"] = True


def set_float32_matmul_precision(name):
    assert name == "highest"


cuda = types.SimpleNamespace(Event=Event, synchronize=synchronize, reset_peak_memory_stats=memory.clear, empty_cache=lambda: None)
cuda.is_available = lambda: not os.environ.get("NO_GPU")
cuda.mem_get_info = lambda: (10**10, 10**11)
cuda.memory_allocated = lambda: 5
cuda.max_memory_allocated = lambda: 5 + max(memory)
cuda.get_device_properties = lambda i: types.SimpleNamespace(name="Test GPU", major=9, minor=0, L2_cache_size=1000)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91900))
autograd = types.SimpleNamespace(grad=grad)
functional = types.SimpleNamespace(scaled_dot_product_attention=scaled_dot_product_attention)
SDPBackend = types.SimpleNamespace(**{name: name for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")})
