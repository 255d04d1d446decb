"""Rows in words."""

import math

# Of each field of a problem what need not be said. A field that is not here is an option of its own.
USUAL = {"bias": "none", "layout": "bhnd", "input": "normal", "seed": 1}
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")


def size(amount):
    """Bytes for people."""
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if amount < 1024 or unit == "GiB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= 1024
    return ""


def three_digits(value):
    """The zeros at its end included, so that a column shows one precision: 30.0 beside 27.8."""
    return f"{value:#.3g}".rstrip(".")


def options(problem):
    """[(name, value)] of what makes a problem unlike another one of the same sizes, mask and type: every field that is not as usual. The
    scale as far as programs agree on it."""
    found = []
    for name, value in sorted(problem.items()):
        if name == "scale" and isinstance(value, (int, float)) and math.isfinite(value):
            if abs(value * problem["head_dim"] ** 0.5 - 1) > 1e-6:
                found.append((name, float(f"{value:.6g}")))
        elif name not in (*SIZES, "causal", "dtype") and value != USUAL.get(name):
            found.append((name, value))
    return found


def describe(p):
    """All that makes the problem another one than others."""
    heads = f"H={p['heads']}" if p["heads"] == p["kv_heads"] else f"H={p['heads']} Hkv={p['kv_heads']}"
    lengths = f"N={p['seq_q']}" if p["seq_q"] == p["seq_k"] else f"Nq={p['seq_q']} Nk={p['seq_k']}"
    more = [f" {value}" if name == "layout" else f" {name}={value}" for name, value in options(p)]
    return f"B={p['batch']} {heads} {lengths} d={p['head_dim']}{' causal' if p['causal'] else ''}{''.join(more)} {p['dtype']}"


def short_commit(row):
    commit = row.get("commit") or "unknown"
    return commit[:12] + ("-dirty" if commit.endswith("-dirty") else "")
