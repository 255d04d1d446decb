#!/usr/bin/env python3
"""Every variant of stage 08 against torch's attention: in float64, by each backend of scaled_dot_product_attention, and in Triton. Nothing
here uses a formula of this project, in which a kernel and its reference could share a mistake.

  test_torch_peers.py BUILD    exits with 77 if torch or the libraries are not there
"""

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compare")]
try:
    import flash_steps
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from peer_timing import PEERS, attention, causal_mask

HALF_UNIT = {torch.float16: 2**-11, torch.bfloat16: 2**-8}  # of 1
PROBLEMS = (  # dtype, H, Hkv, Nq, Nk, d, causal: lengths that fill no tile, heads that share K and V
    (torch.float16, 2, 2, 80, 80, 64, False),
    (torch.bfloat16, 2, 1, 65, 65, 64, True),
    (torch.float16, 1, 1, 33, 95, 128, False),
    (torch.float16, 2, 1, 70, 70, 128, True),
)


def passes(function, tensors, dO):
    """O and, if the function has a backward pass, dQ, dK, dV."""
    tensors = [x.detach().requires_grad_() for x in tensors]
    O = function(*tensors)
    try:
        return O.detach(), *torch.autograd.grad(O, tensors, dO)
    except ValueError as error:
        if "it has no backward pass" not in str(error):
            raise
        return (O.detach(),)


def errors(found, exact):
    return [(x.double() - y).abs().max().item() for x, y in zip(found, exact)]


class OnCPU(unittest.TestCase):
    device, peers, times = "cpu", {"flash": "FLASH_ATTENTION", "math": "MATH", "plain": None}, 1

    def test_agreement(self):
        """Within 2 times the error of plain torch in 16 bits, 3 times for gradients, as the tests of FlashAttention allow."""
        q = torch.zeros(1, 1, 1, 64, dtype=torch.float16, device=self.device)
        with self.assertRaisesRegex(ValueError, "there are: ") as caught:
            flash_steps.attention(q, q, q, variant="none")
        variants = str(caught.exception).split("there are: ")[1].split(", ")
        for dtype, H, Hkv, Nq, Nk, d, causal in PROBLEMS:
            torch.manual_seed(d)
            shapes = [(2, heads, self.times * n, d) for heads, n in ((H, Nq), (Hkv, Nk), (Hkv, Nk), (H, Nq))]
            *inputs, dO = (torch.randn(shape).to(self.device, dtype) for shape in shapes)
            mask = causal_mask(torch, self.times * Nq, self.device) if causal else None

            def by(backend, d=d, causal=causal, mask=mask, shared=H // Hkv):
                run = attention(torch, backend, d**-0.5, causal, mask)
                return lambda q, k, v: run(q, *(x.repeat_interleave(shared, dim=1) for x in (k, v)))

            exact = passes(by(None), [x.double() for x in inputs], dO.double())
            plain = errors(passes(by(None), inputs, dO), exact)
            ran = {
                name: passes(lambda *x, name=name, c=causal: flash_steps.attention(*x, causal=c, variant=name), inputs, dO)
                for name in variants
            }
            self.assertEqual({len(tensors) for tensors in ran.values()}, {1, 4})
            peers = {"float64": exact}
            for name, backend in self.peers.items():
                try:
                    peers[name] = passes(by(backend), inputs, dO)
                except RuntimeError as error:  # a backend, or Triton, that does not take the problem
                    print(f"{name} refused: {str(error).splitlines()[0]}")
            for peer, theirs in peers.items():
                for i, (mine, own) in enumerate(zip(plain, errors(theirs, exact))):
                    allowed = (3 if i else 2) * max(mine, own) + 2 * HALF_UNIT[dtype] * exact[i].abs().max().item()
                    for name, tensors in ran.items():
                        with self.subTest(variant=name, peer=peer, tensor="O dQ dK dV".split()[i], dtype=dtype, d=d, causal=causal):
                            for ours in tensors[i : i + 1]:
                                torch.testing.assert_close(ours.double(), theirs[i].double(), rtol=0, atol=allowed)


@unittest.skipUnless(torch.cuda.is_available(), "torch finds no GPU")
class OnGPU(OnCPU):
    device, peers, times = "cuda", {name: backend for name, (_, backend) in PEERS.items()}, 8


if __name__ == "__main__":
    build = Path(sys.argv.pop(1))
    if not list(build.glob("lib/libflash_08*")):
        print(f"skipped: {build} has no library of stage 08; cmake --workflow --preset binding builds it")
        sys.exit(77)
    flash_steps.use(build)
    unittest.main()
