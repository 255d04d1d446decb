"""The chapters of the stages, which the name of each stage leads to."""

import os
import re
from pathlib import Path
from urllib.parse import quote

from rows.files import ROOT

from .markup import join, tag

DOCS = ROOT / "docs"
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
