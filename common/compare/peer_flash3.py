"""FlashAttention-3, from the package flash_attn_3 or from xformers, which has a copy (`pip install xformers==0.0.34`). Hopper only."""

import importlib.util
import pathlib

import torch


def library():
    """The file of its operators."""
    for package, folder in (("flash_attn_3", "."), ("xformers", "flash_attn_3")):
        spec = importlib.util.find_spec(package)
        for place in spec.submodule_search_locations if spec else ():
            for file in sorted(pathlib.Path(place, folder).glob("_C*.so")):
                return file
    raise RuntimeError("FlashAttention-3 is not installed (pip install xformers==0.0.34)")


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, how):
        q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (B, N, H, d); the strides say how they lie in memory
        O, L, *_ = torch.ops.flash_attn_3.fwd(q, k, v, **how)
        ctx.save_for_backward(q, k, v, O, L)
        ctx.how = how
        return O.transpose(-3, -2)

    @staticmethod
    def backward(ctx, dO):
        q, k, v, O, L = ctx.saved_tensors
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        torch.ops.flash_attn_3.bwd(dO.transpose(-3, -2), q, k, v, O, L, *gradients, **ctx.how)
        return *(x.transpose(-3, -2) for x in gradients), None


def attention(scale, causal, **packed):
    """A function of Q, K, V of shape (B, H, N, d), or with `packed` arguments (H, tokens, d). RuntimeError if FlashAttention-3 is not there."""
    if not hasattr(torch.ops.flash_attn_3, "fwd"):
        file = library()
        try:
            torch.ops.load_library(file)
        except OSError as error:
            raise RuntimeError(f"FlashAttention-3 cannot be loaded ({error})") from None
    return lambda q, k, v: Attention.apply(q, k, v, {"softmax_scale": scale, "is_causal": causal, **packed})
