"""The libraries of the stages, by flash.h: which one, what a pass needs, and the pass itself."""

import contextlib
import ctypes
import functools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from .arguments import require

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # as in flash.h
_NAMES = {"dropout": "dropout_p", "lengths": "cu_seqlens", "head-dim": "d"}  # what the programs call otherwise


_here = Path(__file__).resolve()
_builds = [_here.parents[3] / name / "lib" for name in ("build-binding", "build-wheel")]  # in a clone what CMake has built, or else pip
libraries = next(filter(Path.is_dir, [_here.with_name("lib"), *_builds]), _builds[0])


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
    global libraries
    require(
        (Path(build) / "lib").is_dir(), f"there is no folder {Path(build) / 'lib'}; docs/howto/pytorch.md of a clone says how to build it"
    )
    libraries = Path(build) / "lib"
    library_of.cache_clear()
    plans.clear()


@functools.cache
def library_of(stage):
    there = {path.stem.removeprefix("libflash_"): path for path in sorted(libraries.glob("libflash_*"))}
    found = [path for name, path in there.items() if name.startswith(stage)]
    if len(found) != 1:
        what = f"{len(found)} libraries match" if found else "there is no library"
        how = f"there are: {', '.join(there) or 'none'}; docs/howto/pytorch.md of a clone says how to build more"
        raise RuntimeError(f"stage '{stage}': {what} in {libraries}; {how}")
    library = ctypes.CDLL(str(found[0]))
    if getattr(library, "flash_call_size", int)() != ctypes.sizeof(_Call):
        raise RuntimeError(f"{found[0]} is of another version than {_here.parent}; build it again")
    library.flash_error.restype = ctypes.c_char_p
    return library


def _raise_for(code, stage):
    if code:
        why = re.sub("--([a-z-]+)", lambda option: _NAMES.get(option[1], option[1]), library_of(stage).flash_error().decode())
        why = re.sub(r"no backward pass; variant (\w+) takes it", r"no backward pass; instead backward_variant='\1'", why)
        why += "; instead pip install . -C cmake.define.FLASH_CUDA=ON" if "no GPU code" in why else ""
        raise (ValueError if code == 2 else RuntimeError)(f"stage {stage}: {why}")


def _c_tensor(x, data=None):
    shape, stride = (x.shape, x.stride()) if x.dim() == 4 else ((*x.shape, 1), (*x.stride(), 1))  # L
    return _CTensor(data, shape, stride)


_READ = "Q", "K", "V", "dO"  # of any strides, as those that no kernel takes are copied
plans = {}  # by all that a call depends on but pointers


def planned(backward, how, offsets, given, made):
    """The call of a pass without its pointers, the bytes of its workspace, how many of these are zero first, its function, what is copied; None
    for an empty problem, which no kernel takes."""
    key = backward, *how, len(made), *(() if offsets is None else offsets.flatten().tolist())
    for x in given.values():
        key += x.shape, x.stride(), x.dtype, x.device
    plan = plans.get(key)
    if plan is None:
        (options, deterministic, stage, variant), (q, k, v) = how, (given[name] for name in "QKV")
        check_tensors(q, *(x[:1].expand(q.shape[0], -1, -1, -1) if "pages" in given else x for x in (k, v)), given.get("bias"))
        if not q.numel() or not k.numel():
            return None
        options, library = _with_lengths(options, offsets, q, k), library_of(stage)
        plain = {"variant": variant.encode(), "options": options.encode(), "on_gpu": q.is_cuda, "dtype": DTYPES[q.dtype]}
        call = _Call(**plain, deterministic=deterministic, **{name: _c_tensor(x) for name, x in (given | made).items()})
        size, zeroed = ctypes.c_int64(), ctypes.c_int64()
        with torch.cuda.device_of(q):
            _raise_for(library.flash_workspace(ctypes.byref(call), backward, ctypes.byref(size), ctypes.byref(zeroed)), stage)
        if len(plans) >= 256:  # lengths of packed sequences may never come again
            plans.clear()
        copied = [name for name in _READ if name in given and not _fits(given[name])]
        plan = plans[key] = call, size.value, zeroed.value, library.flash_backward if backward else library.flash_forward, copied
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


def run_pass(backward, how, seed, offsets, given, made, before=None):
    """A pass, in the workspace that it asks for. how: the problem's options as flash.h has them, deterministic, stage and variant. What is
    made follows from what is given in shape and strides. before: is called first, once the call is known to be one that a kernel takes."""
    plan = planned(backward, how, offsets, given, made)
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
        name = f"flash_steps::{'backward' if backward else 'forward'}"
        with torch.autograd.profiler.record_function(name) if torch.autograd._profiler_enabled() else contextlib.nullcontext():
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


def check_tensors(q, k, v, bias, fake=False):
    """What flash.h cannot see in pointers and shapes."""
    require(q.dim() == k.dim() == v.dim() == 4, "q, k and v have to be [B, H, N, d]")
    alike = q.dtype == k.dtype == v.dtype and q.dtype in DTYPES
    require(alike, f"q, k and v are {q.dtype}, {k.dtype}, {v.dtype}; allowed: all of float32, float16 or bfloat16")
    require(q.device == k.device == v.device, f"q, k and v are on {q.device}, {k.device}, {v.device}; allowed: one device")
    require(fake or q.is_cpu or q.is_cuda, f"tensors are on {q.device}; allowed: cpu, cuda")
    fits = q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and k.shape == v.shape and k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0
    shapes = f"as [B, H, N, d], q is {tuple(q.shape)}, k is {tuple(k.shape)} and v is {tuple(v.shape)}"
    require(fits, f"{shapes}; B and d have to be alike, k and v, too, and H of q has to be a multiple of H of k")
    d, most = q.shape[3], 128 if q.dtype == torch.float32 else 256
    require(d <= most, f"d is {d}; allowed: up to 128 in fp32, and 256 in fp16 and bf16; for more, use scaled_dot_product_attention()")
    if bias is not None:
        fits = bias.dim() == 4 and bias.dtype == torch.float32 and bias.device == q.device
        require(fits, f"a bias, or slopes, of {bias.dim()} axes in {bias.dtype} on {bias.device}; allowed: 4 in fp32 on {q.device}, as q")


def _with_lengths(options, offsets, q, k):
    """The options, with the lengths of packed sequences."""
    if offsets is not None:
        (a, c), rows = offsets.tolist(), (q.shape[2], k.shape[2])
        fits = a[0] == c[0] == 0 and (a[-1], c[-1]) == rows and a == sorted(a) and c == sorted(c)
        require(fits, f"cu_seqlens are {str(a)[:80]} of q and {str(c)[:80]} of k; allowed: ascending from 0 to their rows, {rows}")
        options += "\n--lengths=" + ",".join(f"{y - x}:{w - z}" for x, y, z, w in zip(a, a[1:], c, c[1:]))
    return options.strip()
