#!/usr/bin/env python3
"""Writes one HTML file of saved rows: tables, plots, where they come from, how to make them again. It needs no network, and no other file.

    common/compare/report.py ROWS.json... --out FILE.html [--title TEXT] [--command TEXT]

ROWS.json are files of `compare --save` and `peers.py --save`; lines of the same problem share a table. --command says what made the rows,
for the section that tells how to make them again; without it the commands are derived from the rows. Needs Python alone; with matplotlib
the page has the plots of plot.py too. FILE.html is replaced only when the new page is complete. Exit codes: 0 good; 2 bad usage or input.
"""
import os
import pathlib
import tempfile

from html_report.markup import counted
from html_report.page import page
from html_report.rows import read
from usage import Failure, Parser, run


def parse(arguments):
    parser = Parser("report", __doc__)
    parser.add_argument("rows", nargs="+", metavar="ROWS.json")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.html")
    parser.add_argument("--title", metavar="TEXT")
    parser.add_argument("--command", metavar="TEXT")
    return parser.parse_args(arguments)


def place_to_write(out, rows):
    """The file that --out means, behind links. Failure if it cannot be written, or is one of the rows files."""
    allowed = "allowed: a file in a folder that can be written"
    path = pathlib.Path(os.path.realpath(out))
    exists = os.path.exists(path)
    if exists and not os.path.isfile(path):
        raise Failure(2, f"--out is '{out}', which is no file; {allowed}")
    if any(os.path.realpath(name) == str(path) for name in rows):
        raise Failure(2, f"--out is '{out}', which holds the rows; {allowed} that is none of them")
    if not os.path.isdir(path.parent) or not os.access(path.parent, os.W_OK | os.X_OK) or (exists and not os.access(path, os.W_OK)):
        raise Failure(2, f"--out is '{out}', which cannot be written; {allowed}")
    return path


def write(path, text):
    """A file of its own name first, so that whoever reads FILE.html finds the old page or the new one."""
    part = None
    try:
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, path.stat().st_mode & 0o777 if os.path.exists(path) else 0o666 & ~mask)  # mkstemp lets nobody else read it
        os.replace(part, path)
        part = None
    except OSError as error:
        raise Failure(2, f"--out is '{path}', which cannot be written: {error.strerror}") from None
    finally:
        if part:
            os.unlink(part)


def main(arguments):
    options = parse(arguments)
    path = place_to_write(options.out, options.rows)
    rows = read(options.rows)
    write(path, page(rows, options.rows, options.title, options.command))
    print(f"{options.out}: {counted(len(rows), 'row')}")
    return 0


if __name__ == "__main__":
    run("report", main)
