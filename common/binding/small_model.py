#!/usr/bin/env python3
"""Trains a small model like Mistral on Python's own documentation strings, each time from the same weights on the same batches, once per
attention: PyTorch's scaled_dot_product_attention (SDPA), a stage's kernels, and on a GPU FlexAttention and FlashAttention-3, where they are
there. Their first 100 losses have to stay within 1 % of SDPA's; later ones part by rounding alone, as they do among libraries, since training
lets it grow. The trained model then writes, token by token, with a cache of keys and values.

  small_model.py [--build FOLDER] [--steps N]

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
    from flash_steps import library
    from torch import nn
    from torch.nn import functional as F
    from torch.nn.attention import flex_attention as flex

    from common.compare import peer_flash3
except ImportError as error:
    sys.stderr.write(f"small_model.py needs torch: {error}\n")
    sys.exit(3)

DEVICE, DTYPE = "cuda" if torch.cuda.is_available() else "cpu", torch.float16
SIZES = {"tokens": 64, "width": 32, "heads": 4, "kv_heads": 2, "layers": 2, "window": 24, "steps": 200}
if DEVICE == "cuda":
    SIZES = {"tokens": 16384, "width": 512, "heads": 8, "kv_heads": 2, "layers": 4, "window": 256, "steps": 300}
TOKENS, WIDTH, HEADS, KV_HEADS, LAYERS, WINDOW, STEPS = SIZES.values()
D = WIDTH // HEADS
TOLERANCE = 0.01  # of a loss
COMPARED = 100  # steps
LOSS_SCALE = 4096  # a loss is a mean over thousands of tokens: its gradients are so small that fp16 would keep few digits of dS
WARM_UP = 10  # steps before the clock starts: compilers and caches
compiled = functools.cache(torch.compile)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.project = (nn.Linear(WIDTH, width, bias=False) for width in ((HEADS + 2 * KV_HEADS) * D, WIDTH))
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in [(WIDTH, 3 * WIDTH)] * 2 + [(3 * WIDTH, WIDTH)])

    def forward(self, x, place, attend):
        q, k, v = self.qkv(self.norm1(x)).unflatten(1, (-1, D)).split((HEADS, KV_HEADS, KV_HEADS), 1)  # [tokens, H or Hkv, d]
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
    def __init__(self):
        super().__init__()
        self.token, self.norm, self.head = nn.Embedding(256, WIDTH), nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens, place, attends):
        """attends: one per layer."""
        x = self.token(tokens)
        for layer, attend in zip(self.layers, attends):
            x = layer(x, place, attend)
        return self.head(self.norm(x)).float()


def batches():
    """Python's documentation strings as bytes with a 0 at both ends, packed one after another, without padding. A batch has its tokens, the
    ones to predict, each token's place in its document, and where documents end (cu_seqlens); one that is cut goes on as a new document."""
    files = [path.read_text(encoding="utf-8") for path in sorted(Path(os.__file__).parent.glob("*.py"))]
    texts = [b"\0%b\0" % text.encode() for file in files for text in re.findall(r'"""(.+?)"""', file, re.DOTALL)]
    tokens, wanted = (
        torch.frombuffer(bytearray().join(text[cut] for text in texts), dtype=torch.uint8).long() for cut in (slice(0, -1), slice(1, None))
    )
    starts = torch.tensor([len(text) - 1 for text in texts]).cumsum(0)
    for number in itertools.count():
        first = number * 7919 * TOKENS % (len(tokens) - TOKENS)  # anywhere: neighbours are alike
        inside = starts[(first < starts) & (starts < first + TOKENS)] - first
        ends = [0, *inside.tolist(), TOKENS]
        place = torch.cat([torch.arange(b - a) for a, b in itertools.pairwise(ends)])
        yield *(x.to(DEVICE) for x in (tokens[first : first + TOKENS], wanted[first : first + TOKENS], place)), ends


def as_heads(attend):
    """For tokens [total, H, d], an attention of [B, H, N, d]."""
    return lambda *qkv: attend(*(x.transpose(0, 1)[None] for x in qkv))[0].transpose(0, 1)


def is_seen(ends):
    """Does query i see key j? A function, for attentions that know no packed documents."""
    document = torch.bucketize(torch.arange(ends[-1]), torch.tensor(ends[1:]), right=True).to(DEVICE)
    return lambda i, j: (document[i] == document[j]) & (j <= i) & (i - j <= WINDOW)


def with_sdpa(ends):
    i = torch.arange(ends[-1], device=DEVICE)
    mask = is_seen(ends)(i[:, None], i)

    def attend(q, k, v):
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))  # so that a fused kernel takes the mask
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return as_heads(attend)


def with_ours(ends):
    return functools.partial(flash_steps.attention_varlen, cu_seqlens_q=ends, causal=True, window=(WINDOW, 0))


def with_flex(ends):
    seen, N = is_seen(ends), ends[-1]
    mask = flex.create_block_mask(lambda b, h, i, j: seen(i, j), None, None, N, N, device=DEVICE)
    return as_heads(lambda q, k, v: compiled(flex.flex_attention)(q, k, v, block_mask=mask, enable_gqa=True))


def with_flash3(ends):
    """As common/compare finds it."""
    most, ends = max(b - a for a, b in itertools.pairwise(ends)), torch.tensor(ends, dtype=torch.int32, device=DEVICE)
    packed = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": most, "max_seqlen_k": most}
    attend = peer_flash3.attention(None, True, **packed, window_size_left=WINDOW, window_size_right=0)
    return lambda *qkv: attend(*(x.transpose(0, 1) for x in qkv)).transpose(0, 1)


def trained(model, attention, steps):
    """The losses, and the tokens per second."""
    optimizer, losses, start = torch.optim.AdamW(model.parameters(), lr=1e-3), [], None
    for step, (tokens, wanted, place, ends) in enumerate(itertools.islice(batches(), steps), 1):
        with torch.autocast(DEVICE, DTYPE):
            loss = F.cross_entropy(model(tokens, place, itertools.repeat(attention(ends))), wanted)
        optimizer.zero_grad()
        (LOSS_SCALE * loss).backward()
        for parameter in model.parameters():
            parameter.grad /= LOSS_SCALE
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        if step == WARM_UP:
            loss.item()  # waits for the GPU
            start = time.perf_counter()
    losses = torch.stack(losses).tolist()
    return losses, (steps - WARM_UP) * TOKENS / (time.perf_counter() - start) if steps > WARM_UP else None


@torch.no_grad()
def write(model, count):
    """A text, and the model's logits for each of its bytes, from a cache of the keys and values before it and from the whole text at once."""
    caches = [[torch.zeros(1, count, KV_HEADS, D, dtype=DTYPE, device=DEVICE) for _ in "kv"] for _ in model.layers]

    def attend(cache, known, q, k, v):
        how = {"causal": True, "window_size": (WINDOW, 0), "cache_seqlens": known}
        return flash_steps.flash_attn_with_kvcache(q[None], *cache, k[None], v[None], **how)[0]

    text, cached, generator = torch.zeros(1, dtype=torch.long), [], torch.Generator().manual_seed(3)
    places = torch.arange(count, device=DEVICE)
    with torch.autocast(DEVICE, DTYPE):
        for known in range(count):
            attends = [functools.partial(attend, cache, known) for cache in caches]
            cached.append(model(text[-1:].to(DEVICE), places[known : known + 1], attends))
            text = torch.cat([text, torch.multinomial(cached[-1].softmax(1).cpu(), 1, generator=generator)[0]])
        return text[1:], torch.cat(cached), model(text[:-1].to(DEVICE), places, itertools.repeat(with_ours([0, count])))


def run(steps):
    """What went wrong, if anything."""
    torch.set_num_threads(1)  # torch's: tiny tensors would wait for them. The simulator has its own
    attentions, optional = {"SDPA": with_sdpa, "stage 08": with_ours}, {"FlexAttention": with_flex, "FlashAttention-3": with_flash3}
    shown = sorted({1, steps, *(steps * n // 6 for n in range(1, 6))} - {0})
    print(f"{steps} steps on {DEVICE}, {SIZES}, attention in {DTYPE}; how far the first {COMPARED} losses are from SDPA's")
    print(f"{'':16}", *(f"{step:>7}" for step in shown), f"{'apart':>8}  tokens per s")
    wanted, models, failed = None, {}, []
    for name, attention in (attentions | (optional if DEVICE == "cuda" else {})).items():
        print(f"{name:16}", end="", flush=True)
        torch.manual_seed(1)
        models[name] = Model().to(DEVICE)
        try:
            losses, speed = trained(models[name], attention, steps)
        except RuntimeError as error:
            if name in attentions:
                raise
            print(f" {error}".splitlines()[0])
            continue
        wanted = wanted or losses
        apart = max(abs(a - b) / b if a == a else torch.inf for a, b in zip(losses[:COMPARED], wanted))  # NaN is no agreement
        print("", *(f"{losses[step - 1]:>7.4f}" for step in shown), f"{apart:>8.3%}", f" {speed:>12,.0f}" if speed else "", flush=True)
        if apart > TOLERANCE:
            failed.append(f"the first losses of {name} are up to {apart:.3%} from SDPA's; allowed: {TOLERANCE:.0%}")
    text, cached, whole = write(models["stage 08"], 512 if DEVICE == "cuda" else 64)
    apart = ((cached - whole).abs().max() / whole.abs().max()).item()
    print(f"With a cache, the model writes {bytes(text.tolist())!r}; its logits are {apart:.3%} from those without a cache")
    if not apart <= TOLERANCE:
        failed.append(f"a cache changes logits by {apart:.3%}; allowed: {TOLERANCE:.0%}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=library.libraries.parent)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps is {options.steps}; allowed: 1 or more")
    flash_steps.use(options.build)
    try:
        library.library_of("08")
        failed = run(options.steps)
    except RuntimeError as error:
        failed = [error]
    for why in failed:
        sys.stderr.write(f"small_model.py: {why}\n")
    return 0 if not failed else 3 if isinstance(failed[0], RuntimeError) else 1


if __name__ == "__main__":
    sys.exit(main())
