"""The peers of the stages: how each is named where, drawn and run. Without torch, which only peers.py needs: pages and plots read this, too."""

from typing import NamedTuple, Optional


class Peer(NamedTuple):
    name: str  # on pages
    short: str  # in plots
    idea: str  # in compare's reports
    backend: Optional[str]  # of torch.nn.attention.SDPBackend, or FLASH_3, TRITON; None: torch without any
    shares_heads: bool  # it takes fewer heads of keys and values than of queries
    colours: tuple  # in plots: light, dark, marker


PEERS = {  # by variant, in the order of reports and plots
    "plain": Peer("plain torch", "torch plain", "plain torch: matmul, softmax, matmul", None, False, ("#70767e", "#b6bec7", "o")),
    "memory_efficient": Peer(
        "memory-efficient",
        "torch mem.-efficient",
        "torch SDPA, memory-efficient attention",
        "EFFICIENT_ATTENTION",
        False,
        ("#4d4400", "#f2e58a", "s"),
    ),
    "flash": Peer(
        "FlashAttention-2",
        "torch FA2",
        "torch SDPA, FlashAttention-2 (16-bit types only)",
        "FLASH_ATTENTION",
        True,
        ("#d1242f", "#ff7b72", "^"),
    ),
    "flash3": Peer("FlashAttention-3", "FA3", "FlashAttention-3 (16-bit types only)", "FLASH_3", True, ("#9a3412", "#ffb077", "v")),
    "cudnn": Peer("cuDNN", "torch cuDNN", "torch SDPA, cuDNN (16-bit types only)", "CUDNN_ATTENTION", True, ("#1b1f24", "#f0f3f6", "D")),
    "triton": Peer("our Triton kernel", "Triton", "FlashAttention-2 in Triton, autotuned", "TRITON", False, ("#5a31d0", "#8f7bff", "<")),
}
