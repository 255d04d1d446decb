"""How Sphinx makes the site of the book from the Markdown pages, which stay as GitHub renders them: docs/site.sh."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # the extensions below; docs/tools

from tools import check_pages  # noqa: E402  # what a page of the project is

project = "flash-steps"
html_title = "FlashAttention, step by step"
copyright = "flash_steps authors"
language = "en"
extensions = ["myst_parser", "sphinx_copybutton", "contents", "links", "formulas", "together", "sources"]

source_suffix = {".md": "markdown"}
root_doc = "README"
include_patterns = [str(page.relative_to(check_pages.ROOT)) for page in check_pages.pages()]

myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath"]  # formulas.py does the rest
myst_fence_as_directive = ["math"]
highlight_language = "text"
smartquotes = False

html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "default"
pygments_dark_style = "github-dark"
html_static_path = [str(HERE / "site.css")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False


def setup(app):
    # The extracts below what a search finds are read from the pages, which a browser does not allow without a server.
    app.add_js_file(None, body="if (location.protocol === 'file:') DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;")
