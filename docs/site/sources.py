"""The files of the project that are no pages: code highlighted, with an anchor for each line (#L12); results and pictures as they are;
folders as lists. All under source/ of the site, by the names that they have in the project."""

import subprocess
from html import escape
from pathlib import PurePosixPath

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import BashLexer, CppLexer, TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

FOLDER = PurePosixPath("source")
AS_THEY_ARE = {".json", ".jsonl", ".txt", ".csv", ".svg"}
LEXERS = {".cuh": CppLexer, ".cu": CppLexer, ".in": TextLexer, "": BashLexer}  # those that Pygments does not guess, or guesses wrong
FORMATTER = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, wrapcode=True)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{path} - {title}</title>
<link rel="stylesheet" href="{root}_static/pygments.css">
<link rel="stylesheet" href="{root}_static/styles/furo.css">
<link rel="stylesheet" href="{root}_static/site.css">
</head>
<body class="source">
<script>document.body.dataset.theme = localStorage.getItem("theme") || "auto";</script>
<nav>{trail}</nav>
<main>{body}</main>
</body>
</html>
"""


def files(root):
    """What git knows, and new files that it does not ignore."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    return sorted({PurePosixPath(name) for name in names if name and (root / name).is_file()})


def is_copied(path):
    return path.suffix in AS_THEY_ARE and path.name != "CMakeLists.txt"


def address(root, path):
    """Of a file or folder of the project, relative to the site's root."""
    path = PurePosixPath(path)
    if (root / path).is_dir():
        return str(FOLDER / path / "index.html")
    return str(FOLDER / path) + ("" if is_copied(path) else ".html")


def code(path, text):
    try:
        lexer = LEXERS[path.suffix]() if path.suffix in LEXERS else get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(text, lexer, FORMATTER)


class Writer:
    def __init__(self, app):
        self.root, self.out, self.title, self.pages = app.srcdir, app.outdir, app.config.html_title, app.env.found_docs
        self.home, self.address_of_page = app.builder.get_target_uri(app.config.root_doc), app.builder.get_target_uri

    def is_page(self, path):
        return path.suffix == ".md" and str(path.with_suffix("")) in self.pages

    def way_up(self, path):
        """From its place on the site to the site's root"""
        return "../" * address(self.root, path).count("/")

    def link(self, up, path):
        goal = self.address_of_page(str(path.with_suffix(""))) if self.is_page(path) else address(self.root, path)
        return f'<a href="{up}{escape(goal)}">{escape(path.name)}{"/" * (self.root / path).is_dir()}</a>'

    def write(self, path, contents):
        target = self.out / address(self.root, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents)

    def write_page(self, path, body):
        up = self.way_up(path)
        home = f'<a href="{up}{self.home}">{escape(self.title)}</a>'
        trail = " / ".join([home, *(self.link(up, parent) for parent in reversed(path.parents) if parent.name), escape(path.name)])
        page = PAGE.format(path=escape(str(path)), title=escape(self.title), root=up, trail=trail, body=body)
        self.write(path, page.encode())

    def write_list(self, folder, names):
        self.write_page(folder, "<ul>" + "".join(f"<li>{self.link(self.way_up(folder), name)}</li>" for name in sorted(names)) + "</ul>")

    def write_file(self, path):
        contents = (self.root / path).read_bytes()
        if is_copied(path):
            self.write(path, contents)
        elif not self.is_page(path):
            self.write_page(path, code(path, contents.decode()))


def write_all(app, exception):
    if exception:
        return
    writer, folders = Writer(app), {}
    for path in files(app.srcdir):
        writer.write_file(path)
        for inner, outer in zip([path, *path.parents], path.parents):
            folders.setdefault(outer, set()).add(inner)
    for folder, names in folders.items():
        writer.write_list(folder, names)


def setup(app):
    app.connect("build-finished", write_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
