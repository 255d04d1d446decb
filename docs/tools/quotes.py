"""Generated quotes: functions as they stand in a source file, and parts of what a lab program printed."""

import re
from pathlib import Path

from .saved import NOTHING_SAVED, RESULTS

ROOT = Path(__file__).resolve().parents[2]


def function(path, name):
    """The lines of the first function of that name: its /// comment, its template line, all up to its closing brace."""
    lines = (ROOT / path).read_text().split("\n")
    # A definition begins at the left margin; a call is indented.
    start = next((i for i, line in enumerate(lines) if re.match(rf"(?!#|//|template)\S.*\b{name}\(", line)), None)
    if start is None:
        raise SystemExit(f"{path}: no function '{name}' to quote")
    one_line = lines[start].endswith("}")
    end = start if one_line else next(i for i in range(start, len(lines)) if lines[i] == "}")
    while lines[start - 1].startswith(("///", "template")):
        start -= 1
    return lines[start : end + 1]


def quote(path, *names):
    """A block of code with these functions; one-liners stand together."""
    text = ""
    for name in names:
        body = "\n".join(function(path, name))
        text += ("" if not text else "\n" if "\n" not in body else "\n\n") + body
    return f"```cpp\n{text}\n```"


def loop(path):
    """A kernel's loop over tiles of K: from its first line to its closing brace."""
    lines = (ROOT / path).read_text().split("\n")
    start = next((i for i, line in enumerate(lines) if re.match(r"  for \(int (col0 = 0|j = 0|j = Tc - 1);", line)), None)
    if start is None:
        raise SystemExit(f"{path}: no loop over tiles of K to quote")
    end = next(i for i in range(start, len(lines)) if lines[i] == "  }")
    return "\n".join(["```cpp", *(line[2:] for line in lines[start : end + 1]), "```"])


def lab_part(name, *numbers):
    """Paragraphs of what a lab program printed, the first is number 1."""
    path = RESULTS / "cpu" / f"lab_{name}.txt"
    if not path.exists():
        return NOTHING_SAVED
    parts = path.read_text().strip().split("\n\n")
    return "\n".join(["```text", "\n\n".join(parts[int(number) - 1] for number in numbers), "```"])
