"""The kernels of a stage as one operation of PyTorch, with its backward pass: docs/howto/pytorch.md.

  import flash_steps
  O = flash_steps.attention(q, k, v, causal=True, window=(1024, 0))  # [B, H, N, d]
  O = flash_steps.attention_varlen(q, k, v, cu_seqlens, causal=True)  # sequences of unequal lengths, packed: [total, H, d]

CUDA tensors run on their GPU, CPU tensors through the simulator, thread by thread: take small ones. That page says how to build
the libraries of the stages; use(FOLDER) says where they are, if not in build-binding/.
"""

import ctypes
import functools
import warnings
from pathlib import Path
from typing import Optional

import torch
import torch.utils.flop_counter
from torch import Tensor

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # as in flash.h
_here = Path(__file__).resolve()
_is_clone = _here.parent.name == "binding"
_libraries = _here.parents[2] / "build-binding/lib" if _is_clone else _here.with_name("flash_steps_lib")


class _View(ctypes.Structure):  # flash_tensor
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]


class _Call(ctypes.Structure):  # flash_call
    _fields_ = [
        ("variant", ctypes.c_char_p),
        ("options", ctypes.c_char_p),
        ("on_gpu", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("deterministic", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        *((name, _View) for name in ("Q", "K", "V", "O", "L", "dO", "dQ", "dK", "dV", "bias", "dBias")),
        ("workspace", ctypes.c_void_p),
    ]


def use(build):
    """The build folder whose lib/ has the libraries of the stages."""
    global _libraries
    _libraries = Path(build) / "lib"
    _library.cache_clear()
    _plans.clear()


@functools.cache
def _library(stage):
    found = sorted(_libraries.glob(f"libflash_{stage}*"))
    if len(found) != 1:
        there = ", ".join(sorted(path.stem.removeprefix("libflash_") for path in _libraries.glob("libflash_*")))
        instead = "docs/howto/pytorch.md says how to build them" if _is_clone else "install flash_steps from a clone: pip install ."
        what = f"{len(found)} libraries match" if found else "there is no library"
        raise RuntimeError(f"stage '{stage}': {what} in {_libraries}; {f'there are: {there}' if there else instead}")
    library = ctypes.CDLL(str(found[0]))
    library.flash_error.restype = ctypes.c_char_p
    return library


def _raise_for(code, stage):
    if code:
        error = ValueError if code == 2 else RuntimeError
        raise error(f"stage {stage}: {_library(stage).flash_error().decode()}")


def _view(x, data=None):
    shape, stride = (x.shape, x.stride()) if x.dim() == 4 else ((*x.shape, 1), (*x.stride(), 1))  # L
    return _View(data, shape, stride)


def _stream(x):
    return torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else None


_plans = {}  # by all that a call depends on but pointers


def _plan(backward, stage, variant, options, deterministic, given, made):
    """The call of a pass without its pointers, and how many bytes of workspace it asks for, and how many of these are zero first."""
    only_warns = deterministic and torch.is_deterministic_algorithms_warn_only_enabled()
    key = (
        backward,
        stage,
        variant,
        options,
        deterministic,
        only_warns,
        len(made),
        *((x.shape, x.stride(), x.dtype, x.device) for x in given.values()),
    )
    plan = _plans.get(key)
    if plan is None:
        q, library = given["Q"], _library(stage)
        _check(q, given["K"], given["V"], given.get("bias"))
        _require("bias" in given or "--bias=" not in options, "options name a bias that is not there")
        how = {"variant": variant.encode(), "options": options.encode(), "on_gpu": q.is_cuda, "dtype": DTYPES[q.dtype]}
        call = _Call(**how, deterministic=deterministic, **{name: _view(x) for name, x in (given | made).items()})
        size, zeroed = ctypes.c_int64(), ctypes.c_int64()
        with torch.cuda.device_of(q):
            asked = ctypes.byref(call), backward, ctypes.byref(size), ctypes.byref(zeroed)
            code = library.flash_workspace(*asked)
            if code == 2 and only_warns:
                why, call.deterministic = library.flash_error().decode(), 0
                code = library.flash_workspace(*asked)
                if code == 0:
                    warnings.warn(f"flash_steps: gradients may differ between runs: {why}", stacklevel=5)
            _raise_for(code, stage)
        if len(_plans) >= 256:  # lengths of packed sequences may never come again
            _plans.clear()
        plan = _plans[key] = call, size.value, zeroed.value
    return plan


def _run(backward, stage, variant, options, deterministic, seed, given, made):
    """A pass, in the workspace that it asks for. What is made follows from what is given in shape and strides."""
    given = {name: x.resolve_neg() for name, x in given.items()}
    plan, size, zeroed = _plan(backward, stage, variant, options, deterministic, given, made)
    call, q, library = _Call.from_buffer_copy(plan), given["Q"], _library(stage)  # a copy, as other threads may run the same
    for tensors in given, made:
        for name, x in tensors.items():
            getattr(call, name).data = x.data_ptr()
    call.stream = _stream(q)
    call.seed = 0 if seed is None else seed.item()
    if size:
        block = torch.empty(size + 255, dtype=torch.uint8, device=q.device)
        start = -block.data_ptr() % 256
        call.workspace = block.data_ptr() + start
        if zeroed:
            block[start : start + zeroed].zero_()
    with torch.cuda.device_of(q):
        _raise_for((library.flash_backward if backward else library.flash_forward)(ctypes.byref(call)), stage)


def _taken(x):
    """Do the kernels take the strides of such a tensor? The rule of flash.h."""
    strides = [stride for stride, extent in zip(x.stride(), x.shape) if extent > 1]
    whole = all(stride * x.element_size() % 16 == 0 for stride in strides[:-1]) and x.data_ptr() % 16 == 0
    return min(strides, default=1) > 0 and (x.shape[3] == 1 or x.stride(3) == 1) and (whole or x.shape[3] * x.element_size() % 16 != 0)


def _require(holds, why):
    if not holds:
        raise ValueError(f"flash_steps: {why}")


def _numbers(x, name):
    x = x if isinstance(x, Tensor) else torch.tensor(x, device="cpu")
    _require(not x.is_floating_point() and x.dtype != torch.bool, f"{name} have to be whole numbers")
    return x.to(torch.int64)


def _require_tensors(*given):
    _require(all(isinstance(x, Tensor) for x in given), "q, k, v, qkv, kv, caches, a bias, sinks and alibi_slopes have to be tensors")


def _check(q, k, v, bias, fake=False):
    """What flash.h cannot see in pointers and shapes."""
    _require(q.dim() == k.dim() == v.dim() == 4, "q, k and v have to be [B, H, N, d]")
    _require(q.dtype == k.dtype == v.dtype and q.dtype in DTYPES, "q, k and v have to be all fp32, all fp16 or all bf16")
    _require(q.device == k.device == v.device, "q, k and v have to be on one device")
    _require(fake or q.is_cpu or q.is_cuda, f"tensors are on {q.device}; allowed: cpu, cuda")
    _require(k.shape == v.shape, f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; they have to be alike")
    _require(q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3], "q and k have to be alike in B and d")
    _require(k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0, f"q has {q.shape[1]} heads, which is no multiple of k's {k.shape[1]}")
    if bias is not None:
        _require(
            bias.dim() == 4 and bias.dtype == torch.float32 and bias.device == q.device, "a bias has to be 4-dimensional, in fp32, with q"
        )


def _check_backward(dO, q, k, v, O, L, bias, fake=False):
    _check(q, k, v, bias, fake)
    for name, x in (("dO", dO), ("O", O)):
        _require(x.shape == q.shape and x.dtype == q.dtype and x.device == q.device, f"{name} has to be like q in shape, dtype and device")
    alike = L.shape == q.shape[:3] and L.dtype == torch.float32 and L.device == q.device
    _require(alike, "L has to be [B, H, N] in fp32 on the device of q")


def _with(options, ends, q, k):
    """Lengths and seeds change from call to call. They are tensors, for which nothing is compiled anew."""
    if ends is not None:
        (a, c) = ends.tolist()
        _require(a[0] == c[0] == 0, "cu_seqlens begin with 0")
        _require((a[-1], c[-1]) == (q.shape[2], k.shape[2]), f"cu_seqlens end at {a[-1]} and {c[-1]}, not after the last query and key")
        options += "\n--lengths=" + ",".join(f"{y - x}:{w - z}" for x, y, z, w in zip(a, a[1:], c, c[1:]))
    return options.strip()


def _inputs(q, k, v, bias):
    return {"Q": q, "K": k, "V": v} if bias is None else {"Q": q, "K": k, "V": v, "bias": bias}


def _run_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Optional[Tensor],
    sinks: Optional[Tensor],
    seed: Optional[Tensor],
    ends: Optional[Tensor],
    options: str,
    deterministic: bool,
    stage: str,
    variant: str,
    backward_variant: str,
) -> tuple[Tensor, Tensor]:
    """O and L, the log-sum-exp of each row. options: the problem's, as flash.h has them."""
    O, L = _outputs(q)
    if q.numel() and k.numel():
        _run(0, stage, variant, _with(options, ends, q, k), False, seed, _inputs(q, k, v, bias), {"O": O, "L": L})
    else:  # no kernel takes an empty problem
        _check(q, k, v, bias)
        O.zero_(), L.fill_(-torch.inf)
    if sinks is not None:  # one more term of each row's sum, after the kernel
        seen, L = L, torch.logaddexp(L, sinks[:, None])
        O.mul_(_share(seen, L)[..., None])
    return O, L


def _share(part, whole):
    """Of a sum, both as logarithms; 0 of 0."""
    return (part - whole).exp().masked_fill(part == -torch.inf, 0)


_forward = torch.library.custom_op("flash_steps::forward", _run_forward, mutates_args=())


def _outputs(q):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@_forward.register_fake
def _fake_forward(q, k, v, bias, *how):
    _check(q, k, v, bias, fake=True)
    return _outputs(q)


def _run_backward(
    dO: Tensor,
    dL: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    O: Tensor,
    L: Tensor,
    bias: Optional[Tensor],
    sinks: Optional[Tensor],
    bias_gradient: bool,
    seed: Optional[Tensor],
    ends: Optional[Tensor],
    options: str,
    deterministic: bool,
    stage: str,
    variant: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """dQ, dK, dV, and the gradients of the bias and of sinks, which are empty unless asked for."""
    _check_backward(dO, q, k, v, O, L, bias)
    if not _taken(dO):  # such as the gradient of sum(), one number for all entries
        dO = dO.clone(memory_format=torch.contiguous_format)

    def one_pass(dO, v, O):
        found = _gradients_of(q, k, v, bias, sinks, bias_gradient)
        if not q.numel() or not k.numel():
            return [x.zero_() for x in found]
        made = zip(("dQ", "dK", "dV", "dBias")[: 3 + bias_gradient], found)
        given = _inputs(q, k, v, bias) | {"O": O, "L": L, "dO": dO}
        _run(1, stage, variant, _with(options, ends, q, k), deterministic, seed, given, dict(made))
        return [*found]

    found = one_pass(dO, v, O)
    if dL is not None:  # (J.10)  dS = P o (dP - D + dL), whose last term is a pass with V = 0 and D = -dL
        _require(stage > "06", f"stage {stage} has no gradient of L; allowed: 07, 08")
        root = torch.zeros_like(dO)
        root[..., 0] = dL.abs().sqrt()
        terms = one_pass(root, torch.zeros_like(v), root * -dL.sign()[..., None].to(root.dtype))
        for which in (0, 1, 3):
            found[which] += terms[which]
    if sinks is not None:
        D = (dO.float() * O).sum(-1) - (0 if dL is None else dL)
        found[4] = -(D * _share(sinks[:, None], L)).sum((0, 2))
    return tuple(found)


def _gradients_of(q, k, v, bias, sinks, bias_gradient):
    dBias = q.new_empty(bias.shape if bias_gradient else 0, dtype=torch.float32)
    return *(torch.empty_like(x) for x in (q, k, v)), dBias, q.new_empty(0) if sinks is None else torch.empty_like(sinks)


_backward = torch.library.custom_op("flash_steps::backward", _run_backward, mutates_args=())


@_backward.register_fake
def _fake_backward(dO, dL, q, k, v, O, L, bias, sinks, bias_gradient, *how):
    _check_backward(dO, q, k, v, O, L, bias, fake=True)
    return _gradients_of(q, k, v, bias, sinks, bias_gradient)


def _save(ctx, inputs, output):
    q, k, v, bias, sinks, seed, ends, ctx.options, ctx.deterministic, ctx.stage, _, ctx.variant = inputs
    O, L = output
    ctx.save_for_backward(q, k, v, O, L, bias, sinks, seed, ends)  # (G.2)
    ctx.set_materialize_grads(False)  # most losses have no dL


def _gradients(ctx, dO, dL, backward=_backward):
    of_bias, of_sinks = ctx.needs_input_grad[3:5]
    how = ctx.options, ctx.deterministic, ctx.stage, ctx.variant
    *tensors, seed, ends = ctx.saved_tensors  # once: a checkpoint unpacks once
    dO = torch.zeros_like(tensors[3]) if dO is None else dO
    dQ, dK, dV, dBias, dSinks = backward(dO, dL, *tensors, of_bias, seed, ends, *how)
    return dQ, dK, dV, dBias if of_bias else None, dSinks if of_sinks else None, *[None] * 7


_forward.register_autograd(_gradients, setup_context=_save)


def _no_vmap(*_):
    raise NotImplementedError("flash_steps: vmap is not supported; make its axis a part of the batch")


_forward.register_vmap(_no_vmap)


def _pairs(q, k, ends):
    """Of a query and a key, masked ones included. A compiler does not know where sequences end."""
    H, (B, N, M) = q.shape[1], (q.shape[0], q.shape[2], k.shape[2])
    return H * (B * N * M if ends is None or type(ends) is not Tensor else int(ends.diff().prod(0).sum()))


@torch.utils.flop_counter.register_flop_formula(torch.ops.flash_steps.forward, get_raw=True)
def _forward_flops(q, k, v, bias, sinks, seed, ends, *_, **__):
    return 4 * _pairs(q, k, ends) * q.shape[3]


@torch.utils.flop_counter.register_flop_formula(torch.ops.flash_steps.backward, get_raw=True)
def _backward_flops(dO, dL, q, k, v, O, L, bias, sinks, bias_gradient, seed, ends, *_, **__):
    return 10 * _pairs(q, k, ends) * q.shape[3]


class _EagerBackward(torch.autograd.Function):
    """The backward pass under create_graph and torch.func, which an operation without a formula does not take."""

    forward, vmap = staticmethod(_run_backward), staticmethod(_no_vmap)
    setup_context = staticmethod(lambda *_: None)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("flash_steps: a gradient of a gradient is not supported")


class _Eager(torch.autograd.Function):
    """The same for tensors that no compiler traces. The way through an operation takes 100 us more: longer than a short problem's kernels."""

    forward, vmap = staticmethod(_run_forward), staticmethod(_no_vmap)
    setup_context = staticmethod(_save)

    @staticmethod
    def backward(ctx, dO, dL):
        eager = _EagerBackward.apply if torch.is_grad_enabled() else _run_backward
        return _gradients(ctx, dO, dL, _backward if _is_traced(dO, dL) else eager)


def _is_traced(*tensors):
    """Also for a mode that watches operations: make_fx, selective checkpointing, FlopCounterMode."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return True
    return any(x.is_meta or type(x) not in (Tensor, torch.nn.Parameter) for x in tensors if x is not None)


def _is_differentiated(*tensors):
    """Also by torch.func and in forward mode, which _Eager refuses."""
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors if x is not None)


def _check_pass(backward, q, k, v, bias, sinks, seed, ends, options, deterministic, stage, *variants):
    """So that a call is refused, instead of its gradient later, or before it has changed a cache."""
    if not q.numel() or not k.numel():
        return _check(q, k, v, bias)
    made = {"dBias": bias} if backward and bias is not None and bias.requires_grad else {}
    _plan(backward, stage, variants[backward], _with(options, ends, q, k), deterministic, _inputs(q, k, v, bias), made)


def merge(O, L, part_O, part_L, *, stage="08"):
    """Merges attention over some keys, part_O [B, H, N, d] and part_L [B, H, N], into O and L of other keys, which change in place (3.4). All
    but part_O are in fp32. The stage's library does it; all stages have the same kernel."""
    _require(O.dtype == L.dtype == part_L.dtype == torch.float32, "O, L and part_L have to be in fp32")
    _require(part_O.dtype in DTYPES, "part_O has to be in fp32, fp16 or bf16")
    _require(O.shape == part_O.shape and L.shape == part_L.shape == O.shape[:3], "the parts differ in shape")
    _require(O.device == L.device == part_O.device == part_L.device, "the parts have to be on one device")
    if O.numel():
        views = [ctypes.byref(_view(x, x.data_ptr())) for x in (O, L, part_O, part_L)]
        with torch.cuda.device_of(O):
            _raise_for(_library(stage).flash_merge(int(O.is_cuda), DTYPES[part_O.dtype], ctypes.c_void_p(_stream(O)), *views), stage)


def _seed(dropout_p, seed):
    """A tensor on the CPU, as a compiler would take a number for a constant."""
    if not dropout_p or isinstance(seed, Tensor):
        return seed if dropout_p else None
    if seed is None:
        return torch.randint(2**62, (), device="cpu")
    _require(isinstance(seed, int) and 0 <= seed < 2**63, f"seed is {seed!r}; allowed: whole numbers from 0 to 2^63 - 1")
    return torch.full((), seed, dtype=torch.int64, device="cpu")


def _options(causal, window=(-1, -1), softcap=0.0, dropout_p=0.0, scale=None, **others):
    given = {"causal": "true" if causal else None, "scale": None if scale is None else float(scale), **others}
    _require(isinstance(window, (tuple, list)) and len(window) == 2, "a window is (left, right), with -1 for no bound")
    if tuple(window) != (-1, -1):
        given["window"] = f"{window[0]},{window[1]}"
    if softcap:
        given["softcap"] = float(softcap)
    if dropout_p:
        given["dropout"] = float(dropout_p)
    return "\n".join(f"--{name}={value}" for name, value in given.items() if value is not None)


def _bias(bias, q, k):
    """[B or 1, H or 1, N or 1, Nk] in fp32. If it needs a gradient it has all N rows, whose gradients autograd sums."""
    _require(bias.dtype == torch.bool or bias.is_floating_point(), "a bias is bool, True where a query sees a key, or floating point")
    _require(bias.dim() <= 4, f"bias is {tuple(bias.shape)}; allowed: shapes that broadcast to [B, H, N, Nk]")
    if bias.dtype == torch.bool:
        bias = torch.zeros_like(bias, dtype=torch.float32).masked_fill(~bias, -torch.inf)
    bias = bias.float()[(None,) * (4 - bias.dim())]
    if bias.shape[3] == 1 != k.shape[2] or bias.stride(3) != 1:
        bias = bias.expand(-1, -1, -1, k.shape[2]).contiguous()
    return bias.expand(-1, -1, q.shape[2], -1) if bias.requires_grad and bias.shape[2] == 1 else bias


def attention(
    q,
    k,
    v,
    *,
    causal=False,
    window=(-1, -1),
    softcap=0.0,
    bias=None,
    alibi_slopes=None,
    sinks=None,
    dropout_p=0.0,
    seed=None,
    deterministic=None,
    scale=None,
    return_lse=False,
    stage=None,
    variant=None,
    backward_variant=None,
    _ends=None,
    _only_checks=False,
):
    """softmax(scale * q k^T + bias, masked) v for q [B, H, N, d], k and v [B, Hkv, Nk, d], with any order of axes in memory in which d is
    innermost: (B, H, N, d), (B, N, H, d), and slices of packed QKV or KV. The gradients come from the stage's backward pass.

    causal: aligned at the bottom right, so that the last query sees the last key. window: (left, right), as many keys before and after a
    query's own that it sees; -1 for no bound. softcap: c > 0 makes c tanh(s / c) of scaled scores. bias: added to the scores, or bool, True
    where a query sees a key; any shape that broadcasts to [B, H, N, Nk], with a gradient. alibi_slopes: [H] or [B, H], in place of a bias.
    sinks: [H], a logit per head that joins the sum of each row's softmax, with a gradient. dropout_p: weights are dropped after the softmax, which ones depends on seed; a random one by default. scale: 1/sqrt(d) by default.
    deterministic: gradients whose every bit is the same in each run; by default as torch.use_deterministic_algorithms() says. return_lse: also
    returns the log-sum-exp of each row, [B, H, N] in fp32. stage: by default "07" for fp32, "08" for 16 bits. variant: a
    step of the stage, as in --variant; by default the fastest for the problem and the GPU, or on the CPU the last that takes it.
    backward_variant: by default the same, or with no variant the fastest. ValueError: no kernel of the stage does it.
    """
    _require_tensors(q, k, v, *(x for x in (bias, alibi_slopes, sinks) if x is not None))
    kind = None
    if alibi_slopes is not None:
        _require(bias is None, "a bias and alibi_slopes exclude each other")
        _require(alibi_slopes.shape in ((q.shape[1],), (1, q.shape[1]), (q.shape[0], q.shape[1])), "alibi_slopes are [H] or [B, H]")
        bias, kind = alibi_slopes.detach().float().reshape(-1, q.shape[1], 1, 1), "alibi"
    elif bias is not None:
        bias = _bias(bias, q, k)
    device = q.device.type
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        q, k, v = (x.to(torch.get_autocast_dtype(device)) for x in (q, k, v))
    deterministic = torch.are_deterministic_algorithms_enabled() if deterministic is None else deterministic
    stage = ("07" if q.dtype == torch.float32 else "08") if stage is None else str(stage).zfill(2)
    variant, backward = variant or "", backward_variant or variant or ""
    _require(isinstance(variant, str) and isinstance(backward, str), "variant and backward_variant have to be names")
    how = _options(causal, window, softcap, dropout_p, scale, bias=kind), deterministic, stage, variant, backward
    if sinks is not None:
        _require(stage > "05", f"stage {stage} has no sinks; allowed: 06, 07, 08")
        fit = sinks.shape == q.shape[1:2] and sinks.is_floating_point() and sinks.device == q.device
        _require(fit, "sinks have to be [H], floating point, on the device of q")
        sinks = sinks.float()
    inputs = q, k, v, bias, sinks, _seed(dropout_p, seed), _ends
    if _is_traced(*inputs[:5]):
        _check(*inputs[:4], fake=q.is_meta)
        O, L = _forward(*inputs, *how)
    elif _only_checks:
        _check_pass(0, *inputs, *how)
        O, L = _outputs(q)
    elif _is_differentiated(*inputs[:5]):
        if any(x.requires_grad for x in inputs[:5] if x is not None):
            _check_pass(1, *inputs, *how)
        O, L = _Eager.apply(*inputs, *how)
    else:
        O, L = _run_forward(*inputs, *how)
    return (O, L) if return_lse else O


def attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k=None, *, return_lse=False, **options):
    """attention() of sequences of unequal lengths, packed one after another: q [total, H, d], k and v [total_k, Hkv, d]. Sequence s has the
    queries cu_seqlens_q[s] to cu_seqlens_q[s + 1], and keys likewise; without cu_seqlens_k, those of its queries. They are best lists, or
    tensors on the CPU: the CPU waits for those on a GPU. With return_lse also [H, total]. options: attention()'s, but for a bias; alibi_slopes
    are [H].
    """
    _require_tensors(q, k, v)
    _require(q.dim() == k.dim() == v.dim() == 3, "q, k and v have to be [total, H, d]")
    _require(options.get("bias") is None, "packed sequences have no bias; alibi_slopes are allowed")
    ends = [_numbers(x, "cu_seqlens") for x in (cu_seqlens_q, cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k)]
    _require(
        ends[0].dim() == 1 and ends[0].shape == ends[1].shape and ends[0].shape[0] > 1,
        "cu_seqlens have as many entries for q as for k, and two at least",
    )
    ends = torch.stack([x.to("cpu") for x in ends])
    O, L = attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), return_lse=True, **options, _ends=ends)
    O = O[0].transpose(0, 1)
    return (O, L[0]) if return_lse else O


# ---- The functions of the library flash_attn, with its arguments in its order; options: what attention() alone has ----


def _unsupported(**given):
    for name, x in given.items():
        _require(x is None, f"{name} is not supported: keys are rotated, in the order of q, and not in pages")


def _as_flash_attn(
    attend,
    tensors,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=None,
    return_attn_probs=False,
    block_table=None,
    **options,
):
    """With return_attn_probs also L and None: nobody has P."""
    _unsupported(block_table=block_table)
    for ours, name in (("scale", "softmax_scale"), ("window", "window_size"), ("return_lse", "return_attn_probs")):
        _require(ours not in options, f"{ours} is {name} here")
    options |= {"dropout_p": dropout_p, "softcap": softcap, "alibi_slopes": alibi_slopes, "deterministic": deterministic}
    O, L = attend(*tensors, scale=softmax_scale, causal=causal, window=window_size, return_lse=True, **options)
    return (O, L, None) if return_attn_probs else O


def _attention_bnhd(q, k, v, **options):
    _require_tensors(q, k, v)
    O, L = attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)
    return O.transpose(1, 2), L


def _parts(packed, axis, count):
    _require_tensors(packed)
    _require(packed.dim() == axis + 3 and packed.shape[axis] == count, f"packed is {tuple(packed.shape)}; allowed: {count} at axis {axis}")
    return packed.unbind(axis)


def flash_attn_func(q, k, v, *args, **options):
    """q [B, N, H, d], k and v [B, Nk, Hkv, d]. args: dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
    return_attn_probs, here and in what follows."""
    return _as_flash_attn(_attention_bnhd, (q, k, v), *args, **options)


def flash_attn_qkvpacked_func(qkv, *args, **options):
    """qkv [B, N, 3, H, d]."""
    return flash_attn_func(*_parts(qkv, 2, 3), *args, **options)


def flash_attn_kvpacked_func(q, kv, *args, **options):
    """q [B, N, H, d], kv [B, Nk, 2, Hkv, d]."""
    return flash_attn_func(q, *_parts(kv, 2, 2), *args, **options)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, *args, **options):
    """q [total, H, d], k and v [total_k, Hkv, d]. The greatest lengths are not needed."""
    return _as_flash_attn(attention_varlen, (q, k, v, cu_seqlens_q, cu_seqlens_k), *args, **options)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen=None, *args, **options):
    """qkv [total, 3, H, d]."""
    return flash_attn_varlen_func(*_parts(qkv, 1, 3), cu_seqlens, cu_seqlens, None, None, *args, **options)


def flash_attn_varlen_kvpacked_func(q, kv, *args, **options):
    """q [total, H, d], kv [total_k, 2, Hkv, d]."""
    return flash_attn_varlen_func(q, *_parts(kv, 1, 2), *args, **options)


@torch.no_grad()
def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
    **options,
):
    """q [B, N, H, d] sees the first cache_seqlens keys of k_cache and v_cache [B, M, Hkv, d], a number or one per sequence, best on the CPU, and
    then those of k and v [B, n, Hkv, d], which are first written into the cache, behind the others. Without a gradient. num_splits is ignored."""
    _unsupported(rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad)
    _unsupported(block_table=block_table)
    new = [x for x in (k, v) if x is not None]
    _require_tensors(q, k_cache, v_cache, *new)
    _require(q.dim() == k_cache.dim() == 4 and len(q) == len(k_cache), "q has to be [B, N, H, d], and caches [B, M, Hkv, d]")
    _require(
        k_cache.shape == v_cache.shape, f"k_cache is {tuple(k_cache.shape)} and v_cache is {tuple(v_cache.shape)}; they have to be alike"
    )
    (B, M), N = k_cache.shape[:2], q.shape[1]
    _require(len(new) != 1 and (not new or k.shape == v.shape), "k and v have to be alike")
    for cache, x in zip((k_cache, v_cache), new):
        fits = x.dim() == 4 and x.shape == (B, x.shape[1], *cache.shape[2:]) and x.dtype == cache.dtype and x.device == cache.device
        _require(fits, f"k and v have to be [{B}, n, Hkv, d], like the cache also in dtype and device")
    known = _numbers(M if cache_seqlens is None else cache_seqlens, "cache_seqlens").reshape(-1).tolist()
    known = known * B if len(known) == 1 else known
    ends = [n + (k.shape[1] if new else 0) for n in known]
    _require(len(ends) == B and min(known) >= 0 and max(ends) <= M, f"cache_seqlens are {known}; allowed: {B} from 0, with k up to {M}")
    options |= {"scale": softmax_scale, "causal": causal, "window": window_size, "softcap": softcap, "alibi_slopes": alibi_slopes}

    def attend(**how):
        seen = [x if _taken(x) else x.contiguous() for x in (q, k_cache[:, : max(ends)], v_cache[:, : max(ends)])]
        if len(set(ends)) == 1:
            return _attention_bnhd(*seen, return_lse=True, **how)
        caches, step = _rows(*seen[1:])
        # What is left of each cache is a sequence without queries.
        queries = [N * s + n for s in range(B) for n in (0, N)] + [N * B]
        keys = [step * s + n for s in range(B) for n in (0, ends[s])] + [len(caches[0])]
        # Hopper's kernels multiply what is behind a sequence, too, by 0, and an unused part of a cache may hold NaN.
        if q.is_cuda and q.dtype != torch.float32 and how.get("stage") in (None, "08") and how.get("variant") is None:
            how["variant"] = "options"
        O, L = attention_varlen(seen[0].flatten(0, 1), *caches, queries, keys, return_lse=True, **how)
        return O.unflatten(0, (B, N)), L.unflatten(1, (B, N)).transpose(0, 1)

    if new:
        attend(**options, _only_checks=True)
    for cache, x in zip((k_cache, v_cache), new):
        if len(set(known)) == 1:
            cache[:, known[0] : ends[0]] = x
        else:
            for s in range(B):
                cache[s, known[s] : ends[s]] = x[s]
    O, L = attend(**options)
    return (O, L) if return_softmax_lse else O


def _rows(*caches):
    """[B, M, Hkv, d] as [rows, Hkv, d], and how many rows there are from one sequence to the next. A part of a longer cache and one whose
    heads come first need no copy: rows that follow a sequence's own are then those of another part or head."""
    (B, M), steps = caches[0].shape[:2], {x.stride(0) / max(x.stride(1), 1) for x in caches}
    step = steps.pop()
    if steps or not step.is_integer() or step < M:
        caches, step = [x.contiguous() for x in caches], M
    step = int(step)
    return [x.as_strided(((B - 1) * step + M, *x.shape[2:]), x.stride()[1:]) for x in caches], step
