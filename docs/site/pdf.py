"""Prints the chapters of a site that docs/site.sh has made, each into pdf/ of it: their answers unfolded, as site.css says for paper.

pdf.py SITE
"""

import sys
from pathlib import Path

import browser
import contents

FOOTER = '<div style="font-size: 8px; margin: auto"><span class="title"></span>, page <span class="pageNumber"></span></div>'
LIST = Path(__file__).resolve().parents[1] / "README.md"


def main(site, chapters, folder):
    folder.mkdir(exist_ok=True)
    with browser.opened() as page:
        for chapter in chapters:
            page.goto((site / f"{chapter}.html").as_uri())
            target = folder / f"{Path(chapter).name}.pdf"
            page.pdf(
                path=target, format="A4", display_header_footer=True, header_template="<div></div>", footer_template=FOOTER, outline=True
            )


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    chapters = next(contents.listed(LIST.read_text()))
    main(site, chapters, site / "pdf")
    print(f"site: {len(chapters)} chapters in {site / 'pdf'}")
