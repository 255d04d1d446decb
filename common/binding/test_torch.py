#!/usr/bin/env python3
"""flash_steps.py with the libraries of a build folder: values and gradients against scaled_dot_product_attention, PyTorch's own checks of
operations, torch.compile, strides, what is refused, and every step of stage 08, on a GPU also torch's backends and Triton. Nothing here
uses a formula of this project, in which a kernel and its reference could share a mistake.

  test_torch.py BUILD    exits with 77 if torch or the libraries are not there
"""

import functools
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

sdpa = torch.nn.functional.scaled_dot_product_attention
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
HALF_UNIT = {torch.float16: 2**-11, torch.bfloat16: 2**-8}  # of 1
OF_STAGE_08 = (  # dtype, H, Hkv, Nq, Nk, d, causal: lengths that fill no tile, heads that share K and V
    (torch.float16, 2, 2, 80, 80, 64, False),
    (torch.bfloat16, 2, 1, 65, 65, 64, True),
    (torch.float16, 1, 1, 33, 95, 128, False),
    (torch.float16, 2, 1, 70, 70, 128, True),
)


def exact(q, k, v, causal, scale):
    """In fp64, with the mask aligned at the bottom right; PyTorch's own is aligned at the top left."""
    rows, cols = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    mask = (cols <= rows + k.shape[2] - q.shape[2]).to(q.device) if causal else None
    q, k, v = q.double(), k.double(), v.double()
    return sdpa(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


def passes(attend, tensors, dO):
    """O and, if there is a backward pass, dQ, dK, dV."""
    tensors = [x.detach().requires_grad_() for x in tensors]
    O = attend(*tensors)
    try:
        return O.detach(), *torch.autograd.grad(O, tensors, dO.to(O.dtype))
    except ValueError as error:
        if "it has no backward pass" not in str(error):
            raise
        return (O.detach(),)


class OnCPU(unittest.TestCase):
    device, times, peers = "cpu", 1, {}

    def tensors(self, *shapes, dtype=torch.float32, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=generator).to(self.device, dtype) for shape in shapes]

    def agrees(self, q, k, v, causal=False, scale=None, **options):
        """O and the gradients, for a dO that is no constant."""
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        (dO,) = self.tensors(q.shape, dtype=q.dtype, seed=2)
        O = flash_steps.attention(q, k, v, causal=causal, scale=scale, **options)
        wanted = exact(q, k, v, causal, scale)
        got = (O, *torch.autograd.grad(O, (q, k, v), dO))
        for name, mine, theirs in zip(("O", "dQ", "dK", "dV"), got, (wanted, *torch.autograd.grad(wanted, (q, k, v), dO.double()))):
            self.assertEqual(mine.dtype, q.dtype)
            error = (mine.double() - theirs.double()).abs().max().item()
            self.assertLess(error, TOLERANCE[q.dtype] * max(1, theirs.abs().max().item()), name)
        return O

    def test_each_stage_with_a_backward_pass(self):
        """01 and 05 have a backward pass that needs workspaces of the forward pass."""
        for stage in ("01", "05", "07"):
            with self.subTest(stage=stage):
                self.agrees(*self.tensors((2, 2, 9, 16), (2, 2, 13, 16), (2, 2, 13, 16)), causal=True, stage=stage)

    def test_every_step_of_stage_08(self):
        """Within 2 times the error of plain torch in 16 bits, 3 times for gradients, as the tests of FlashAttention allow."""
        with self.assertRaisesRegex(ValueError, "there are: ") as caught:
            flash_steps.attention(*self.tensors(*[(1, 1, 8, 64)] * 3, dtype=torch.float16), variant="none")
        steps = str(caught.exception).split("there are: ")[1].split(", ")
        steps.remove("bias_gradient")  # only for problems with that gradient, which the binding does not ask for
        for problem in OF_STAGE_08:
            self.steps_agree(steps, *problem)

    def steps_agree(self, steps, dtype, H, Hkv, Nq, Nk, d, causal):
        shapes = [(2, heads, self.times * n, d) for heads, n in ((H, Nq), (Hkv, Nk), (Hkv, Nk), (H, Nq))]
        *inputs, dO = self.tensors(*shapes, dtype=dtype, seed=d)
        wanted = passes(lambda q, k, v: exact(q, k, v, causal, None), [x.double() for x in inputs], dO)
        mask = causal_mask(torch, self.times * Nq, self.device) if causal else None

        def torch_by(backend, q, k, v):
            run = attention(torch, backend, d**-0.5, causal, mask)
            return run(q, *(x.repeat_interleave(H // Hkv, dim=1) for x in (k, v)))

        def step_by(step, q, k, v):
            return flash_steps.attention(q, k, v, causal=causal, variant=step)

        rounded, ran = passes(functools.partial(torch_by, None), inputs, dO), set()
        all_of_them = {step: (step_by, step) for step in steps} | {name: (torch_by, backend) for name, (_, backend) in self.peers.items()}
        for which, (attend, by) in all_of_them.items():
            try:
                found = passes(functools.partial(attend, by), inputs, dO)
            except (ValueError, RuntimeError) as error:  # not every GPU can run every step, and not every backend takes every problem
                print(f"{which} refused: {str(error).splitlines()[0]}")
                continue
            ran.add(which)
            for name, factor, mine, theirs, right in zip(("O", "dQ", "dK", "dV"), (2, 3, 3, 3), found, rounded, wanted):
                allowed = factor * (theirs - right).abs().max().item() + 2 * HALF_UNIT[dtype] * right.abs().max().item()
                self.assertLessEqual((mine - right).abs().max().item(), allowed, f"{which}, {name} of {shapes}")
        self.assertTrue(ran >= set(steps) or self.device == "cuda" and ran & set(steps))

    def test_rows_that_are_not_aligned(self):
        self.agrees(*self.tensors(*[(1, 1, 20, 20)] * 3, dtype=torch.float16), causal=True)

    def test_a_variant_for_each_pass(self):
        """Hopper's fastest ones have workspaces that are zero when they begin."""
        q, k, v = self.tensors(*[(1, 1, 16, 16)] * 3, dtype=torch.float16)
        self.agrees(q, k, v, variant="mma", backward_variant="two_kernels")
        self.agrees(q, k, v, variant="scheduled", backward_variant="resident")

    def test_layouts(self):
        """(B, H, N, d), (B, N, H, d), packed QKV and packed KV give the same, without a copy."""
        B, N, H, d = 2, 10, 2, 16
        (qkv,) = self.tensors((B, N, 3, H, d))
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        O = self.agrees(q, k, v, stage="07")
        dense = [x.contiguous() for x in (q, k, v)]
        self.assertTrue(torch.equal(O, self.agrees(*dense, stage="07")))
        bnhd = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        self.assertTrue(torch.equal(O, self.agrees(*bnhd, stage="07")))
        kv = qkv[:, :, 1:].contiguous()
        self.assertTrue(torch.equal(O, self.agrees(bnhd[0], kv[:, :, 0].transpose(1, 2), kv[:, :, 1].transpose(1, 2), stage="07")))

    def test_a_gradient_of_one_number(self):
        """sum() sends back one number for all entries, with strides of 0."""
        q, k, v = (x.requires_grad_() for x in self.tensors(*[(1, 1, 8, 8)] * 3))
        flash_steps.attention(q, k, v, stage="07").sum().backward()
        (wanted,) = torch.autograd.grad(exact(q, k, v, False, None).sum(), v)
        self.assertTrue(torch.allclose(v.grad, wanted, atol=1e-5))

    def test_twice_through_the_same_graph(self):
        q, k, v = (x.requires_grad_() for x in self.tensors(*[(1, 1, 8, 8)] * 3))
        for stage in ("01", "07"):
            O = flash_steps.attention(q, k, v, stage=stage)
            first = torch.autograd.grad(O.sum(), (q, k, v), retain_graph=True)
            self.assertTrue(all(map(torch.equal, first, torch.autograd.grad(O.sum(), (q, k, v)))))

    def test_opcheck(self):
        for stage, dtype in (("01", torch.float32), ("07", torch.float32), ("08", torch.float16)):
            q, k, v = (x.transpose(1, 2).requires_grad_() for x in self.tensors(*[(1, 8, 2, 16)] * 3, dtype=dtype))
            torch.library.opcheck(torch.ops.flash_steps.forward.default, (q, k, v, True, 0.25, stage, "", ""))
            O, L = torch.ops.flash_steps.forward(q, k, v, True, 0.25, stage, "", "")
            q, k, v, O = (x.detach() for x in (q, k, v, O))
            torch.library.opcheck(torch.ops.flash_steps.backward.default, (torch.ones_like(O), q, k, v, O, L, True, 0.25, stage, ""))

    def test_compile(self):
        """One graph without a break, forward and backward, for more than one length."""

        def layer(q, k, v):
            return flash_steps.attention(2 * q, k, v, causal=True, stage="07").square()

        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
        for n in (8, 12):
            q, k, v = (x.requires_grad_() for x in self.tensors(*[(1, 2, n, 8)] * 3))
            (dO,) = self.tensors(q.shape, seed=2)
            mine, wanted = (torch.autograd.grad(f(q, k, v), (q, k, v), dO) for f in (compiled, layer))
            self.assertTrue(all(torch.allclose(a, b, atol=1e-6) for a, b in zip(mine, wanted)))

    def test_refused(self):
        q, k, v = self.tensors(*[(1, 2, 8, 8)] * 3)
        half = [x.half() for x in (q, k, v)]
        odd = torch.zeros(1, 2, 8, 9, dtype=torch.float16, device=self.device)[..., :8]
        cases = [
            ("dtype is fp32; allowed: fp16, bf16", lambda: flash_steps.attention(q, k, v)),
            ("no variant 'none'; there are: two_kernels, one_kernel", lambda: flash_steps.attention(q, k, v, stage="07", variant="none")),
            ("Q repeats entries", lambda: flash_steps.attention(q[:, :1].expand(1, 2, 8, 8), k, v, stage="07")),
            ("K does not have adjacent columns", lambda: flash_steps.attention(q, k.mT, v, stage="07")),
            ("V has rows that do not begin at multiples of 16 bytes", lambda: flash_steps.attention(*half[:2], odd)),
            ("scale is inf; allowed", lambda: flash_steps.attention(q, k, v, scale=1e300, stage="07")),
            (
                "head-dim is '300'; allowed: whole numbers from 1 to 256",
                lambda: flash_steps.attention(*self.tensors(*[(1, 1, 2, 300)] * 3), stage="07"),
            ),
        ]
        for why, call in cases:
            with self.subTest(why), self.assertRaisesRegex(ValueError, why):
                call()
        with self.assertRaisesRegex(RuntimeError, "stage '99': there is no library in .*; there are: 01_naive, 02_.*, 08_"):
            flash_steps.attention(q, k, v, stage="99")

    def test_refused_without_attention(self):
        """The operations themselves, as export and compile call them: what they took would be read out of bounds."""
        forward, backward = torch.ops.flash_steps.forward, torch.ops.flash_steps.backward
        q, k, v = self.tensors(*[(1, 2, 8, 8)] * 3)
        O, L = forward(q, k, v, True, 0.25, "07", "", "")
        good = {"dO": torch.ones_like(O), "q": q, "k": k, "v": v, "O": O, "L": L}
        cases = [
            ("all fp32", {"k": k.half()}),
            ("on one device", {"k": k.to("meta")}),
            (r"\[B, H, N, d\]", {"q": q[0]}),
            ("k is .* and v is", {"v": v[:, :, :4]}),
            ("alike in B and d", {"q": q[..., :4]}),
            ("no multiple", {"q": q[:, :1]}),
            ("head-dim 0", {name: good[name][..., :0] for name in ("dO", "q", "k", "v", "O")}),
        ]
        of_backward = [
            ("dO has to be like q", {"dO": O.half()}),
            ("O has to be like q", {"O": O[:, :, :4]}),
            (r"L has to be \[B, H, N\]", {"L": L.half()}),
        ]

        def refused(why, operation, *names, change):
            with self.subTest(why, operation=operation), self.assertRaisesRegex(ValueError, why):
                operation(*((good | change)[name] for name in names), True, 0.25, "07", "", *([""] if operation is forward else []))

        for why, change in cases:
            refused(why, forward, *"qkv", change=change)
        for why, change in cases + of_backward:
            refused(why, backward, *good, change=change)
        with self.assertRaisesRegex(ValueError, "scale is nan"):
            forward(q, k, v, True, float("nan"), "07", "", "")
        with self.assertRaisesRegex(ValueError, "tensors are on meta"):
            flash_steps.attention(*(x.to("meta") for x in (q, k, v)), stage="07")

    def test_a_type_that_another_stage_takes(self):
        for stage, dtype, other in (("08", torch.float32, "07"), ("07", torch.float16, "08")):
            q, k, v = self.tensors(*[(1, 1, 16, 16)] * 3, dtype=dtype)
            with self.assertRaisesRegex(ValueError, f"stage='{other}' takes"):
                flash_steps.attention(q, k, v, stage=stage)

    def test_no_gradient_where_there_is_none(self):
        q, k, v = (x.requires_grad_() for x in self.tensors(*[(1, 1, 16, 16)] * 3, dtype=torch.float16))
        O = flash_steps.attention(q, k, v, variant="mma")
        with self.assertRaisesRegex(ValueError, "variant mma cannot run this: it has no backward pass"):
            O.sum().backward()

    def test_no_gradient_of_a_gradient(self):
        q, k, v = (x.requires_grad_() for x in self.tensors(*[(1, 1, 8, 8)] * 3))
        (dQ,) = torch.autograd.grad(flash_steps.attention(q, k, v, stage="07").square().sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "no autograd formula was registered"):
            dQ.sum().backward()


@unittest.skipUnless(torch.cuda.is_available(), "torch finds no GPU")
class OnGPU(OnCPU):
    device, times, peers = "cuda", 8, PEERS

    def test_another_stream(self):
        """The kernels wait for what the caller has queued, and what the caller queues next waits for them."""
        q, k, v = self.tensors(*[(2, 8, 1024, 64)] * 3, dtype=torch.float16)
        wanted = exact(2 * q, k, v, False, None)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # cycles
            O = flash_steps.attention(2 * q, k, v)
            error = (O.double() - wanted).abs().max().item()  # read in this stream: the default one does not wait for it
        self.assertLess(error, TOLERANCE[torch.float16])

    @unittest.skipUnless(torch.cuda.device_count() > 1, "there is one GPU")
    def test_each_gpu(self):
        """Tensors are computed where they are, whichever GPU is the current one."""
        for gpu in reversed(range(torch.cuda.device_count())):
            self.device = f"cuda:{gpu}"
            O = self.agrees(*self.tensors(*[(2, 4, 200, 64)] * 3, dtype=torch.float16), causal=True)
            self.assertEqual(O.device.index, gpu)


if __name__ == "__main__":
    build = Path(sys.argv.pop(1))
    if not list(build.glob("lib/libflash_*")):
        print(f"skipped: {build} has no libraries of the stages; cmake --workflow --preset binding builds them")
        sys.exit(77)
    flash_steps.use(build)
    unittest.main()
