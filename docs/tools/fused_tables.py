"""Generated tables of the appendices: what follows from the data sheet alone, and from the costs of the fused stages."""

import subprocess
import sys

from . import h200
from .saved import ROOT


def run(path):
    """What a Python program of the docs prints. It has to end well."""
    done = subprocess.run([sys.executable, "-B", str(ROOT / path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{path} failed:\n{done.stdout}{done.stderr}")
    return f"```text\n{done.stdout.strip()}\n```"


def recompute(table):
    """An element of P: 2d FLOPs to compute its score again, against w bytes out and in."""
    rows = []
    for dtype, width, peak in [("fp32", 4, h200.FP32_FLOPS), ("bf16, tensor cores", 2, h200.BF16_FLOPS)]:
        for d in [64, 128]:
            again, moved = 2 * d / peak * 1e12, 2 * width / h200.HBM_BYTES_PER_SECOND * 1e12
            rows.append([dtype, d, f"{again:.2f}", f"{moved:.2f}", "compute again" if again < moved else "keep"])
    return table(["", "d", "compute again, ps", "write and read, ps", "faster"], rows)
