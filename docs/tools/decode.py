"""Of docs/reference/decode.md: times of decode steps next to a copy of K to V."""

import json

from rows import ROOT

from .formatting import number, table

SAVED, BANDWIDTH = "docs/results/nvidia_h100/decode.json", 3.35e6  # bytes per µs, by the data sheet
D = 128
FIELDS = ("batch", "heads", "kv_heads", "seq_q", "seq_k")


def problems(dtype):
    """{problem: {kernel: row}} at d = D. Of the step, the default number of splits or, where that was not timed, the fastest; and all keys
    in one split."""
    found = {}
    for row in json.loads((ROOT / SAVED).read_text()):
        if row["dtype"] != dtype or row["head_dim"] != D:
            continue
        kernels = found.setdefault(tuple(row[name] for name in FIELDS), {})
        rank = (not row.get("default", False), row["ms"])
        before = kernels.get(row["kernel"])
        if before is None or rank < (not before.get("default", False), before["ms"]):
            kernels[row["kernel"]] = row
        if row.get("splits") == 1:
            kernels["whole"] = row
    return {problem: found[problem] for problem in sorted(found) if found[problem].keys() >= {"copy", "whole", "decode"}}


def times(dtype):
    """In µs. The copy reads and writes as many bytes as a step reads of K and V; how long their reading takes by the data sheet."""
    names = {"copy": "copy", "whole": "one split", "decode": "split"}
    if dtype == "bf16":
        names |= {"flash": "FlashAttention-2", "cudnn": "cuDNN"}
    lines = []
    for (B, H, Hkv, queries, keys), rows in problems(dtype).items():
        read = 2 * (4 if dtype == "fp32" else 2) * B * Hkv * keys * D / BANDWIDTH
        cells = [number(1000 * rows[name]["ms"]) if name in rows else "–" for name in names]
        share = f"{rows['copy']['ms'] / rows['decode']['ms']:.2f}"
        lines.append([B, f"{H}:{Hkv}", queries, f"{keys:,}", rows["decode"]["splits"], number(read), *cells, share])
    return table(["B", "heads", "queries", "keys", "splits", "read at 3.35 TB/s", *names.values(), "copy / split"], lines)
