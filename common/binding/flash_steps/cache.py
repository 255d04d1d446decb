"""flash_attn_with_kvcache(): attention to a cache of keys and values, in place where a kernel can, else to a copy of what is seen."""

import itertools

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .arguments import Result, require, require_tensors, takes, whole_numbers
from .flash_attn import attention_varlen, check_pages, places_of
from .library import check_tensors
from .operation import as_text, is_traced, of_one_width, refuse_vmap, run_forward, sinks_of, slopes_of, stage_of


@takes()
def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    cache_seqlens: int | list[int] | Tensor | None = None,
    cache_batch_idx: list[int] | Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    pack_gqa=None,
) -> Result:
    """q [B, N, H, d] sees the first cache_seqlens keys of k_cache and v_cache [B, M, Hkv, d], a number or one per sequence, and then those of k
    and v [B, n, Hkv, d], which are first written into the cache, behind the others. Returns O like q, and with return_softmax_lse also L
    [B, H, N]. Without a gradient. num_splits and pack_gqa are ignored.

    cache_batch_idx: the sequences of a larger cache. block_table [B, any]: the pages of each sequence in caches [pages, rows of one, Hkv, d].

    For up to 64 rows N H / Hkv in 16 bits, with pages of 64 rows or a multiple, and with no other option than sinks, or for N = 1 a window,
    caches are read in place. A GPU's lengths and pages then stay there: nobody checks them, and a CUDA graph reads them anew. Else the CPU
    waits for them, and each call copies what it sees of pages and of uneven lengths. Other strides than the kernels' cost a copy, too.
    """
    require_tensors(4, q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, alibi_slopes=alibi_slopes, sinks=sinks)
    require((k is None) == (v is None), f"{'v' if k is None else 'k'} is given without {'k' if k is None else 'v'}")
    require(k is None or cache_seqlens is not None, "cache_seqlens is missing: k and v are written behind so many keys of the cache")
    pages = _pages_of(cache_batch_idx, block_table)
    lengths = whole_numbers(_rows_of(k_cache, pages) if cache_seqlens is None else cache_seqlens, "cache_seqlens")
    if q.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(q.device.type):
        q, k, v = (x if x is None else x.to(k_cache.dtype) for x in (q, k, v))
    tensors = q, k_cache, v_cache, k, v, lengths, pages, alibi_slopes, sinks
    how = {"scale": softmax_scale if softmax_scale is None else float(softmax_scale), "softcap": float(softcap or 0)}
    how |= {"causal": bool(causal), "window": (-1, -1) if window_size is None else window_size}
    if is_traced(*tensors[:5]) or torch._C._are_functorch_transforms_active():
        # Without no_grad(), which would stay on if the operation raised an error.
        O, L = _cached(*(x if x is None else x.detach() for x in tensors), **how)
    else:
        with torch.no_grad():
            O, L = _run_cached(*tensors, **how)
    return (O, L) if return_softmax_lse else O


def _pages_of(cache_batch_idx, block_table):
    """[B, any]: the pages of each sequence. A sequence of a larger cache is one page."""
    require(cache_batch_idx is None or block_table is None, "cache_batch_idx and block_table exclude each other")
    if cache_batch_idx is not None:
        return whole_numbers(cache_batch_idx, "cache_batch_idx").reshape(-1, 1)
    return None if block_table is None else whole_numbers(block_table, "block_table")


def _rows_of(cache, pages):
    """How many keys a sequence has room for."""
    return cache.shape[1] * (1 if pages is None else pages.shape[-1])


def _run_cached(q, k_cache, v_cache, k, v, lengths, pages, slopes, sinks, *, scale, causal, window, softcap):
    caches = k_cache, v_cache
    new = [x.new_empty(len(q), 0, *x.shape[2:]) for x in caches] if k is None else (k, v)
    _check_shapes(q, caches, new, lengths, pages)
    in_place = slopes is None and not softcap and _is_for_decode(q, k_cache, v_cache, window, pages)
    if in_place and lengths.is_cuda:
        return _run_in_place(q, caches, new, lengths, pages, sinks, scale, causal, window)
    ends = _ends_on_cpu(lengths, len(q), new[0].shape[1], _rows_of(k_cache, pages))
    if pages is not None and not (in_place and pages.is_cuda):  # for which the CPU would have to wait
        check_pages(pages, torch.tensor(ends, device=pages.device), k_cache)
    in_front = len(set(ends)) < 2 and pages is None and k_cache.shape == v_cache.shape
    if in_place and (not in_front or window[0] >= 0):
        return _run_in_place(q, caches, new, lengths, pages, sinks, scale, causal, window)
    run = _run_in_front if in_front else _run_on_copies
    return run(q, caches, new, ends, pages, alibi_slopes=slopes, sinks=sinks, scale=scale, causal=causal, window=window, softcap=softcap)


def _check_shapes(q, caches, new, lengths, pages):
    B, count = q.shape[0], caches[0].shape[0]
    require(caches[0].shape[:2] == caches[1].shape[:2], "caches of k and v have to be alike")
    fits = B == count if pages is None else pages.shape[:-1] == (B,)
    require(fits, f"q has {B} sequences; allowed: as many as the caches, {count}, or as cache_batch_idx or block_table")
    for cache, x in zip(caches, new):
        fits = x.dim() == 4 and x.shape == (B, new[0].shape[1], *cache.shape[2:])
        fits = fits and x.dtype == cache.dtype and x.device == cache.device
        require(fits, f"k and v have to be [{B}, n, Hkv, d], like the cache also in dtype and device")
    require(lengths.numel() in (1, B), f"cache_seqlens are {lengths.numel()} numbers; allowed: 1 or {B}")


def _is_for_decode(q, k_cache, v_cache, window, pages):
    """Few queries, and tiles of 64 keys that lie in one page each."""
    N, H, d = q.shape[1:]
    alike = q.dtype == k_cache.dtype == v_cache.dtype != torch.float32 and k_cache.shape == v_cache.shape
    few = N * H <= 64 * k_cache.shape[2] and (N == 1 or tuple(window) == (-1, -1))
    whole = pages is None or pages.shape[1] == 1 or k_cache.shape[1] % 64 == 0
    return alike and few and whole and d % 8 == 0 and d <= 256 and k_cache.numel() * q.numel() > 0


def _ends_on_cpu(lengths, B, more, room):
    """How many keys each sequence has with the new ones."""
    known = lengths.reshape(-1).tolist()
    known = known * B if len(known) == 1 else known
    fits = all([0 <= n <= room - more for n in known])
    require(fits, f"cache_seqlens are {known}; allowed: {B} length{'s' * (B != 1)}, from 0, at most {room} with the new k")
    return [n + more for n in known]


def _run_in_place(q, caches, new, lengths, pages, sinks, scale, causal, window):
    """A CUDA graph captures it: only the GPU reads lengths and pages, which are cut to what there is."""
    known, more = lengths.to(q.device).reshape(-1, 1).expand(len(q), 1), new[0].shape[1]
    ends = known + more
    places = {"ends": ends, "firsts": ends - 1 - window[0] if window[0] >= 0 else None, "pages": pages}
    places = {name: x.to(q.device, torch.int32).contiguous()[None, None] for name, x in places.items() if x is not None}
    at = _places_behind(known, more, pages, caches[0].shape[1]) if more else None
    how = as_text(causal and q.shape[1] > 1, scale=scale), False, "08", "decode", ""
    return _write_and_run(q, caches, new, at, None, sinks, how, places)


def _run_in_front(q, caches, new, ends, _, *, alibi_slopes, sinks, scale, causal, window, softcap):
    """All sequences see as many keys, those at the front of the caches."""
    end = max(ends, default=0)
    at = slice(None), slice(end - new[0].shape[1], end)
    slopes = alibi_slopes if alibi_slopes is None else slopes_of(alibi_slopes, q.transpose(1, 2))
    text = as_text(causal, window, softcap, scale=scale, bias=None if slopes is None else "alibi")
    return _write_and_run(q, [x[:, :end] for x in caches], new, at, slopes, sinks, (text, False, stage_of(q), "", ""))


def _write_and_run(q, caches, new, at, slopes, sinks, how, places=None):
    """Nothing is written before the call is known to be one that a kernel takes."""
    q, k, v = (x.transpose(1, 2) for x in (q, *caches))
    O, L = run_forward(q, k, v, slopes, sinks_of(sinks, q), None, None, *how, lambda: _write(caches, new, at), places)
    return O.transpose(1, 2), L


def _run_on_copies(q, caches, new, ends, pages, **options):
    """Packs what each sequence sees, with the new keys, which reach the cache once a kernel has taken the call."""
    B, N = q.shape[:2]
    size, more = caches[0].shape[1], new[0].shape[1]
    end, rows = torch.tensor(ends, device=q.device)[:, None], torch.arange(max(ends, default=0), device=q.device)
    seen = places_of(*(rows < end).nonzero(as_tuple=True), pages, size)
    copies = [cache[seen] for cache in caches]
    starts = [0, *itertools.accumulate(ends)]  # of each sequence's keys
    behind = torch.tensor(starts[1:], device=q.device)[:, None] - more
    _write(copies, new, behind + torch.arange(more, device=q.device))
    with torch.autocast(q.device.type, enabled=False):
        O, L = attention_varlen(q.flatten(0, 1), *copies, [N * s for s in range(B + 1)], starts, return_lse=True, **options)
    _write(caches, new, _places_behind(end - more, more, pages, size))
    return O.unflatten(0, (B, N)), L.unflatten(1, (B, N)).transpose(0, 1)


def _write(caches, new, at):
    for cache, x in zip(caches, new):
        if x.shape[1]:
            cache[at] = x


def _places_behind(known, more, pages, size):
    """Where new rows are, behind the known ones [B, 1]."""
    sequence = torch.arange(len(known), device=known.device)[:, None]
    # With one new row, as in each step of decoding, nothing is to be added.
    return places_of(sequence, known if more == 1 else known + torch.arange(more, device=known.device), pages, size)


_cached = torch.library.custom_op(
    "flash_steps::with_kvcache",
    lambda *tensors, **options: tuple(x.contiguous() for x in _run_cached(*tensors, **options)),
    mutates_args=("k_cache", "v_cache"),
    schema="(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k, Tensor? v, Tensor lengths, Tensor? pages, Tensor? alibi_slopes, "
    "Tensor? sinks, *, float? scale, bool causal, SymInt[] window, float softcap) -> (Tensor, Tensor)",
)


@_cached.register_fake
def _fake_cached(q, k_cache, v_cache, *_, **__):
    q, k, v, d_v, _ = of_one_width(q, *(x.new_empty(q.shape[0], *x.shape[1:]) for x in (k_cache, v_cache)), None)
    check_tensors(*(x.transpose(1, 2) for x in (q, k, v)), None, fake=True)
    return q.new_empty(*q.shape[:3], d_v), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)


_cached.register_vmap(refuse_vmap)
register_flop_formula(torch.ops.flash_steps.with_kvcache, get_raw=True)(
    lambda q, K, V, k, v, n, *_, **__: 4 * q.shape[1:].numel() * (n + (0 if k is None else k.shape[1])).expand(q.shape[0]).sum().item()
)
