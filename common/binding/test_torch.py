#!/usr/bin/env python3
"""The module flash_steps with the libraries of a build folder: values and gradients against attention in plain torch and fp64, PyTorch's own checks of
operations, and what is refused. Nothing here uses a formula of this project, in which a kernel and its reference could share a mistake.

  test_torch.py BUILD    exits with 77 if torch or the libraries are not there
"""

import ctypes
import functools
import importlib.util
import itertools
import os
import signal
import sys
import threading
import time
import unittest.mock
import warnings
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    import flash_steps
    import torch
    import torch._dynamo.testing
    import torch.fx.experimental.proxy_tensor
    from flash_steps import flash_attn, library, operation
    from torch.utils.flop_counter import FlopCounterMode
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def by_formula(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, bias=None, alibi_slopes=None, sinks=None, scale=None, kept=1.0):
    """O and L in fp64, with every option; kept: what each weight is multiplied by, for dropout."""
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    S = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    S = softcap * torch.tanh(S / softcap) if softcap else S
    behind = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2], device=q.device)
    if alibi_slopes is not None:
        S = S - alibi_slopes.double().reshape(-1, q.shape[1], 1, 1) * behind.abs()
    if bias is not None:
        S = S.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else S + bias.double()
    before, after = window[0] if window[0] >= 0 else 1 << 40, 0 if causal else window[1] if window[1] >= 0 else 1 << 40
    seen = (-after <= behind) & (behind <= before)
    S = S.masked_fill(~seen, -torch.inf)
    sinks = S.new_tensor([-torch.inf]) if sinks is None else sinks.double()
    L = torch.cat([S, sinks[:, None, None].expand(*S.shape[:3], 1)], -1).logsumexp(-1)
    return torch.exp(S - L.clamp(min=-1e300)[..., None]) * kept @ v, L  # a row without keys has L = -inf


def passes(attend, tensors, dO):
    """O and, if there is a backward pass, dQ, dK, dV."""
    tensors = [x.detach().requires_grad_() for x in tensors]
    try:
        O = attend(*tensors)
    except ValueError as error:
        if "it has no backward pass" not in str(error):
            raise
        return (attend(*(x.detach() for x in tensors)),)
    return O.detach(), *torch.autograd.grad(O, tensors, dO.to(O.dtype))


def too_far(found, wanted, dtype):
    """How far O and gradients are from those in fp64, by place, where that is too far."""
    errors = [((a - b).abs().max().item(), max(1, b.abs().max().item())) for a, b in zip(found, wanted) if b.numel()]
    return [(n, error) for n, (error, most) in enumerate(errors) if not error < TOLERANCE[dtype] * most]


class OnCPU(unittest.TestCase):
    device, times = "cpu", 1

    def tensors(self, *shapes, dtype=torch.float32, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(shape, generator=generator).to(self.device, dtype) for shape in shapes]

    def alike(self, shape=(1, 1, 8, 8), **options):
        """q, k and v with gradients."""
        return [x.requires_grad_() for x in self.tensors(*[shape] * 3, **options)]

    def agrees(self, q, k, v, causal=False, **options):
        (dO,) = self.tensors(q.shape, dtype=q.dtype, seed=2)
        qkv = [x.detach().requires_grad_() for x in (q, k, v)]
        O = flash_steps.attention(*qkv, causal=causal, **options)
        self.close(O, by_formula(*qkv, causal=causal)[0], qkv, dO, str(options))
        return O.detach()

    def close(self, found, wanted, tensors, dO, name):
        """O and the gradients of `tensors`."""
        self.assertEqual(found.shape, wanted.shape)
        mine = found, *torch.autograd.grad(found, tensors, dO.to(found.dtype))
        theirs = wanted, *torch.autograd.grad(wanted, tensors, dO.double())
        self.assertEqual(too_far(mine, theirs, found.dtype), [], name)

    def refused(self, call, cases, error=ValueError):
        """cases: why, and the arguments of a call, of which the last are named."""
        for why, *values, options in cases:
            with self.subTest(why), self.assertRaisesRegex(error, why):
                call(*values, **options)

    def same(self, found, wanted):
        """Two lists of tensors, bit by bit."""
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)))

    def test_every_step_of_stage_08(self):
        """Those without a backward pass forward only, or with that of another."""
        with self.assertRaisesRegex(ValueError, "there are: ") as caught:
            flash_steps.attention(*self.alike((1, 1, 8, 64), dtype=torch.float16), variant="none")
        steps = str(caught.exception).split("there are: ")[1].split(", ")
        steps.remove("bias_gradient")  # only for problems with that gradient
        for dtype, Nq, Nk, d, causal in ((torch.bfloat16, 33, 95, 64, False), (torch.float16, 70, 70, 128, True)):  # they fill no tile
            shapes = [(2, heads, self.times * n, d) for heads, n in ((2, Nq), (1, Nk), (1, Nk), (2, Nq))]
            *inputs, dO = self.tensors(*shapes, dtype=dtype, seed=d)
            wanted = passes(lambda *qkv, causal=causal: by_formula(*qkv, causal=causal)[0], [x.double() for x in inputs], dO)
            for step in steps:
                try:
                    found = passes(lambda *qkv, step=step, c=causal: flash_steps.attention(*qkv, causal=c, variant=step), inputs, dO)
                except ValueError as error:  # not every GPU can run every step
                    self.assertNotEqual(self.device, "cpu", error)
                    continue
                self.assertEqual(too_far(found, wanted, dtype), [], f"{step} of {shapes}")
        self.agrees(*self.alike((1, 1, 16, 16), dtype=torch.float16), variant="mma", backward_variant="seven_products")

    def test_packed_layouts(self):
        """Packed QKV and packed KV give the same bits, also of packed sequences."""
        (qkv,) = self.tensors((2, 10, 3, 2, 16))
        q, kv, rows, ends, how = qkv[:, :, 0], qkv[:, :, 1:], qkv.flatten(0, 1), [0, 4, 20], {"causal": True, "stage": "07"}
        wanted = flash_steps.flash_attn_func(*qkv.unbind(2), **how)
        found = flash_steps.flash_attn_qkvpacked_func(qkv, **how), flash_steps.flash_attn_kvpacked_func(q, kv, **how)
        self.same(found, [wanted] * 2)
        wanted = flash_steps.attention_varlen(*rows.unbind(1), ends, **how)
        found = flash_steps.flash_attn_varlen_qkvpacked_func(rows, ends, 16, **how)
        self.same([found, flash_steps.flash_attn_varlen_kvpacked_func(rows[:, 0], rows[:, 1:], ends, ends, 16, 16, **how)], [wanted] * 2)
        self.assertRaisesRegex(ValueError, r"kv is .*; allowed: 2 at axis 2", flash_steps.flash_attn_kvpacked_func, q, qkv)

    def test_opcheck(self):
        for stage, dtype in (("07", torch.float32), ("08", torch.float16)):
            q, k, v = (x.transpose(1, 2).requires_grad_() for x in self.tensors(*[(1, 8, 2, 16)] * 3, dtype=dtype))
            bias, sinks, dL = self.tensors((1, 2, 8, 8), (2,), (1, 2, 8))
            how = "--causal=true\n--scale=0.25", False, stage, ""
            torch.library.opcheck(
                torch.ops.flash_steps.forward.default, (q, k, v, bias.requires_grad_(), sinks.requires_grad_(), None, None, *how, "")
            )
            O, L = torch.ops.flash_steps.forward(q, k, v, bias, sinks, None, None, *how, "")
            q, k, v, O, L, bias, sinks = (x.detach() for x in (q, k, v, O, L, bias, sinks))
            for wanted in (True, False):
                torch.library.opcheck(
                    torch.ops.flash_steps.backward.default, (torch.ones_like(O), dL, q, k, v, O, L, bias, sinks, wanted, None, None, *how)
                )
            q, *caches, k = (x.transpose(1, 2).contiguous() for x in (q, k, v, k))
            inputs = q, *caches, k[:, :1], k[:, :1], torch.tensor(5), None, None, sinks
            how = {"scale": 0.3, "causal": True, "window": (4, -1), "softcap": 0.0}
            torch.library.opcheck(torch.ops.flash_steps.with_kvcache.default, inputs, how)

    def test_random_problems(self):
        """Each option is drawn by itself and meets all others, in batches and in packed sequences; gradients of O, L, a bias and sinks, too."""
        random, count = Random(1), 300 if self.device == "cuda" else 40
        for number in range(count):
            dtype, (H, Hkv), packed = random.choice([*TOLERANCE]), random.choice([(1, 1), (2, 2), (4, 2), (3, 1)]), random.random() < 0.25
            B, d = 1 if packed else random.randint(1, 2), random.choice([8, 20, 64, 72, 128 if dtype == torch.float32 else 256])
            Nq, Nk = (self.times * random.randint(1, 40) for _ in range(2))
            d_v = random.choice([d, d, 16, 100])
            shapes = (B, Nq, H, d), (B, Nk, Hkv, d), (B, Nk, Hkv, d_v), (B, H, Nq, d_v + 1)
            *qkv, dO = self.tensors(*shapes, dtype=dtype, seed=number)
            (sinks,) = self.tensors((H,), dtype=dtype, seed=number)
            of_bias = *(random.choice([1, n]) for n in (B, H, Nq)), Nk
            slopes, bias = self.tensors((H,) if packed else (random.choice([1, B]), H), of_bias[random.randint(0, 3) :], seed=number)
            added = [("alibi_slopes", slopes.abs()), ("bias", bias > -1), ("bias", bias.requires_grad_())]
            window = random.randint(-1, Nk), random.randint(-1, Nk)
            options = {"causal": True, "window": window, "softcap": 2.0, "scale": 0.3, "sinks": sinks.requires_grad_()}
            options |= [random.choice(added[:1] if packed else added)]
            options = {name: value for name, value in options.items() if random.random() < 0.35}
            how = {"deterministic": number % 2 == 0, "return_lse": True} | options
            q, k, v = tensors = [(x if number % 3 else x.contiguous()).requires_grad_() for x in (x.transpose(1, 2) for x in qkv)]
            tensors += [x for x in options.values() if isinstance(x, torch.Tensor) and x.requires_grad]
            ends, key_ends = ([0, *sorted(random.randint(0, n) for _ in range(2 * packed)), n] for n in (Nq, Nk))
            parts = zip(itertools.pairwise(ends), itertools.pairwise(key_ends))
            parts = [by_formula(q[:, :, a:b], k[:, :, c:e], v[:, :, c:e], **options) for (a, b), (c, e) in parts]
            if packed:
                on_device = torch.tensor(ends, dtype=torch.int32, device=self.device)
                O, L = flash_steps.attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), on_device, key_ends, **how)
                O, L = O.transpose(0, 1)[None], L[None]
            else:
                O, L = flash_steps.attention(q, k, v, **how)
            wanted = (torch.cat(x, 2) for x in zip(*parts))
            found, wanted = (torch.cat([O, L[..., None].nan_to_num(neginf=0)], -1) for O, L in ((O, L), wanted))
            name = f"{number}: {dtype} {B=} {H=} {Hkv=} {d=} {d_v=}, {ends} queries, {key_ends} keys, {how}"
            self.close(found.to(dtype), wanted, tensors, dO, name)

    def test_dropout(self):
        """The weights that a seed keeps are those that V = I shows, in both passes."""
        for dtype, stage in ((torch.float16, "08"), (torch.float32, "07")):
            q, k, v, dO = self.tensors(*[(1, 2, 50, 64)] * 4, dtype=dtype)
            how = {"dropout_p": 0.25, "seed": 7, "stage": stage}
            unit = torch.eye(50, 64, device=self.device, dtype=dtype).expand(1, 2, 50, 64).contiguous()
            kept = (flash_steps.attention(q, k, unit, **how)[..., :50] != 0).double() / 0.75
            self.assertTrue(0.6 < (kept > 0).double().mean() < 0.9)
            tensors = [x.requires_grad_() for x in (q, k, v)]
            self.close(flash_steps.attention(q, k, v, **how), by_formula(q, k, v, kept=kept)[0], tensors, dO, stage)
            first, known = flash_steps.attention(q, k, v, **how), len(library.plans)
            self.assertFalse(torch.equal(first, flash_steps.attention(q, k, v, **how | {"seed": None})))
            self.assertEqual(len(library.plans), known)

    def test_varlen_of_one_length(self):
        """Runs as the batch that it is."""
        q, k, v = self.tensors((20, 4, 16), *[(40, 2, 16)] * 2, dtype=torch.float16)
        batch = [x.unflatten(0, (5, -1)).transpose(1, 2) for x in (q, k, v)]
        wanted, L = flash_steps.attention(*batch, causal=True, return_lse=True)
        known = len(library.plans)
        ends = torch.arange(0, 21, 4).numpy() if importlib.util.find_spec("numpy") else range(0, 21, 4)
        O, L_packed = flash_steps.attention_varlen(q, k, v, ends, range(0, 41, 8), causal=True, return_lse=True)
        self.assertTrue(torch.equal(O, wanted.transpose(1, 2).flatten(0, 1)) and torch.equal(L_packed, L.transpose(0, 1).flatten(1)))
        self.assertEqual(len(library.plans), known)

    def test_as_flash_attn(self):
        """Values of its own for each argument, by position."""
        q, k, v, dO = self.tensors((2, 24, 4, 16), (2, 30, 2, 16), (2, 30, 2, 16), (2, 24, 4, 16), dtype=torch.float16)
        tensors = [x.requires_grad_() for x in (q, k, v)]
        numbers = 0, 0.3, 0, (5, 3), 2.0, None, torch.ones(()).bool().numpy()[()], True
        O, L, _ = flash_steps.flash_attn_func(q, k, v, *numbers, num_splits=1, pack_gqa=True)
        wanted, L_wanted = by_formula(*(x.transpose(1, 2) for x in (q, k, v)), scale=0.3, window=(5, 3), softcap=2.0)
        self.assertTrue(torch.allclose(L.double(), L_wanted, atol=1e-2))
        self.close(O, wanted.transpose(1, 2), tensors, dO, "flash_attn")

    def test_same_bits(self):
        """What is asked to be deterministic is, also by kernels that sum dQ by atomics: many blocks add to each row."""
        n, m = 128 * self.times, 1000 * self.times
        for dtype in (torch.float32, torch.float16):
            q, dO, k, v = self.tensors(*[(1, 1, n, 16)] * 2, *[(1, 1, m, 16)] * 2, dtype=dtype)
            (bias,) = self.tensors((n, m))
            tensors = [x.requires_grad_() for x in (q, k, v)]
            dense = functools.partial(flash_steps.attention, q, k, v, deterministic=True)
            packed = functools.partial(flash_steps.attention_varlen, *(x[0].transpose(0, 1) for x in tensors), deterministic=True)
            calls = [
                functools.partial(dense, window=(m - n, 5), softcap=2.0),
                functools.partial(dense, causal=True, softcap=2.0),  # on Hopper by turns
                functools.partial(dense, causal=True, bias=bias.requires_grad_(), dropout_p=0.3, seed=1),
                functools.partial(packed, [0, 5, 5, n], [0, 50, 60, m], causal=True),
            ]
            if dtype == torch.float16:
                calls += [functools.partial(call, backward_variant="options_early") for call in (calls[0], calls[-1])]
            for call in calls:
                self.same(*(torch.autograd.grad(O, tensors, dO.reshape(O.shape)) for O in (call(), call())))

    def cached(self, q, k, v, caches, known, table=None, layouts=(torch.clone,) * 2, **options):
        """flash_attn_with_kvcache() on copies of the caches in some layouts, against each sequence alone. What none sees may be NaN.
        Returns O and these copies."""
        mine, right = ([copy(x) for copy, x in zip(how, caches)] for how in (layouts, (torch.clone,) * 2))
        O, L = flash_steps.flash_attn_with_kvcache(q, *mine, k, v, cache_seqlens=known, return_softmax_lse=True, **options)
        known = known.tolist() if isinstance(known, torch.Tensor) else known if isinstance(known, list) else [known] * len(q)
        pages, rows, more = table or [[s] for s in range(len(q))], caches[0].shape[1], k.shape[1]
        for (s, n), j in itertools.product(enumerate(known), range(more)):
            for x, new in zip(right, (k, v)):
                x[pages[s][(n + j) // rows], (n + j) % rows] = new[s, j]
        self.assertTrue(all(torch.allclose(x, y, atol=2e-3, equal_nan=True) for x, y in zip(mine, right)))
        names = {"window_size": "window", "softmax_scale": "scale"}
        how = {names.get(name, name): x for name, x in options.items() if name not in ("block_table", "cache_batch_idx")}
        for s, n in enumerate(known):
            seen = [x[[page % len(x) for page in pages[s]]].flatten(0, 1)[None, : n + more].nan_to_num().transpose(1, 2) for x in right]
            wanted, of_rows = by_formula(q[s : s + 1].transpose(1, 2), *seen, **how)
            self.assertLess((O[s : s + 1].transpose(1, 2) - wanted).abs().max(), 6e-3)
            self.assertLess((L[s : s + 1] - of_rows).abs().max(), 6e-3)
        return O, *mine

    def test_cache(self):
        """Each sequence sees its part of the cache and what is appended there, whether the parts are of one length or not. The caches are cut
        out of longer ones, or have heads first, sequences inside, columns outside: without what is not theirs."""
        layouts = [lambda x: torch.cat([x, x.new_full((3, 8, *x.shape[2:]), torch.nan)], 1)[:, :12]]
        layouts += [lambda x, axes=axes: x.transpose(*axes).contiguous().transpose(*axes) for axes in ((1, 2), (0, 1), (1, 3))]
        slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], device=self.device)
        cases = (
            (5, 1, 8, {}),
            (5, 2, 16, {"alibi_slopes": slopes.expand(3, 4), "softcap": 2.0, "softmax_scale": 0.3}),
            ([3, 0, 9], 2, 16, {"window_size": (4, 0), "sinks": slopes}),
            ([2, 10, 10], 2, 16, {"alibi_slopes": slopes, "softmax_scale": 0.3}),
            ([2, 10, 10], 1, 24, {"softcap": 2.0}),
            ([2, 10, 10], 1, 16, {"softcap": 2.0}),
        )
        for (known, n, d_v, options), of_caches in itertools.product(cases, zip(layouts, reversed(layouts))):
            shapes = [(3, rows, 2, d) for rows in (n, 12) for d in (16, d_v)]
            q, k, v, *caches = self.tensors((3, n, 4, 16), *shapes, dtype=torch.float16)
            self.cached(q, k, v, caches, known, layouts=of_caches, causal=True, **options)
        before = [x.clone() for x in caches]
        good = {"q": q, "k_cache": caches[0], "v_cache": caches[1], "k": k, "v": v, "cache_seqlens": 0}
        cases = (
            ("3 lengths, from 0, at most 12 with", {"cache_seqlens": 12}),
            ("whole numbers", {"cache_seqlens": 2.5}),
            ("block_table or cache_batch_idx has others than 0 to 2", {"cache_batch_idx": [0, 1, 3]}),
            ("k is given without v", {"v": None}),
            ("cache_seqlens is missing", {"cache_seqlens": None}),
            ("Hkv, d.", {"v": q}),
            ("also in dtype", {"k": k.float(), "v": v.float()}),
            ("k and v have to be alike", {"v_cache": caches[1][:, :9], "cache_seqlens": 10}),
            ("softcap is", {"softcap": -1.0}),
            ("packed sequences are .H.", {"cache_seqlens": [2, 3, 3], "alibi_slopes": slopes.expand(3, 4)}),
            *[("a multiple of H", {"q": q[:, :, :3], "cache_seqlens": known}) for known in (0, [2, 3, 3])],  # after all other checks
        )
        self.refused(lambda **change: flash_steps.flash_attn_with_kvcache(**good | change), cases)
        self.same(caches, before)

    def test_cache_in_pages(self):
        """Pages, or sequences of a larger cache; also traced."""
        q, k, v, *caches = self.tensors((2, 2, 4, 16), *[(2, 2, 2, 16)] * 2, *[(7, 4, 2, 16)] * 2, dtype=torch.float16)
        for table, known in ([[5, 0, 3], [2, 6, 99]], [6, 1]), ([[5, -1], [2, 0]], [2, 2]), ([[6], [0]], [2, 1]):
            how = {"cache_batch_idx": [6, 0]} if len(table[0]) == 1 else {"block_table": torch.tensor(table)}
            found = self.cached(q, k, v, caches, known, table, causal=True, **how)
            torch.compiler.reset()
            others = [x.clone() for x in caches]
            call = functools.partial(flash_steps.flash_attn_with_kvcache, k=k, v=v, cache_seqlens=known, causal=True, **how)
            traced = torch.compile(call, fullgraph=True, backend="eager")(q, *others)
            self.same(found, (traced, *others))

    def test_cache_in_place(self):
        """Few queries read keys where they lie, and nothing behind them, before a window, or in other pages, which may be NaN."""
        (sinks,), known, pages = self.tensors((4,)), [130, 0, 63], [[5, 0, 3], [2, -1, 99], [4, 1, 1]]
        for d, N, table, options in (
            (64, 1, pages, {"block_table": pages, "window_size": (70, 0)}),
            (128, 2, pages, {"block_table": pages, "causal": True, "sinks": sinks}),
            (256, 1, None, {}),
            (8, 3, [[1], [2], [0]], {"cache_batch_idx": [1, 2, 0], "causal": True}),
        ):
            rows = 64 if table is pages else 192
            q, k, v, *keys = self.tensors((3, N, 4, d), *[(3, N, 2, d)] * 2, *[(3, 192, 2, d)] * 2, dtype=torch.float16)
            caches = [q.new_full((7 if table else 3, rows, 2, d), torch.nan) for _ in range(2)]
            first = [max(0, n + N - 1 - options.get("window_size", (192, 0))[0]) // 64 * 64 for n in known]
            for (cache, x), s in itertools.product(zip(caches, keys), range(3)):
                for j in range(first[s], known[s]):
                    cache[table[s][j // rows] if table else s, j % rows] = x[s, j]
            for lengths in (known, torch.tensor(known, device=self.device, dtype=torch.int32)):
                with unittest.mock.patch.object(flash_attn, "attention", None):  # which would copy
                    self.cached(q, k, v, caches, lengths, table, **options)

        q, *caches = self.tensors((1, 2, 1, 16), *[(2, 2, 32, 16)] * 2, dtype=torch.float16)
        ends, pages = (torch.tensor(x, dtype=torch.int32, device=self.device)[None, None] for x in ([[40]], [[0, 1]]))
        call = functools.partial(operation.run_forward, q, *caches, *[None] * 4, "", False, "08", "decode", "", None)
        self.assertRaisesRegex(ValueError, "allowed: a multiple of 64", call, {"ends": ends, "pages": pages})
        self.assertRaisesRegex(ValueError, "ends are missing", call, {"pages": pages})

    def test_packed_keys_in_pages(self):
        q, *pages = self.tensors((6, 4, 16), *[(5, 4, 2, 16)] * 2, dtype=torch.float16)
        k, v = (torch.cat([x[[3, 0]].flatten(0, 1)[:7], x[[4, 1, 2]].flatten(0, 1)[:10]]) for x in pages)
        call = functools.partial(flash_steps.flash_attn_varlen_func, q, *pages, [0, 2, 6], [0, 7, 17], causal=True)
        wanted = flash_steps.attention_varlen(q, k, v, [0, 2, 6], [0, 7, 17], causal=True)
        self.assertTrue(torch.equal(call(block_table=torch.tensor([[3, 0, 99], [4, 1, 2]])), wanted))
        self.assertRaisesRegex(ValueError, "others than 0 to 4", call, block_table=[[3, 5, 0], [4, 1, 2]])

    def test_compiled_cache(self):
        """One graph, which changes the caches in place; other lengths, or one for each sequence, compile no third one."""
        q, k, v, *caches = self.tensors((3, 1, 4, 16), *[(3, n, 2, d) for n in (1, 12) for d in (16, 8)], dtype=torch.float16)
        q.requires_grad_()
        for backend in ("eager", "aot_eager"):
            graphs = torch._dynamo.testing.CompileCounterWithBackend(backend)
            call = torch.compile(flash_steps.flash_attn_with_kvcache, fullgraph=True, backend=graphs)
            for known in (5, 6, 7, 8, torch.tensor([3, 0, 9]), torch.tensor([1, 2, 3])):
                mine, wanted = ([x.clone() for x in caches] for _ in range(2))
                how = {"cache_seqlens": known, "causal": True, "window_size": (4, 0)}
                O = flash_steps.flash_attn_with_kvcache(q, *wanted, k, v, **how)
                self.same((call(q, *mine, k, v, **how), *mine), (O, *wanted))
            self.assertLessEqual(graphs.frame_count, 3)
            with self.assertRaisesRegex(ValueError, "3 lengths, from 0, at most 12 with"):
                call(q, *caches, k, v, cache_seqlens=12)
            self.assertTrue(torch.is_grad_enabled() and not O.requires_grad)

    def test_any_strides(self):
        """Of each tensor and of dO, also traced: repeated rows, heads or batches, columns apart, rows or a start at odd addresses, negation."""
        layouts = [lambda x, axis=axis: x.narrow(axis, 0, 1).expand(x.shape) for axis in range(4)]
        layouts += [lambda x: x.mT.contiguous().mT, lambda x: torch.cat([x, x[..., :1]], 3)[..., :16], torch._neg_view]
        layouts += [lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)]
        for number, layout in enumerate(layouts):
            *qkv, dO = (layout(x / 4) for x in self.tensors(*[(2, 2, 8, 16)] * 4, dtype=torch.float16))
            qkv = [x.requires_grad_() for x in qkv]
            self.close(flash_steps.attention(*qkv), by_formula(*qkv)[0], qkv, dO, f"layout {number}")
            how = *[None] * 4, "", False, "08", "", ""
            torch.library.opcheck(torch.ops.flash_steps.forward.default, (*qkv, *how), test_utils="test_faketensor")

    def test_seen_by_modes(self):
        """What make_fx and a trace record computes the same, meta tensors have a shape, torch.func has gradients, autocast casts."""
        q, k, v = self.tensors(*[(1, 2, 8, 16)] * 3, dtype=torch.float16)
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            self.assertEqual(flash_steps.attention(q.float(), k.float(), v.float(), window=None).dtype, torch.bfloat16)
            how = {"cache_batch_idx": [0], "softcap": 2.0}  # to a copy of the cache
            cached = flash_steps.flash_attn_with_kvcache(q.float(), k.clone(), v.clone(), k.float(), v.float(), cache_seqlens=0, **how)
            self.assertEqual(cached.dtype, k.dtype)
        self.assertTrue(torch.equal(cached, flash_steps.flash_attn_with_kvcache(q, k, v, **how)))
        warnings.simplefilter("ignore")  # trace() is old, and warns of each number that it reads
        for record in (torch.fx.experimental.proxy_tensor.make_fx, lambda f: lambda *qkv: torch.jit.trace(f, qkv, check_trace=False)):
            recorded = record(lambda *qkv: flash_steps.attention(*qkv, causal=True))(q, k, v)
            self.assertTrue(torch.equal(recorded(2 * q, k, v), flash_steps.attention(2 * q, k, v, causal=True)))
        self.assertEqual(flash_steps.attention(*(x.to("meta") for x in (q, k, v))).shape, q.shape)
        found = torch.func.grad(lambda q: flash_steps.attention(q, k, v).float().sum())(q)
        q.requires_grad_()
        (wanted,) = torch.autograd.grad(flash_steps.attention(q, k, v).float().sum(), q)
        self.assertTrue(torch.equal(found, wanted))

    def test_library_without_gpu_code(self):
        code = library.library_of("08").flash_workspace(ctypes.byref(library._Call(on_gpu=1)), 0, None, None)
        with self.assertRaisesRegex(RuntimeError if code == 3 else ValueError, "FLASH_CUDA=ON" if code == 3 else ""):
            library._raise_for(code, "08")

    def test_empty_and_broadcast(self):
        for B, Nk in ((0, 4), (1, 0)):
            q, k = (x.requires_grad_() for x in self.tensors((B, 2, 4, 16), (B, 2, Nk, 16), dtype=torch.float16))
            O, L = flash_steps.attention(q, k, k, return_lse=True)
            O.sum().backward()
            self.assertFalse(O.any() or (L > -torch.inf).any() or q.grad.any())
        k, *caches = self.tensors((2, 1, 2, 16), *[(2, 9, 2, 16)] * 2)
        for known in (3, [0, 3]):
            flash_steps.flash_attn_with_kvcache(k[:, :0], *caches, k, k, cache_seqlens=known)
        self.assertTrue(torch.equal(caches[1][[0, 0, 1], [0, 3, 3]], k[[0, 0, 1], 0]))
        q, k, v, dO = self.tensors(*[(1, 2, 9, 16)] * 4)
        for shape in ((), (9, 1), (1, 1), (1, 2, 9, 1)):
            (bias,) = self.tensors(shape)
            O = flash_steps.attention(q.requires_grad_(), k, v, bias=bias.requires_grad_())
            self.close(O, by_formula(q, k, v, bias=bias)[0], [q, bias], dO, f"bias of {shape}")

    def test_counted(self):
        """As PyTorch counts its own attention, with both passes; packed sequences and caches by their lengths."""
        qkv = self.alike((2, 4, 12, 16), dtype=torch.float16)
        q, k, v = (x.transpose(1, 2) for x in qkv)
        with FlopCounterMode(display=False) as counter:
            flash_steps.attention(*qkv).sum().backward()
            flash_steps.attention_varlen(*(x.flatten(0, 1) for x in (q, k, v)), [0, 4, 24])
            flash_steps.flash_attn_with_kvcache(q[:, :1], k, v, k[:, :1], v[:, :1], cache_seqlens=[3, 5])
        self.assertEqual(counter.get_total_flops(), (3.5 * 2 * 12 * 12 + 4 * 4 + 20 * 20 + 4 + 6) * 4 * 4 * 16)

    def test_compile(self):
        """One graph without a break, forward and backward; other seeds and lengths compile nothing anew."""
        backend = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

        def layer(q, k, v, seed):
            how = {"causal": True, "scale": q.shape[-1] ** -0.5, "dropout_p": 0.3, "stage": "07"}
            return flash_steps.attention(2 * q, k, v, seed=seed, **how).square()

        compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=True)
        frames = []
        for n in (6, 12):
            qkv = self.alike((1, 2, n, 8))
            (dO,) = self.tensors(qkv[0].shape, seed=2)
            mine, wanted = (passes(functools.partial(call, seed=torch.tensor(n)), qkv, dO) for call in (compiled, layer))
            self.assertTrue(all(torch.allclose(a, b, atol=1e-6) for a, b in zip(mine, wanted)))
            frames.append(backend.frame_count)
        packed = self.tensors(*[(12, 2, 16)] * 3, dtype=torch.float16)
        varlen = torch.compile(flash_steps.attention_varlen, fullgraph=True, backend=backend)
        for end in (1, 5, 9, 12):
            ends = torch.tensor([0, end, 12])
            self.assertTrue(torch.equal(varlen(*packed, ends), flash_steps.attention_varlen(*packed, ends)))
            frames.append(backend.frame_count)
        self.assertEqual(len({*frames}), 2, frames)
        module = torch.nn.Module()
        module.forward = lambda q, k, v, ends: flash_steps.attention_varlen(q, k, v, ends)
        exported = torch.export.export(module, (*packed, ends), dynamic_shapes=[{0: torch.export.Dim("total")}] * 3 + [None])
        packed, ends = [x[:11] for x in packed], torch.tensor([0, 4, 11])
        self.assertTrue(torch.equal(exported.module()(*packed, ends), flash_steps.attention_varlen(*packed, ends)))

    def test_refused(self):
        q, k, v = self.tensors(*[(1, 2, 8, 8)] * 3)
        half, trained = ([x.half().requires_grad_(grad) for x in (q, k, v)] for grad in (False, True))
        cases = [
            ("dtype is fp32.*stage 07 takes", (q, k, v), {"stage": "08"}),
            ("no variant 'none'; there are: two_kernels, two_halves, one_kernel", (q, k, v), {"variant": "none"}),
            ("window is .3,.; allowed: .left, right.", half, {"stage": "08", "window": (3,)}),
            (r"broadcast to \(1, 2, 8, 8\)", half, {"stage": "08", "bias": torch.zeros(3, 8, device=self.device)}),
            ("exclude each other", half, {"bias": torch.zeros(8, 8, device=self.device), "alibi_slopes": torch.zeros(2)}),
            ("does not know dropout_p; stage 08 takes it in fp16", half, {"stage": "04", "dropout_p": 0.1}),
            ("d is 129; allowed: up to 128 in fp32, and 256.*scaled_dot", self.tensors(*[(1, 1, 2, 129)] * 3), {}),
            ("alibi_slopes are", half, {"alibi_slopes": torch.zeros(3, 2)}),
            ("a bias is bool", half, {"bias": torch.ones(8, 8, dtype=torch.long)}),
            ("k is int; allowed: dense tensors$", (q, 2, v), {}),
            ("variant is 3; allowed: the name", half, {"variant": 3}),
            ("seeds are 1844.*; allowed: whole numbers below 2..63", half, {"seed": 2**64 - 1}),
            ("scale is tensor.*; allowed: a finite number; for a tensor, multiply q", half, {"scale": torch.tensor(1.0)}),
            ("one whole number", half, {"dropout_p": 0.5, "seed": torch.tensor([1, 2])}),
            ("seeds have to be whole", half, {"dropout_p": 0.5, "seed": torch.tensor(1.5)}),
            ("q is torch.sparse_coo; allowed: dense tensors$", [x.to_sparse() for x in (q, k, v)], {}),
            ("q is nested; .*; instead attention_v", [torch.nested.nested_tensor([q[0]], layout=torch.jagged)] * 3, {}),
            ("q is nested; .*; instead attention_v", [torch.nested.nested_tensor([q[0]], layout=torch.strided)] * 3, {}),
            *[("allowed: .left, right., whole numbers", half, {"window": (x, 2)}) for x in (torch.tensor(1), True, -2)],
            ("lead refuses .*its dQ differs between runs", trained, {"stage": "08", "backward_variant": "lead", "deterministic": True}),
            ("variant mma refuses this problem: it has no backward pass", trained, {"stage": "08", "variant": "mma"}),
            ("no backward pass; stages 07 and 08 have", [x.float() for x in trained], {"stage": 6}),
            ("q, k and v are on cpu, meta, cpu; allowed", (q.cpu(), k.to("meta"), v.cpu()), {}),
            ("alibi_slopes have no gradient; instead detach", half, {"alibi_slopes": torch.ones(2, requires_grad=True)}),
            *[("more of its forward pass than O and L", [x.float() for x in trained], {"stage": stage}) for stage in ("01", "05")],
            (r"sinks are \(3,\), torch.float32; allowed: .H.", (q, k, v), {"sinks": torch.zeros(3, device=self.device)}),
        ]
        cases += [(f"{name} is .*; allowed: True, False", half, {name: "False"}) for name in ("causal", "deterministic", "return_lse")]
        cases += [(f"{n} is {x!r}; allowed: a .*number", half, {n: x}) for n in ("scale", "softcap", "dropout_p") for x in ("1", True)]
        ranges = [("softcap", -1.0), ("softcap", torch.nan), ("dropout_p", -0.1), ("dropout_p", 1), ("window", (0, -2))]
        cases += [(f"flash_steps: {n} is .*; allowed", [x.to("meta") for x in half], {n: x}) for n, x in ranges]  # also where none runs
        self.refused(lambda tensors, **options: flash_steps.attention(*tensors, **({"stage": "07"} | options)), cases)
        with self.assertRaisesRegex(RuntimeError, "stage '99': there is no library in .*; there are: 01_naive, 02_.*, 08_"):
            flash_steps.attention(q, k, v, stage="99")
        with unittest.mock.patch.object(library, "_Call", library._CTensor), self.assertRaisesRegex(RuntimeError, "another version"):
            library.library_of.__wrapped__("08")
        cases = (
            ("cu_seqlens are None; allowed", None, {}),
            ("cu_seqlens are .*'b'.; allowed", ["a", "b"], {}),
            *[(rf"cu_seqlens are \[0, {n}, {m}\] of q and .*; allowed: .* from 0 to .*8", [0, n, m], {}) for n, m in ((9, 8), (3, 6))],
            ("packed sequences are .H.", [0, 4, 8], {"alibi_slopes": torch.zeros(2, 2)}),
        )
        self.refused(functools.partial(flash_steps.attention_varlen, *(x[0].transpose(0, 1) for x in (q, k, v))), cases)

    def test_names_of_arguments(self):
        """Those of other libraries, and those that are given twice, are refused under the name of the function that was called."""
        (q,) = self.tensors((1, 8, 1, 8))
        for function, theirs, ours in (
            ("attention", "attn_mask", "bias"),
            ("flash_attn_with_kvcache", "page_table", "block_table"),
            ("flash_attn_with_kvcache", "window", "window_size"),
            ("flash_attn_with_kvcache", "return_lse", "return_softmax_lse"),
        ):
            with self.subTest(theirs), self.assertRaisesRegex(TypeError, rf"{function}\(\) takes no {theirs} .here {ours}.; allowed"):
                getattr(flash_steps, function)(q, q, q, **{theirs: None})
        unknown = (
            ("takes no cache_leftpad .instead pad behind the keys.; allowed: each once, .*sinks", {"cache_leftpad": 0}),
            ("takes no 6 arguments by", q, q, 3, {}),
        )
        self.refused(functools.partial(flash_steps.flash_attn_with_kvcache, q, q, q), unknown, TypeError)
        cached = functools.partial(flash_steps.flash_attn_with_kvcache, q, q, q)
        neutral = {"rotary_cos": None, "rotary_interleaved": False, "cache_leftpad": None, "attention_chunk": 0, "s_aux": None}
        self.same([cached(**neutral)], [cached()])
        self.refused(flash_steps.attention, [(f"takes no {name}", q, q, q, {name: x}) for name, x in neutral.items()], TypeError)
        self.refused(cached, [("takes no rotary_cos .instead rotate q and k first.; allowed", {"rotary_cos": q})], TypeError)
        call = functools.partial(flash_steps.flash_attn_varlen_func, q[0], q[0], q[0], [0, 8], [0, 8])
        twice = r"flash_attn_varlen_func\(\) is given dropout_p twice; allowed: each once"
        self.refused(call, [(twice, 8, 8, 0.0, {"dropout_p": 0.1})], TypeError)
        cases = [(": window_size is 128; allowed", {"window_size": 128}), (": softmax_scale is '1'; allowed", 8, 8, 0.0, "1", {})]
        self.refused(call, cases + [(f": max_seqlen_k is {x!r}; allowed", 8, x, {}) for x in (0.5, False, "8")])

    def test_refused_without_attention(self):
        """The operations themselves, as export and compile call them: what they took would be read out of bounds."""
        q, k, v = self.tensors(*[(1, 2, 8, 8)] * 3)
        how = "--causal=true", False, "07", ""
        O, L = torch.ops.flash_steps.forward(q, k, v, *[None] * 4, *how, "")
        good = {"dO": torch.ones_like(O), "dL": None, "q": q, "k": k, "v": v, "O": O, "L": L}
        cases = [
            ("float32, torch.float16, torch.float32; allowed", {"k": k.half()}),
            ("B and d have to be alike", {"k": k[..., :4], "v": v[..., :4]}),
            ("has to be a multiple", {"k": k.repeat(1, 2, 1, 1), "v": v.repeat(1, 2, 1, 1)}),
            ("like q", {"dO": O.half()}),
            ("like q", {"O": O[:, :, :4]}),
            *[("O needs", {"O": x}) for x in (O[:, :1].expand_as(O), O.repeat_interleave(4, 3)[..., ::4], torch.cat([O, O], 3)[..., 1:9])],
            (r"L \[B, H, N\]", {"L": L.half()}),
        ]
        call = torch.ops.flash_steps.backward
        self.refused(lambda **change: call(*(good | change).values(), None, None, False, None, None, *how), cases)
        forward = functools.partial(torch.ops.flash_steps.forward, q, k, v, None)
        self.refused(lambda sinks: forward(sinks, None, None, *how, ""), [("sinks are .3,.*allowed: .H.", q.new_zeros(3), {})])

    def test_interrupted(self):
        """Ctrl-C ends a pass of the simulator long before it is over, and the next call is right."""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs do not have
        qkv, began = torch.zeros(3, 16, 16, 512, 64, dtype=torch.float16), time.monotonic()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            flash_steps.attention(*qkv)  # a minute
        self.assertLess(time.monotonic() - began, 15)
        self.agrees(*self.alike(dtype=torch.float16))

    def test_transforms_are_refused(self):
        q, k, v = self.alike()
        (dQ,) = torch.autograd.grad(flash_steps.attention(q, k, v).square().sum(), q, create_graph=True)
        attend = functools.partial(flash_steps.attention, k=k, v=v)
        cached = functools.partial(flash_steps.flash_attn_with_kvcache, k_cache=k, v_cache=v)
        mapped = attend, cached, lambda q: torch.ops.flash_steps.forward(q, k, v, *[None] * 4, "", False, *3 * [""])
        cases = [("gradient of its gradient; instead .*MATH", dQ.sum().backward, ())]
        cases += [("forward-mode gradient; instead .*MATH", torch.func.jvp, (attend, (q,), (q,)))]
        O = attend(q)
        cases += [("vmap; instead flatten", functools.partial(torch.autograd.grad, is_grads_batched=True), (O, q, O[None]))]
        cases += [("vmap; instead flatten", torch.vmap(call), (q[None],)) for call in mapped]
        cases = [("flash_steps: attention has no " + why, *rest, {}) for why, *rest in cases]
        self.refused(lambda call, args: call(*args), cases, NotImplementedError)


@unittest.skipUnless(torch.cuda.is_available(), "torch finds no GPU")
class OnGPU(OnCPU):
    device, times = "cuda", 8

    def test_another_stream(self):
        """The kernels wait for what the caller has queued, and what the caller queues next waits for them."""
        q, k, v = self.tensors(*[(2, 8, 1024, 64)] * 3, dtype=torch.float16)
        wanted, _ = by_formula(2 * q, k, v)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # cycles
            O = flash_steps.attention(2 * q, k, v)
            error = (O.double() - wanted).abs().max().item()  # read in this stream: the default one does not wait for it
        self.assertLess(error, TOLERANCE[torch.float16])

    def test_first_call_of_a_thread(self):
        """Autograd has a thread of its own, in which PyTorch need not have made a context yet."""
        q, k, v = self.tensors(*[(2, 8, 1024, 64)] * 3, dtype=torch.float16)
        wanted, found = flash_steps.attention(q, k, v), []
        thread = threading.Thread(target=lambda: found.append(flash_steps.attention(q, k, v)))
        thread.start()
        thread.join()
        self.assertTrue(found and torch.equal(found[0], wanted))

    def test_two_streams(self):
        """At once, each launch with a counter of work of its own; on the default stream one leaves its counter to the next."""
        q, k, v = (torch.randn(8, 16, 1000, 64, device="cuda", dtype=torch.float16) for _ in range(3))
        wanted, streams = flash_steps.attention(q, k, v, causal=True), [torch.cuda.Stream(), torch.cuda.Stream()]
        torch.cuda.synchronize()
        outputs = []
        for stream in streams * 20:
            with torch.cuda.stream(stream):
                outputs.append(flash_steps.attention(q, k, v, causal=True))
        torch.cuda.synchronize()
        self.assertTrue(all(torch.equal(O, wanted) for O in outputs))

    def test_graph(self):
        """A captured CUDA graph of both passes gives the bits of a call, and reads its inputs anew at each replay. Also of more packed sequences
        than one kernel has arguments for."""
        ends = [*range(0, 1200, 2), 1201]
        for shape, attend in (
            ((2, 8, 500, 64), functools.partial(flash_steps.attention, causal=True)),
            ((1201, 8, 64), functools.partial(flash_steps.attention_varlen, cu_seqlens_q=ends, causal=True)),
        ):
            q, k, v = (x.requires_grad_() for x in self.tensors(*[shape] * 3, dtype=torch.float16))
            (dO,) = self.tensors(shape, dtype=q.dtype, seed=2)

            def both(attend=attend, inputs=(q, k, v), dO=dO):
                O = attend(*inputs, deterministic=True)
                return O, *torch.autograd.grad(O, inputs, dO)

            graph, captured = self.graph_of(both)
            for seed in (1, 5):
                with torch.no_grad():
                    q.copy_(self.tensors(shape, dtype=q.dtype, seed=seed)[0])
                graph.replay()
                torch.cuda.synchronize()
                self.same(captured, both())

    def graph_of(self, call):
        """The captured call, and what each replay writes."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call()  # before a capture, as CUDA asks
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            return graph, call()

    def test_graph_of_decoding(self):
        """A replay reads lengths and pages anew, and writes behind them."""
        q, k, v, *caches = self.tensors((2, 1, 8, 64), *[(2, 1, 2, 64)] * 2, *[(9, 64, 2, 64)] * 2, dtype=torch.float16)
        lengths, pages = (torch.tensor(x, dtype=torch.int32, device=self.device) for x in ([5, 150], [[0, 1, 2], [3, 4, 5]]))

        def call(caches=caches):
            return flash_steps.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=lengths, block_table=pages, window_size=(100, 0))

        graph, captured = self.graph_of(call)
        for known, table in (([0, 191], [[6, 7, 8], [3, 4, 5]]), ([130, 64], [[8, 1, 0], [2, 7, 3]])):
            lengths.copy_(torch.tensor(known)), pages.copy_(torch.tensor(table))
            others = [x.clone() for x in caches]
            graph.replay()
            self.same([captured, *caches], [call(others), *others])

    def test_reduce_overhead(self):
        layer = torch.compile(lambda *qkv: flash_steps.attention(*qkv, causal=True).square(), mode="reduce-overhead", fullgraph=True)
        q, k, v = self.tensors(*[(1, 4, 300, 64)] * 3, dtype=torch.float16)
        for _ in range(4):
            found = layer(q, k, v).clone()
        wanted = by_formula(q, k, v, causal=True)[0].square()
        self.assertLess((found - wanted).abs().max().item(), 4 * TOLERANCE[q.dtype])

    def test_each_gpu(self):
        """Tensors are computed where they are, whichever GPU is the current one."""
        for gpu in reversed(range(torch.cuda.device_count())):
            self.device = f"cuda:{gpu}"
            O = self.agrees(*self.alike((2, 4, 200, 64), dtype=torch.float16), causal=True)
            self.assertEqual(O.device.index, gpu)


if __name__ == "__main__":
    build = Path(sys.argv.pop(1))
    if not list(build.glob("lib/libflash_*")):
        print(f"skipped: {build} has no libraries of the stages; docs/howto/pytorch.md says how to build them")
        sys.exit(77)
    flash_steps.use(build)
    unittest.main()
