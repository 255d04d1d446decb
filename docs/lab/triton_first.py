"""The first kernels of docs/reference/triton.md, checked: on a GPU if there is one, else by Triton's interpreter. Exits with 1 if one is wrong; needs torch
and triton."""

import os
import sys

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def add(X, Y, Z, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # the elements of this program
    exists = i < N
    z = tl.load(X + i, mask=exists) + tl.load(Y + i, mask=exists)
    tl.store(Z + i, z, mask=exists)


@triton.jit
def softmax(S, P, N, BLOCK: tl.constexpr):
    """A program per row. BLOCK is a power of 2, at least N."""
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    s = tl.load(S + row * N + j, mask=j < N, other=float("-inf"))
    p = tl.exp(s - tl.max(s, 0))
    tl.store(P + row * N + j, p / tl.sum(p, 0), mask=j < N)


@triton.heuristics({"EVEN_M": lambda a: a["M"] % a["BLOCK_M"] == 0, "EVEN_N": lambda a: a["N"] % a["BLOCK_N"] == 0})
@triton.jit
def scores(
    Q, K, S, M, N, d, tau, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr
):
    """A program per tile of S = tau Q K^T. d is a multiple of BLOCK_D."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    of_d = tl.arange(0, BLOCK_D)
    q_tile = Q + rows[:, None] * d + of_d[None, :]  # [BLOCK_M, BLOCK_D] pointers
    k_tile = K + cols[:, None] * d + of_d[None, :]
    s = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, d, BLOCK_D):
        q = tl.load(q_tile) if EVEN_M else tl.load(q_tile, mask=rows[:, None] < M, other=0.0)
        k = tl.load(k_tile) if EVEN_N else tl.load(k_tile, mask=cols[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k), s, input_precision="ieee")
        q_tile += BLOCK_D
        k_tile += BLOCK_D
    tl.store(S + rows[:, None] * N + cols[None, :], tau * s, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def scores_by_descriptors(Q, K, S, d, tau, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr):
    """The same with tensor descriptors, which know extents and strides."""
    i, j = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    s = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for c in range(0, d, BLOCK_D):
        s = tl.dot(Q.load([i, c]), tl.trans(K.load([j, c])), s, input_precision="ieee")  # zeros beyond the edges
    S.store([i, j], tau * s)  # nothing beyond the edges


def differs(name, found, wanted):
    error = (found.double().cpu() - wanted.double().cpu()).abs().max().item()
    print(f"{name}: {'right' if error < 1e-5 else 'WRONG'}")
    return error >= 1e-5


def main():
    torch.manual_seed(1)
    wrong = 0

    N, BLOCK = 1000, 256
    x, y = torch.randn(2, N, device=DEVICE)
    z = torch.empty_like(x)
    add[(triton.cdiv(N, BLOCK),)](x, y, z, N, BLOCK)
    wrong += differs("add", z, x + y)

    s = torch.tensor([[1.0, 2.0, 4.0, 0.0]], device=DEVICE)
    p = torch.empty_like(s)
    softmax[(1,)](s, p, 4, BLOCK=8)
    print("softmax of 1, 2, 4, 0:", ", ".join(f"{weight:.3f}" for weight in p[0].tolist()))
    wrong += differs("softmax", p, torch.softmax(s, 1))

    for M, N in ((64, 32), (50, 40)):
        d = 32
        q, k, wanted = torch.randn(M, d, device=DEVICE), torch.randn(N, d, device=DEVICE), torch.full((M, N), torch.nan, device=DEVICE)
        tiles = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        exact = d**-0.5 * q.double() @ k.double().T
        scores[tiles](q, k, wanted, M, N, d, d**-0.5, BLOCK_M=16, BLOCK_N=16, BLOCK_D=16)
        wrong += differs(f"scores, {M} x {N}", wanted, exact)
        wanted.fill_(torch.nan)
        of = [TensorDescriptor.from_tensor(tensor, [16, 16]) for tensor in (q, k, wanted)]
        scores_by_descriptors[tiles](*of, d, d**-0.5, BLOCK_M=16, BLOCK_N=16, BLOCK_D=16)
        wrong += differs(f"scores by descriptors, {M} x {N}", wanted, exact)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
