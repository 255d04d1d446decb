"""FlashAttention-2 in Triton, both passes, for tensors [B, H, N, d] that are contiguous: what the stages do by hand beside what a compiler
makes of tiles. docs/reference/triton.md reads it line by line. TRITON_INTERPRET=1 runs it on the CPU."""

import os

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def configs(*shapes):
    """What autotuning tries on a GPU: (Br, Bc, warps, stages of the pipeline). The interpreter has nothing to tune."""
    shapes = [(16, 16, 4, 1)] if INTERPRETED else shapes
    return [triton.Config({"Br": Br, "Bc": Bc}, num_warps=warps, num_stages=stages) for Br, Bc, warps, stages in shapes]


FORWARD = configs((64, 64, 4, 3), (128, 32, 4, 3), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3))
BACKWARD = configs((32, 64, 4, 2), (64, 32, 4, 2), (64, 64, 4, 2), (64, 64, 8, 2), (64, 128, 8, 2), (128, 64, 8, 2))


@triton.jit
def at(rows, d, D: tl.constexpr):
    """Offsets of whole rows. Columns d to D - 1 exist in registers alone: a tile's sides are powers of 2."""
    return rows[:, None] * d + tl.arange(0, D)[None, :]


@triton.jit
def inside(rows, N, d, D: tl.constexpr):
    return (rows[:, None] < N) & (tl.arange(0, D)[None, :] < d)


@triton.jit
def load(X, rows, N, d, D: tl.constexpr):
    return tl.load(X + at(rows, d, D), mask=inside(rows, N, d, D), other=0.0)


@triton.jit
def store(X, tile, rows, N, d, D: tl.constexpr):
    tl.store(X + at(rows, d, D), tile.to(X.dtype.element_ty), mask=inside(rows, N, d, D))


@triton.jit
def dot(a, b):
    return tl.dot(a, b, input_precision="ieee")  # fp32 without TF32, as everywhere here


@triton.jit
def visible(rows, cols, N, CAUSAL: tl.constexpr):
    seen = cols[None, :] < N
    if CAUSAL:
        seen = seen & (cols[None, :] <= rows[:, None])
    return seen


@triton.jit
def visit(q, m, l, o, K, V, rows, cols, N, d, scale, CAUSAL: tl.constexpr, MASKED: tl.constexpr, D: tl.constexpr):
    """One tile of keys. Scores are in units of log2: exp2 is what the hardware has."""
    s = dot(q, tl.trans(load(K, cols, N, d, D))) * (scale * LOG2_E)  # (6.1)
    if MASKED:
        s = tl.where(visible(rows, cols, N, CAUSAL), s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))  # (6.2)
    alpha, p = tl.exp2(m - m_new), tl.exp2(s - m_new[:, None])
    v = load(V, cols, N, d, D)
    return m_new, alpha * l + tl.sum(p, 1), alpha[:, None] * o + dot(p.to(v.dtype), v)


@triton.autotune(FORWARD, key=["N", "d", "CAUSAL"])
@triton.jit
def forward_kernel(Q, K, V, O, L, N, d, scale, CAUSAL: tl.constexpr, D: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr):
    """Grid: tiles of Q, heads of all batches."""
    i, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V, O, L = Q + head * N * d, K + head * N * d, V + head * N * d, O + head * N * d, L + head * N
    rows = i * Br + tl.arange(0, Br)
    q = load(Q, rows, N, d, D)
    m, l, o = tl.full([Br], float("-inf"), tl.float32), tl.zeros([Br], tl.float32), tl.zeros([Br, D], tl.float32)
    whole = (i * Br + 1 if CAUSAL else N) // Bc * Bc  # keys of tiles in which all rows see all keys
    end = tl.minimum(N, (i + 1) * Br) if CAUSAL else N  # the tiles beyond are seen by no row
    for j in range(0, whole, Bc):
        m, l, o = visit(q, m, l, o, K, V, rows, j + tl.arange(0, Bc), N, d, scale, CAUSAL, False, D)
    for j in range(whole, end, Bc):
        m, l, o = visit(q, m, l, o, K, V, rows, j + tl.arange(0, Bc), N, d, scale, CAUSAL, True, D)
    store(O, o / l[:, None], rows, N, d, D)
    tl.store(L + rows, m / LOG2_E + tl.log(l), mask=rows < N)  # (6.5)


@triton.jit
def weights(q, k, lse, rows, cols, N, scale, CAUSAL: tl.constexpr):
    """P of a tile, again. (7.1)"""
    p = tl.exp2(dot(q, tl.trans(k)) * (scale * LOG2_E) - lse[:, None] * LOG2_E)
    return tl.where(visible(rows, cols, N, CAUSAL) & (rows[:, None] < N), p, 0.0)


@triton.autotune(BACKWARD, key=["N", "d", "CAUSAL"])
@triton.jit
def dK_dV_kernel(Q, K, V, dO, L, Sum, dK, dV, N, d, scale, CAUSAL: tl.constexpr, D: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr):
    """Grid: tiles of K, heads of all batches. Sum is D of (7.3)."""
    j, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V, dO, L, Sum = Q + head * N * d, K + head * N * d, V + head * N * d, dO + head * N * d, L + head * N, Sum + head * N
    cols = j * Bc + tl.arange(0, Bc)
    k, v = load(K, cols, N, d, D), load(V, cols, N, d, D)
    dk, dv = tl.zeros([Bc, D], tl.float32), tl.zeros([Bc, D], tl.float32)
    first = j * Bc // Br * Br if CAUSAL else 0  # the tiles before see none of these keys
    for i in range(first, N, Br):
        rows = i + tl.arange(0, Br)
        q, do = load(Q, rows, N, d, D), load(dO, rows, N, d, D)
        p = weights(q, k, tl.load(L + rows, mask=rows < N, other=0.0), rows, cols, N, scale, CAUSAL)
        dv += dot(tl.trans(p.to(do.dtype)), do)  # (7.4)
        ds = p * (dot(do, tl.trans(v)) - tl.load(Sum + rows, mask=rows < N, other=0.0)[:, None])  # (7.2), (7.3)
        dk += dot(tl.trans(ds.to(q.dtype)), q)  # (7.5)
    store(dK + head * N * d, scale * dk, cols, N, d, D)
    store(dV + head * N * d, dv, cols, N, d, D)


@triton.autotune(BACKWARD, key=["N", "d", "CAUSAL"])
@triton.jit
def dQ_kernel(Q, K, V, dO, L, Sum, dQ, N, d, scale, CAUSAL: tl.constexpr, D: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr):
    """Grid: tiles of Q, heads of all batches."""
    i, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    Q, K, V, dO, L, Sum = Q + head * N * d, K + head * N * d, V + head * N * d, dO + head * N * d, L + head * N, Sum + head * N
    rows = i * Br + tl.arange(0, Br)
    q, do = load(Q, rows, N, d, D), load(dO, rows, N, d, D)
    lse, of_row = tl.load(L + rows, mask=rows < N, other=0.0), tl.load(Sum + rows, mask=rows < N, other=0.0)
    dq = tl.zeros([Br, D], tl.float32)
    end = tl.minimum(N, (i + 1) * Br) if CAUSAL else N
    for j in range(0, end, Bc):
        cols = j + tl.arange(0, Bc)
        k, v = load(K, cols, N, d, D), load(V, cols, N, d, D)
        ds = weights(q, k, lse, rows, cols, N, scale, CAUSAL) * (dot(do, tl.trans(v)) - of_row[:, None])
        dq += dot(ds.to(k.dtype), k)  # (7.6)
    store(dQ + head * N * d, scale * dq, rows, N, d, D)


class Attention(torch.autograd.Function):
    """As on the page on gradients."""

    @staticmethod
    def forward(ctx, q, k, v, scale, causal):
        B, H, N, d = q.shape
        O, L = torch.empty_like(q), q.new_empty((B, H, N), dtype=torch.float32)
        D = max(16, triton.next_power_of_2(d))
        forward_kernel[lambda c: (triton.cdiv(N, c["Br"]), B * H)](q, k, v, O, L, N, d, scale, causal, D)
        ctx.save_for_backward(q, k, v, O, L)
        ctx.scale, ctx.causal, ctx.D = scale, causal, D
        return O

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dO):
        q, k, v, O, L = ctx.saved_tensors
        B, H, N, d = q.shape
        dO = dO.contiguous()
        Sum = (dO.float() * O).sum(-1)  # D of (7.3)
        dQ, dK, dV = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        rest = (N, d, ctx.scale, ctx.causal, ctx.D)
        dK_dV_kernel[lambda c: (triton.cdiv(N, c["Bc"]), B * H)](q, k, v, dO, L, Sum, dK, dV, *rest)
        dQ_kernel[lambda c: (triton.cdiv(N, c["Br"]), B * H)](q, k, v, dO, L, Sum, dQ, *rest)
        return dQ, dK, dV, None, None


def attention(q, k, v, scale, causal):
    if not (q.shape == k.shape == v.shape and all(x.is_contiguous() for x in (q, k, v))):
        raise RuntimeError("takes contiguous tensors with as many keys as queries")
    return Attention.apply(q, k, v, scale, causal)
