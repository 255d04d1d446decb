"""attention(), with its backward pass, as operations of PyTorch: what compilers, autograd and other parts of PyTorch ask about it."""

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .arguments import Result, require, require_tensors, takes, whole_numbers
from .library import DTYPES, check_tensors, planned, run_pass


def _check_backward(dO, q, O, L):
    alike = all(x.shape == q.shape and x.dtype == q.dtype and x.device == q.device for x in (dO, O))
    alike &= L.shape == q.shape[:3] and L.dtype == torch.float32 and L.device == q.device
    require(alike, "dO and O have to be like q, and L [B, H, N] in fp32")


def _inputs(q, k, v, bias):
    return {"Q": q, "K": k, "V": v} if bias is None else {"Q": q, "K": k, "V": v, "bias": bias}


def run_forward(q, k, v, bias, sinks, seed, offsets, options, deterministic, stage, variant, backward_variant, before=None, cache=None):
    """O and L, the log-sum-exp of each row."""
    sinks, (O, L) = sinks_of(sinks, q), _outputs(q)
    run_pass(0, (options, False, stage, variant), seed, offsets, _inputs(q, k, v, bias) | (cache or {}), {"O": O, "L": L}, before)
    if sinks is not None:  # one more term of each row's sum, after the kernel
        seen, L = L, torch.logaddexp(L, sinks[:, None])
        O.mul_(_share(seen, L)[..., None])
    return O, L


def _share(part, whole):
    """Of a sum, both as logarithms; 0 of 0."""
    return (part - whole).exp().masked_fill(part == -torch.inf, 0)


_forward = torch.library.custom_op(
    "flash_steps::forward",
    run_forward,
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
    check_tensors(q, k, v, bias, fake=True)
    sinks_of(how[0], q)
    return _outputs(q)


def run_backward(dO, dL, q, k, v, O, L, bias, sinks, bias_gradient, seed, offsets, *how):
    """dQ, dK, dV, and the gradients of the bias and of sinks, which are empty unless asked for."""
    _check_backward(dO, q, O, L)

    def one_pass(dO, v, O):
        found = _gradients_of(q, k, v, bias, sinks, bias_gradient)
        made = zip(("dQ", "dK", "dV", "dBias")[: 3 + bias_gradient], found)
        given = _inputs(q, k, v, bias) | {"O": O, "L": L, "dO": dO}
        run_pass(1, how, seed, offsets, given, dict(made))
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
    run_backward,
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
    def refuse(*_, **__):
        raise NotImplementedError(f"flash_steps: attention has no {what}; instead {instead}")

    return refuse


refuse_vmap = _refusing("vmap", "flatten the mapped axis into B, or into S for packed sequences")
for _operation in (_forward, _backward):
    _operation.register_vmap(refuse_vmap)


class _EagerBackward(torch.autograd.Function):  # under create_graph and torch.func, which an operation without a formula does not take
    forward, setup_context = staticmethod(run_backward), staticmethod(lambda *_: None)
    backward, jvp, vmap = map(staticmethod, (_refusing("gradient of its gradient"), _refusing("forward-mode gradient"), refuse_vmap))


class _Eager(torch.autograd.Function):
    """The same for tensors that no compiler traces. The way through an operation takes 100 us more: longer than a short problem's kernels."""

    forward, setup_context = staticmethod(lambda *inputs: run_forward(*inputs)), staticmethod(_save)
    jvp, vmap = map(staticmethod, (_refusing("forward-mode gradient"), refuse_vmap))

    @staticmethod
    def backward(ctx, dO, dL):
        if any([x is not None and torch._C._functorch.is_legacy_batchedtensor(x) for x in (dO, dL)]):
            refuse_vmap()
        eager = _EagerBackward.apply if torch.is_grad_enabled() else run_backward
        return _gradients(ctx, dO, dL, _backward if is_traced(dO, dL) else eager)


_apply = super(torch.autograd.Function, _Eager).apply  # without torch.func, whose apply() reads the signature at each call: 40 us


def is_traced(*tensors):
    """Also for a mode that watches operations, such as make_fx and selective checkpointing, and where PyTorch negates a tensor lazily."""
    if torch.compiler.is_dynamo_compiling() or torch._C._len_torch_dispatch_stack() or torch._C._is_tracing():
        return True
    return any([x is not None and (x.is_meta or x.is_neg() or type(x) not in (Tensor, torch.nn.Parameter)) for x in tensors])


def _flops(products, q, k, offsets):
    """Without masks, as PyTorch counts its own attention."""
    pairs = offsets.diff().prod(0).sum().item() if type(offsets) is Tensor else q.shape[2] * k.shape[2]
    return 2 * products * q.shape[:2].numel() * pairs * q.shape[3]


register_flop_formula(torch.ops.flash_steps.forward, get_raw=True)(lambda q, k, v, *more, **__: _flops(2, q, k, more[3]))
register_flop_formula(torch.ops.flash_steps.backward, get_raw=True)(lambda dO, dL, q, k, *more, **__: _flops(5, q, k, more[7]))


def merge(O: Tensor, L: Tensor, part_O: Tensor, part_L: Tensor):
    """Merges attention over some keys, part_O [B, H, N, d] and part_L [B, H, N], into O and L of other keys, which change in place (X.1). All
    but part_O are in fp32."""
    require(O.dtype == L.dtype == part_L.dtype == torch.float32, "O, L and part_L have to be in float32")
    require(O.shape == part_O.shape and L.shape == part_L.shape == O.shape[:3], "the parts differ in shape")
    whole = torch.logaddexp(L, part_L)
    O.mul_(_share(L, whole)[..., None]).addcmul_(part_O, _share(part_L, whole)[..., None])
    L.copy_(whole)


def as_text(causal, window=(-1, -1), softcap=0.0, dropout_p=0.0, scale=None, bias=None):
    """A problem's options as flash.h takes them, one a line."""
    given = {"causal": "true" if causal else None, "scale": None if scale is None else f"{float(scale)}", "bias": bias}
    given |= {"window": f"{window[0]},{window[1]}" if window is not None and tuple(window) != (-1, -1) else None}
    given |= {"softcap": float(softcap or 0), "dropout": float(dropout_p or 0)}
    return "\n".join([f"--{name}={value}" for name, value in given.items() if value])


def _bias(bias, q, k):
    """[B or 1, H or 1, N or 1, Nk] in fp32. If it needs a gradient it has all N rows, whose gradients autograd sums."""
    require(bias.dtype == torch.bool or bias.is_floating_point(), "a bias is bool, True where a query sees a key, or floating point")
    fits = bias.dim() <= 4 and all(n in (1, m) for n, m in zip(reversed(bias.shape), (k.shape[2], *reversed(q.shape[:3]))))
    wanted = (*q.shape[:3], k.shape[2])
    require(fits, f"bias is {tuple(bias.shape)}; allowed: shapes that broadcast to {wanted}, such as mask[:, None, None] of [B, Nk]")
    if bias.dtype == torch.bool:
        bias = torch.zeros_like(bias, dtype=torch.float32).masked_fill(~bias, -torch.inf)
    bias = bias.float()[(None,) * (4 - bias.dim())]
    if bias.shape[3] == 1 != k.shape[2] or bias.stride(3) != 1:
        bias = bias.expand(-1, -1, -1, k.shape[2]).contiguous()
    return bias.expand(-1, -1, q.shape[2], -1) if bias.requires_grad and bias.shape[2] == 1 else bias


@takes()
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
    require_tensors(4, q=q, k=k, v=v, bias=bias, alibi_slopes=alibi_slopes, sinks=sinks)
    kind, device = None, q.device.type
    if alibi_slopes is not None:
        require(bias is None, "a bias and alibi_slopes exclude each other; instead add them up as a bias")
        bias, kind = slopes_of(alibi_slopes, q), "alibi"
    elif bias is not None:
        bias = _bias(bias, q, k)
    if device in ("cpu", "cuda") and torch.is_autocast_enabled(device):
        q, k, v = (x.to(torch.get_autocast_dtype(device)) if x.dtype in DTYPES else x for x in (q, k, v))
    q, k, v, d_v, scale = of_one_width(q, k, v, scale)
    deterministic = torch.are_deterministic_algorithms_enabled() if deterministic is None else bool(deterministic)
    stage = stage_of(q) if stage is None else str(stage).zfill(2)
    variant, backward = variant or "", backward_variant or variant or ""
    how = as_text(causal, window, softcap, dropout_p, scale, kind), deterministic, stage, variant, backward
    sinks, seed = sinks_of(sinks, q), seed if seed is None else whole_numbers(seed, "seeds")  # a tensor: a compiler binds a number
    require(seed is None or seed.numel() == 1, f"seeds are {seed}; allowed: one whole number")
    seed = None if not dropout_p else torch.randint(2**62, (), device="cpu") if seed is None else seed
    inputs = q, k, v, bias, sinks, seed, _offsets
    if is_traced(q, k, v, bias, sinks):
        check_tensors(q, k, v, bias, fake=q.is_meta)
        O, L = _forward(*inputs, *how)
    else:
        transformed, trained = torch._C._are_functorch_transforms_active(), any([x is not None and x.requires_grad for x in inputs[:5]])
        eager = transformed or torch.autograd.forward_ad._current_level >= 0 or (trained and torch.is_grad_enabled())
        if eager and trained:  # so that a call is refused, instead of its gradient later
            made = {"dBias": bias} if bias is not None and bias.requires_grad else {}
            planned(1, (*how[:3], backward), _offsets, _inputs(q, k, v, bias), made)
        apply = _Eager.apply if transformed else _apply  # which refuse forward mode
        O, L = apply(*inputs, *how) if eager else run_forward(*inputs, *how)
    O = O if O.shape[3] == d_v else O[..., :d_v]
    return (O, L) if return_lse else O


def stage_of(q):
    return "07" if q.dtype == torch.float32 else "08"


def slopes_of(slopes, q):
    """As a bias [B or 1, H, 1, 1]."""
    wanted = slopes.requires_grad and torch.is_grad_enabled()
    require(not wanted, "alibi_slopes have no gradient; instead detach() them, or make a bias of them, which has one")
    fit = slopes.shape in ((q.shape[1],), (1, q.shape[1]), q.shape[:2]) and slopes.is_floating_point()
    require(fit, f"alibi_slopes are {tuple(slopes.shape)}, {slopes.dtype}; allowed: [H] or [B, H], floating point")
    return slopes.detach().float().reshape(-1, q.shape[1], 1, 1)


def sinks_of(sinks, q):
    if sinks is None:
        return None
    fit = sinks.shape == q.shape[1:2] and sinks.is_floating_point() and sinks.device == q.device
    require(fit, f"sinks are {tuple(sinks.shape)}, {sinks.dtype}; allowed: [H], floating point, on the device of q")
    return sinks.float()


def of_one_width(q, k, v, scale):
    """The narrower of v, and q with k, gets columns of zeros. Also the width of O, and the scale."""
    d, d_v = q.shape[-1], v.shape[-1]
    if d_v != d == k.shape[-1] > 0:
        q, k, v = (x if x.shape[-1] >= max(d, d_v) else torch.nn.functional.pad(x, (0, max(d, d_v) - x.shape[-1])) for x in (q, k, v))
        scale = d**-0.5 if scale is None else scale
    return q, k, v, d_v, scale
