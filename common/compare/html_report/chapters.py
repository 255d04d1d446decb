"""The chapters of the stages, which the name of each stage leads to, and what they answer that a reader of the tables asks."""

import os
import re
from pathlib import Path
from urllib.parse import quote

from rows.files import ROOT
from rows.row import is_good, is_peer, number
from rows.text import size

from .markup import join, say, tag

DOCS = ROOT / "docs"
WHY = (
    "{} ({}; written: {}): it reads the keys and values again for each tile of queries{}, and takes smaller tiles where a problem has few of "
    "them, so that as many SMs as possible have a block. FA-1 has one block for each head, which reads keys and values once, but the queries "
    "and its unfinished O again for each tile of keys. On a GPU the L2 cache answers most of what FA-2 reads again. {} has the formulas."
)
KNOWN = {path.stem: path for path in DOCS.glob("[0-9][0-9]_*.md")}  # stage: its chapter


def link(stage, text=None):
    """To where the page names the chapter of a stage, if there is one."""
    return tag("a", text or stage, href=f"#chapter-{stage}") if stage in KNOWN else text or stage


def base_of(out):
    """The folder of the chapters as a page inside the project can link to it; None outside, where no link would outlive a copy."""
    folder = Path(out).resolve().parent
    return quote(os.path.relpath(DOCS, folder)) if folder.is_relative_to(ROOT) else None


def section(rows, base):
    """The chapters of these rows' stages. `base`: a URL of their folder, or None. Each is named by its file too, since a page is copied
    to where its links lead nowhere."""
    lines = []
    for stage in sorted({row["stage"] for row in rows if row["stage"] in KNOWN}):
        of_number = (name for name in KNOWN if name.split("_")[0] == stage.split("_")[0])
        for path in (KNOWN[name] for name in sorted(of_number, key=lambda name: (name != stage, name))):  # that of its name first
            title = re.sub(r"^# (\d+\w? )?", "", path.read_text(encoding="utf-8").split("\n", 1)[0])
            name = tag("a", title, href=f"{base.rstrip('/')}/{quote(path.name)}") if base else title
            anchor = f"chapter-{stage}" if path is KNOWN[stage] else None
            lines.append(tag("li", name, ": ", tag("code", path.relative_to(ROOT)), id=anchor))
    if not lines:
        return None
    said = "Each stage is derived, and its kernel walked through, in a chapter. They lie in the folder of the project:"
    return join([tag("p", said), tag("ul", *lines)])


def why_fa2_reads_more(group):
    """A paragraph where a step of FlashAttention-2 reads more than FlashAttention-1; else None."""
    reads = {row["stage"]: row for row in group.rows if is_good(row) and not is_peer(row) and number(row, "hbm_read_bytes") is not None}
    first, second = reads.get("04_fa1_forward"), reads.get("06_fa2_forward")  # of each the last step
    if not first or not second or number(second, "hbm_read_bytes") <= number(first, "hbm_read_bytes"):
        return None
    queries = number(second, "tiles", "br")
    tile = "" if queries is None else f", here of {queries:g}"
    amounts = (" against ".join(size(number(row, key) or 0) for row in (second, first)) for key in ("hbm_read_bytes", "hbm_written_bytes"))
    title, chapter = tag("b", "Why FA-2 reads more than FA-1 here"), link("06_fa2_forward", "Chapter 06")
    return tag("p", say(WHY, title, *amounts, tile, chapter), class_="caption")
