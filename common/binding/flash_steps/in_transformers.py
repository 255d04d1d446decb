"""attention() in the models of Hugging Face's transformers."""

import torch
from torch import Tensor

from .arguments import kept_with, require
from .flash_attn import attention_varlen
from .operation import attention


def _in_transformers(
    module, q, k, v, mask, scaling=None, dropout=0.0, sliding_window=None, softcap=None, s_aux=None, is_causal=None, **more
):
    for name in ("indices", "block_indices", "sinks"):  # of the keys that a query sees, and a logit per query
        require(more.get(name) is None, f"{name} of transformers are not supported; instead use another attention")
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
        require(here, "position_ids restart behind a cache; instead pass cu_seq_lens_q and cu_seq_lens_k")
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

    return kept_with(place, offsets)


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
