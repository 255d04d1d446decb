"""What docs/reference/jacobians.md says of torch.autograd.Function: attention as one operation, its gradients, and what is kept for them. Exits with 1
if a claim is false, with 3 if torch is not installed."""

import sys

try:
    import torch
    from torch.autograd.function import once_differentiable
except ImportError as error:
    sys.stderr.write(f"docs/lab/autograd.py needs torch: {error}\n")
    sys.exit(3)


def scores(Q, K, scale, causal):
    """(7.1)  Keys are aligned with the last query."""
    S = scale * Q @ K.mT
    if not causal:
        return S
    rows, cols = torch.arange(Q.shape[-2])[:, None], torch.arange(K.shape[-2])[None, :]
    return S.masked_fill(cols > rows + K.shape[-2] - Q.shape[-2], -torch.inf)


class Attention(torch.autograd.Function):
    """O and L of a fused kernel. Here S and P are tensors for the moment of a call; a kernel never has them. Neither keeps them."""

    @staticmethod
    def forward(ctx, Q, K, V, scale, causal):
        S = scores(Q, K, scale, causal)
        L = torch.logsumexp(S, -1)  # (6.5)
        O = torch.exp(S - L[..., None]) @ V
        ctx.save_for_backward(Q, K, V, O, L)
        ctx.scale, ctx.causal = scale, causal
        ctx.mark_non_differentiable(L)
        return O, L

    @staticmethod
    @once_differentiable
    def backward(ctx, dO, _):
        Q, K, V, O, L = ctx.saved_tensors
        D = (dO * O).sum(-1, keepdim=True)  # (7.3)
        P = torch.exp(scores(Q, K, ctx.scale, ctx.causal) - L[..., None])  # (7.1)
        dV = P.mT @ dO  # (7.4)
        dS = P * (dO @ V.mT - D)  # (7.2), (7.3)
        return ctx.scale * dS @ K, ctx.scale * dS.mT @ Q, dV, None, None


def plain(Q, K, V, scale, causal):
    return torch.softmax(scores(Q, K, scale, causal), -1) @ V


def kept(function, *tensors):
    """Bytes that autograd keeps of a call beside its inputs: of each storage once, and only what needs memory of its own."""
    inputs, found = {x.untyped_storage().data_ptr() for x in tensors}, {}

    def pack(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in inputs:
            found[storage.data_ptr()] = x  # alive until it has been counted, so that no other takes its place
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = function(*tensors)
    bytes_kept = sum(x.untyped_storage().nbytes() for x in found.values())
    return bytes_kept, result


def main():
    torch.manual_seed(1)
    good = True
    for causal, nq, nk in [(False, 5, 7), (True, 5, 7), (True, 6, 6)]:
        Q, K, V = (torch.randn(2, 3, n, 4, dtype=torch.float64, requires_grad=True) for n in (nq, nk, nk))
        right = torch.autograd.gradcheck(lambda Q, K, V: Attention.apply(Q, K, V, 0.5, causal)[0], (Q, K, V))  # noqa: B023
        agrees = torch.allclose(Attention.apply(Q, K, V, 0.5, causal)[0], plain(Q, K, V, 0.5, causal))
        good &= right and agrees
        print(
            f"{nq} queries, {nk} keys{', causal' if causal else ''}: gradients {'ok' if right else 'WRONG'}, output {'ok' if agrees else 'WRONG'}"
        )
    print("\nkept for the backward pass beside Q, K and V, fp32, H = 4, d = 64, KiB:")
    print(f"{'N':>6}  {'softmax(Q K^T) V':>18}  {'one Function':>14}  {'by (G.1)':>10}  {'by (G.2)':>10}")
    for n in (128, 256, 512, 1024):
        Q, K, V = (torch.randn(1, 4, n, 64, requires_grad=True) for _ in range(3))
        three, _ = kept(lambda Q, K, V: plain(Q, K, V, 0.125, False), Q, K, V)
        one, _ = kept(lambda Q, K, V: Attention.apply(Q, K, V, 0.125, False)[0], Q, K, V)
        told = 4 * 4 * n * n, 4 * 4 * n * (64 + 1)
        good &= one == told[1] and three >= told[0]
        print(f"{n:>6}  {three / 1024:>18,.0f}  {one / 1024:>14,.0f}  {told[0] / 1024:>10,.0f}  {told[1] / 1024:>10,.0f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
