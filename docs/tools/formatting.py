"""Tables, numbers and problems as text."""

import re


def table(head, rows):
    """Columns of numbers (most of their cells are, not counting empty ones) are aligned to the right."""
    is_number = re.compile(r"\**[+-]?[\d.,]+(e[+-]?\d+)?( [KMG]?i?B?)?\**").fullmatch
    columns = [[str(row[c]) for row in rows if row[c] not in ("", "–")] for c in range(len(head))]
    numeric = [sum(bool(is_number(cell)) for cell in column) > len(column) / 2 for column in columns]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---:" if n else "---" for n in numeric) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def number(value):
    """A float with three significant digits, zeros at its end included, so that a column shows one precision."""
    if isinstance(value, int) or 999.5 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def size(amount):
    """Bytes for people."""
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if amount < 1024 or unit == "GiB":
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"
        amount /= 1024
    return ""


def absence(verdict, message):
    """Why a row has no result, in a word or two. A run that the time limit ended and one that it foresaw are the same to a reader; so are a
    run that found no memory and one that was not begun for that."""
    if verdict in ("refused", "TIMED OUT"):
        return {"refused": "refused", "TIMED OUT": "too long"}[verdict]
    if verdict in ("skipped", "cannot run"):
        by_time = "would take" in message or "took more than the limit" in message
        return "too long" if by_time else "no room" if verdict == "cannot run" or re.search("memory|could not run", message) else "skipped"
    return "failed"


def problem_text(p):
    heads = f"H={p['heads']}" if p["heads"] == p["kv_heads"] else f"H={p['heads']} Hkv={p['kv_heads']}"
    lengths = f"N={p['seq_q']}" if p["seq_q"] == p["seq_k"] else f"Nq={p['seq_q']} Nk={p['seq_k']}"
    options = (" causal" if p["causal"] else "") + (f" bias={p['bias']}" if p["bias"] != "none" else "")
    layout = "" if p["layout"] == "bhnd" else f" {p['layout']}"
    return f"B={p['batch']} {heads} {lengths} d={p['head_dim']}{options}{layout} {p['dtype']}"
