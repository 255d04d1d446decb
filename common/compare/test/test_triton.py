#!/usr/bin/env python3
"""peer_triton.py under Triton's interpreter, which runs it on the CPU: both passes against plain attention in float64.

Exit code 77: torch or Triton is not installed, the test is skipped."""

import os
import pathlib
import sys
import unittest

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
try:
    import torch

    import peer_triton
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


class Triton(unittest.TestCase):
    def agrees(self, dtype, allowed, n, d, causal):
        torch.manual_seed(1)
        q, k, v = (torch.randn(1, 2, n, d).to(dtype).requires_grad_() for _ in range(3))
        dO = torch.randn(1, 2, n, d).to(dtype)
        O = peer_triton.attention(q, k, v, d**-0.5, causal)
        exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
        wanted = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=causal)
        lse = torch.logsumexp((exact[0] @ exact[1].mT * d**-0.5).masked_fill(torch.ones(n, n).triu(1).bool() & causal, -torch.inf), -1)
        self.assertLess((O.grad_fn.saved_tensors[4] - lse).abs().max().item(), 1e-5, "L")
        found = (O, *torch.autograd.grad(O, (q, k, v), dO))
        for name, mine, theirs in zip(("O", "dQ", "dK", "dV"), found, (wanted, *torch.autograd.grad(wanted, exact, dO.double()))):
            self.assertLess((mine.double() - theirs).abs().max().item(), allowed, name)

    def test_both_passes(self):
        """Lengths that fill no tile, a head dimension that is no power of 2, whole tiles."""
        for n, d, causal in ((37, 24, True), (37, 24, False), (48, 16, True), (1, 16, True)):
            with self.subTest(n=n, d=d, causal=causal):
                self.agrees(torch.float32, 2e-5, n, d, causal)

    def test_16_bits(self):
        self.agrees(torch.float16, 1e-2, 37, 32, True)

    def test_other_lengths_are_refused(self):
        q, k = torch.randn(1, 1, 16, 16), torch.randn(1, 1, 32, 16)
        with self.assertRaisesRegex(RuntimeError, "as many keys as queries"):
            peer_triton.attention(q, k, k, 0.25, False)

    def test_hidden_tiles_are_skipped(self):
        """NaN in the first and in the last of three tiles reaches no tile that has no product with it."""
        q, k, v = (torch.randn(1, 1, 48, 16) for _ in range(3))
        q[:, :, :16], k[:, :, 32:], v[:, :, 32:] = torch.nan, torch.nan, torch.nan
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        O = peer_triton.attention(q, k, v, 0.25, True)
        dQ, dK, dV = torch.autograd.grad(O, (q, k, v), torch.ones_like(O))
        good = {name: [not tile.isnan().any() for tile in x.split(16, dim=2)] for name, x in (("O", O), ("dQ", dQ))}
        self.assertEqual(good, {"O": [False, True, False], "dQ": [False, True, False]})
        q = q.detach().requires_grad_()
        k, v = (torch.randn(1, 1, 48, 16).requires_grad_() for _ in range(2))
        O = peer_triton.attention(q, k, v, 0.25, True)
        for x in torch.autograd.grad(O, (k, v), torch.ones_like(O)):
            self.assertEqual([not tile.isnan().any() for tile in x.split(16, dim=2)], [False, True, True])


if __name__ == "__main__":
    unittest.main()
