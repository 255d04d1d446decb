"""Sphinx builds the site from the Markdown pages, which stay as GitHub renders them: docs/site.sh."""

import os
from importlib.util import find_spec
from pathlib import Path

from docs.tools.check_pages import ROOT, pages

project = "flash-steps"
html_title = "FlashAttention, step by step"
copyright = "flash-steps authors"
language = "en"
extensions = ["myst_parser", "sphinx_copybutton", "sphinxcontrib.katex", "docs.site.book"]

# Where links to code lead, such as https://github.com/OWNER/NAME. If empty, they tell the names of the files.
repository = os.environ.get("SITE_REPOSITORY", "")

source_suffix = {".md": "markdown"}
root_doc = "README"
include_patterns = [str(page.relative_to(ROOT)) for page in pages()]

myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath"]  # book.py removes the backticks of $`...`$
myst_fence_as_directive = ["math"]
highlight_language = "text"
smartquotes = False

html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "default"
pygments_dark_style = "github-dark"
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False

# sphinxcontrib-katex has KaTeX's script, this package its style sheet and fonts; nothing is loaded from a CDN.
katex = Path(find_spec("djangocms_katex").origin).parent / "static/djangocms_katex/vendor/katex"
katex_css_path = "katex.min.css"
katex_options = "strict: 'error'"
exclude_patterns = ["**/katex.js", "**/katex.mjs", "**/katex-swap*", "**/*.ttf", "**/*.woff"]  # what no page uses
html_static_path = ["site.css", "search.js", str(katex)]
