#!/usr/bin/env python3
"""Writes one HTML file of saved rows: tables, plots, where they come from, how
to make them again. It needs no network, and no other file.

    common/compare/report.py ROWS.json... --out FILE.html [--title TEXT]
        [--command TEXT] [--docs URL]

ROWS.json are files of `compare --save`; lines of the same
problem share a table, and what several files say of the same line stands side
by side. --command says what made the rows, for the section that tells how to
make them again; without it the commands are derived from the rows. --docs is
the address of the chapters' folder on the web; without it a page inside the
project links to its files, and any other names them.

Needs Python alone; with matplotlib the page has the plots of plot.py too.
A FILE.html that exists is replaced only if it is a report, and only when the
new page is complete. Exit codes: 0 good; 2 bad usage or input.
"""

import argparse
import pathlib
import re

from html_report.chapters import base_of
from html_report.markup import counted
from html_report.page import page
from rows import files
from rows.read import read
from rows.usage import Parser, run


def web_address(text):
    if not re.fullmatch(r"https?://\S+", text):
        raise argparse.ArgumentTypeError(f"is '{text}'; allowed: an address that begins with https:// or http://")
    return text


def parse(arguments):
    parser = Parser("report", __doc__)
    parser.add_argument("rows", nargs="+", metavar="ROWS.json")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.html")
    parser.add_argument("--title", metavar="TEXT")
    parser.add_argument("--command", metavar="TEXT")
    parser.add_argument("--docs", type=web_address, metavar="URL")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    path = files.target(options.out, "a report of this program", files.begins(files.REPORT))
    rows = read(options.rows)
    files.write(path, page(rows, options.rows, options.title, options.command, options.docs or base_of(path)))
    print(f"wrote {options.out}: {counted(len(rows), 'row')}")
    return 0


if __name__ == "__main__":
    run("report", main)
