"""What the site adds to the Markdown pages: their order, titles, formulas as GitHub writes them, links to code, and a search with excerpts."""

import html
import json
import re
import shutil
import urllib.parse
from pathlib import Path

import tomllib
from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

LOG = logging.getLogger(__name__)
CAPTIONS = ("Chapters", "How to", "To look things up", "Course and project")  # the tables of docs/README.md
TREE = "\n```{{toctree}}\n:hidden:\n:titlesonly:\n{}\n\n{}\n```\n"
RUN = re.compile(r"^<!-- playground (\w+)(?: (\S+))?: (.*?) -->$", re.MULTILINE)
FRAME = """<details class="run">
<summary>{title}</summary>
<iframe src="{url}" title="{title}" loading="lazy"></iframe>
<p><a href="{url}">In a page of its own</a></p>
</details>"""
COURSE, QUIZZES = "docs/course/README", "docs/course/quizzes"
FIELDS = {"--seq": "N", "--seq-q": "N", "--seq-k": "keys", "--head-dim": "d", "--heads": "heads", "--variant": "variant", "--pass": "pass"}
DOWNLOADS = {".csv", ".ipynb", ".json", ".jsonl", ".svg"}  # Sphinx copies these
SHORT = 24  # characters of a formula that is not broken


# --- Order and titles -----------------------------------------------------------------------------------------------------


def links(cell):
    return [f"docs/{name}" for name in re.findall(r"\]\(((?:[\w-]+/)?[\w-]+)\.md\)", cell)]


def listed(text):
    """For each table of docs/README.md the pages in its first column, each followed by pages that only its description links to."""
    tables = [[row.split("|")[1:-1] for row in table.splitlines()] for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)]
    with_a_row = {page for table in tables for first, *_ in table for page in links(first)}
    for table in tables:
        named = ((page, cell is row[0]) for row in table for cell in row for page in links(cell))
        yield list(dict.fromkeys(page for page, has_row in named if has_row or page not in with_a_row))


def add_tree(app, docname, source):
    """The order of docs/README.md, then the pages of the code's folders. Sphinx warns about a page in neither list."""
    if docname == COURSE:
        pages = sorted(name for name in app.env.found_docs if re.fullmatch(r"docs/course/exercises/\w+/README", name))
        source[0] += TREE.format("", "\n".join(f"/{name}" for name in pages))
    if docname != app.config.root_doc:
        return
    source[0] = re.sub(r"^<a href.*?</a> ", "", source[0], count=1, flags=re.MULTILINE)  # the badge of a forge that is not there
    groups = zip(CAPTIONS, listed((app.srcdir / "docs/README.md").read_text()), strict=True)
    folders = sorted(name for name in app.env.found_docs if name.endswith("/README") and not name.startswith("docs/"))
    trees = [("", ["docs/README"]), *groups, ("Code", folders)]
    source[0] += "".join(TREE.format(f":caption: {caption}" if caption else "", "\n".join(names)) for caption, names in trees)


def add_runs(app, docname, source):
    """Runs in the browser, of the pages that docs/playground/make.py has made; elsewhere their comments stay comments."""

    def frame(found):
        page, state, title = found.groups()
        if not (Path(app.config.playground or "/nowhere") / f"{page}.html").is_file():
            return found[0]
        up = "../" * docname.count("/")
        return FRAME.format(title=html.escape(title), url=html.escape(f"{up}playground/{page}.html#{state or ''}"))

    source[0] = RUN.sub(frame, source[0])


def made(app):
    """{page of the playground: its data}"""
    folder = Path(app.config.playground or "/nowhere")
    texts = {path.stem: re.search(r'<script id="data"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL) for path in folder.glob("*.html")}
    return {name: json.loads(text[1]) for name, text in sorted(texts.items()) if text}


def add_breaks(app, docname, source):
    """To each wrong kernel of an exercise, which its lesson names, a link to its run."""
    stage = re.match(r"docs/course/exercises/(\d\d)_", docname)
    for page, data in made(app).items() if stage else ():
        for mistake in data["breaks"] if page.startswith(stage[1]) else ():
            url = f"../../../../playground/{page}.html#break={mistake['id']}"
            link = f'<a href="{url}">Run it in your browser</a>'
            source[0] = source[0].replace(f"\n{mistake['lesson']}\n", f"\n{mistake['lesson']} {link}\n")


def run_of(question, pages):
    """The address of a question's run, or "": its stage has no page with that kernel."""
    words = question.get("run", "").split()
    if words[:1] == ["common/try.sh"] and words[1] in pages:  # a lab, whose page has no form
        return f"../../playground/{words[1]}.html"
    options, stage = dict(zip(words, words[1:])), Path(words[0]).name if words else ""
    for page, data in pages.items() if words else ():
        has_it = page[:2] == stage[:2] and options.get("--variant") in [variant["name"] for variant in data["variants"]]
        if has_it if "--variant" in options else page == stage:
            state = {"d": "64", "pass": "forward"} | {FIELDS[name]: value for name, value in options.items() if name in FIELDS}
            state |= {"mask": "causal"} if "--causal" in words else {}
            return f"../../playground/{page}.html#{urllib.parse.urlencode(state)}"
    return ""


def expected(question):
    """The numbers that a reader is asked for: those of the program's output that the answer names."""
    counted, told = (re.findall(r"\d[\d,]*\d|\d", question.get(key, "")) for key in ("says", "answer"))
    return [int(n.replace(",", "")) for n in dict.fromkeys(counted) if n in told]


def add_quizzes(app, docname, source):
    """What quiz.js has to know."""
    if docname != QUIZZES:
        return
    pages, chapters = made(app), {}
    for quiz in tomllib.loads((app.srcdir / f"{QUIZZES}.toml").read_text())["quiz"]:
        chapters[quiz["chapter"]] = [
            {"numbers": expected(q) or None, "rough": "order of magnitude" in q["ask"], "run": run_of(q, pages)} for q in quiz["question"]
        ]
    source[0] += f'\n<script id="quiz-data" type="application/json">{json.dumps(chapters)}</script>\n'


def add_script(app, docname, *_):
    if docname == QUIZZES:
        app.add_js_file("quiz.js")


def copy_playground(app, exception):
    if app.config.playground and not exception:
        shutil.copytree(app.config.playground, app.outdir / "playground", dirs_exist_ok=True)


def copy_recordings(app, exception):
    """README.md names them in HTML, to have one for light and one for dark pages, and Sphinx copies what Markdown names."""
    for path in [] if exception else (app.srcdir / "docs/img").glob("*.gif"):
        (app.outdir / "docs/img").mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, app.outdir / "docs/img")


def name_stage(app, doctree):
    """The page of a stage's folder has nearly the title of its chapter."""
    name = app.env.docname
    if re.match(r"\d\d_\w+/README$", name):
        title = app.env.titles[name].astext()
        app.env.titles[name] = app.env.longtitles[name] = nodes.title("", f"Code of {title}")


def write_index(app, exception):
    if not exception:
        page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">'
        (app.outdir / "index.html").write_text(page + f'<a href="{app.config.root_doc}.html">{app.config.html_title}</a>\n')


# --- Formulas and line breaks ---------------------------------------------------------------------------------------------


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
        tex, parent = node.astext(), node.parent
        if len(tex) < 3 or tex[0] + tex[-1] != "``":
            LOG.warning("'$%s$' is no formula to GitHub, which wants $`...`$", tex, location=node)
        tex, at = tex.strip("`"), parent.index(node)
        before, after = take(parent, at - 1, r"[(\[]*$"), take(parent, at + 1, r"^(?:[.,;:!?)\]'’]|-\w+)*")
        if len(tex) > SHORT:
            before, after = (f"\\text{{{text}}}" if text else "" for text in (before, after))
            node[:] = [nodes.Text(before + tex + after)]
        else:
            node[:] = [nodes.Text(tex)]
            parent[at] = nodes.inline("", "", nodes.Text(before), node, nodes.Text(after), classes=["tied"])
    for node in doctree.findall(nodes.math_block):
        node[:] = [nodes.Text(node.astext().replace("<", r"\lt "))]  # sphinxcontrib-katex does not escape it


def copy_katex(app):
    unused = shutil.ignore_patterns("*.js", "*.mjs", "*.md", "*.ttf", "*.woff", "contrib", "katex.css", "katex-swap*")
    shutil.copytree(app.config.katex, app.outdir / "_static" / app.config.katex.name, ignore=unused, dirs_exist_ok=True)


# --- Links to code --------------------------------------------------------------------------------------------------------


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


# --- Search ---------------------------------------------------------------------------------------------------------------


def index_glossary(app, doctree):
    """A search for a term finds its row of the glossary first."""
    if app.env.docname != "docs/reference/glossary":
        return
    for row in doctree.findall(nodes.row):
        names = [term.astext() for term in row[0].findall(nodes.strong)]
        if names:
            row["ids"].append("term-" + nodes.make_id(names[0]))
            row[0].insert(0, addnodes.index(entries=[("single", name, row["ids"][0], "main", None) for name in names]))


def write_texts(app, exception):
    """A browser lets no page read another one from a disk, so search.js takes excerpts from a script."""
    texts = {}
    for name in [] if exception else app.env.found_docs:
        article = re.search(r"<article.*?</article>", (app.outdir / f"{name}.html").read_text(), re.DOTALL)[0]
        texts[f"{name}.html"] = re.sub(r"<(?!/?(?:article|section|table|tr|td)\b)[^>]*>|¶", "", article)
    (app.outdir / "_static/texts.js").write_text(f"const TEXTS = {json.dumps(texts)};\n")


def setup(app):
    app.add_config_value("repository", "", "env")
    app.add_config_value("katex", None, "")
    app.add_config_value("playground", None, "env")
    app.connect("source-read", add_tree)
    app.connect("source-read", add_runs)
    app.connect("source-read", add_breaks)
    app.connect("source-read", add_quizzes)
    app.connect("html-page-context", add_script)
    app.connect("builder-inited", copy_katex)
    app.connect("doctree-read", resolve_links, priority=400)  # before Sphinx collects downloads
    app.connect("doctree-read", prepare_formulas)
    app.connect("doctree-read", index_glossary)
    app.connect("doctree-read", name_stage, priority=900)  # after the titles are collected
    app.connect("build-finished", write_index)
    app.connect("build-finished", copy_playground)
    app.connect("build-finished", copy_recordings)
    app.connect("build-finished", write_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
