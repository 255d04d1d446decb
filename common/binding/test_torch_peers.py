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


class OnCPU(unittest.TestCase):
    device, peers, times = "cpu", {"flash": "FLASH_ATTENTION", "math": "MATH", "plain": None}, 1

    def test_agreement(self):
        """Within 2 times the error of plain torch in 16 bits, 3 times for gradients, as the tests of FlashAttention allow."""
        q = torch.zeros(1, 1, 1, 64, dtype=torch.float16, device=self.device)
        with self.assertRaisesRegex(ValueError, "there are: ") as caught:
            flash_steps.attention(q, q, q, variant="none")
        variants = str(caught.exception).split("there are: ")[1].split(", ")
        for problem in PROBLEMS:
            with self.subTest(problem):
                self.agree(variants, *problem)

    def agree(self, variants, dtype, H, Hkv, Nq, Nk, d, causal):
        torch.manual_seed(d)
        shapes = [(2, heads, self.times * n, d) for heads, n in ((H, Nq), (Hkv, Nk), (Hkv, Nk), (H, Nq))]
        *inputs, dO = (torch.randn(shape).to(self.device, dtype) for shape in shapes)

        def torch_by(backend, dtype=dtype):
            run = attention(torch, backend, d**-0.5, causal, causal_mask(torch, self.times * Nq, self.device) if causal else None)
            return passes(
                lambda q, k, v: run(q, *(x.repeat_interleave(H // Hkv, dim=1) for x in (k, v))), [x.to(dtype) for x in inputs], dO.to(dtype)
            )

        def stage_by(variant):
            return passes(lambda *x: flash_steps.attention(*x, causal=causal, variant=variant), inputs, dO)

        def every(run, names, refusal):
            """What ran, by name. Not every GPU can run every variant, and not every backend takes every problem."""
            found = {}
            for name, of in names.items():
                try:
                    found[name] = run(of)
                except refusal as error:
                    print(f"{name} refused: {str(error).splitlines()[0]}")
            return found

        def errors(found):
            return [(x.double() - y).abs().max().item() for x, y in zip(found, exact)]

        exact, plain = torch_by(None, torch.float64), torch_by(None)
        stage = every(stage_by, dict(zip(variants, variants)), ValueError)
        self.assertTrue(len(stage) == len(variants) or self.device == "cuda" and stage)
        for peer, theirs in {"float64": exact, **every(torch_by, self.peers, RuntimeError)}.items():
            for at, (mine, own) in enumerate(zip(errors(plain), errors(theirs))):
                allowed = (3 if at else 2) * max(mine, own) + 2 * HALF_UNIT[dtype] * exact[at].abs().max().item()
                for name, ours in stage.items():
                    with self.subTest(variant=name, peer=peer, tensor=("O", "dQ", "dK", "dV")[at]):
                        for x in ours[at : at + 1]:
                            torch.testing.assert_close(x.double(), theirs[at].double(), rtol=0, atol=allowed)


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
