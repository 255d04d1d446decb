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
    "cudnn": "torch cuDNN",
    "triton": "Triton",
}


def is_plain(row):
    """Self-attention by a stage's own kernel or a peer, without options that change the work."""
    p = row.problem
    same = p["seq_q"] == p["seq_k"] and p["heads"] == p["kv_heads"]
    return same and not row.is_borrowed and {name for name, _ in rows.options(p)} <= {"input", "scale", "seed"}


def place(row):
    """The order of everything: forward first, stages by number, steps by file, peers as above."""
    return row.pass_ == "backward", row.is_peer, row.kernel or row.stage, [*PEERS, row.variant].index(row.variant)


def table(found):
    """A pandas.DataFrame of the rows that plots compare, with the columns of rows.frame() and more."""
    found = sorted(filter(is_plain, found), key=place)
    devices = sorted({row.device_name for row in found})
    if len(devices) != 1:
        raise rows.Failure(2, f"the rows are of {' and '.join(devices) or 'no self-attention'}; allowed: self-attention on one device")
    frame = rows.frame(found)
    needed = ["counters_sectors", "median_ms", "extra_memory_bytes", "compulsory_bytes", "flops", "torch"]
    frame = frame.reindex(columns=[*frame, *(name for name in needed if name not in frame)])
    frame["series"] = [f"peer_{row.variant}" if row.is_peer else row.stage[:2] for row in found]
    frame["step"] = [PEERS.get(row.variant, row.variant) if row.is_peer else f"{row.stage[:2]} {row.variant}" for row in found]
    frame["short"] = [" ".join(row.stage.split("_")[:2]) if row.stage < "06" else row.variant for row in found]
    groups = ["to 05" if row.stage < "06" else row.stage[:2] + " Hopper" * ("hopper" in (row.kernel or "")) for row in found]
    frame["group"] = [f"{group}, {row.problem['dtype']}" for group, row in zip(groups, found)]
    frame["ms"] = frame.median_ms.where(frame.is_good)
    frame["tflops"] = frame.flops / frame.ms / 1e9
    heads = (frame.batch * frame.heads).where(frame.is_good)
    frame["extra"] = frame.extra_memory_bytes / heads
    frame["least"] = frame.compulsory_bytes / heads
    frame["moved"] = (frame.moved_bytes / heads).where(frame.counters_sectors.notna())
    frame["hbm"] = [sum(kernel[f"hbm_{way}_bytes"] for kernel in row.profile or () for way in ("read", "written")) for row in found]
    return frame


def pick(plot, frame, where):
    """The rows of a table() that a plot shows. Unfit if they do not suffice."""
    query = plot.where if where is None else where
    shown = frame.query(plot.rows)
    if not (shown[plot.y].notna() & ~shown.is_peer).any():
        raise Unfit(f"no row has {plot.what}")
    shown = shown.query(query) if query else shown
    if not (shown[plot.y].notna() & ~shown.is_peer).any():
        raise Unfit(f"no row with {plot.what} has {query}; --where names other problems")
    problem = ["seq_q", "head_dim", "causal", "dtype"]
    if plot.y in ("extra", "moved"):  # of one head: the same at any number of heads
        shown = shown.drop_duplicates(["step", "pass", *problem], keep="last")
    else:
        problem += ["batch", "heads"]
    for title, query in plot.panels.items():
        part = shown if query in shown else shown.query(query)
        clash = part[part.duplicated(["step", "pass", *["seq_q"] * (plot.kind in ("bars", "lines"))], keep=False)]
        differ = [f"{name} of {', '.join(map(str, sorted(set(clash[name]))))}" for name in problem if clash[name].nunique() > 1]
        if differ:
            raise Unfit(f"its panel '{title}' has one place for rows with {' and '.join(differ)}; --where chooses")
    return shown


def figure(plot, frame, where=None):
    """The picture as a matplotlib figure."""
    shown = pick(plot, frame, where)
    zero = [title for title, column in plot.panels.items() if column in shown and not shown[column].any()]
    torch, problem = shown.torch.dropna().unique(), plot.problem if where is None else where
    words = {"device": shown.device.iloc[0], "problem": problem, "torch": ", ".join(torch), "zero": ", ".join(zero)}
    return getattr(plot_kinds, plot.kind)(plot, shown, words)


def pictures(found, only=PLOTS, where=None):
    """({name: text of an SVG file}, {name: why there is none}). `where` names other problems than the plots' own; "" is all of them."""
    import matplotlib

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


def write(file, text):
    before = file.read_text(errors="replace") if file.exists() else plot_style.OURS
    if not before.startswith(plot_style.OURS):
        raise rows.Failure(2, f"{file} was not drawn by this program; allowed: another folder")
    if text != before:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    print(file)


def parse(arguments):
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
    return options


def main(arguments):
    options = parse(arguments)
    files = {name: of_docs(name) if options.docs else (options.out / f"{name}.svg", options.rows) for name in options.only}
    try:
        groups = [[name] for name in files] if options.docs else [[*files]]
        for names in groups:
            drawn, reasons = pictures(rows.read(*files[names[0]][1]), names, options.where)
            for name, text in drawn.items():
                write(files[name][0], text)
            for name, reason in reasons.items():
                print(f"no {name}: {reason}")
            if not drawn or options.docs and reasons:
                raise rows.Failure(2, "the rows do not suffice")
    except ImportError as error:
        raise rows.Failure(3, f"{error}: python3 -m pip install -r docs/site/plots.txt, or common/setup.sh --dev") from None


if __name__ == "__main__":
    rows.run("plot", main)
