"""What a line break would tear: tiles of 128 × 64, 2 · 4 clocks, 97 %. Pages have plain spaces there, and tables have narrow columns."""

import re

from docutils import nodes

TORN = re.compile(r"(?<=\d) (?=[×·%])|(?<=\d [×·]) (?=\d)")
AS_THEY_STAND = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)


def tie(app, doctree):
    for text in list(doctree.findall(nodes.Text)):
        tied = TORN.sub("\N{NO-BREAK SPACE}", text)
        if tied != text and not isinstance(text.parent, AS_THEY_STAND):
            text.parent.replace(text, nodes.Text(tied))


def setup(app):
    app.connect("doctree-read", tie)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
