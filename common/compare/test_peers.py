"""Triton's and FlashAttention-3's kernels against plain attention in float64, on a GPU, or Triton's under its interpreter on the CPU:
TRITON_INTERPRET=1 python3 -m common.compare.test_peers"""

import functools
import os
import sys
import unittest
from typing import NamedTuple

try:
    import torch

    from . import peer_flash3, peer_triton
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ON_CPU = os.environ.get("TRITON_INTERPRET") == "1"


class Shape(NamedTuple):
    heads: int
    kv_heads: int
    n: int
    d: int
    causal: bool


class Peers(unittest.TestCase):
    def agree(self, attend, dtype, allowed, shape):
        torch.manual_seed(1)
        heads, kv_heads, n, d, causal = shape
        device = "cpu" if ON_CPU else "cuda"
        q, k, v, dO = (torch.randn(2, h, n, d, device=device).to(dtype) for h in (heads, kv_heads, kv_heads, heads))
        found = []
        for run, of in ((attend, dtype), (torch.nn.functional.scaled_dot_product_attention, torch.float64)):
            inputs = [x.to(of).requires_grad_() for x in (q, k, v)]
            O = run(*inputs) if run is attend else run(*inputs, is_causal=causal, enable_gqa=True)
            found.append([O, *torch.autograd.grad(O, inputs, dO.to(of))])
        for name, mine, theirs in zip(("O", "dQ", "dK", "dV"), *found):
            self.assertLess((mine.double() - theirs).abs().max().item(), allowed, f"{name} {shape}")

    def test_triton(self):
        """Lengths that fill no tile, a head dimension that is no power of 2, whole tiles."""
        for n, d, causal in ((37, 24, True), (37, 24, False), (48, 16, True), (1, 16, True)):
            attend = functools.partial(peer_triton.attention, scale=d**-0.5, causal=causal)
            shape = Shape(2, 2, n, d, causal)
            self.agree(attend, torch.float32, 2e-5, shape)
            self.agree(attend, torch.float16, 2e-2, shape)

    @unittest.skipIf(ON_CPU, "needs a GPU")
    def test_flash3(self):
        try:
            peer_flash3.attention(1.0, False)
        except RuntimeError as error:
            self.skipTest(str(error))
        for heads, n, d, causal in ((4, 300, 64, True), (2, 257, 128, False)):
            self.agree(peer_flash3.attention(d**-0.5, causal), torch.float16, 0.02, Shape(heads, 2, n, d, causal))


if __name__ == "__main__":
    unittest.main()
