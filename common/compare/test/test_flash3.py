#!/usr/bin/env python3
"""peer_flash3.py: both passes against torch's attention in float64, on a GPU.

Exit code 77: torch, a GPU or FlashAttention-3 is not there, the test is skipped."""

import functools
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
try:
    import torch

    import peer_flash3

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU")
    peer_flash3.attention(1.0, False)
except (ImportError, RuntimeError) as error:
    print(f"skipped: {error}")
    sys.exit(77)


class Flash3(unittest.TestCase):
    def test_both_passes(self):
        for heads, n, d, causal in ((4, 300, 64, True), (2, 257, 128, False)):  # two heads of keys
            with self.subTest(heads=heads, n=n, d=d, causal=causal):
                torch.manual_seed(1)
                q, k, v, dO = (torch.randn(2, h, n, d, device="cuda", dtype=torch.float16) for h in (heads, 2, 2, heads))
                found, wanted = [], []
                exact = functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal, enable_gqa=True)
                for results, run, dtype in ((found, peer_flash3.attention(d**-0.5, causal), q.dtype), (wanted, exact, torch.float64)):
                    inputs = [x.to(dtype).requires_grad_() for x in (q, k, v)]
                    O = run(*inputs)
                    results += [O, *torch.autograd.grad(O, inputs, dO.to(dtype))]
                for name, mine, theirs in zip(("O", "dQ", "dK", "dV"), found, wanted):
                    self.assertEqual(mine.shape, theirs.shape, name)
                    self.assertLess((mine.double() - theirs).abs().max().item(), 0.02, name)


if __name__ == "__main__":
    unittest.main()
