"""Attention over a sequence that the ranks of torch.distributed share: docs/reference/beyond_one_gpu.md.

  torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
  mine = ring.rows_of(lengths, rank, zigzag=True)                 # which rows of the sequence this rank has
  O = ring.ring_attention(q, k, v, causal=True)                   # of this rank's rows; differentiable

The ring: queries stay, keys and values travel, and each rank merges what the keys at hand give into its own O and L (3.4). In the backward
pass dK and dV travel with their keys, except for what a rank's own queries add to them. Ulysses: each rank gets all rows of some heads,
computes them alone, and gives the rows back.
"""

import math

import flash_steps
import torch
import torch.distributed as dist
from flash_steps import arguments, library, operation
from torch.distributed.nn.functional import all_to_all_single


def rows_of(lengths, rank, zigzag):
    """[(first position, count)] of a rank's rows, where lengths[r] is the number of rank r's rows. Plain: rank after rank. Zigzag: every
    rank has an early and a late part, the late ones in reverse order, so that under a causal mask all ranks have the same work."""
    if not zigzag:
        return [(sum(lengths[:rank]), lengths[rank])]
    early, late = [(n + 1) // 2 for n in lengths], [n // 2 for n in lengths]
    return [(sum(early[:rank]), early[rank]), (sum(early) + sum(late[rank + 1 :]), late[rank])]


def visible(rows, cols, shift):
    """What of the causal mask, in which query i sees keys up to i + shift, lies between segments of queries and of keys:
    [(slice of rows, slice of cols, causal)], each a rectangle that is all seen or a triangle whose last row sees its last column."""
    if rows == cols and shift == 0:
        count = sum(n for _, n in rows)
        return [(slice(0, count), slice(0, count), True)] if count else []
    found, at_row = [], 0
    for i0, n in rows:
        at_col = 0
        for j0, m in cols:
            first, end = i0 + shift, i0 + shift + n  # the last keys that its rows see are first .. end - 1
            top, bottom = max(first, j0), min(end, j0 + m)
            if top < bottom:
                found.append((slice(at_row + top - first, at_row + bottom - first), slice(at_col, at_col + bottom - j0), True))
            below = max(first, j0 + m)
            if m > 0 and below < end:
                found.append((slice(at_row + below - first, at_row + n), slice(at_col, at_col + m), False))
            at_col += m
        at_row += n
    return _joined(found)


def _joined(parts):
    """Rectangles that share an edge as one, so that fewer and larger kernels run."""
    found = []
    for rows, cols, causal in parts:
        above, left, triangle = found[-1] if found else (None, None, True)
        rectangles = not causal and not triangle
        if rectangles and ((rows == above and cols.start == left.stop) or (cols == left and rows.start == above.stop)):
            rows, cols, _ = slice(above.start, rows.stop), slice(left.start, cols.stop), found.pop()
        found.append((rows, cols, causal))
    return found


class _Ring:
    """This rank's place in a group, and the lengths of all."""

    def __init__(self, q, k, v, causal, scale, zigzag, group):
        library.check_tensors(q, k, v, None)
        group = dist.group.WORLD if group is None else group
        self.scale = scale = max(q.shape[-1], 1) ** -0.5 if scale is None else float(scale)
        self.group, self.causal, self.zigzag = group, causal, zigzag
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        B, H, n, d = q.shape
        mine = n, k.shape[2], B, H, k.shape[1], d, q.element_size(), q.dtype == torch.bfloat16, causal, zigzag, scale
        everyone = [mine]
        if self.world > 1:
            told = torch.tensor(mine, dtype=torch.float64, device="cpu" if "gloo" in dist.get_backend(group) else q.device)
            gathered = told.new_empty(self.world, len(mine))
            self.explained(lambda: dist.all_gather([*gathered], told, group=group))
            everyone = gathered.tolist()
        self.queries, self.keys = ([int(theirs[which]) for theirs in everyone] for which in (0, 1))
        names = ("B", "H", "Hkv", "d", "bytes per element", "bf16", "causal", "zigzag", "scale")
        for rank, theirs in enumerate(everyone):
            for name, value, first in zip(names, theirs[2:], everyone[0][2:]):
                arguments.require(value == first, f"{name} is {value:g} on rank {rank} and {first:g} on rank 0")
        self.staged = q.is_cuda and "nccl" not in dist.get_backend(group)  # gloo moves main memory alone

    def explained(self, f):
        """A rank that is gone ends the others with one line."""
        try:
            return f()
        except RuntimeError as error:
            what = str(error).strip().split("\n")[0]
            raise RuntimeError(f"ring attention, rank {self.rank} of {self.world}: a neighbour is gone or late: {what}") from None

    def parts(self, rank, source):
        """What a rank's queries see of rank `source`'s keys."""
        if not self.causal:
            n, m = self.queries[rank], self.keys[source]
            return [(slice(0, n), slice(0, m), False)] if n and m else []
        rows, cols = rows_of(self.queries, rank, self.zigzag), rows_of(self.keys, source, self.zigzag)
        return visible(rows, cols, sum(self.keys) - sum(self.queries))

    def source(self, step):
        """Whose keys are here after so many steps."""
        return (self.rank - step) % self.world

    def pass_on(self, tensors, step):
        """Starts to send them to the next rank and to receive the previous one's; returns a function that waits for these. Both in one
        group: a ring of ranks that all send first would wait for ever."""
        count = self.keys[self.source(step + 1)]
        received = [x.new_empty(*x.shape[:2], count, x.shape[3]) for x in tensors]
        outgoing = [x.cpu() if self.staged else x.contiguous() for x in tensors]
        incoming = [torch.empty_like(x, device="cpu") if self.staged else x for x in received]
        to, of = (dist.get_global_rank(self.group, (self.rank + step) % self.world) for step in (1, -1))
        moves = [dist.P2POp(dist.isend, x, to, self.group) for x in outgoing if x.numel()]
        moves += [dist.P2POp(dist.irecv, x, of, self.group) for x in incoming if x.numel()]
        works = self.explained(lambda: dist.batch_isend_irecv(moves)) if moves else []

        def arrived():
            for work in works:
                self.explained(work.wait)
            return [x.copy_(y) for x, y in zip(received, incoming)] if self.staged else received

        arrived.outgoing = outgoing  # kept until they have been sent
        return arrived


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, ring, scale, stage, variant, backward_variant):
        O, L, keys = torch.zeros_like(q, dtype=torch.float32), q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32), [k, v]
        for step in range(ring.world):
            arrived = ring.pass_on(keys, step) if step + 1 < ring.world else None
            for rows, cols, causal in ring.parts(ring.rank, ring.source(step)):
                how = operation.as_text(causal, scale=scale), False, stage, variant, backward_variant
                part = operation.run_forward(q[:, :, rows], *(x[:, :, cols] for x in keys), *[None] * 4, *how)
                flash_steps.merge(O[:, :, rows], L[:, :, rows], *part)
            keys = arrived() if arrived else keys
        O = O.to(q.dtype)
        ctx.save_for_backward(q, k, v, O, L)
        ctx.ring, ctx.how = ring, (scale, stage, backward_variant)
        return O

    @staticmethod
    def backward(ctx, dO):
        q, k, v, O, L = ctx.saved_tensors
        ring, (scale, stage, variant) = ctx.ring, ctx.how
        keys, dQ, own, travelling = [k, v], torch.zeros_like(q, dtype=torch.float32), [], None
        for step in range(ring.world):
            arrived = ring.pass_on(keys, step) if step + 1 < ring.world else None
            gradients = [torch.zeros_like(x, dtype=torch.float32) for x in keys]
            for rows, cols, causal in ring.parts(ring.rank, ring.source(step)):
                # P follows from L, and D from O: both of all keys, so each part gives terms of the gradients.
                mine, theirs = ([x[:, :, cut] for x in some] for cut, some in ((rows, (q, O, L)), (cols, keys)))
                how = operation.as_text(causal, scale=scale), False, stage, variant
                terms = operation.run_backward(dO[:, :, rows], None, mine[0], *theirs, *mine[1:], None, None, False, None, None, *how)
                for x, places, term in zip((dQ, *gradients), (rows, cols, cols), terms):
                    x[:, :, places] += term
            if travelling:  # the sums of the ranks before this one, for the same keys
                gradients = [x.add_(y) for x, y in zip(travelling(), gradients)]
            keys = arrived() if arrived else keys
            if step == 0:
                own = gradients  # of this rank's queries and keys: these stay
            else:
                travelling = ring.pass_on(gradients, step)  # while the next step computes; after the last step they are at home
        own = [x.add_(y) for x, y in zip(own, travelling())] if travelling else own
        return *(x.to(q.dtype) for x in (dQ, *own)), *[None] * 5


def ring_attention(q, k, v, *, causal=False, zigzag=True, scale=None, group=None, stage="08", variant="", backward_variant=""):
    """softmax(scale * q k^T, masked) v, where this rank has some rows of q [B, H, n, d] and of k and v [B, Hkv, m, d], those that
    rows_of(lengths, rank, zigzag) says; n and m may differ between ranks and be 0. Returns this rank's rows of O. causal: aligned at the bottom right of the whole mask. group: of torch.distributed. The rest as in flash_steps.attention().
    Raises ValueError where ranks disagree, RuntimeError where one is gone.
    """
    ring = _Ring(q, k, v, causal, scale, zigzag, group)
    return _RingAttention.apply(q, k, v, ring, ring.scale, stage, variant, backward_variant or variant)


def _exchange(x, lengths, to_heads, at):
    """x [B, H, n, d], this rank's rows of all heads, as [B, H / ranks, N, d], all rows of its heads; or back."""
    B, heads, _, d = x.shape
    outgoing = x.chunk(at.world, 1) if to_heads else x.split(lengths, 2)
    incoming = [(B, heads // at.world, n, d) if to_heads else (B, heads, lengths[at.rank], d) for n in lengths]
    sizes = [math.prod(shape) for shape in incoming], [part.numel() for part in outgoing]
    sent = torch.cat([part.flatten() for part in outgoing]).to("cpu" if at.staged else x.device)
    there = at.explained(lambda: all_to_all_single(sent.new_empty(sum(sizes[0])), sent, *sizes, group=at.group))
    parts = there.to(x.device).split(sizes[0])
    return torch.cat([part.view(shape) for part, shape in zip(parts, incoming)], 2 if to_heads else 1)


def ulysses_attention(q, k, v, *, causal=False, scale=None, group=None, **options):
    """As ring_attention() with zigzag=False, for numbers of query and of key heads that the number of ranks divides. options: of
    flash_steps.attention()."""
    at = _Ring(q, k, v, causal, scale, False, group)
    arguments.require(k.shape[1] % at.world == 0, f"{k.shape[1]} key heads are no multiple of {at.world} ranks")
    q, k, v = (_exchange(x, n, True, at) for x, n in ((q, at.queries), (k, at.keys), (v, at.keys)))
    O = flash_steps.attention(q, k, v, causal=causal, scale=at.scale, **options)
    return _exchange(O, at.queries, False, at)
