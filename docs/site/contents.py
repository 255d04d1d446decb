"""The order of the site's pages: as docs/README.md lists them, then those that stand beside the code.

A page that is neither is in no table of contents. Sphinx says so, and docs/site.sh makes that an error.
"""

import re

from docutils import nodes
from sphinx.util import logging

LOG = logging.getLogger(__name__)
LIST = "docs/README"
CAPTIONS = ("Chapters", "To look things up")  # of the tables on that page
TREE = "\n```{{toctree}}\n:hidden:\n:titlesonly:\n{}\n\n{}\n```\n"


def links(cell):
    return [f"docs/{name}" for name in re.findall(r"\]\(((?:[\w-]+/)?[\w-]+)\.md\)", cell)]


def listed(text):
    """For each table of docs/README.md the pages that its first column names, each followed by pages that only its description names."""
    tables = [[row.split("|")[1:-1] for row in table.splitlines()] for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)]
    with_a_row = {page for table in tables for first, *_ in table for page in links(first)}
    for table in tables:
        named = ((page, cell is row[0]) for row in table for cell in row for page in links(cell))
        yield list(dict.fromkeys(page for page, has_row in named if has_row or page not in with_a_row))


def beside_code(env):
    """A README.md outside of docs/ tells of the folder that it stands in."""
    return sorted(name for name in env.found_docs if name.endswith("/README") and not name.startswith("docs/"))


def folder_of(name):
    """What these pages are called in lists: their own titles repeat those of the chapters."""
    return name.removesuffix("README")


def add_tree(app, docname, source):
    if docname != app.config.root_doc:
        return
    groups = zip(CAPTIONS, listed((app.srcdir / f"{LIST}.md").read_text()), strict=True)
    folders = [f"{folder_of(name)} <{name}>" for name in beside_code(app.env)]
    trees = [("", [LIST]), *groups, ("Beside the code", folders)]
    source[0] += "".join(TREE.format(f":caption: {caption}" if caption else "", "\n".join(names)) for caption, names in trees)


def name_folders(app, doctree):
    name = app.env.docname
    if name in beside_code(app.env):
        app.env.titles[name] = app.env.longtitles[name] = nodes.title("", folder_of(name))


def check_titles(app, env):
    owners = {}
    for name, title in sorted(env.titles.items()):
        other = owners.setdefault(title.astext().lower(), name)
        if other != name:
            LOG.warning("%s.md has the same title: '%s'", other, title.astext(), location=name)


def write_index(app, exception):
    """What opens when a reader gives the address of the site alone, or of its folder"""
    if not exception:
        goal = app.builder.get_target_uri(app.config.root_doc)
        page = f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={goal}"><a href="{goal}">{app.config.html_title}</a>\n'
        (app.outdir / "index.html").write_text("<!doctype html>" + page)


def setup(app):
    app.connect("source-read", add_tree)
    app.connect("doctree-read", name_folders, priority=900)  # after the titles are collected
    app.connect("env-updated", check_titles)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
