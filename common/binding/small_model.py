#!/usr/bin/env python3
"""Trains a small model like Mistral on Python's own documentation strings, each time from the same weights on the same batches, once per
attention: PyTorch's scaled_dot_product_attention (SDPA), a stage's kernels, and on a GPU FlexAttention and FlashAttention-3, where they are
there. Their first 100 losses have to stay within 1 % of SDPA's; later ones part by rounding alone, as they do among libraries, since training
lets it grow. The trained model then writes, token by token, with a cache of keys and values.

  small_model.py [--build FOLDER] [--steps N] [--device cpu|cuda]

On a GPU 300 steps of 16,384 tokens, with tokens per second; on the CPU, where the simulator runs each CUDA thread, 200 tiny ones. Exit code:
1 if losses part, or if the cache changes what the model predicts; 3 if torch, the libraries or the GPU are missing.
"""

import argparse
import functools
import itertools
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT)]
try:
    import flash_steps
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.nn.attention import flex_attention as flex

    from common.compare import peer_flash3
except ImportError as error:
    sys.stderr.write(f"small_model.py needs torch: {error}\n")
    sys.exit(3)

TOLERANCE = 0.01  # of a loss
COMPARED = 100  # steps
LOSS_SCALE = 4096  # a loss is a mean over thousands of tokens: its gradients are so small that fp16 would keep few digits of dS
WARM_UP = 10  # steps before the clock starts: compilers and caches
compiled = functools.cache(torch.compile)


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.d, self.heads = width // heads, (heads, kv_heads, kv_heads)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.project = nn.Linear(width, sum(self.heads) * self.d, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in [(width, 3 * width)] * 2 + [(3 * width, width)])

    def forward(self, x, place, attend):
        q, k, v = self.qkv(self.norm1(x)).unflatten(1, (-1, self.d)).split(self.heads, 1)  # [tokens, H or Hkv, d]
        x = x + self.project(attend(rotated(q, place), rotated(k, place), v).flatten(1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x, place):
    """Turns each pair of columns by an angle that grows with the token's place in its document (RoPE)."""
    half = x.shape[2] // 2
    angle = place[:, None, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
    a, b = x.float().chunk(2, 2)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], 2).to(x.dtype)


class Model(nn.Module):
    def __init__(self, width, heads, kv_heads, layers):
        super().__init__()
        self.token, self.norm, self.head = nn.Embedding(256, width), nn.RMSNorm(width), nn.Linear(width, 256, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads) for _ in range(layers))

    def forward(self, tokens, place, attends):
        """attends: one per layer."""
        x = self.token(tokens)
        for layer, attend in zip(self.layers, attends):
            x = layer(x, place, attend)
        return self.head(self.norm(x))


def batches(size):
    """Python's documentation strings as bytes with a 0 at both ends, packed one after another, without padding. A batch has its tokens, the
    ones to predict, each token's place in its document, and where documents end (cu_seqlens); one that is cut goes on as a new document."""
    files = [path.read_text(encoding="utf-8") for path in sorted(Path(os.__file__).parent.glob("*.py"))]
    texts = [b"\0%b\0" % text.encode() for file in files for text in re.findall(r'"""(.+?)"""', file, re.DOTALL)]
    tokens, wanted = (
        torch.frombuffer(bytearray().join(text[cut] for text in texts), dtype=torch.uint8).long() for cut in (slice(0, -1), slice(1, None))
    )
    starts = torch.tensor([len(text) - 1 for text in texts]).cumsum(0)
    for number in itertools.count():
        first = number * 7919 * size % (len(tokens) - size)  # anywhere: neighbours are alike
        inside = starts[(first < starts) & (starts < first + size)] - first
        ends = [0, *inside.tolist(), size]
        place = torch.cat([torch.arange(b - a) for a, b in itertools.pairwise(ends)])
        yield tokens[first : first + size], wanted[first : first + size], place, ends


def as_heads(attend):
    """For tokens [total, H, d], an attention of [B, H, N, d]."""
    return lambda *qkv: attend(*(x.transpose(0, 1)[None] for x in qkv))[0].transpose(0, 1)


def is_seen(ends, window, device):
    """Does query i see key j? A function, for attentions that know no packed documents."""
    document = torch.bucketize(torch.arange(ends[-1]), torch.tensor(ends[1:]), right=True).to(device)
    return lambda i, j: (document[i] == document[j]) & (j <= i) & (i - j <= window)


def with_sdpa(ends, window, device):
    i = torch.arange(ends[-1], device=device)
    mask = is_seen(ends, window, device)(i[:, None], i)

    def attend(q, k, v):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))  # so that a fused kernel takes the mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return as_heads(attend)


def with_flex(ends, window, device):
    seen, N = is_seen(ends, window, device), ends[-1]
    mask = flex.create_block_mask(lambda b, h, i, j: seen(i, j), None, None, N, N, device=device)
    return as_heads(lambda q, k, v: compiled(flex.flex_attention)(q, k, v, block_mask=mask, enable_gqa=True))


def with_flash3(ends, window, device):
    """As common/compare finds it."""
    most, ends = max(b - a for a, b in itertools.pairwise(ends)), torch.tensor(ends, dtype=torch.int32, device=device)
    packed = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": most, "max_seqlen_k": most}
    attend = peer_flash3.attention(None, True, **packed, window_size_left=window, window_size_right=0)
    return lambda *qkv: attend(*(x.transpose(0, 1) for x in qkv)).transpose(0, 1)


def losses_of(model, attention, sizes, steps, device, dtype):
    """Trains it; the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in itertools.islice(batches(sizes["tokens"]), steps):
        *tensors, ends = batch
        tokens, wanted, place = (x.to(device) for x in tensors)
        attend = attention(ends, sizes["window"], device)
        with torch.autocast(device, dtype):
            loss = F.cross_entropy(model(tokens, place, itertools.repeat(attend)).float(), wanted)
        optimizer.zero_grad()
        (LOSS_SCALE * loss).backward()
        for parameter in model.parameters():
            parameter.grad /= LOSS_SCALE
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.detach()


@torch.no_grad()
def write(model, sizes, count, device, dtype):
    """A text and the model's logits for each of its bytes, where one call attends to one token: the keys and values of all before it are in
    a cache."""
    kv_heads, d = sizes["kv_heads"], sizes["width"] // sizes["heads"]
    caches = [[torch.zeros(1, count, kv_heads, d, dtype=dtype, device=device) for _ in "kv"] for _ in model.layers]

    def attend(cache, known, q, k, v):
        how = {"causal": True, "window_size": (sizes["window"], 0)}
        return flash_steps.flash_attn_with_kvcache(q[None], *cache, k[None], v[None], cache_seqlens=known, **how)[0]

    text, all_logits, generator = torch.zeros(1, dtype=torch.long), [], torch.Generator().manual_seed(3)
    for known in range(count):
        place = torch.tensor([known], device=device)
        attends = [functools.partial(attend, cache, known) for cache in caches]
        with torch.autocast(device, dtype):
            all_logits.append(model(text[-1:].to(device), place, attends))
        text = torch.cat([text, torch.multinomial(all_logits[-1].float().softmax(1).cpu(), 1, generator=generator)[0]])
    return text, torch.cat(all_logits)


def run(options):
    """What went wrong, if anything."""
    device, dtype, on_gpu = options.device, torch.float16, options.device == "cuda"
    torch.set_num_threads(1)  # torch's: tiny tensors would wait for them. The simulator has its own
    sizes = {"tokens": 64, "width": 32, "heads": 4, "kv_heads": 2, "layers": 2, "window": 24}
    if on_gpu:
        sizes = {"tokens": 16384, "width": 512, "heads": 8, "kv_heads": 2, "layers": 4, "window": 256}
    steps = options.steps or (300 if on_gpu else 200)

    def with_ours(ends, window, device):
        return functools.partial(flash_steps.attention_varlen, cu_seqlens_q=ends, causal=True, window=(window, 0))

    ours = "stage 08"
    attentions = {"SDPA": with_sdpa, ours: with_ours} | ({"FlexAttention": with_flex, "FlashAttention-3": with_flash3} if on_gpu else {})
    shown = sorted({1, steps, *(steps * n // 6 for n in range(1, 6))} - {0})
    print(f"{steps} steps on {device}, {sizes}, attention in {dtype}; how far the first {COMPARED} losses are from SDPA's")
    print(f"{'':16}", *(f"{step:>7}" for step in shown), f"{'apart':>8}  tokens per s" if on_gpu else f"{'apart':>8}")
    wanted, models, failed = None, {}, []
    for name, attention in attentions.items():
        print(f"{name:16}", end="", flush=True)
        torch.manual_seed(1)
        models[name] = Model(sizes["width"], sizes["heads"], sizes["kv_heads"], sizes["layers"]).to(device)
        losses = []
        try:
            for step, loss in enumerate(losses_of(models[name], attention, sizes, steps, device, dtype), 1):
                losses.append(loss)
                if step in shown:
                    print(f" {loss.item():>7.4f}", end="", flush=True)
                if step == WARM_UP:
                    loss.item()  # waits for the GPU
                    start = time.perf_counter()
        except RuntimeError as error:
            if name in ("SDPA", ours):
                raise
            print(f" {error}".splitlines()[0])
            continue
        losses = torch.stack(losses).tolist()
        speed = (steps - WARM_UP) * sizes["tokens"] / (time.perf_counter() - start) if on_gpu and steps > WARM_UP else None
        wanted = wanted or losses
        apart = max(abs(a - b) / b if a == a else torch.inf for a, b in zip(losses[:COMPARED], wanted))  # NaN is no agreement
        print(f" {apart:>8.3%}", f" {speed:>12,.0f}" if speed else "", flush=True)
        if not apart <= TOLERANCE:
            failed.append(f"the first losses of {name} are up to {apart:.3%} from SDPA's; allowed: {TOLERANCE:.0%}")
    count = 512 if on_gpu else 64
    text, cached = write(models[ours], sizes, count, device, dtype)
    with torch.no_grad(), torch.autocast(device, dtype):
        attend = with_ours([0, count], sizes["window"], device)
        whole = models[ours](text[:-1].to(device), torch.arange(count, device=device), itertools.repeat(attend))
    apart = (cached - whole).abs().max().item() / whole.abs().max().item()
    print(f"With a cache, the model writes {bytes(text[1:].tolist())!r}; its logits are {apart:.3%} from those without a cache")
    if not apart <= TOLERANCE:
        failed.append(f"a cache changes logits by {apart:.3%}; allowed: {TOLERANCE:.0%}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build-binding")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}; allowed: 1 or more")
    flash_steps.use(options.build)
    try:
        flash_steps._library("08")
        failed = run(options)
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"small_model.py: {error}\n")
        return 2 if isinstance(error, ValueError) else 3
    for why in failed:
        sys.stderr.write(f"small_model.py: {why}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
