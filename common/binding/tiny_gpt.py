#!/usr/bin/env python3
"""Trains a tiny GPT on the characters of this project's pages twice, from the same weights on the same batches: with
scaled_dot_product_attention and with a stage's kernels. Their losses have to stay within 1 %.

  tiny_gpt.py [--build FOLDER] [--stage 08] [--variant NAME] [--backward-variant NAME] [--steps N] [--device cpu|cuda]

On a GPU 200 steps of batches that fill it somewhat; on the CPU, where the simulator runs each CUDA thread, 3 small ones. Exit code: 1 if the
losses part, 3 if torch, the libraries or the GPU are missing.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    import flash_steps
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as error:
    sys.stderr.write(f"tiny_gpt.py needs torch: {error}\n")
    sys.exit(3)

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 0.01  # of a loss
LEARNING_RATE = 3e-4  # at 1e-3, and without LOSS_SCALE, two runs came 1.9 % apart within 200 steps on an H200
LOSS_SCALE = 4096  # a loss is a mean over thousands of tokens: its gradients are so small that fp16 would keep few digits of dS


class Block(nn.Module):
    def __init__(self, width, heads, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        B, N, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(B, N, 3, self.heads, width // self.heads)  # packed, as docs/reference/layouts.md has it
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        x = x + self.project(self.attend(q, k, v).transpose(1, 2).reshape(B, N, width))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self, characters, length, width, heads, layers, attend):
        super().__init__()
        self.token, self.position = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, attend) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens) + self.position.weight[: tokens.shape[1]]))


def losses(attend, text, sizes, steps, device):
    """Of each step. Weights and batches are those of the seed."""
    torch.manual_seed(1)
    model = TinyGPT(int(text.max()) + 1, sizes["length"], sizes["width"], sizes["heads"], sizes["layers"], attend).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        starts = torch.randint(len(text) - sizes["length"], (sizes["batch"],), generator=generator)
        batch = torch.stack([text[i : i + sizes["length"] + 1] for i in starts]).to(device)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        (LOSS_SCALE * loss).backward()
        for parameter in model.parameters():
            parameter.grad /= LOSS_SCALE
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


def characters():
    text = "".join(path.read_text() for path in sorted((ROOT / "docs" / "chapters").glob("0*.md")))
    known = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([known[c] for c in text])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build-binding")
    parser.add_argument("--stage", default="08")
    parser.add_argument("--variant", help="a step of the stage, by default the last one with a backward pass")
    parser.add_argument("--backward-variant", metavar="NAME", help="by default the same step")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    flash_steps.use(options.build)
    on_gpu = options.device == "cuda"
    small = {"batch": 2, "length": 32, "width": 32, "heads": 2, "layers": 1}
    sizes = {"batch": 16, "length": 256, "width": 256, "heads": 4, "layers": 4} if on_gpu else small
    steps = options.steps or (200 if on_gpu else 3)
    dtype = torch.float16 if options.stage.startswith("08") else torch.float32

    def in_dtype(attention):
        """The scores of both runs are of the same dtype; weights and all else stay fp32."""
        return lambda *qkv: attention(*(x.to(dtype) for x in qkv)).float()

    chosen = {"stage": options.stage, "variant": options.variant, "backward_variant": options.backward_variant}
    ours = in_dtype(lambda q, k, v: flash_steps.attention(q, k, v, causal=True, **chosen))
    theirs = in_dtype(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    text = characters()
    print(f"{steps} steps on {options.device}, {sizes}, attention in {str(dtype).removeprefix('torch.')}")
    print(f"{'step':>4}  {'SDPA':>7}  {'stage ' + options.stage:>8}  {'apart':>7}", flush=True)
    worst = 0.0
    runs = (losses(attend, text, sizes, steps, options.device) for attend in (theirs, ours))
    try:
        for step, (wanted, loss) in enumerate(zip(*runs), 1):
            apart = abs(loss - wanted) / wanted
            worst = max(worst, apart) if apart == apart else float("inf")  # NaN is no agreement
            if step <= 3 or step % 20 == 0 or step == steps:
                print(f"{step:>4}  {wanted:>7.4f}  {loss:>8.4f}  {apart:>7.3%}", flush=True)
    except RuntimeError as error:
        sys.stderr.write(f"tiny_gpt.py: {error}\n")
        return 3
    print(f"largest difference {worst:.3%}, allowed {TOLERANCE:.0%}: {'ok' if worst <= TOLERANCE else 'FAILED'}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
