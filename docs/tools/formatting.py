"""Tables and numbers as text."""

import re

from common.compare.rows import three_digits


def table(head, rows):
    """The head is a list, or a text as in Markdown. Columns of numbers (most of their cells are, not counting empty ones) are aligned to
    the right."""
    head = head.split(" | ") if isinstance(head, str) else head
    is_number = re.compile(r"\**[+-]?[\d.,]+(e[+-]?\d+)?( [KMG]?i?B?| \(× [\d.]+\))?\**").fullmatch
    columns = [[str(row[c]) for row in rows if row[c] not in ("", "–")] for c in range(len(head))]
    numeric = [not column or sum(bool(is_number(cell)) for cell in column) > len(column) / 2 for column in columns]
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---:" if n else "---" for n in numeric) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def number(value):
    """A float with three significant digits, zeros at its end included, so that a column shows one precision. "–" where there is none."""
    if value is None:
        return "–"
    if isinstance(value, int) or 999.5 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return three_digits(value) if 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def step(row):
    return f"`{row['variant']}`"


def ms(row):
    return number(row["time"]["median_ms"]) if row else "–"


def details(title, body):
    """Closed until someone asks."""
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"
