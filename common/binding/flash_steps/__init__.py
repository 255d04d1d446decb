"""The kernels of a stage as one operation of PyTorch, with its backward pass: docs/howto/pytorch.md.

  import flash_steps
  O = flash_steps.attention(q, k, v, causal=True, window=(1024, 0))  # [B, H, N, d]
  O = flash_steps.attention_varlen(q, k, v, cu_seqlens, causal=True)  # sequences of unequal lengths, packed: [total, H, d]

CUDA tensors run on their GPU, CPU tensors through the simulator, thread by thread: take small ones. That page says how to build
the libraries of the stages; use(FOLDER) says where they are, if not in build-binding/ or build-wheel/.
"""

from .cache import flash_attn_with_kvcache
from .flash_attn import (
    attention_varlen,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from .library import use
from .operation import attention, merge

__version__ = "0.1.0"
__all__ = ["attention", "attention_varlen", "merge", "use"]
__all__ += ["flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func", "flash_attn_with_kvcache"]
__all__ += ["flash_attn_varlen_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_varlen_kvpacked_func"]
