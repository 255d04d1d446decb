"""Plots on pages, which compare plot --docs draws."""

import os
import re

from common.compare.plot import of_docs
from common.compare.plots import PLOTS
from common.compare.rows import ROOT, read

from .saved import origin


def picture(page, name):
    """The plot with what it says of itself, and where its rows come from."""
    if name not in PLOTS:
        raise SystemExit(f"{page}: there is no plot '{name}'; there are: {', '.join(PLOTS)}")
    file, sources = of_docs(name)
    title, description = re.search(r"<title>(.*?)</title>\s*<desc>(.*?)</desc>", file.read_text(), re.DOTALL).groups()
    link = os.path.relpath(file, (ROOT / page).parent)
    named = ", ".join(f"`{source.name}`" for source in sources)
    return f"![{title}. {description}]({link})\n\nFrom {named} of `docs/results/{PLOTS[name].device}`. {origin(read(*sources))}"
