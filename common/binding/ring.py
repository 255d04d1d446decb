"""Attention over a sequence that the ranks of torch.distributed share: docs/reference/beyond_one_gpu.md.

  torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
  mine = ring.rows_of(lengths, rank, zigzag=True)                 # which rows of the sequence this rank has
  O = ring.ring_attention(q, k, v, causal=True)                   # of this rank's rows; differentiable

Queries stay. Keys and values travel round the ring, and each rank merges what the keys at hand give into its own O and L (3.4). In the
backward pass dK and dV travel with their keys.
"""

import flash_steps
import torch
import torch.distributed as dist

STAGES = ("06", "07", "08")  # their backward pass computes P from L, here the L of all keys; earlier stages keep P itself


def rows_of(lengths, rank, zigzag):
    """[(first position, count)] of a rank's rows, where lengths[r] is the number of rank r's rows. Plain: rank after rank. Zigzag: every
    rank has an early and a late part, the late ones in reverse order, so that under a causal mask all ranks have the same work."""
    if not zigzag:
        return [(sum(lengths[:rank]), lengths[rank])]
    early = [(n + 1) // 2 for n in lengths]
    late = [n // 2 for n in lengths]
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
    for part in parts:
        if found and not part[2] and not found[-1][2]:
            (rows, cols, _), last = found[-1], part
            if rows == last[0] and cols.stop == last[1].start:
                found[-1] = (rows, slice(cols.start, last[1].stop), False)
                continue
            if cols == last[1] and rows.stop == last[0].start:
                found[-1] = (slice(rows.start, last[0].stop), cols, False)
                continue
        found.append(part)
    return found


class _Ring:
    """This rank's place in a group, and the lengths of all."""

    def __init__(self, q, k, v, causal, scale, zigzag, group):
        flash_steps._check(q, k, v)
        self.group, self.causal, self.zigzag = group, causal, zigzag
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.next, self.previous = ((self.rank + step) % self.world for step in (1, -1))
        B, H, n, d = q.shape
        backend = dist.get_backend(group)
        told = torch.tensor(
            (n, k.shape[2], B, H, k.shape[1], d, q.element_size(), q.dtype == torch.bfloat16, causal, zigzag, scale),
            dtype=torch.float64,
            device="cpu" if "gloo" in backend else q.device,
        )
        everyone = [torch.empty_like(told) for _ in range(self.world)]
        self.guarded(lambda: dist.all_gather(everyone, told, group=group))
        everyone = [[*map(int, theirs[:-1].tolist()), theirs[-1].item()] for theirs in everyone]
        self.queries, self.keys = ([theirs[which] for theirs in everyone] for which in (0, 1))
        names = ("B", "H", "Hkv", "d", "bytes per element", "bf16", "causal", "zigzag", "scale")
        for rank, theirs in enumerate(everyone):
            for name, value, first in zip(names, theirs[2:], everyone[0][2:]):
                flash_steps._require(value == first, f"{name} is {value} on rank {rank} and {first} on rank 0")

    def guarded(self, f):
        """A rank that is gone ends the others with one line."""
        try:
            return f()
        except RuntimeError as error:
            what = str(error).strip().split("\n")[0]
            raise RuntimeError(f"ring attention, rank {self.rank} of {self.world}: a neighbour is gone or late: {what}") from None

    def parts(self, source):
        """What this rank's queries see of rank `source`'s keys."""
        if not self.causal:
            n, m = self.queries[self.rank], self.keys[source]
            return [(slice(0, n), slice(0, m), False)] if n and m else []
        rows, cols = rows_of(self.queries, self.rank, self.zigzag), rows_of(self.keys, source, self.zigzag)
        return visible(rows, cols, sum(self.keys) - sum(self.queries))

    def source(self, step):
        """Whose keys are here after so many steps."""
        return (self.rank - step) % self.world

    def pass_on(self, tensors, step):
        """Starts to send them to the next rank and to receive the previous one's; returns a function that waits for these. Both in one
        group: a ring of ranks that all send first would wait for ever."""
        count = self.keys[self.source(step + 1)]
        received = [x.new_empty(*x.shape[:2], count, x.shape[3]) for x in tensors]
        staged = tensors[0].is_cuda and "nccl" not in dist.get_backend(self.group)  # gloo moves main memory alone
        outgoing = [x.cpu() if staged else x.contiguous() for x in tensors]
        incoming = [torch.empty_like(x, device="cpu") if staged else x for x in received]
        peer = dist.get_global_rank(self.group, self.next), dist.get_global_rank(self.group, self.previous)
        moves = [dist.P2POp(dist.isend, x, peer[0], self.group) for x in outgoing if x.numel()]
        moves += [dist.P2POp(dist.irecv, x, peer[1], self.group) for x in incoming if x.numel()]
        works = self.guarded(lambda: dist.batch_isend_irecv(moves)) if moves else []

        def arrived():
            for work in works:
                self.guarded(work.wait)
            return [x.copy_(y) for x, y in zip(received, incoming)] if staged else received

        arrived.outgoing = outgoing  # kept until they have been sent
        return arrived


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, ring, scale, stage, variant, backward_variant):
        O = L = None
        keys = [k, v]
        for step in range(ring.world):
            arrived = ring.pass_on(keys, step) if step + 1 < ring.world else None
            for rows, cols, causal in ring.parts(ring.source(step)):
                part = flash_steps._forward(*_cut(q, *keys, rows, cols), causal, scale, stage, variant, backward_variant)
                if O is None and rows == slice(0, q.shape[2]):
                    O, L = part  # 16 bits are enough until there is something to add
                    continue
                if O is None:
                    O, L = torch.zeros_like(q), q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
                O = O.float()
                flash_steps.merge(O[:, :, rows], L[:, :, rows], *part, stage=stage)
            keys = arrived() if arrived else keys
        if O is None:  # this rank has no rows, or rows that see no key
            O, L = torch.zeros_like(q), q.new_full(q.shape[:3], -torch.inf, dtype=torch.float32)
        O = O.to(q.dtype)
        ctx.save_for_backward(q, k, v, O, L)
        ctx.ring, ctx.how = ring, (scale, stage, backward_variant)
        return O

    @staticmethod
    def backward(ctx, dO):
        q, k, v, O, L = ctx.saved_tensors
        ring, (scale, stage, variant) = ctx.ring, ctx.how
        dQ = torch.zeros_like(q, dtype=torch.float32)
        keys, gradients, returning = [k, v], [torch.zeros_like(x, dtype=torch.float32) for x in (k, v)], None
        for step in range(ring.world):
            arrived = ring.pass_on(keys, step) if step + 1 < ring.world else None
            found = []  # P follows from L, and D from O: both of all keys, so these are terms of the gradients
            for rows, cols, causal in ring.parts(ring.source(step)):
                whole = [x[:, :, rows] for x in (O, L)]
                dq, dk, dv = flash_steps._backward(dO[:, :, rows], *_cut(q, *keys, rows, cols), *whole, causal, scale, stage, variant)
                dQ[:, :, rows] += dq
                found.append((cols, dk, dv))
            gradients = returning() if returning else gradients
            for cols, *terms in found:
                for sum_so_far, term in zip(gradients, terms):
                    sum_so_far[:, :, cols] += term
            keys = arrived() if arrived else keys
            returning = ring.pass_on(gradients, step) if ring.world > 1 else None  # while the next step computes
        dK, dV = returning() if returning else gradients
        return dQ.to(q.dtype), dK.to(k.dtype), dV.to(v.dtype), None, None, None, None, None


def _cut(q, k, v, rows, cols):
    return q[:, :, rows], k[:, :, cols], v[:, :, cols]


def ring_attention(q, k, v, *, causal=False, zigzag=True, scale=None, group=None, stage="08", variant="", backward_variant=""):
    """softmax(scale * q k^T, masked) v, where this rank has some rows of q [B, H, n, d] and of k and v [B, Hkv, m, d], those that
    rows_of(lengths, rank, zigzag) says; n and m may differ between ranks and be 0. Returns this rank's rows of O.

    causal: aligned at the bottom right of the whole mask. group: of torch.distributed. The rest as in flash_steps.attention(), for the
    stages 06 to 08. Raises ValueError where ranks disagree, RuntimeError where one is gone.
    """
    flash_steps._require(stage in STAGES, f"stage '{stage}' keeps P of a part; allowed: {', '.join(STAGES)}")
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else float(scale)
    ring = _Ring(q, k, v, causal, scale, zigzag, group if group is not None else dist.group.WORLD)
    return _RingAttention.apply(q, k, v, ring, scale, stage, variant, backward_variant or variant)
