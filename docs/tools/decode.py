"""Of docs/reference/decode.md: times of decode steps next to a copy of K to V."""

import json

from common.compare.rows import ROOT

from .formatting import number, table

CARDS = {"bf16": ("nvidia_h200", 4.8), "fp32": ("nvidia_h100", 3.35)}  # where each type was timed, and TB/s by the data sheet
D = 128
FIELDS = ("batch", "heads", "kv_heads", "seq_q", "seq_k")


def problems(dtype):
    """{problem: {kernel: row}} at d = D. Of the step, the default number of splits or, where that was not timed, the fastest; and all keys
    in one split."""
    found = {}
    for row in json.loads((ROOT / "docs" / "results" / CARDS[dtype][0] / "decode.json").read_text()):
        if row["dtype"] != dtype or row["head_dim"] != D:
            continue
        kernels = found.setdefault(tuple(row[name] for name in FIELDS), {})
        rank = (not row.get("default", False), row["ms"])
        before = kernels.get(row["kernel"])
        if before is None or rank < (not before.get("default", False), before["ms"]):
            kernels[row["kernel"]] = row
        if row.get("splits") == 1:
            kernels["whole"] = row
    return {problem: found[problem] for problem in sorted(found) if found[problem].keys() >= {"copy", "decode"}}


def times(dtype):
    """In µs. The copy reads and writes as many bytes as a step reads of K and V; how long their reading takes by the data sheet."""
    names = {"copy": "copy", "whole": "one split", "decode": "split"}
    if dtype == "bf16":  # the library chose the number of splits, and does not say it
        names = {"copy": "copy", "scheduled": "`scheduled`", "decode": "split", "flash": "FlashAttention-2", "cudnn": "cuDNN"}
    bandwidth, lines = CARDS[dtype][1], []
    for (B, H, Hkv, queries, keys), rows in problems(dtype).items():
        read = 2 * (4 if dtype == "fp32" else 2) * B * Hkv * keys * D / (1e6 * bandwidth)
        cells = [number(1000 * rows[name]["ms"]) if name in rows else "–" for name in names]
        share = f"{rows['copy']['ms'] / rows['decode']['ms']:.2f}"
        lines.append(
            [B, f"{H}:{Hkv}", queries, f"{keys:,}", *([rows["decode"]["splits"]] if dtype == "fp32" else []), number(read), *cells, share]
        )
    return table(
        [
            "B",
            "heads",
            "queries",
            "keys",
            *(["splits"] if dtype == "fp32" else []),
            f"read at {bandwidth} TB/s",
            *names.values(),
            "copy / split",
        ],
        lines,
    )
