#!/usr/bin/env python3
"""Draws saved rows of `compare --save` as SVG pictures for light and dark pages.

  common/compare/plot.py ROWS... --out DIR [--only NAME,...] [--where QUERY]
  common/compare/plot.py --docs     draws all pictures of docs/plots from docs/results

A plot shows certain problems, named in plots.py; --where names others, such as
--where "head_dim == 64 and not causal", in columns of the rows. Writes
DIR/NAME.svg for each plot that the rows suffice for, and says of the others why
not. Needs pandas and matplotlib; with the versions of docs/site/plots.txt the
same rows give the same bytes.
Exit codes: 0 good; 2 bad usage or input, or nothing to draw; 3 no pandas or no matplotlib.
"""

import argparse
import pathlib

import plot_kinds
import plot_style
import rows
from plot_kinds import Unfit
from plots import PLOTS

PEERS = {
    "plain": "torch plain",
    "memory_efficient": "torch mem.-efficient",
    "flash": "torch FA2",
    "flash3": "FA3",
    "cudnn": "torch cuDNN",
    "triton": "Triton",
}


def is_plain(row):
    """Self-attention by a stage's own kernel (no `options` of chapter 09) or a peer, without options that change the work."""
    p = row.problem
    same = p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"]
    return same and not row.is_borrowed and row.variant != "options" and {name for name, _ in rows.options(p)} <= {"input", "scale", "seed"}


def names(row):
    """What plots call a row: its series, its step, the heading of its group and its short name there."""
    stage = row.stage[:2]
    if row.is_peer:
        return f"peer_{row.variant}", PEERS.get(row.variant, row.variant), "", ""
    hopper = " Hopper" * ("hopper" in (row.kernel or ""))
    group, short = (f"{stage}{hopper}", row.variant) if stage > "05" else ("01 to 05", " ".join(row.stage.split("_")[:2]))
    return stage, f"{stage} {row.variant}", f"{group}, {row.problem['dtype']}", short


def table(found):
    """A pandas.DataFrame of the rows that plots compare, with the columns of rows.frame() and more."""

    def place(row):
        return row.pass_ == "backward", row.is_peer, row.kernel or row.stage, [*PEERS, row.variant].index(row.variant)

    found = sorted(filter(is_plain, found), key=place)
    devices = sorted({row.device_name for row in found})
    if len(devices) != 1:
        raise rows.Failure(2, f"the rows are of {' and '.join(devices) or 'no self-attention'}; allowed: self-attention on one device")
    frame = rows.frame(found)
    needed = ["counters_sectors", "median_ms", "extra_memory_bytes", "compulsory_bytes", "flops", "torch"]
    frame = frame.reindex(columns=[*frame, *(name for name in needed if name not in frame)])
    frame[["series", "step", "group", "short"]] = [names(row) for row in found]
    frame["ms"] = frame.median_ms.where(frame.is_good)
    frame["tflops"] = frame.flops / frame.ms / 1e9
    heads = (frame.batch * frame.heads).where(frame.is_good)
    # Peers count L, which rows of stages count as an output. Whole bytes per row, because a counter of 4 bytes for all heads is none.
    extra = frame.extra_memory_bytes // (heads * frame.seq_q) + 4 * ~frame.is_peer
    frame["extra_bytes_of_a_head"] = extra * frame.seq_q
    frame["least_bytes_of_a_head"] = frame.compulsory_bytes / heads
    frame["counted_bytes_of_a_head"] = (frame.moved_bytes / heads).where(frame.counters_sectors.notna())
    frame["profiled_bytes"] = [
        sum(kernel[f"hbm_{way}_bytes"] for kernel in row.profile or () for way in ("read", "written")) for row in found
    ]
    return frame


def figure(plot, frame, where=None):
    """The picture as a matplotlib figure. Unfit if the rows of a table() do not suffice."""
    query = plot.where if where is None else where
    shown = frame.query(" and ".join(f"({part})" for part in (plot.rows, query) if part))
    if not (shown[plot.y].notna() & ~shown.is_peer).any():
        raise Unfit(f"no row has {' and '.join(filter(None, [plot.y, query]))}; --where names other problems")
    problem = ["seq_q", "head_dim", "causal", "dtype", *["batch", "heads"] * (not plot.y.endswith("of_a_head"))]
    shown = shown.drop_duplicates(["step", "pass", *problem], keep="last")
    for title, panel in plot.panels.items():
        part = shown if panel in shown else shown.query(panel)
        clash = part[part.duplicated(["step", "pass", *["seq_q"] * (plot.kind in ("bars", "lines"))], keep=False)]
        if len(clash):
            differ = [f"{name} of {', '.join(map(str, sorted(set(clash[name]))))}" for name in problem if clash[name].nunique() > 1]
            raise Unfit(f"its panel '{title}' has one place for rows with {' and '.join(differ)}; --where chooses")
    zero = [title for title, column in plot.panels.items() if column in shown and not shown[column].any()]
    torch, problem = shown.torch.dropna().unique(), plot.problem if where is None else where or "all rows"
    words = {"device": shown.device.iloc[0], "problem": problem, "torch": ", ".join(torch), "zero": ", ".join(zero)}
    return getattr(plot_kinds, plot.kind)(plot, shown, words)


def pictures(found, only=PLOTS, where=None):
    """({name: text of an SVG file}, {name: why there is none}). `where` names other problems than the plots' own; "" is all of them."""
    try:
        import matplotlib
        import pandas  # noqa: F401
    except ImportError as error:
        raise rows.Failure(3, f"{error}: python3 -m pip install -r docs/site/plots.txt, or common/setup.sh --dev") from None
    drawn, reasons, frame = {}, {}, table(found)
    try:
        frame.query(where or "dtype != ''")
    except Exception as error:  # of any kind, as the text is the user's
        raise rows.Failure(2, f"--where is '{where}': {error}; columns: {', '.join(frame)}") from None
    for name in only:
        with matplotlib.rc_context({**matplotlib.rcParamsDefault, **plot_style.SETTINGS}):
            try:
                drawn[name] = plot_style.svg(figure(PLOTS[name], frame, where))
            except Unfit as unfit:
                reasons[name] = str(unfit)
    return drawn, reasons


def of_docs(name):
    """(the picture of docs/plots, the files of its rows)"""
    plot, docs = PLOTS[name], rows.ROOT / "docs"
    return docs / "plots" / plot.device / f"{name}.svg", [docs / "results" / plot.device / f"{file}.jsonl" for file in plot.files.split()]


def draw(names, sources, folder, where=None):
    """Writes the pictures and says which, and why others are not there."""
    drawn, reasons = pictures(rows.read(*sources), names, where)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in drawn.items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")
        print(folder / f"{name}.svg")
    for name, reason in reasons.items():
        print(f"no {name}: {reason}")
    if not drawn:
        raise rows.Failure(2, "nothing to draw: the rows do not suffice")


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("rows", nargs="*", metavar="ROWS")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*PLOTS], metavar="NAME,...")
    parser.add_argument("--where", metavar="QUERY")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args(arguments)
    if options.docs == bool(options.rows or options.out or options.where) or bool(options.rows) != bool(options.out):
        parser.error("needs ROWS and --out, or --docs alone")
    if unknown := [name for name in options.only if name not in PLOTS]:
        parser.error(f"--only names '{unknown[0]}'; allowed: {', '.join(PLOTS)}")
    if options.rows:
        draw(options.only, options.rows, options.out, options.where)
    for name in options.only if options.docs else []:
        file, sources = of_docs(name)
        draw([name], sources, file.parent)


if __name__ == "__main__":
    rows.run("plot", main)
