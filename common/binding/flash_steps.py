"""The kernels of a stage as one operation of PyTorch, with its backward pass: docs/howto/pytorch.md.

  import flash_steps
  O = flash_steps.attention(q, k, v, causal=True)  # as torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

CUDA tensors run on their GPU, CPU tensors through the simulator, thread by thread: take small ones. That page says how to build
the libraries of the stages; use(FOLDER) says where they are, if not in build-binding/.
"""

import contextlib
import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # as in flash.h
_build = Path(__file__).resolve().parents[2] / "build-binding"


class _View(ctypes.Structure):  # flash_tensor
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]


class _Call(ctypes.Structure):  # flash_call
    _fields_ = [
        ("variant", ctypes.c_char_p),
        ("on_gpu", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("causal", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("stream", ctypes.c_void_p),
        *((name, _View) for name in ("Q", "K", "V", "O", "L", "dO", "dQ", "dK", "dV")),
        ("workspace", ctypes.c_void_p),
    ]


def use(build):
    """The build folder whose lib/ has the libraries of the stages."""
    global _build
    _build = Path(build)
    _library.cache_clear()


@functools.cache
def _library(stage):
    found = sorted((_build / "lib").glob(f"libflash_{stage}*"))
    if len(found) != 1:
        what = "there is no library" if not found else f"{len(found)} libraries match"
        there = sorted(path.stem.removeprefix("libflash_") for path in (_build / "lib").glob("libflash_*"))
        instead = f"there are: {', '.join(there)}" if there else "docs/howto/pytorch.md says how to build them"
        raise RuntimeError(f"stage '{stage}': {what} in {_build / 'lib'}; {instead}")
    library = ctypes.CDLL(str(found[0]))
    library.flash_error.restype = ctypes.c_char_p
    return library


def _raise_for(code, stage):
    if code:
        error = ValueError if code == 2 else RuntimeError
        raise error(f"stage {stage}: {_library(stage).flash_error().decode()}")


def _run(stage, backward, call, device):
    """Runs a pass with the workspace that it asks for."""
    library = _library(stage)
    size, zeroed = ctypes.c_int64(), ctypes.c_int64()
    _raise_for(library.flash_workspace(ctypes.byref(call), backward, ctypes.byref(size), ctypes.byref(zeroed)), stage)
    block = torch.empty(size.value + 255 if size.value else 0, dtype=torch.uint8, device=device)
    start = -block.data_ptr() % 256
    if zeroed.value:
        block[start : start + zeroed.value].zero_()
    call.workspace = block.data_ptr() + start if size.value else None
    _raise_for((library.flash_backward if backward else library.flash_forward)(ctypes.byref(call)), stage)


def _view(x):
    x = x if x.dim() == 4 else x[..., None]  # L
    return _View(x.data_ptr(), x.shape, x.stride())


def _stream(x):
    return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None


def _call(variant, causal, scale, **tensors):
    q = tensors["Q"]
    views = {name: _view(x) for name, x in tensors.items()}
    return _Call(variant=variant.encode(), on_gpu=q.is_cuda, dtype=DTYPES[q.dtype], causal=causal, scale=scale, stream=_stream(q), **views)


def _on(device):
    """While it lasts, the GPU of `device` is the current one; the CPU has no such thing."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _taken(x):
    """Do the kernels take the strides of such a tensor? The rule of flash.h."""
    strides = [stride for stride, extent in zip(x.stride(), x.shape) if extent > 1]
    whole = all(stride * x.element_size() % 16 == 0 for stride in strides[:-1]) and x.data_ptr() % 16 == 0
    return min(strides, default=1) > 0 and (x.shape[3] == 1 or x.stride(3) == 1) and (whole or x.element_size() == 4 or x.shape[3] % 8 != 0)


def _require(holds, why):
    if not holds:
        raise ValueError(f"flash_steps: {why}")


def _check(q, k, v, fake=False):
    """What flash.h cannot see in pointers and shapes."""
    _require(q.dim() == k.dim() == v.dim() == 4, "q, k and v have to be [B, H, N, d]")
    _require(q.dtype == k.dtype == v.dtype and q.dtype in DTYPES, "q, k and v have to be all fp32, all fp16 or all bf16")
    _require(q.device == k.device == v.device, "q, k and v have to be on one device")
    _require(fake or q.is_cpu or q.is_cuda, f"tensors are on {q.device}; allowed: cpu, cuda")
    _require(k.shape == v.shape, f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; they have to be alike")
    _require(q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3], "q and k have to be alike in B and d")
    _require(k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0, f"q has {q.shape[1]} heads, which is no multiple of k's {k.shape[1]}")


def _check_backward(dO, q, k, v, O, L, fake=False):
    _check(q, k, v, fake)
    for name, x in (("dO", dO), ("O", O)):
        _require(x.shape == q.shape and x.dtype == q.dtype and x.device == q.device, f"{name} has to be like q in shape, dtype and device")
    alike = L.shape == q.shape[:3] and L.dtype == torch.float32 and L.device == q.device
    _require(alike, "L has to be [B, H, N] in fp32 on the device of q")


def _run_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, stage: str, variant: str, backward_variant: str
) -> tuple[Tensor, Tensor]:
    """O and L, the log-sum-exp of each row."""
    _check(q, k, v)
    O, L = _outputs(q)
    with _on(q.device):
        _run(stage, 0, _call(variant, causal, scale, Q=q, K=k, V=v, O=O, L=L), q.device)
    return O, L


_forward = torch.library.custom_op("flash_steps::forward", _run_forward, mutates_args=())


def _outputs(q):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@_forward.register_fake
def _fake_forward(q, k, v, causal, scale, stage, variant, backward_variant):
    _check(q, k, v, fake=True)
    return _outputs(q)


def _run_backward(
    dO: Tensor, q: Tensor, k: Tensor, v: Tensor, O: Tensor, L: Tensor, causal: bool, scale: float, stage: str, variant: str
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV."""
    _check_backward(dO, q, k, v, O, L)
    if not _taken(dO):  # such as the gradient of sum(), one number for all entries
        dO = dO.clone(memory_format=torch.contiguous_format)
    dQ, dK, dV = (torch.empty_like(x) for x in (q, k, v))
    with _on(q.device):
        _run(stage, 1, _call(variant, causal, scale, Q=q, K=k, V=v, O=O, L=L, dO=dO, dQ=dQ, dK=dK, dV=dV), q.device)
    return dQ, dK, dV


_backward = torch.library.custom_op("flash_steps::backward", _run_backward, mutates_args=())


@_backward.register_fake
def _fake_backward(dO, q, k, v, O, L, causal, scale, stage, variant):
    _check_backward(dO, q, k, v, O, L, fake=True)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale, ctx.stage, _, ctx.variant = inputs
    O, L = output
    ctx.save_for_backward(q, k, v, O, L)  # (G.2)
    ctx.mark_non_differentiable(L)


def _gradients(ctx, dO, _, backward=_backward):
    dQ, dK, dV = backward(dO, *ctx.saved_tensors, ctx.causal, ctx.scale, ctx.stage, ctx.variant)
    return dQ, dK, dV, None, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_save)


class _Eager(torch.autograd.Function):
    """The same for tensors that no compiler traces. The way through an operation takes 100 us more: longer than a short problem's kernels."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _run_forward(*inputs)
        _save(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, dO, _):
        # With create_graph the operation runs, and refuses a gradient of a gradient.
        return _gradients(ctx, dO, None, _backward if torch.is_grad_enabled() else _run_backward)


def _is_traced(x):
    return torch.compiler.is_compiling() or type(x) not in (Tensor, torch.nn.Parameter)


def merge(O, L, part_O, part_L, *, stage="08"):
    """Merges attention over some keys, part_O [B, H, N, d] and part_L [B, H, N], into O and L of other keys, which change in place (3.4). All
    but part_O are in fp32. The stage's library does it; all stages have the same kernel."""
    _require(O.dtype == L.dtype == part_L.dtype == torch.float32, "O, L and part_L have to be in fp32")
    _require(part_O.dtype in DTYPES, "part_O has to be in fp32, fp16 or bf16")
    _require(O.shape == part_O.shape and L.shape == part_L.shape == O.shape[:3], "the parts differ in shape")
    _require(O.device == L.device == part_O.device == part_L.device, "the parts have to be on one device")
    if O.numel():
        views = [ctypes.byref(_view(x)) for x in (O, L, part_O, part_L)]
        with _on(O.device):
            _raise_for(_library(stage).flash_merge(int(O.is_cuda), DTYPES[part_O.dtype], ctypes.c_void_p(_stream(O)), *views), stage)


def attention(q, k, v, *, causal=False, scale=None, stage="08", variant=None, backward_variant=None):
    """softmax(scale * q k^T, masked) v for q [B, H, N, d], k and v [B, Hkv, Nk, d], with any order of axes in memory in which d is
    innermost: (B, H, N, d), (B, N, H, d), and slices of packed QKV or KV. The gradients come from the stage's backward pass.

    causal: aligned at the bottom right, so that the last query sees the last key. scale: 1/sqrt(d) by default. variant: a step of the
    stage, as in --variant; by default the fastest for the problem and the GPU, or on the CPU the last that has a backward pass.
    backward_variant: by default the same, or with no variant the fastest.
    """
    _check(q, k, v)
    scale = max(q.shape[3], 1) ** -0.5 if scale is None else float(scale)
    variant = variant or ""
    run = _forward if _is_traced(q) else _Eager.apply
    return run(q, k, v, causal, scale, stage, variant, backward_variant or variant)[0]
