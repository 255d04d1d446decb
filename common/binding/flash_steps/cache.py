"""flash_attn_with_kvcache(): attention to a cache of keys and values, in place where a kernel can, else to a copy of what is seen."""

import itertools

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .arguments import Result, as_float, require, require_tensors, takes, whole_numbers
from .flash_attn import FURTHER, attention_bnhd, attention_varlen, check_pages, places_of
from .library import check_tensors
from .operation import as_text, is_traced, of_one_width, refuse_vmap, run_forward, sinks_of


@takes(*FURTHER)
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
    require_tensors(4, q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, alibi_slopes=alibi_slopes)
    require(cache_batch_idx is None or block_table is None, "cache_batch_idx and block_table exclude each other")
    require((k is None) == (v is None), f"{'v' if k is None else 'k'} is given without {'k' if k is None else 'v'}")
    require(k is None or cache_seqlens is not None, "cache_seqlens is missing: k and v are written behind so many keys of the cache")
    where = {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad, "block_table": block_table}
    sequences, pad, pages = [x if x is None else whole_numbers(x, name) for name, x in where.items()]
    pages = pages if sequences is None else sequences.reshape(-1, 1)  # each of one page
    M = k_cache.shape[1] * (1 if pages is None else pages.shape[-1])
    lengths = whole_numbers(M if cache_seqlens is None else cache_seqlens, "cache_seqlens")
    window_size = (-1, -1) if window_size is None else window_size
    scale, softcap = as_float(softmax_scale, "softmax_scale"), as_float(softcap, "softcap") or 0.0
    how = alibi_slopes, scale, bool(causal), window_size, softcap
    if rotary_cos is not None or rotary_sin is not None:
        require_tensors(2, rotary_cos=rotary_cos, rotary_sin=rotary_sin)
        require(k is not None and k.dim() == 4, "rotary_cos and rotary_sin need k and v, [B, n, Hkv, d]")
        rows, follow = M + max(q.shape[1] - k.shape[1], 0), causal or tuple(window_size) != (-1, -1)
        fits = rotary_cos.shape == rotary_sin.shape and rotary_cos.device == rotary_sin.device == q.device
        fits = fits and rotary_cos.shape[0] >= rows and 2 * rotary_cos.shape[1] <= q.shape[3]
        allowed = f"[{rows} or more, up to {q.shape[3] // 2}] on {q.device}, both alike"
        require(fits, f"rotary_cos is {tuple(rotary_cos.shape)}, rotary_sin {tuple(rotary_sin.shape)}; allowed: {allowed}")
        known = lengths if lengths.dim() == 0 else lengths.reshape(-1, 1).to(q.device)
        q, k = (_rotated(x, rotary_cos, rotary_sin, rotary_interleaved, known, x is k or follow) for x in (q, k))
    if q.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(q.device.type):
        q, k, v = (x if x is None else x.to(k_cache.dtype) for x in (q, k, v))
    tensors = q, k_cache, v_cache, k, v
    if is_traced(*tensors) or torch._C._are_functorch_transforms_active():
        more = ", ".join([name for name in options if name not in ("sinks", "stage", "variant")])
        require(not more, f"where a compiler traces it, a cache takes no {more}")
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
    require(v_cache.shape[:2] == (count, size), "caches of k and v have to be alike")
    fits = B == count if pages is None else pages.shape[:-1] == (B,)
    require(fits, f"q has {B} sequences; allowed: as many as the caches, {count}, or as cache_batch_idx or block_table")
    for cache, x in zip(caches, new):
        fits = x.dim() == 4 and x.shape == (B, k.shape[1], *cache.shape[2:]) and x.dtype == cache.dtype and x.device == cache.device
        require(fits, f"k and v have to be [{B}, n, Hkv, d], like the cache also in dtype and device")
    require(lengths.numel() in (1, B), f"cache_seqlens are {lengths.numel()} numbers; allowed: 1 or {B}")
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
    require(fits, f"cache_seqlens are {known}; allowed: {B} length{'s' * (B != 1)}, from 0, at most {M} with the new k")
    fits = len(pads) == B and all([0 <= first <= n for first, n in zip(pads, known)])
    require(fits, f"cache_leftpad are {pads}; allowed: {B} from 0 to cache_seqlens, {known}")
    if pages is not None and not (in_place and pages.is_cuda):  # for which the CPU would have to wait
        check_pages(pages, torch.tensor(ends, device=pages.device), k_cache)
    if in_place and (uneven or pages is not None or window[0] >= 0):
        return _run_in_place(q, caches, new, lengths, scale, causal, window, sinks, pages)
    at, d_v, read, seen = (slice(None), slice(most - more, most)), v_cache.shape[3], [x[:, :most] for x in caches], None
    if uneven or pages is not None or d_v != q.shape[3]:  # packs what is seen
        first, behind, end = (torch.tensor(x, device=q.device)[:, None] for x in (pads, known, ends))
        at, rows = _places_behind(behind, more, pages, size), torch.arange(most, device=q.device)
        seen = places_of(*((first <= rows) & (rows < end)).nonzero(as_tuple=True), pages, size)
        q, *read, d_v, scale = of_one_width(q, *(x.new_empty(len(seen[0]), *x.shape[2:]) for x in caches), scale)

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
        O, L = attention_bnhd(q, *(x.view(B, most, *x.shape[-2:]) if seen else x for x in read), **options)
    return O[..., :d_v], L


def _places_behind(known, more, pages, size):
    """Where the rows behind the known ones [B, 1] are."""
    sequence = torch.arange(len(known), device=known.device)[:, None]
    return places_of(sequence, known if more == 1 else known + torch.arange(more, device=known.device), pages, size)


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
    how = as_text(causal and N > 1, scale=scale), False, "08", "decode", ""
    O, L = run_forward(q, k, v, None, sinks_of(sinks, q), None, None, *how, write, places)
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
    q, k, v, d_v, _ = of_one_width(q, *(x.new_empty(q.shape[0], *x.shape[1:]) for x in (k_cache, v_cache)), None)
    check_tensors(*(x.transpose(1, 2) for x in (q, k, v)), None, fake=True)
    return q.new_empty(*q.shape[:3], d_v), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)


_cached.register_vmap(refuse_vmap)
register_flop_formula(torch.ops.flash_steps.with_kvcache, get_raw=True)(
    lambda q, K, V, k, v, n, *_, **__: 4 * q.shape[1:].numel() * (n + (0 if k is None else k.shape[1])).expand(q.shape[0]).sum().item()
)
