"""What the site adds to the Markdown pages: their order, titles, formulas as GitHub writes them, links to code, and a search with excerpts."""

import html
import json
import re
import shutil

from docutils import nodes
from sphinx import addnodes

from docs.tools.check_pages import ROOT

PLAYGROUND = ROOT / "build-wasm/html"  # of docs/playground/make.py
CAPTIONS = ("Chapters", "How to", "To look things up", "Course and project")  # the tables of pages in docs/README.md
BELOW = {"docs/course/README": r"docs/course/exercises/\w+/README", "docs/reference/comparison": r"docs/results/notes/\w+"}
TREE = "\n```{{toctree}}\n:hidden:\n:titlesonly:\n{}\n\n{}\n```\n"
RUN = re.compile(r"^<!-- playground (\w+)(?: (\S+))?: (.*?) -->$", re.MULTILINE)
FRAME = """<details class="run">
<summary>{title}</summary>
<iframe src="{url}" title="{title}" loading="lazy"></iframe>
<p><a href="{url}">In a page of its own</a></p>
</details>"""
DOWNLOADS = {".csv", ".json", ".jsonl", ".svg"}  # Sphinx copies these
SHORT = 24  # characters of a formula that is not broken


def add_tree(app, docname, source):
    """The order of docs/README.md, then the pages of the code's folders. Sphinx warns about a page in neither list."""
    if docname in BELOW:
        pages = sorted(name for name in app.env.found_docs if re.fullmatch(BELOW[docname], name))
        source[0] += TREE.format("", "\n".join(f"/{name}" for name in pages))
    if docname == app.config.root_doc:
        tables = re.findall(r"^\| page \|.*\n(?:\|.*\n?)+", (app.srcdir / "docs/README.md").read_text(), re.MULTILINE)
        groups = [[f"docs/{name}" for name in re.findall(r"\]\(([\w/]+)\.md\)", table)] for table in tables]
        folders = sorted(name for name in app.env.found_docs if re.search("/README$|/more/", name) and not name.startswith("docs/"))
        source[0] += TREE.format("", "docs/README")
        for caption, names in [*zip(CAPTIONS, groups, strict=True), ("Code", folders)]:
            source[0] += TREE.format(f":caption: {caption}", "\n".join(names))


def name_stage(app, doctree):
    """The page of a stage's folder has nearly the title of its chapter."""
    name = app.env.docname
    if re.match(r"\d\d_\w+/README$", name):
        title = app.env.titles[name].astext()
        app.env.titles[name] = app.env.longtitles[name] = nodes.title("", f"Code of {title}")


def add_runs(app, docname, source):
    """Runs in the browser, of the pages that docs/playground/make.py has made: where a comment asks for one, and below the lesson of each
    wrong kernel of an exercise."""
    up = "../" * docname.count("/")

    def frame(found):
        page, state, title = found.groups()
        url = html.escape(f"{up}playground/{page}.html#{state or ''}")
        return FRAME.format(title=html.escape(title), url=url) if (PLAYGROUND / f"{page}.html").is_file() else found[0]

    source[0] = RUN.sub(frame, source[0])
    stage = re.match(r"docs/course/exercises/(\d\d)_", docname)
    for path in sorted(PLAYGROUND.glob(f"{stage[1]}*.html")) if stage else ():
        data = re.search(r'<script id="data"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)
        for mistake in json.loads(data[1])["breaks"] if data else ():
            link = f'<a href="{up}playground/{path.name}#break={mistake["id"]}">Run it in your browser</a>'
            source[0] = source[0].replace(f"\n{mistake['lesson']}\n", f"\n{mistake['lesson']} {link}\n")


def add_address(app, _, source):
    """To what a reader copies."""
    if app.config.repository:
        source[0] = source[0].replace("git clone ADDRESS", f"git clone {app.config.repository}")


def take(parent, place, pattern):
    """Cuts what matches out of a text."""
    text = parent[place] if 0 <= place < len(parent) else ""
    if not isinstance(text, nodes.Text):
        return ""
    found = re.search(pattern, text)[0]
    parent[place] = nodes.Text(text.replace(found, "", 1) if pattern[0] == "^" else text.removesuffix(found))
    return found


def prepare_formulas(app, doctree):
    """Removes the backticks of $`...`$. A browser would break the line between a formula and the punctuation next to it: a short formula
    becomes unbreakable with it, a long one takes it in."""
    for node in list(doctree.findall(nodes.math)):
        tex, parent = node.astext().strip("`"), node.parent
        at = parent.index(node)
        before, after = take(parent, at - 1, r"[(\[]*$"), take(parent, at + 1, r"^(?:[.,;:!?)\]'’]|-\w+)*")
        if len(tex) > SHORT:
            before, after = (f"\\text{{{text}}}" if text else "" for text in (before, after))
            node[:] = [nodes.Text(before + tex + after)]
        else:
            node[:] = [nodes.Text(tex)]
            parent[at] = nodes.inline("", "", nodes.Text(before), node, nodes.Text(after), classes=["tied"])
    for node in doctree.findall(nodes.math_block):
        node[:] = [nodes.Text(node.astext().replace("<", r"\lt "))]  # sphinxcontrib-katex does not escape it


def resolve_links(app, doctree):
    """Links that GitHub follows and Sphinx does not: to folders and to files other than pages. Without a repository to show them, they tell
    the name of the file."""
    here = app.env.docname
    unknown = [*doctree.findall(addnodes.download_reference)]
    unknown += [node for node in doctree.findall(addnodes.pending_xref) if node["refdomain"] is None]
    for node in unknown:
        path = ((app.srcdir / here).parent / node["reftarget"].partition("#")[0]).resolve()
        if not path.is_relative_to(app.srcdir) or not path.exists() or path.suffix in DOWNLOADS:
            continue  # Sphinx warns, or copies the file
        goal = str(path.relative_to(app.srcdir))
        if f"{goal}/README" in app.env.found_docs:
            uri = app.builder.get_relative_uri(here, f"{goal}/README")
            node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=uri))
        elif app.config.repository:
            uri = f"{app.config.repository}/{'tree' if path.is_dir() else 'blob'}/HEAD/{goal}"
            node.replace_self(nodes.reference("", "", *node.children, refuri=uri))
        else:
            node.replace_self(nodes.abbreviation("", "", *node.children, explanation=goal))


def index_glossary(app, doctree):
    """A search for a term finds its entry of the glossary first."""
    for entry in doctree.findall(nodes.list_item) if app.env.docname == "docs/reference/glossary" else ():
        names = [term.astext() for term in entry[0].findall(nodes.strong)]
        if names:
            entry["ids"].append("term-" + nodes.make_id(names[0]))
            entry[0].insert(0, addnodes.index(entries=[("single", name, entry["ids"][0], "main", None) for name in names]))


def finish(app, exception):
    """Adds what Sphinx does not: a front page, the playground, recordings that README.md names in HTML, and texts for search.js, since a
    browser lets no page read another one from a disk."""
    if exception:
        return
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">'
    (app.outdir / "index.html").write_text(page + f'<a href="{app.config.root_doc}.html">{app.config.html_title}</a>\n')
    if PLAYGROUND.exists():
        shutil.copytree(PLAYGROUND, app.outdir / "playground", dirs_exist_ok=True)
    (app.outdir / "docs/img").mkdir(parents=True, exist_ok=True)
    for path in (app.srcdir / "docs/img").glob("*.gif"):
        shutil.copy2(path, app.outdir / "docs/img")
    texts = {}
    for name in app.env.found_docs:
        article = re.search(r"<article.*?</article>", (app.outdir / f"{name}.html").read_text(), re.DOTALL)[0]
        texts[f"{name}.html"] = re.sub(r"<(?!/?(?:article|section|table|tr|td)\b)[^>]*>|¶", "", article)
    (app.outdir / "_static/texts.js").write_text(f"const TEXTS = {json.dumps(texts)};\n")


def setup(app):
    app.add_config_value("repository", "", "env")
    app.connect("source-read", add_tree)
    app.connect("source-read", add_address)
    app.connect("source-read", add_runs)
    app.connect("doctree-read", resolve_links, priority=400)  # before Sphinx collects downloads
    app.connect("doctree-read", prepare_formulas)
    app.connect("doctree-read", index_glossary)
    app.connect("doctree-read", name_stage, priority=900)  # after the titles are collected
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
