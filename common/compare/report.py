#!/usr/bin/env python3
"""Writes one HTML file of saved rows: tables, plots, and where the rows come from.

    common/compare/report.py ROWS.jsonl... --out FILE.html [--title TEXT] [--command TEXT]

ROWS.jsonl are files of `compare --save`. Runs of the same problem share a
table. The page needs no network and no other file; with matplotlib it has the
plots of plot.py too. --command is shown as what made the rows.

Needs Jinja2. Exit codes: 0 good; 2 bad usage or input; 3 no Jinja2.
"""

import argparse
import base64
import collections
import html
import math
import pathlib
import re

import plot
import rows as saved
from rows import Failure, size, three_digits

HERE = pathlib.Path(__file__).resolve().parent
CHECKED = {"forward": ("o",), "backward": ("dq", "dk", "dv")}


def figure(value):
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.0f}"
        if value >= 1000
        else three_digits(value)
        if value >= 0.001
        else f"{value:.3g}"
    )


def at(*keys):
    """The value at a path of keys in a row, or None."""

    def value(row):
        for key in keys:
            row = (row or {}).get(key)
        return row

    return value


def tiles(row):
    return row.tiles and "{br},{bc}".format_map(row.tiles)


def max_error(row):
    """The largest error of the tensors that the pass is about; of one that is not finite JSON has null."""
    errors = [one.get("max_abs") for name, one in at("check", "tensors")(row).items() if name in CHECKED[row.pass_]] if row.check else []
    return max((math.inf if error is None else error for error in errors), default=None)


# Title, value of a row, how it is written. A table leaves out columns without values.
COLUMNS = (
    ("median, ms", at("time", "median_ms"), figure),
    ("TFLOP/s", at("tflops"), figure),
    ("% of peak", at("percent_of_peak"), figure),
    ("bytes moved", lambda row: row.moved_bytes, size),
    ("extra memory", at("extra_memory_bytes"), size),
    ("sectors", at("counters", "sectors"), figure),
    ("barriers", at("counters", "barriers"), figure),
    ("warp operations", at("counters", "warp_operations"), figure),
    ("bank conflicts", at("counters", "bank_conflicts"), figure),
    ("max error", max_error, figure),
    ("min, ms", at("time", "min_ms"), figure),
    ("max, ms", at("time", "max_ms"), figure),
    ("enqueue, ms", at("time", "enqueue_ms"), figure),
    ("tiles", tiles, str),
)
BARS = {True: "TFLOP/s", False: "bytes moved"}  # the column with a bar, on a GPU and on the simulator


def cost(row):
    return None if not row.is_good else at("time", "median_ms")(row) if row.is_gpu else row.moved_bytes


def table(rows):
    """What the template shows of the runs of one problem and pass."""
    rows = sorted(rows, key=lambda row: (row.stage, row.kernel))
    first = next((row for row in rows if cost(row) and not row.is_peer), None)
    gain = ("gain", lambda row: cost(first) / cost(row) if first and cost(row) else None, lambda value: f"{value:.2f}×")
    shown = [column for column in (*COLUMNS[:3], gain, *COLUMNS[3:]) if any(column[1](row) is not None for row in rows)]
    lines = []
    for row in rows:
        cells = []
        for title, value_of, text in shown:
            value = value_of(row)
            most = max(value_of(one) or 0 for one in rows) if title == BARS[row.is_gpu] else 0
            cells.append({"text": "–" if value is None else text(value), "percent": 100 * value / most if value and most else None})
        lines.append({"row": row, "cells": cells, "stale": bool(saved.changed(row.sources or {}))})
    title = f"{rows[0].pass_.capitalize()}, {saved.describe(rows[0].problem)}"
    return {"title": title, "device": rows[0].device_name, "gpu": rows[0].is_gpu, "heads": [head for head, *_ in shown], "lines": lines}


def order(rows):
    """Of tables."""
    row = rows[0]
    return (
        row.device_name,
        row.problem["dtype"] != "fp32",
        *(row.problem[key] for key in ("head_dim", "causal", "seq_q")),
        row.pass_ == "backward",
    )


def tables(rows):
    found = saved.grouped(rows, lambda row: (row.device_name, saved.describe(row.problem), row.pass_))
    return [table(members) for members in sorted(found.values(), key=order)]


def plots(rows):
    """([(title, data URI of the SVG file)], [why some are missing]) of each device. As pictures of their own, their ids cannot clash."""
    drawn, missing = [], []
    for device, members in saved.grouped(rows, lambda row: row.device_name).items():
        try:
            pictures, reasons = plot.pictures(members, where="")
        except Failure as failure:
            pictures, reasons = {}, {"plot": failure.args[1]}
        missing += [f"{device}: no {name}: {reason}" for name, reason in reasons.items()]
        for svg in pictures.values():
            title = re.search(r"<title>(.*?)</title>", svg, re.DOTALL)[1]
            drawn.append((html.unescape(title), "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()))
    return drawn, missing


def origin(rows):
    """[(what, its values)] of where rows come from."""

    def values(*keys):
        return [str(value) for value in dict.fromkeys(map(at(*keys), rows)) if value]

    commits = collections.Counter(saved.short_commit(row.commit) for row in rows)
    days = sorted({row.date[:10] for row in rows} - {""})
    return [
        ("Device", list(dict.fromkeys(row.device_name for row in rows))),
        ("Date", [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []),
        ("Commit", [f"{commit} ({count} rows)" for commit, count in commits.items()]),
        *((name, values(*keys)) for name, keys in (("CUDA", ("device", "cuda")), ("Driver", ("device", "driver")))),
        *((name, values(name.lower())) for name in ("torch", "cuDNN")),
        ("Rows", [f"{count} {verdict}" for verdict, count in collections.Counter(row.verdict for row in rows).items()]),
    ]


def page(rows, title, command):
    try:
        import jinja2
    except ImportError as error:
        raise Failure(3, f"Jinja2 cannot be imported ({error}): python3 -m pip install Jinja2, or common/setup.sh --dev") from None
    loader = jinja2.FileSystemLoader(HERE)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    drawn, missing = plots(rows)
    failed = [f"{row.label}, {row.pass_}, {saved.describe(row.problem)}: {row.verdict}" for row in saved.failures(rows)]
    files = sorted({path for row in rows for path in saved.changed(row.sources or {})})
    shown = tables(rows)
    facts = {
        "tables": shown,
        "largest": max(shown, key=lambda table: len(table["lines"]), default=None),
        "plots": drawn,
        "missing": missing,
    }
    return environment.get_template("report.html.j2").render(
        title=title, command=command, origin=origin(rows), failed=failed, stale=files, **facts
    )


def main(arguments):
    parser = argparse.ArgumentParser("report.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE.html")
    parser.add_argument("--title", metavar="TEXT", default="FlashAttention, step by step: the comparison")
    parser.add_argument("--command", metavar="TEXT")
    options = parser.parse_args(arguments)
    rows = [row for row in saved.read(*options.rows) if row.tune is None]
    options.out.write_text(page(rows, options.title, options.command), encoding="utf-8")
    print(f"wrote {options.out}: {len(rows)} rows")


if __name__ == "__main__":
    saved.run("report", main)
