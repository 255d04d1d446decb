"""The kernels of a stage as one operation of PyTorch, with its backward pass: docs/howto/pytorch.md.

  import flash_steps
  O = flash_steps.attention(q, k, v, causal=True, window=(1024, 0))  # [B, H, N, d]
  O = flash_steps.attention_varlen(q, k, v, cu_seqlens, causal=True)  # sequences of unequal lengths, packed: [total, H, d]

CUDA tensors run on their GPU, CPU tensors through the simulator, thread by thread: take small ones. That page says how to build
the libraries of the stages; use(FOLDER) says where they are, if not in build-binding/ or build-wheel/.
"""

import ctypes
import functools
import inspect
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

__version__ = "0.1.0"
__all__ = ["attention", "attention_varlen", "merge", "register_transformers", "use"]
__all__ += ["flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func", "flash_attn_with_kvcache"]
__all__ += ["flash_attn_varlen_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_varlen_kvpacked_func"]

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # as in flash.h
_NAMES = {"dropout": "dropout_p", "lengths": "cu_seqlens", "head-dim": "d"}  # what the programs call otherwise
_TENSOR_TYPES = Tensor, torch.nn.Parameter
_here = Path(__file__).resolve()
_builds = [_here.parents[2] / name / "lib" for name in ("build-binding", "build-wheel")]  # in a clone what CMake has built, or else pip
_libraries = _here.with_name("lib") if _here.name == "__init__.py" else next(filter(Path.is_dir, _builds), _builds[0])


class _CTensor(ctypes.Structure):  # flash_tensor
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4)]


class _Call(ctypes.Structure):  # flash_call
    _fields_ = [(name, ctypes.c_char_p) for name in ("variant", "options")]
    _fields_ += [(name, ctypes.c_int32) for name in ("on_gpu", "dtype", "deterministic")]
    _fields_ += [("seed", ctypes.c_uint64), ("stream", ctypes.c_void_p)]
    _fields_ += [(name, _CTensor) for name in "Q K V O L dO dQ dK dV bias dBias ends firsts pages".split()]
    _fields_ += [("workspace", ctypes.c_void_p), ("stop", ctypes.c_int32)]


def use(build):
    """The build folder whose lib/ has the libraries of the stages."""
    global _libraries
    _libraries = Path(build) / "lib"
    _library.cache_clear()
    _plans.clear()


@functools.cache
def _library(stage):
    there = {path.stem.removeprefix("libflash_"): path for path in sorted(_libraries.glob("libflash_*"))}
    found = [path for name, path in there.items() if name.startswith(stage)]
    if len(found) != 1:
        what = f"{len(found)} libraries match" if found else "there is no library"
        how = f"there are: {', '.join(there) or 'none'}; docs/howto/pytorch.md of a clone says how to build more"
        raise RuntimeError(f"stage '{stage}': {what} in {_libraries}; {how}")
    library = ctypes.CDLL(str(found[0]))
    if getattr(library, "flash_call_size", int)() != ctypes.sizeof(_Call):
        raise RuntimeError(f"{found[0]} is of another version than {_here}; build it again")
    library.flash_error.restype = ctypes.c_char_p
    return library


def _raise_for(code, stage):
    if code:
        why = re.sub("--([a-z-]+)", lambda option: _NAMES.get(option[1], option[1]), _library(stage).flash_error().decode())
        why = re.sub(r"no backward pass; variant (\w+) takes it", r"no backward pass; instead backward_variant='\1'", why)
        why += "; instead pip install . -C cmake.define.FLASH_CUDA=ON" if "no GPU code" in why else ""
        raise (ValueError if code == 2 else RuntimeError)(f"stage {stage}: {why}")


def _c_tensor(x, data=None):
    shape, stride = (x.shape, x.stride()) if x.dim() == 4 else ((*x.shape, 1), (*x.stride(), 1))  # L
    return _CTensor(data, shape, stride)


_READ = "Q", "K", "V", "dO"  # of any strides, as those that no kernel takes are copied
_plans = {}  # by all that a call depends on but pointers


def _plan(backward, how, offsets, given, made):
    """The call of a pass without its pointers, the bytes of its workspace, how many of these are zero first, its function, what is copied; None
    for an empty problem, which no kernel takes."""
    key = backward, *how, len(made), *(() if offsets is None else offsets.flatten().tolist())
    for x in given.values():
        key += x.shape, x.stride(), x.dtype, x.device
    plan = _plans.get(key)
    if plan is None:
        (options, deterministic, stage, variant), (q, k, v) = how, (given[name] for name in "QKV")
        _check(q, *(x[:1].expand(q.shape[0], -1, -1, -1) if "pages" in given else x for x in (k, v)), given.get("bias"))
        if not q.numel() or not k.numel():
            return None
        options, library = _with_lengths(options, offsets, q, k), _library(stage)
        plain = {"variant": variant.encode(), "options": options.encode(), "on_gpu": q.is_cuda, "dtype": DTYPES[q.dtype]}
        call = _Call(**plain, deterministic=deterministic, **{name: _c_tensor(x) for name, x in (given | made).items()})
        size, zeroed = ctypes.c_int64(), ctypes.c_int64()
        with torch.cuda.device_of(q):
            _raise_for(library.flash_workspace(ctypes.byref(call), backward, ctypes.byref(size), ctypes.byref(zeroed)), stage)
        if len(_plans) >= 256:  # lengths of packed sequences may never come again
            _plans.clear()
        copied = [name for name in _READ if name in given and not _fits(given[name])]
        plan = _plans[key] = call, size.value, zeroed.value, library.flash_backward if backward else library.flash_forward, copied
    return plan


@functools.cache
def _zeros(gpu, size):
    """Each launch leaves them zero."""
    return torch.zeros(size + 255, dtype=torch.uint8, device=gpu)


def _workspace(q, size, zeroed):
    """`size` bytes from the first multiple of 256 on, of which the first `zeroed` are zero."""
    if q.is_cuda and size == zeroed and torch._C._cuda_getCurrentRawStream(q.get_device()) == 0:
        # On the default stream, whose launches never overlap and which no graph captures: one for all. To clear it takes as long as a
        # twentieth of a short problem.
        return _zeros(q.get_device(), size)
    block = torch.empty(size + 255, dtype=torch.uint8, device=q.device)
    if zeroed:
        start = -block.data_ptr() % 256
        block[start : start + zeroed].zero_()
    return block


def _run(backward, how, seed, offsets, given, made, before=None):
    """A pass, in the workspace that it asks for. how: the problem's options as flash.h has them, deterministic, stage and variant. What is
    made follows from what is given in shape and strides. before: is called first, once the call is known to be one that a kernel takes."""
    plan = _plan(backward, how, offsets, given, made)
    if before is not None:
        before()
    if plan is None:
        for name, x in made.items():
            x.fill_(-torch.inf if name == "L" else 0)
        return
    known, size, zeroed, function, copied = plan
    call, q = _Call.from_buffer_copy(known), given["Q"]  # a copy, as other threads may run the same
    for tensors in given, made:
        for name, x in tensors.items():
            data = x.data_ptr()
            if name in copied or (data % 16 and name in _READ):
                tensors[name] = x = x.clone(memory_format=torch.contiguous_format)
                setattr(call, name, _c_tensor(x, x.data_ptr()))
            else:
                getattr(call, name).data = data
    if seed is not None:
        call.seed = seed.item()
    if size:
        made["workspace"] = block = _workspace(q, size, zeroed)
        call.workspace = block.data_ptr() + -block.data_ptr() % 256

    def work(*_):
        _raise_for(function(ctypes.byref(call)), how[2])

    if q.is_cuda:
        with torch.cuda._DeviceGuard(q.get_device()):
            call.stream = torch._C._cuda_getCurrentRawStream(q.get_device())
            return work()
    with ThreadPoolExecutor(1) as pool:  # so that Ctrl-C comes through
        try:
            pool.submit(work, given, made).result()  # whose memory it keeps
        finally:
            call.stop = 1


def _fits(x):
    """Do the kernels take its strides? The rule of flash.h."""
    shape, strides, size = x.shape, x.stride(), x.element_size()
    used = [stride for stride, extent in zip(strides, shape) if extent > 1]
    whole = all([stride * size % 16 == 0 for stride in used[:-1]]) or shape[3] * size % 16 != 0
    return whole and min(used, default=1) > 0 and (shape[3] == 1 or strides[3] == 1)


def _require(holds, why):
    if not holds:
        raise ValueError(f"flash_steps: {why}")


def _whole_numbers(x, name):
    try:
        if not isinstance(x, Tensor):
            empty = isinstance(x, (list, tuple)) and not x  # which torch takes for floats
            x = torch.tensor(x, dtype=torch.int64 if empty else None, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"flash_steps: {name} are {x!r}; allowed: whole numbers below 2**63, in a list or tensor") from None
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool or x.is_meta)
    _require(whole, f"{name} have to be whole numbers; they are {x.dtype} on {x.device}")
    return x.to(torch.int64)


def _kept_with(x, function):
    """function(x), kept with x until it changes: all layers share it, and only the first one waits for a GPU."""
    version = None if x.is_inference() else x._version
    known = getattr(x, "_flash_steps", (None, None))
    if version is None or known[0] != version:
        known = x._flash_steps = version, function(x)
    return known[1]


def _offsets_on_cpu(x):
    if type(x) is Tensor and x.is_cuda and not torch.compiler.is_compiling():
        return _kept_with(x, lambda x: _whole_numbers(x.to("cpu"), "cu_seqlens"))
    return _whole_numbers(x, "cu_seqlens").to("cpu")


def _require_tensors(dims, **given):
    """The first three have this many dimensions; others may be None."""
    for place, (name, x) in enumerate(given.items()):
        dense = isinstance(x, Tensor) and x.layout is torch.strided and not x.is_nested and type(x).__name__ != "DTensor"
        if not dense and (x is not None or place < 3):
            kind = "nested" if getattr(x, "is_nested", False) else x.layout if type(x) is Tensor else type(x).__name__
            instead = {"nested": "; instead attention_varlen()", "DTensor": "; instead through local_map()"}.get(kind, "")
            raise ValueError(f"flash_steps: {name} is {kind}; allowed: dense tensors{instead}")
        if place < 3 and x.dim() != dims:
            raise ValueError(f"flash_steps: {name} is {tuple(x.shape)}; allowed: {dims} dimensions")


def _check(q, k, v, bias, fake=False):
    """What flash.h cannot see in pointers and shapes."""
    _require(q.dim() == k.dim() == v.dim() == 4, "q, k and v have to be [B, H, N, d]")
    alike = q.dtype == k.dtype == v.dtype and q.dtype in DTYPES
    _require(alike, f"q, k and v are {q.dtype}, {k.dtype}, {v.dtype}; allowed: all of float32, float16 or bfloat16")
    _require(q.device == k.device == v.device, f"q, k and v are on {q.device}, {k.device}, {v.device}; allowed: one device")
    _require(fake or q.is_cpu or q.is_cuda, f"tensors are on {q.device}; allowed: cpu, cuda")
    fits = q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and k.shape == v.shape and k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0
    shapes = f"as [B, H, N, d], q is {tuple(q.shape)}, k is {tuple(k.shape)} and v is {tuple(v.shape)}"
    _require(fits, f"{shapes}; B and d have to be alike, k and v, too, and H of q has to be a multiple of H of k")
    d, most = q.shape[3], 128 if q.dtype == torch.float32 else 256
    _require(d <= most, f"d is {d}; allowed: up to 128 in fp32, and 256 in fp16 and bf16; for more, use scaled_dot_product_attention()")
    if bias is not None:
        fits = bias.dim() == 4 and bias.dtype == torch.float32 and bias.device == q.device
        _require(fits, f"a bias, or slopes, of {bias.dim()} axes in {bias.dtype} on {bias.device}; allowed: 4 in fp32 on {q.device}, as q")


def _check_backward(dO, q, O, L):
    alike = all(x.shape == q.shape and x.dtype == q.dtype and x.device == q.device for x in (dO, O))
    alike &= L.shape == q.shape[:3] and L.dtype == torch.float32 and L.device == q.device
    _require(alike, "dO and O have to be like q, and L [B, H, N] in fp32")


def _with_lengths(options, offsets, q, k):
    """The options, with the lengths of packed sequences."""
    if offsets is not None:
        (a, c), rows = offsets.tolist(), (q.shape[2], k.shape[2])
        fits = a[0] == c[0] == 0 and (a[-1], c[-1]) == rows and a == sorted(a) and c == sorted(c)
        _require(fits, f"cu_seqlens are {str(a)[:80]} of q and {str(c)[:80]} of k; allowed: ascending from 0 to their rows, {rows}")
        options += "\n--lengths=" + ",".join(f"{y - x}:{w - z}" for x, y, z, w in zip(a, a[1:], c, c[1:]))
    return options.strip()


def _inputs(q, k, v, bias):
    return {"Q": q, "K": k, "V": v} if bias is None else {"Q": q, "K": k, "V": v, "bias": bias}


def _run_forward(q, k, v, bias, sinks, seed, offsets, options, deterministic, stage, variant, backward_variant, before=None, cache=None):
    """O and L, the log-sum-exp of each row."""
    O, L = _outputs(q)
    _run(0, (options, False, stage, variant), seed, offsets, _inputs(q, k, v, bias) | (cache or {}), {"O": O, "L": L}, before)
    if sinks is not None:  # one more term of each row's sum, after the kernel
        seen, L = L, torch.logaddexp(L, sinks[:, None])
        O.mul_(_share(seen, L)[..., None])
    return O, L


def _share(part, whole):
    """Of a sum, both as logarithms; 0 of 0."""
    return (part - whole).exp().masked_fill(part == -torch.inf, 0)


_forward = torch.library.custom_op(
    "flash_steps::forward",
    _run_forward,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks, Tensor? seed, Tensor? offsets, str options, bool deterministic, "
    "str stage, str variant, str backward_variant) -> (Tensor, Tensor)",
)


def _outputs(q):
    return _empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _empty_like(x):
    """Dense, in the order of axes of x unless its columns are apart."""
    made = torch.empty_like(x)
    return made if made.stride(3) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


@_forward.register_fake
def _fake_forward(q, k, v, bias, *how):
    _check(q, k, v, bias, fake=True)
    return _outputs(q)


def _run_backward(dO, dL, q, k, v, O, L, bias, sinks, bias_gradient, seed, offsets, *how):
    """dQ, dK, dV, and the gradients of the bias and of sinks, which are empty unless asked for."""
    _check_backward(dO, q, O, L)

    def one_pass(dO, v, O):
        found = _gradients_of(q, k, v, bias, sinks, bias_gradient)
        made = zip(("dQ", "dK", "dV", "dBias")[: 3 + bias_gradient], found)
        given = _inputs(q, k, v, bias) | {"O": O, "L": L, "dO": dO}
        _run(1, how, seed, offsets, given, dict(made))
        return [*found]

    found = one_pass(dO, v, O)
    if dL is not None:  # (J.10)  dS = P o (dP - D + dL), whose last term is a pass with V = 0 and D = -dL
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
    return *(_empty_like(x) for x in (q, k, v)), dBias, q.new_empty(0) if sinks is None else torch.empty_like(sinks)


_backward = torch.library.custom_op(
    "flash_steps::backward",
    _run_backward,
    mutates_args=(),
    schema="(Tensor dO, Tensor? dL, Tensor q, Tensor k, Tensor v, Tensor O, Tensor L, Tensor? bias, Tensor? sinks, bool bias_gradient, "
    "Tensor? seed, Tensor? offsets, str options, bool deterministic, str stage, str variant) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@_backward.register_fake
def _fake_backward(dO, dL, q, k, v, O, L, bias, sinks, bias_gradient, *how):
    _check_backward(dO, q, O, L)
    return _gradients_of(q, k, v, bias, sinks, bias_gradient)


def _save(ctx, inputs, output):
    q, k, v, bias, sinks, seed, offsets, *ctx.how = inputs
    O, L = output
    ctx.save_for_backward(q, k, v, O, L, bias, sinks, seed, offsets)  # (G.2)
    ctx.set_materialize_grads(False)  # most losses have no dL


def _gradients(ctx, dO, dL, backward=_backward):
    of_bias, of_sinks = ctx.needs_input_grad[3:5]
    *how, _, variant = ctx.how
    *tensors, seed, offsets = ctx.saved_tensors  # once: a checkpoint unpacks once
    dO = torch.zeros_like(tensors[3]) if dO is None else dO
    dQ, dK, dV, dBias, dSinks = backward(dO, dL, *tensors, of_bias, seed, offsets, *how, variant)
    return dQ, dK, dV, dBias if of_bias else None, dSinks if of_sinks else None, *[None] * 7


_forward.register_autograd(_gradients, setup_context=_save)


def _refusing(what, instead="scaled_dot_product_attention() under sdpa_kernel(SDPBackend.MATH)"):
    def refuse(*_):
        raise NotImplementedError(f"flash_steps: attention has no {what}; instead {instead}")

    return refuse


_refuse_vmap = _refusing("vmap", "flatten the mapped axis into B, or into S for packed sequences")
for _operation in (_forward, _backward):
    _operation.register_vmap(_refuse_vmap)


class _EagerBackward(torch.autograd.Function):  # under create_graph and torch.func, which an operation without a formula does not take
    forward, setup_context = staticmethod(_run_backward), staticmethod(lambda *_: None)
    backward, jvp, vmap = map(staticmethod, (_refusing("gradient of its gradient"), _refusing("forward-mode gradient"), _refuse_vmap))


class _Eager(torch.autograd.Function):
    """The same for tensors that no compiler traces. The way through an operation takes 100 us more: longer than a short problem's kernels."""

    forward, setup_context = staticmethod(lambda *inputs: _run_forward(*inputs)), staticmethod(_save)
    jvp, vmap = map(staticmethod, (_refusing("forward-mode gradient"), _refuse_vmap))

    @staticmethod
    def backward(ctx, dO, dL):
        if any([x is not None and torch._C._functorch.is_legacy_batchedtensor(x) for x in (dO, dL)]):
            _refuse_vmap()
        eager = _EagerBackward.apply if torch.is_grad_enabled() else _run_backward
        return _gradients(ctx, dO, dL, _backward if _is_traced(dO, dL) else eager)


_apply = super(torch.autograd.Function, _Eager).apply  # without torch.func, whose apply() reads the signature at each call: 40 us


def _is_traced(*tensors):
    """Also for a mode that watches operations, such as make_fx and selective checkpointing, and where PyTorch negates a tensor lazily."""
    if torch.compiler.is_dynamo_compiling() or torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        return True
    return any([x is not None and (x.is_meta or x.is_neg() or type(x) not in _TENSOR_TYPES) for x in tensors])


def _flops(products, q, k, offsets):
    """Without masks, as PyTorch counts its own attention."""
    pairs = offsets.diff().prod(0).sum().item() if type(offsets) is Tensor else q.shape[2] * k.shape[2]
    return 2 * products * q.shape[:2].numel() * pairs * q.shape[3]


register_flop_formula(torch.ops.flash_steps.forward, get_raw=True)(
    lambda q, k, v, bias, sinks, seed, offsets, *_, **__: _flops(2, q, k, offsets)
)
register_flop_formula(torch.ops.flash_steps.backward, get_raw=True)(lambda dO, dL, q, k, *more, **__: _flops(5, q, k, more[7]))


def merge(O: Tensor, L: Tensor, part_O: Tensor, part_L: Tensor):
    """Merges attention over some keys, part_O [B, H, N, d] and part_L [B, H, N], into O and L of other keys, which change in place (X.1). All
    but part_O are in fp32."""
    _require(O.dtype == L.dtype == part_L.dtype == torch.float32, "O, L and part_L have to be in float32")
    _require(O.shape == part_O.shape and L.shape == part_L.shape == O.shape[:3], "the parts differ in shape")
    whole = torch.logaddexp(L, part_L)
    O.mul_(_share(L, whole)[..., None]).addcmul_(part_O, _share(part_L, whole)[..., None])
    L.copy_(whole)


def _is(x, *types):
    return isinstance(x, types) and not isinstance(x, bool)  # a bool is an int


def _is_flag(x):
    return isinstance(x, bool) or (type(x) is int and x in (0, 1)) or type(x).__name__ in ("bool", "bool_")  # NumPy's


def _is_number(x, least=-torch.inf, below=torch.inf):
    plain = _is(x, float, Real) and least <= x < below
    return x is None or plain or (isinstance(x, Tensor) and x.dim() == 0 and not x.requires_grad)


def _is_window(x):
    return x is None or (isinstance(x, (tuple, list)) and len(x) == 2 and all([_is(n, int, Integral) and n >= -1 for n in x]))


_RULES = (  # for plain values: the arguments, what they may be, and how that is said
    ("causal rotary_interleaved return_lse return_attn_probs return_softmax_lse", _is_flag, "True, False"),  # "False" would be true
    ("deterministic", lambda x: x is None or _is_flag(x), "True, False, None"),
    ("scale softmax_scale", _is_number, "a number, finite and with no gradient"),
    ("softcap", lambda x: _is_number(x, 0), "a number from 0, finite and with no gradient"),
    ("dropout_p", lambda x: _is_number(x, 0, 1), "a number from 0 to less than 1, with no gradient"),
    ("max_seqlen max_seqlen_q max_seqlen_k", lambda x: x is None or _is(x, int, Integral, torch.SymInt, Tensor), "a whole number, None"),
    ("window window_size", _is_window, "(left, right), whole numbers from 0, or -1 for no bound"),
    ("variant backward_variant", lambda x: x is None or isinstance(x, str), "the name of a step"),
)
_HERE = {"is_causal": "causal", "attn_mask": "bias", "page_table": "block_table", "learnable_sink": "sinks"}  # names elsewhere
_HERE |= {"scale": "softmax_scale", "softmax_scale": "scale", "window": "window_size", "window_size": "window"}
_HERE["return_lse"] = "return_softmax_lse"
_RULE = {name: rule for names, *rule in _RULES for name in names.split()}


def _float(x, name):
    if isinstance(x, Tensor) and torch.compiler.is_compiling():  # which does not know its value
        raise ValueError(f"flash_steps: {name} is a tensor where a compiler traces; instead pass a float, or multiply q by the scale")
    return x if x is None else float(x)


def _options(causal, window=(-1, -1), softcap=0.0, dropout_p=0.0, scale=None, bias=None):
    """As text."""
    given = {"causal": "true" if causal else None, "scale": None if scale is None else f"{_float(scale, 'scale')}", "bias": bias}
    given |= {"window": f"{window[0]},{window[1]}" if window is not None and tuple(window) != (-1, -1) else None}
    given |= {"softcap": _float(softcap, "softcap"), "dropout": _float(dropout_p, "dropout_p")}
    return "\n".join([f"--{name}={value}" for name, value in given.items() if value])


def _bias(bias, q, k):
    """[B or 1, H or 1, N or 1, Nk] in fp32. If it needs a gradient it has all N rows, whose gradients autograd sums."""
    _require(bias.dtype == torch.bool or bias.is_floating_point(), "a bias is bool, True where a query sees a key, or floating point")
    fits = bias.dim() <= 4 and all(n in (1, m) for n, m in zip(reversed(bias.shape), (k.shape[2], *reversed(q.shape[:3]))))
    wanted = (*q.shape[:3], k.shape[2])
    _require(fits, f"bias is {tuple(bias.shape)}; allowed: shapes that broadcast to {wanted}, such as mask[:, None, None] of [B, Nk]")
    if bias.dtype == torch.bool:
        bias = torch.zeros_like(bias, dtype=torch.float32).masked_fill(~bias, -torch.inf)
    bias = bias.float()[(None,) * (4 - bias.dim())]
    if bias.shape[3] == 1 != k.shape[2] or bias.stride(3) != 1:
        bias = bias.expand(-1, -1, -1, k.shape[2]).contiguous()
    return bias.expand(-1, -1, q.shape[2], -1) if bias.requires_grad and bias.shape[2] == 1 else bias


Result = Tensor | Any  # a tensor, unless a tuple is asked for
_F = TypeVar("_F")  # so that type checkers see through the decorator


def _checked(function: _F, *others) -> _F:
    """help() shows all arguments of a function: no *args, and none that are ours. It refuses other arguments under its own name."""
    own = inspect.signature(function).parameters
    given = [x for x in own.values() if x.kind is not x.VAR_POSITIONAL and x.name[0] != "_"]
    at = len(given) - (given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    shown = inspect.Signature([*given[:at], *others, *given[at:]])
    places = [x.name for x in shown.parameters.values() if x.kind is x.POSITIONAL_OR_KEYWORD]
    known = {*own, *shown.parameters}
    if at < len(given):
        renamed = {"scale", "window", "return_lse"} if "softmax_scale" in known else set()
        known |= attention.__wrapped__.__kwdefaults__.keys() - renamed
    named = [x for x in known - {*places, "args", "options"} if x[0] != "_"]

    @functools.wraps(function)
    def checked(*args, **options):
        wrong = [f"takes no {x}" + f" (here {_HERE.get(x)})" * (_HERE.get(x) in known) for x in options if x not in known]
        wrong += [f"is given {name} twice" for name in options if name in places[: len(args)]]
        if wrong or len(args) > len(places):
            wrong = ", ".join(wrong) or f"takes no {len(args)} arguments by their places"
            allowed = f"each once, without their names {', '.join(places)}; with them, also {', '.join(sorted(named))}"
            raise TypeError(f"flash_steps: {function.__name__}() {wrong}; allowed: {allowed}")
        for name, x in (*zip(places, args), *options.items()):
            if name in _RULE and not _RULE[name][0](x):
                raise ValueError(f"flash_steps: {name} is {x!r}; allowed: {_RULE[name][1]}")
        return function(*args, **options)

    checked.__signature__ = shown
    return checked


@_checked
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    dropout_p: float = 0.0,
    seed: int | Tensor | None = None,
    deterministic: bool | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    stage: str | None = None,
    variant: str | None = None,
    backward_variant: str | None = None,
    _offsets=None,
    _before=None,
) -> Result:
    """softmax(scale * q k^T + bias, masked) v for q [B, H, N, d], k and v [B, Hkv, Nk, d], with any order of axes in memory in which d is
    innermost: (B, H, N, d), (B, N, H, d), and slices of packed QKV or KV. Others are copied, as is v, or q and k, if narrower.

    causal: aligned at the bottom right, so that the last query sees the last key. window: (left, right), as many keys before and after a
    query's own that it sees; -1 for no bound. softcap: c > 0 makes c tanh(s / c) of scaled scores. bias: added to the scores, or bool, True
    where a query sees a key; any shape that broadcasts to [B, H, N, Nk], with a gradient. alibi_slopes: [H] or [B, H], in place of a bias.
    sinks: [H], a logit per head that joins the sum of each row's softmax, with a gradient. dropout_p: weights are dropped after the softmax,
    which ones depends on seed; a random one by default. scale: 1/sqrt(d) by default. deterministic: gradients whose every bit is the same in
    each run; by default as torch.use_deterministic_algorithms() says, also where it only warns. return_lse: also returns the log-sum-exp of
    each row, [B, H, N] in fp32. stage: by default "07" for fp32, d up to 128, and "08" for 16 bits, d up to 256. variant: a step of the stage;
    by default the fastest, or on the CPU the last that takes it. backward_variant: by default the same. ValueError: no kernel does it.
    """
    _require_tensors(4, q=q, k=k, v=v, bias=bias, alibi_slopes=alibi_slopes, sinks=sinks)
    kind, device = None, q.device.type
    if alibi_slopes is not None:
        _require(bias is None, "a bias and alibi_slopes exclude each other; instead add them up as a bias")
        wanted = alibi_slopes.requires_grad and torch.is_grad_enabled()
        _require(not wanted, "alibi_slopes have no gradient; instead detach() them, or make a bias of them, which has one")
        fit = alibi_slopes.shape in ((q.shape[1],), (1, q.shape[1]), q.shape[:2]) and alibi_slopes.is_floating_point()
        _require(fit, f"alibi_slopes are {tuple(alibi_slopes.shape)}, {alibi_slopes.dtype}; allowed: [H] or [B, H], floating point")
        bias, kind = alibi_slopes.detach().float().reshape(-1, q.shape[1], 1, 1), "alibi"
    elif bias is not None:
        bias = _bias(bias, q, k)
    if _before is None and device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        q, k, v = (x.to(torch.get_autocast_dtype(device)) if x.dtype in DTYPES else x for x in (q, k, v))
    q, k, v, d_v, scale = _of_one_width(q, k, v, scale)
    deterministic = torch.are_deterministic_algorithms_enabled() if deterministic is None else bool(deterministic)
    stage = ("07" if q.dtype == torch.float32 else "08") if stage is None else str(stage).zfill(2)
    variant, backward = variant or "", backward_variant or variant or ""
    how = _options(causal, window, softcap, dropout_p, scale, kind), deterministic, stage, variant, backward
    sinks, seed = _sinks(sinks, q), seed if seed is None else _whole_numbers(seed, "seeds")  # a tensor: a compiler binds a number
    _require(seed is None or seed.numel() == 1, f"seeds are {seed}; allowed: one whole number")
    seed = None if not dropout_p else torch.randint(2**62, (), device="cpu") if seed is None else seed
    inputs = q, k, v, bias, sinks, seed, _offsets
    if _before is None and _is_traced(q, k, v, bias, sinks):  # nobody traces or differentiates what comes from a cache
        _check(q, k, v, bias, fake=q.is_meta)
        O, L = _forward(*inputs, *how)
    else:
        transformed, trained = torch._C._are_functorch_transforms_active(), any([x is not None and x.requires_grad for x in inputs[:5]])
        eager = transformed or torch.autograd.forward_ad._current_level >= 0 or (trained and torch.is_grad_enabled())
        if eager and trained and _before is None:  # so that a call is refused, instead of its gradient later
            made = {"dBias": bias} if bias is not None and bias.requires_grad else {}
            _plan(1, (*how[:3], backward), _offsets, _inputs(q, k, v, bias), made)
        apply = _Eager.apply if transformed else _apply  # which refuse forward mode
        O, L = apply(*inputs, *how) if eager and _before is None else _run_forward(*inputs, *how, _before)
    O = O if O.shape[3] == d_v else O[..., :d_v]
    return (O, L) if return_lse else O


def _sinks(sinks, q):
    if sinks is None:
        return None
    fit = sinks.shape == q.shape[1:2] and sinks.is_floating_point() and sinks.device == q.device
    _require(fit, f"sinks are {tuple(sinks.shape)}, {sinks.dtype}; allowed: [H], floating point, on the device of q")
    return sinks.float()


def _of_one_width(q, k, v, scale):
    """The narrower of v, and q with k, gets columns of zeros. Also the width of O, and the scale."""
    d, d_v = q.shape[-1], v.shape[-1]
    if d_v != d == k.shape[-1] > 0:
        q, k, v = (x if x.shape[-1] >= max(d, d_v) else torch.nn.functional.pad(x, (0, max(d, d_v) - x.shape[-1])) for x in (q, k, v))
        scale = d**-0.5 if scale is None else scale
    return q, k, v, d_v, scale


@_checked
def attention_varlen(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q, cu_seqlens_k=None, *, return_lse: bool = False, **options) -> Result:
    """attention() of sequences of unequal lengths, packed one after another: q [total, H, d], k and v [total_k, Hkv, d]. Sequence s has the
    queries cu_seqlens_q[s] to cu_seqlens_q[s + 1], and keys likewise; without cu_seqlens_k, those of its queries. They are best lists, or
    tensors on the CPU: the CPU waits for those on a GPU. With return_lse also [H, total]. options: attention()'s, but for a bias; alibi_slopes
    are [H].
    """
    slopes = options.get("alibi_slopes")
    _require_tensors(3, q=q, k=k, v=v, alibi_slopes=slopes)
    if slopes is not None:
        _require(slopes.dim() == 1, f"alibi_slopes of packed sequences are [H], not {tuple(slopes.shape)}")
    _require(options.get("bias") is None, "packed sequences have no bias; instead pass alibi_slopes, or a padded batch to attention()")
    offsets = [_offsets_on_cpu(cu_seqlens_q)]
    offsets.append(offsets[0] if cu_seqlens_k is None else _offsets_on_cpu(cu_seqlens_k))
    S, totals = offsets[0].numel() - 1, (q.shape[0], k.shape[0])
    fit = offsets[0].dim() == 1 and offsets[0].shape == offsets[1].shape and S > 0
    _require(fit, f"cu_seqlens are {[tuple(x.shape) for x in offsets]}; allowed: two of one length, of two entries at least")
    offsets = torch.stack(offsets)
    free = not _is_traced(q, k, v) and not options.get("dropout_p")  # a traced length would be bound to multiples of S
    if free and min(totals) > 0 and totals[0] % S == totals[1] % S == 0 and S < 65536:
        if offsets.tolist() == [[*range(0, n + 1, n // S)] for n in totals]:  # a batch, whose kernels are faster
            O, L = _attention_bnhd(*(x.unflatten(0, (S, -1)) for x in (q, k, v)), return_lse=True, **options)
            return (O.flatten(0, 1), L.transpose(0, 1).flatten(1)) if return_lse else O.flatten(0, 1)
    O, L = attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), return_lse=True, **options, _offsets=offsets)
    O = O[0].transpose(0, 1)
    return (O, L[0]) if return_lse else O


def _flash_attn(
    attend,
    tensors,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool | None = None,
    return_attn_probs: bool = False,
    block_table=None,
    *,
    num_splits=None,
    pack_gqa=None,
    **options,
):
    """softmax_scale, window_size: attention()'s scale and window, whose further options are taken by name. return_attn_probs: also returns L
    and None, as no kernel stores P. num_splits and pack_gqa are ignored."""
    if block_table is not None:
        _require(len(tensors) == 5, "block_table is an argument of packed sequences")
        q, k, v, offsets, key_offsets = tensors
        tensors = q, *_unpaged(k, v, key_offsets, block_table), offsets, key_offsets
    options |= {"dropout_p": dropout_p, "softcap": softcap, "alibi_slopes": alibi_slopes, "deterministic": deterministic}
    O, L = attend(*tensors, scale=softmax_scale, causal=causal, window=window_size, return_lse=True, **options)
    return (O, L, None) if return_attn_probs else O


def _unpaged(k, v, offsets, pages):
    """Packed keys and values out of those in pages [pages, rows of one, Hkv, d], of which each sequence has a row of numbers."""
    _require(k.dim() == v.dim() == 4, "with a block_table k and v have to be [pages, rows of one, Hkv, d]")
    pages, offsets = (_whole_numbers(x, name).to(k.device) for x, name in ((pages, "block_table"), (offsets, "cu_seqlens_k")))
    _check_pages(pages, offsets.diff(), k)
    rows = torch.arange(pages.shape[1] * k.shape[1], device=k.device)
    at = _places_of(*(rows < offsets.diff()[:, None]).nonzero(as_tuple=True), pages, k.shape[1])
    return k[at], v[at]


def _attention_bnhd(q, k, v, **options):
    _require_tensors(4, q=q, k=k, v=v)
    O, L = attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)
    return O.transpose(1, 2), L


def _unpacked(parts, axis, **packed):
    _require_tensors(axis + 3, **packed)
    ((name, x),) = packed.items()
    _require(x.shape[axis] == parts, f"{name} is {tuple(x.shape)}; allowed: {parts} at axis {axis}")
    return x.unbind(axis)


def _takes_flash_attn(function: _F) -> _F:
    function.__doc__ += f"\n\n    {_flash_attn.__doc__}"
    taken = list(inspect.signature(_flash_attn).parameters.values())[2:-1]
    return _checked(function, *[x for x in taken if x.name != "block_table" or "varlen" in function.__name__])


@_takes_flash_attn
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, *args, **options) -> Result:
    """q [B, N, H, d], k and v [B, Nk, Hkv, d]; returns O like q, and with return_attn_probs O, L [B, H, N] and None."""
    return _flash_attn(_attention_bnhd, (q, k, v), *args, **options)


@_takes_flash_attn
def flash_attn_qkvpacked_func(qkv: Tensor, *args, **options) -> Result:
    """flash_attn_func() of qkv [B, N, 3, H, d]."""
    return flash_attn_func(*_unpacked(3, 2, qkv=qkv), *args, **options)


@_takes_flash_attn
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args, **options) -> Result:
    """flash_attn_func() of q [B, N, H, d] and kv [B, Nk, 2, Hkv, d]."""
    return flash_attn_func(q, *_unpacked(2, 2, kv=kv), *args, **options)


@_takes_flash_attn
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, *args, **options
) -> Result:
    """q [total, H, d], k and v [total_k, Hkv, d], packed as for attention_varlen(); with return_attn_probs O, L [H, total] and None."""
    return _flash_attn(attention_varlen, (q, k, v, cu_seqlens_q, cu_seqlens_k), *args, **options)


@_takes_flash_attn
def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens, max_seqlen=None, *args, **options) -> Result:
    """flash_attn_varlen_func() of qkv [total, 3, H, d]."""
    return flash_attn_varlen_func(*_unpacked(3, 1, qkv=qkv), cu_seqlens, cu_seqlens, None, None, *args, **options)


@_takes_flash_attn
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, *args, **options
) -> Result:
    """flash_attn_varlen_func() of q [total, H, d] and kv [total_k, 2, Hkv, d]."""
    return flash_attn_varlen_func(q, *_unpacked(2, 1, kv=kv), cu_seqlens_q, cu_seqlens_k, None, None, *args, **options)


@_checked
def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | list[int] | Tensor | None = None,
    cache_batch_idx: list[int] | Tensor | None = None,
    cache_leftpad: list[int] | Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    pack_gqa=None,
    **options,
) -> Result:
    """q [B, N, H, d] sees the first cache_seqlens keys of k_cache and v_cache [B, M, Hkv, d], a number or one per sequence, and then those of k
    and v [B, n, Hkv, d], which are first written into the cache, behind the others. Returns O like q, and with return_softmax_lse also L
    [B, H, N]. Without a gradient. num_splits and pack_gqa are ignored. options: attention()'s; where a compiler traces it, only sinks, stage
    and variant.

    rotary_cos, rotary_sin: [positions, half the rotated columns], for k and q, whose rows are at cache_seqlens and after it where causal or in
    a window, else all at cache_seqlens. rotary_interleaved: rotates neighbouring columns, else those of two halves. cache_leftpad: how many
    keys at the front of each sequence none sees. cache_batch_idx: the sequences of a larger cache. block_table [B, any]: the pages of each
    sequence in caches [pages, rows of one, Hkv, d].

    For up to 64 rows N H / Hkv in 16 bits, with pages of 64 rows or a multiple, and with no other option than sinks, or for N = 1 a window,
    caches are read in place. A GPU's lengths and pages then stay there: nobody checks them, and a CUDA graph reads them anew. Else the CPU
    waits for them, and each call copies what it sees of pages and of uneven lengths. Other strides than the kernels' cost a copy, too.
    """
    _require_tensors(4, q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, alibi_slopes=alibi_slopes)
    _require(cache_batch_idx is None or block_table is None, "cache_batch_idx and block_table exclude each other")
    _require((k is None) == (v is None), f"{'v' if k is None else 'k'} is given without {'k' if k is None else 'v'}")
    _require(k is None or cache_seqlens is not None, "cache_seqlens is missing: k and v are written behind so many keys of the cache")
    where = {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad, "block_table": block_table}
    sequences, pad, pages = [x if x is None else _whole_numbers(x, name) for name, x in where.items()]
    pages = pages if sequences is None else sequences.reshape(-1, 1)  # each of one page
    M = k_cache.shape[1] * (1 if pages is None else pages.shape[-1])
    lengths = _whole_numbers(M if cache_seqlens is None else cache_seqlens, "cache_seqlens")
    window_size = (-1, -1) if window_size is None else window_size
    scale, softcap = _float(softmax_scale, "softmax_scale"), _float(softcap, "softcap") or 0.0
    how = alibi_slopes, scale, bool(causal), window_size, softcap
    if rotary_cos is not None or rotary_sin is not None:
        _require_tensors(2, rotary_cos=rotary_cos, rotary_sin=rotary_sin)
        _require(k is not None and k.dim() == 4, "rotary_cos and rotary_sin need k and v, [B, n, Hkv, d]")
        rows, follow = M + max(q.shape[1] - k.shape[1], 0), causal or tuple(window_size) != (-1, -1)
        fits = rotary_cos.shape == rotary_sin.shape and rotary_cos.device == rotary_sin.device == q.device
        fits = fits and rotary_cos.shape[0] >= rows and 2 * rotary_cos.shape[1] <= q.shape[3]
        allowed = f"[{rows} or more, up to {q.shape[3] // 2}] on {q.device}, both alike"
        _require(fits, f"rotary_cos is {tuple(rotary_cos.shape)}, rotary_sin {tuple(rotary_sin.shape)}; allowed: {allowed}")
        known = lengths if lengths.dim() == 0 else lengths.reshape(-1, 1).to(q.device)
        q, k = (_rotated(x, rotary_cos, rotary_sin, rotary_interleaved, known, x is k or follow) for x in (q, k))
    if q.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(q.device.type):
        q, k, v = (x if x is None else x.to(k_cache.dtype) for x in (q, k, v))
    tensors = q, k_cache, v_cache, k, v
    if _is_traced(*tensors) or torch._C._are_functorch_transforms_active():
        more = ", ".join([name for name in options if name not in ("sinks", "stage", "variant")])
        _require(not more, f"where a compiler traces it, a cache takes no {more}")
        # Without no_grad(), which would stay on if the operation raised an error.
        *tensors, sinks = [x if x is None else x.detach() for x in (*tensors, options.pop("sinks", None))]
        O, L = _cached(*tensors, lengths, *how, sinks, pages, pad, **options)
    else:
        with torch.no_grad():
            O, L = _run_cached(*tensors, lengths, *how, pages=pages, pad=pad, **options)
    return (O, L) if return_softmax_lse else O


def _rotated(x, cos, sin, interleaved, known, follow=True):
    """x [B, N, H, d], whose first columns are rotated by the angles of a row's position, behind the known ones or all there."""
    at = (torch.arange(x.shape[1] if follow else 1, device=x.device) + known).clamp(0, cos.shape[0] - 1)  # other lengths are refused later
    half, (cos, sin) = cos.shape[1], (angles[at].unsqueeze(-2).float() for angles in (cos, sin))
    turned = x[..., : 2 * half].float()
    a, b = turned.unflatten(3, (half, 2)).unbind(4) if interleaved else turned.chunk(2, 3)
    pair = a * cos - b * sin, a * sin + b * cos
    turned = torch.stack(pair, 4).flatten(3) if interleaved else torch.cat(pair, 3)
    return torch.cat([turned.to(x.dtype), x[..., 2 * half :]], 3)


def _run_cached(q, k_cache, v_cache, k, v, lengths, slopes, scale, causal, window, softcap, sinks=None, pages=None, pad=None, **options):
    """pages: [B, any] of caches [any, size of a page, Hkv, d]. pad: how many keys at the front of a sequence none sees."""
    (count, size), (B, N), caches, new = k_cache.shape[:2], q.shape[:2], (k_cache, v_cache), () if k is None else (k, v)
    _require(v_cache.shape[:2] == (count, size), "caches of k and v have to be alike")
    fits = B == count if pages is None else pages.shape[:-1] == (B,)
    _require(fits, f"q has {B} sequences; allowed: as many as the caches, {count}, or as cache_batch_idx or block_table")
    for cache, x in zip(caches, new):
        fits = x.dim() == 4 and x.shape == (B, k.shape[1], *cache.shape[2:]) and x.dtype == cache.dtype and x.device == cache.device
        _require(fits, f"k and v have to be [{B}, n, Hkv, d], like the cache also in dtype and device")
    _require(lengths.numel() in (1, B), f"cache_seqlens are {lengths.numel()} numbers; allowed: 1 or {B}")
    others = [x for x in (pad, slopes, softcap or None, *options.values()) if x is not None]
    in_place = not others and _is_for_decode(q, k_cache, v_cache, window, pages)
    if in_place and lengths.is_cuda:
        return _run_in_place(q, caches, new, lengths, scale, causal, window, sinks, pages)
    known, pads = ([0] if x is None else x.reshape(-1).tolist() for x in (lengths, pad))
    known, pads = (x * B if len(x) == 1 else x for x in (known, pads))
    more, M = k.shape[1] if new else 0, size if pages is None else size * pages.shape[1]
    ends = [n + more for n in known]
    most, uneven = max(ends, default=more), len(set(known)) > 1 or any(pads)
    fits = min(known, default=0) >= 0 and most <= M
    _require(fits, f"cache_seqlens are {known}; allowed: {B} length{'s' * (B != 1)}, from 0, at most {M} with the new k")
    fits = len(pads) == B and all([0 <= first <= n for first, n in zip(pads, known)])
    _require(fits, f"cache_leftpad are {pads}; allowed: {B} from 0 to cache_seqlens, {known}")
    if pages is not None and not (in_place and pages.is_cuda):  # for which the CPU would have to wait
        _check_pages(pages, torch.tensor(ends, device=pages.device), k_cache)
    if in_place and (uneven or pages is not None or window[0] >= 0):
        return _run_in_place(q, caches, new, lengths, scale, causal, window, sinks, pages)
    at, d_v, read, seen = (slice(None), slice(most - more, most)), v_cache.shape[3], [x[:, :most] for x in caches], None
    if uneven or pages is not None or d_v != q.shape[3]:  # packs what is seen
        first, behind, end = (torch.tensor(x, device=q.device)[:, None] for x in (pads, known, ends))
        at, rows = _places_behind(behind, more, pages, size), torch.arange(most, device=q.device)
        seen = _places_of(*((first <= rows) & (rows < end)).nonzero(as_tuple=True), pages, size)
        q, *read, d_v, scale = _of_one_width(q, *(x.new_empty(len(seen[0]), *x.shape[2:]) for x in caches), scale)

    def write():
        for cache, x in zip(caches, new):
            cache[at] = x
        for part, cache in zip(read, caches if seen else ()):
            part[..., : cache.shape[3]] = cache[seen]

    options |= {"scale": scale, "causal": causal, "window": window, "softcap": softcap, "alibi_slopes": slopes, "sinks": sinks}
    options |= {"return_lse": True, "_before": write}
    if uneven:
        keys = [0, *itertools.accumulate(end - first for first, end in zip(pads, ends))]
        O, L = attention_varlen(q.flatten(0, 1), *read, [N * s for s in range(B + 1)], keys, **options)
        O, L = O.unflatten(0, (B, N)), L.unflatten(1, (B, N)).transpose(0, 1)
    else:
        O, L = _attention_bnhd(q, *(x.view(B, most, *x.shape[-2:]) if seen else x for x in read), **options)
    return O[..., :d_v], L


def _places_of(sequence, row, pages, size):
    """Where rows of sequences are in a cache."""
    return (sequence, row) if pages is None else (pages.to(row.device)[sequence, row // size], row % size)


def _places_behind(known, more, pages, size):
    """Where the rows behind the known ones [B, 1] are."""
    sequence = torch.arange(len(known), device=known.device)[:, None]
    return _places_of(sequence, known if more == 1 else known + torch.arange(more, device=known.device), pages, size)


def _check_pages(pages, lengths, cache):
    """Those behind a sequence may be any number."""
    count, size = cache.shape[:2]
    unused = torch.arange(pages.shape[-1], device=pages.device) * size >= lengths[:, None]
    _require((unused | (0 <= pages) & (pages < count)).all(), f"block_table or cache_batch_idx has others than 0 to {count - 1}")


def _is_for_decode(q, k_cache, v_cache, window, pages):
    """Few queries, and tiles of 64 keys that lie in one page each."""
    fits = q.dtype == k_cache.dtype == v_cache.dtype != torch.float32 and k_cache.shape == v_cache.shape and k_cache.numel() * q.numel() > 0
    fits = fits and q.shape[1] * q.shape[2] <= 64 * k_cache.shape[2] and (q.shape[1] == 1 or tuple(window) == (-1, -1))
    return fits and q.shape[3] % 8 == 0 and q.shape[3] <= 256 and (pages is None or pages.shape[1] == 1 or k_cache.shape[1] % 64 == 0)


def _run_in_place(q, caches, new, lengths, scale, causal, window, sinks, pages):
    """A CUDA graph captures it: only the GPU reads lengths and pages, which are cut to what there is."""
    B, N, more = *q.shape[:2], new[0].shape[1] if new else 0
    known = lengths.to(q.device).reshape(-1, 1).expand(B, 1)
    ends = known + more
    places = {"ends": ends, "firsts": ends - 1 - window[0] if window[0] >= 0 else None, "pages": pages}
    places = {name: x.to(q.device, torch.int32).contiguous()[None, None] for name, x in places.items() if x is not None}
    at = _places_behind(known, more, pages, caches[0].shape[1])

    def write():
        for cache, x in zip(caches, new):
            cache[at] = x

    q, k, v = (x.transpose(1, 2) for x in (q, *caches))
    how = _options(causal and N > 1, scale=scale), False, "08", "decode", ""
    O, L = _run_forward(q, k, v, None, _sinks(sinks, q), None, None, *how, write, places)
    return O.transpose(1, 2), L


_cached = torch.library.custom_op(
    "flash_steps::with_kvcache",
    lambda *tensors, **options: tuple(x.contiguous() for x in _run_cached(*tensors, **options)),
    mutates_args=("k_cache", "v_cache"),
    schema="(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k, Tensor? v, Tensor lengths, Tensor? alibi_slopes, float? scale, "
    "bool causal, SymInt[] window, float softcap, Tensor? sinks=None, Tensor? pages=None, Tensor? pad=None, *, str? stage=None, "
    "str? variant=None) -> (Tensor, Tensor)",
)


@_cached.register_fake
def _fake_cached(q, k_cache, v_cache, *_, **__):
    q, k, v, d_v, _ = _of_one_width(q, *(x.new_empty(q.shape[0], *x.shape[1:]) for x in (k_cache, v_cache)), None)
    _check(*(x.transpose(1, 2) for x in (q, k, v)), None, fake=True)
    return q.new_empty(*q.shape[:3], d_v), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)


_cached.register_vmap(_refuse_vmap)
register_flop_formula(torch.ops.flash_steps.with_kvcache, get_raw=True)(
    lambda q, K, V, k, v, n, *_, **__: 4 * q.shape[1:].numel() * (n + (0 if k is None else k.shape[1])).expand(q.shape[0]).sum().item()
)


def _in_transformers(
    module, q, k, v, mask, scaling=None, dropout=0.0, sliding_window=None, softcap=None, s_aux=None, is_causal=None, **more
):
    for name in ("indices", "block_indices", "sinks"):  # of the keys that a query sees, and a logit per query
        _require(more.get(name) is None, f"{name} of transformers are not supported; instead use another attention")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = (sliding_window - 1, sliding_window - 1) if sliding_window else None
    if mask is not None and mask.dim() == 4:  # says all
        causal, window = False, None
    elif mask is not None:
        mask = mask[:, None, None].bool()
    how = {"causal": causal, "window": window, "scale": scaling, "softcap": softcap, "sinks": s_aux, "dropout_p": dropout}
    bias, place, offsets = more.get("position_bias"), more.get("position_ids"), (more.get("cu_seq_lens_q"), more.get("cu_seq_lens_k"))
    if mask is None and offsets[0] is None and place is not None and place.shape == (1, q.shape[2]) and q.shape[2] > 1:
        offsets = (_restarts(place),) * 2
        here = offsets[0] is None or q.shape[2] == k.shape[2]
        _require(here, "position_ids restart behind a cache; instead pass cu_seq_lens_q and cu_seq_lens_k")
    if mask is None and offsets[0] is not None:
        return attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), *offsets, bias=bias, **how)[None], None
    if bias is None:
        bias = mask
    elif mask is not None:
        bias = torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask
    return attention(q, k, v, bias=bias, **how).transpose(1, 2), None


def _restarts(place):
    """cu_seqlens, if position_ids [1, N] restart; a compiler sees none."""
    if torch.compiler.is_compiling():
        return None

    def offsets(place):
        starts = (place[0].diff() <= 0).nonzero()[:, 0].tolist()
        return [0, *[n + 1 for n in starts], place.shape[1]] if starts else None

    return _kept_with(place, offsets)


def _mask_in_transformers(**given):
    """None, or where keys are padded their mask [B, Nk], if causal and window say the rest; else the whole mask [B, 1, N, Nk]."""
    from transformers.masking_utils import sdpa_mask

    traced, places = torch.compiler.is_compiling(), given.get("cache_position")  # of older versions
    end = given["q_offset"] + given["q_length"] if places is None else places[-1] + 1  # a tensor for a static cache
    at_end = not (traced and isinstance(end, Tensor)) and bool(end == given["kv_offset"] + given["kv_length"])
    if not at_end or not _is_causal_or_window(given["mask_function"], given["batch_size"] == 1 and not traced):
        return sdpa_mask(**given | {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})
    padding = given["attention_mask"]
    padding = padding if padding is None else padding[:, -given["kv_length"] :]
    return None if padding is None or (not traced and padding.all()) else padding


def _is_causal_or_window(function, packed):
    """Does a mask function of transformers say no more than causal and window, or with packed, than position_ids that restart?"""
    if getattr(function, "__module__", None) != "transformers.masking_utils":
        return False
    if function.__name__ in ("causal_mask_function", "bidirectional_mask_function"):
        return True
    if torch.compiler.is_compiling():  # that of PyTorch 2.11 does not see what functions are made of
        return False
    name = function.__qualname__.split(".")[0]
    if name == "and_masks":
        return all([_is_causal_or_window(x, packed) for x in function.__closure__[0].cell_contents])
    if name == "remap_positions_for_packed_sequence":
        return packed and _is_causal_or_window(function.__closure__[0].cell_contents, packed)
    plain = "sliding_window_overlay", "sliding_window_bidirectional_overlay"
    return name in plain or (packed and name == "packed_sequence_mask_function")


def register_transformers():
    """After it, model.set_attn_implementation("steps") lets a model of transformers call attention(), for padded batches and for packed
    sequences, by cu_seq_lens_q and cu_seq_lens_k in a batch of 1, or by position_ids that restart."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register("steps", _in_transformers)  # a name with "flash" would ask for the library flash_attn
    AttentionMaskInterface.register("steps", _mask_in_transformers)
