"""Attention over a sequence that ranks share, by exchanging heads: each rank gets all rows of some heads, computes them alone, and gives
the rows back. docs/reference/beyond_one_gpu.md says when this moves fewer bytes than the ring."""

import flash_steps
import ring
import torch
import torch.distributed as dist


class _Exchange(torch.autograd.Function):
    """x [B, H, n, d], this rank's rows of all heads, as [B, H / ranks, N, d], all rows of its heads; or back."""

    @staticmethod
    def forward(ctx, x, lengths, to_heads, at):
        ctx.how = lengths, to_heads, at
        B, heads, _, d = x.shape
        if to_heads:
            outgoing = [part.contiguous() for part in x.chunk(at.world, 1)]
            incoming = [x.new_empty(B, heads // at.world, n, d) for n in lengths]
        else:
            outgoing = [part.contiguous() for part in x.split(lengths, 2)]
            incoming = [x.new_empty(B, heads, lengths[at.rank], d) for _ in lengths]
        flat = x.new_empty(sum(part.numel() for part in incoming))
        sizes = [[part.numel() for part in parts] for parts in (incoming, outgoing)]
        sent = torch.cat([part.flatten() for part in outgoing])
        staged = x.is_cuda and "nccl" not in dist.get_backend(at.group)  # gloo moves main memory alone
        there, here = (flat.cpu(), sent.cpu()) if staged else (flat, sent)
        at.guarded(lambda: dist.all_to_all_single(there, here, *sizes, group=at.group))
        parts = there.to(x.device).split(sizes[0])
        return torch.cat([part.view_as(like) for part, like in zip(parts, incoming)], 2 if to_heads else 1)

    @staticmethod
    def backward(ctx, gradient):
        lengths, to_heads, at = ctx.how
        return _Exchange.apply(gradient, lengths, not to_heads, at), None, None, None


def ulysses_attention(q, k, v, *, causal=False, scale=None, group=None, **options):
    """As ring.ring_attention() with zigzag=False, for a number of query heads that the number of ranks divides. Key heads are repeated
    where there are fewer than ranks. options: of flash_steps.attention()."""
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else float(scale)
    at = ring._Ring(q, k, v, causal, scale, False, group if group is not None else dist.group.WORLD)
    few = k.shape[1] < at.world
    copies = at.world // k.shape[1] if few else 1
    flash_steps._require(q.shape[1] % at.world == 0, f"{q.shape[1]} heads are no multiple of {at.world} ranks")
    flash_steps._require(k.shape[1] * copies % at.world == 0, f"{k.shape[1]} key heads cannot be shared among {at.world} ranks")
    k, v = (x.repeat_interleave(copies, 1) for x in (k, v)) if few else (k, v)
    q, k, v = (_Exchange.apply(x, n, True, at) for x, n in ((q, at.queries), (k, at.keys), (v, at.keys)))
    O = flash_steps.attention(q, k, v, causal=causal, scale=scale, **options)
    return _Exchange.apply(O, at.queries, False, at)
