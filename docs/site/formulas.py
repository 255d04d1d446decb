"""Formulas in GitHub's two ways of writing them, rendered by KaTeX while the site is built: a reader needs no script.

$`x`$ stands in a line: MyST takes what is between the dollars for the formula, and here it loses its backticks. A block marked `math`
stands alone.
"""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

LOG = logging.getLogger(__name__)
KATEX = Path("/usr/share/javascript/katex")  # Debian's libjs-katex
SHORT = 24  # characters of a formula that need not be broken; what belongs to a longer one is broken with its last part
FONTS = Path("/usr/share/fonts/truetype/katex")  # and fonts-katex


@cache
def node_of(process):
    """One for each process of Sphinx"""
    script = Path(__file__).with_name("katex.js")
    command = ["node", str(script), str(KATEX / "katex.min.js")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@cache
def rendered(tex, display):
    """{html} or {error}"""
    node = node_of(os.getpid())
    node.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
    node.stdin.flush()
    return json.loads(node.stdout.readline())


def strip(node):
    tex = node.astext()
    if len(tex) < 3 or tex[0] + tex[-1] != "``":
        LOG.warning("'$%s$' is no formula to GitHub, which wants $`...`$", tex, location=node)
    node[:] = [nodes.Text(tex.strip("`"))]


def text(characters):
    return f"\\text{{{characters}}}" if characters else ""


def tie(node, whole):
    """A browser would break the line between a formula and the comma or bracket beside it. Either nothing in it breaks, or they become a
    part of it."""
    parent, at = node.parent, node.parent.index(node)

    def beside(place, pattern):
        neighbour = parent[place] if 0 <= place < len(parent) else None
        return re.search(pattern, neighbour)[0] if isinstance(neighbour, nodes.Text) else ""

    left, right = beside(at - 1, r"[(\[]*$"), beside(at + 1, r"^(?:[.,;:!?)\]'’]|-\w+)*")
    if whole:
        tied = nodes.inline("", "", classes=["tied"])
        parent.replace(node, tied)
        tied += [nodes.Text(left), node, nodes.Text(right)]
    else:
        node[:] = [nodes.Text("".join([text(left), node.astext(), text(right)]))]
    if left:
        parent[at - 1] = nodes.Text(parent[at - 1][: -len(left)])
    if right:
        parent[at + 1] = nodes.Text(parent[at + 1][len(right) :])


def prepare(app, doctree):
    for node in list(doctree.findall(nodes.math)):
        strip(node)
        tie(node, len(node.astext()) <= SHORT)


def html(node, display):
    answer = rendered(node.astext(), display)
    if "error" in answer:
        LOG.warning("%s", answer["error"], location=node)
    return answer.get("html", "")


def visit_inline(writer, node):
    writer.body.append(html(node, False))
    raise nodes.SkipNode


def visit_block(writer, node):
    writer.body.append(f'<div class="math">{html(node, True)}</div>\n')
    raise nodes.SkipNode


def copy_style(app):
    folder = app.outdir / "_static/katex"
    (folder / "fonts").mkdir(parents=True, exist_ok=True)
    shutil.copy(KATEX / "katex.min.css", folder)
    for font in FONTS.glob("*.woff2"):
        shutil.copy(font, folder / "fonts")


def setup(app):
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.min.css", priority=400)
    app.connect("builder-inited", copy_style)
    app.connect("doctree-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
