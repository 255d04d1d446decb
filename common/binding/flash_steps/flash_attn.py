"""Packed sequences, and the functions of the library flash_attn, with its arguments in its order."""

import inspect

import torch
from torch import Tensor

from .arguments import F, Result, kept_with, require, require_tensors, takes, whole_numbers
from .operation import attention, is_traced


def _offsets_on_cpu(x):
    if type(x) is Tensor and x.is_cuda and not torch.compiler.is_compiling():
        return kept_with(x, lambda x: whole_numbers(x.to("cpu"), "cu_seqlens"))
    return whole_numbers(x, "cu_seqlens").to("cpu")


_BY_NAME = [x for x in inspect.signature(attention).parameters.values() if x.kind is x.KEYWORD_ONLY]
_FURTHER = [x for x in _BY_NAME if x.name not in ("scale", "window", "return_lse")]  # flash_attn has other names for these


@takes(*_BY_NAME)
def attention_varlen(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q, cu_seqlens_k=None, *, return_lse: bool = False, **options) -> Result:
    """attention() of sequences of unequal lengths, packed one after another: q [total, H, d], k and v [total_k, Hkv, d]. Sequence s has the
    queries cu_seqlens_q[s] to cu_seqlens_q[s + 1], and keys likewise; without cu_seqlens_k, those of its queries. They are best lists, or
    tensors on the CPU: the CPU waits for those on a GPU. With return_lse also [H, total]. options: attention()'s, but for a bias; alibi_slopes
    are [H].
    """
    slopes = options.get("alibi_slopes")
    require_tensors(3, q=q, k=k, v=v, alibi_slopes=slopes)
    if slopes is not None:
        require(slopes.dim() == 1, f"alibi_slopes of packed sequences are [H], not {tuple(slopes.shape)}")
    require(options.get("bias") is None, "packed sequences have no bias; instead pass alibi_slopes, or a padded batch to attention()")
    offsets = [_offsets_on_cpu(cu_seqlens_q)]
    offsets.append(offsets[0] if cu_seqlens_k is None else _offsets_on_cpu(cu_seqlens_k))
    S, totals = offsets[0].numel() - 1, (q.shape[0], k.shape[0])
    fit = offsets[0].dim() == 1 and offsets[0].shape == offsets[1].shape and S > 0
    require(fit, f"cu_seqlens are {[tuple(x.shape) for x in offsets]}; allowed: two of one length, of two entries at least")
    offsets = torch.stack(offsets)
    free = not is_traced(q, k, v) and not options.get("dropout_p")  # a traced length would be bound to multiples of S
    if free and min(totals) > 0 and totals[0] % S == totals[1] % S == 0 and S < 65536:
        if offsets.tolist() == [[*range(0, n + 1, n // S)] for n in totals]:  # a batch, whose kernels are faster
            O, L = attention_bnhd(*(x.unflatten(0, (S, -1)) for x in (q, k, v)), return_lse=True, **options)
            return (O.flatten(0, 1), L.transpose(0, 1).flatten(1)) if return_lse else O.flatten(0, 1)
    O, L = attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), return_lse=True, **options, _offsets=offsets)
    O = O.squeeze(0).transpose(0, 1)  # O[0] would fill a gradient with zeros, and copy into it
    return (O, L.squeeze(0)) if return_lse else O


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
        q, k, v, offsets, key_offsets = tensors  # no other functions take it
        tensors = q, *_unpaged(k, v, key_offsets, block_table), offsets, key_offsets
    options |= {"dropout_p": dropout_p, "softcap": softcap, "alibi_slopes": alibi_slopes, "deterministic": deterministic}
    O, L = attend(*tensors, scale=softmax_scale, causal=causal, window=window_size, return_lse=True, **options)
    return (O, L, None) if return_attn_probs else O


def _unpaged(k, v, offsets, pages):
    """Packed keys and values out of those in pages [pages, rows of one, Hkv, d], of which each sequence has a row of numbers."""
    require(k.dim() == v.dim() == 4, "with a block_table k and v have to be [pages, rows of one, Hkv, d]")
    pages, offsets = (whole_numbers(x, name).to(k.device) for x, name in ((pages, "block_table"), (offsets, "cu_seqlens_k")))
    check_pages(pages, offsets.diff(), k)
    rows = torch.arange(pages.shape[1] * k.shape[1], device=k.device)
    at = places_of(*(rows < offsets.diff()[:, None]).nonzero(as_tuple=True), pages, k.shape[1])
    return k[at], v[at]


def attention_bnhd(q, k, v, **options):
    require_tensors(4, q=q, k=k, v=v)
    O, L = attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)
    return O.transpose(1, 2), L


def _unpacked(parts, axis, **packed):
    require_tensors(axis + 3, **packed)
    ((name, x),) = packed.items()
    require(x.shape[axis] == parts, f"{name} is {tuple(x.shape)}; allowed: {parts} at axis {axis}")
    return x.unbind(axis)


def _takes_flash_attn(function: F) -> F:
    function.__doc__ += f"\n\n    {_flash_attn.__doc__}"
    taken = list(inspect.signature(_flash_attn).parameters.values())[2:-1]
    return takes(*[x for x in taken if x.name != "block_table" or "varlen" in function.__name__], *_FURTHER)(function)


@_takes_flash_attn
def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, *args, **options) -> Result:
    """q [B, N, H, d], k and v [B, Nk, Hkv, d]; returns O like q, and with return_attn_probs O, L [B, H, N] and None."""
    return _flash_attn(attention_bnhd, (q, k, v), *args, **options)


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


def places_of(sequence, row, pages, size):
    """Where rows of sequences are in a cache."""
    return (sequence, row) if pages is None else (pages.to(row.device)[sequence, row // size], row % size)


def check_pages(pages, lengths, cache):
    """Those behind a sequence may be any number."""
    count, size = cache.shape[:2]
    unused = torch.arange(pages.shape[-1], device=pages.device) * size >= lengths[:, None]
    require((unused | (0 <= pages) & (pages < count)).all(), f"block_table or cache_batch_idx has others than 0 to {count - 1}")
