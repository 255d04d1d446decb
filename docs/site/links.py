"""Links that GitHub follows and Sphinx does not know: to a folder, to a file that is no page."""

import sources
from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

LOG = logging.getLogger(__name__)


def goal_of(app, node):
    """What a link that was not taken for one to a page leads to, relative to the project; None if that is not there."""
    path = (app.srcdir / app.env.docname).parent / node["reftarget"].partition("#")[0]
    path = path.resolve()
    return path.relative_to(app.srcdir) if path.exists() and path.is_relative_to(app.srcdir) else None


def address(app, goal):
    """Where the site shows a file or folder: the page of a folder that has one, else what sources.py makes."""
    if f"{goal}/README" in app.env.found_docs:
        return app.builder.get_relative_uri(app.env.docname, f"{goal}/README")
    to_root = "../" * app.env.docname.count("/")
    return to_root + sources.address(app.srcdir, goal)


def resolve(app, doctree):
    unknown = [*doctree.findall(addnodes.download_reference)]
    unknown += [node for node in doctree.findall(addnodes.pending_xref) if node["refdomain"] is None]
    for node in unknown:
        goal = goal_of(app, node)
        if goal is None:
            continue  # Sphinx warns
        node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=address(app, goal)))


def setup(app):
    app.connect("doctree-read", resolve, priority=400)  # before downloads are collected
    return {"parallel_read_safe": True, "parallel_write_safe": True}
