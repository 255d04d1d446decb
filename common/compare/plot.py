#!/usr/bin/env python3
"""Draws saved rows of `compare --save` as SVG pictures for light
and dark pages.

    common/compare/plot.py ROWS.jsonl... --out DIR [--only NAME,...]

From times: time, tflops_forward, tflops_backward, tflops_both (and the same
with _fp32), roofline, ladder. From counts of the CPU simulator: bytes, counts.
From both: memory. Writes DIR/NAME.svg for each picture that the rows suffice
for, one line for each, and says of the others why they cannot be drawn. A file
that exists is replaced only if it is such a picture. All rows have to come from
one device. Which rows a picture shows is chosen by rules that stand in
common/compare/plots, and said in its title. Needs matplotlib 3.6 or newer.
Exit codes: 0 good; 2 bad usage or input, or nothing to draw; 3 no matplotlib.
"""

import argparse
import hashlib
import json
import pathlib
import sys

from plots.bars import Bars
from plots.choose import Unfit, median, of_one_device
from plots.lines import Lines, extra_memory, memory, moved, moved_bytes, times
from plots.roofline import Roofline
from plots.steps import Counts, Ladder
from rows import Failure, read, run

PLOTS = {  # name: what selects its content and draws it
    "time": Lines(
        title="Time of a pass against the length N",
        note="{device}; medians with a cold L2, of each stage the fastest variant. Dashed: other libraries. Both axes logarithmic.",
        panel="{words}, {which}",
        one_family=True,
        value=median,
        unit="ms",
        content=times,
        what="a time",
    ),
    "tflops_forward": Bars(("forward",), fp32=False),
    "tflops_backward": Bars(("backward",), fp32=False),
    "tflops_both": Bars(("forward", "backward"), fp32=False),
    "tflops_forward_fp32": Bars(("forward",), fp32=True),
    "tflops_backward_fp32": Bars(("backward",), fp32=True),
    "tflops_both_fp32": Bars(("forward", "backward"), fp32=True),
    "memory": Lines(
        title="Extra memory of one head: N² in plain attention, N or nothing when fused",
        note="{device}; beside inputs and outputs. Stages 01 to 07 in fp32, 08 in 16 bits. Both axes logarithmic.",
        panel="{which}",
        types_apart=False,
        value=extra_memory,
        unit="bytes",
        content=memory,
        what="extra_memory_bytes",
    ),
    "roofline": Roofline(),
    "ladder": Ladder(),
    "bytes": Lines(
        title="Bytes read and written for one head, beside the least that must move",
        note="Counted by the simulator: what threads ask of global memory, before caches; of each stage the last step. Both axes logarithmic.",
        panel="{type}, {which}",
        value=moved_bytes,
        unit="bytes",
        content=moved,
        what="bytes that the simulator counted",
    ),
    "counts": Counts(),
}


def code_digest(name):
    """Of the modules that decide how a picture looks."""
    modules = (sys.modules[module] for module in (type(PLOTS[name]).__module__, "plots.labels", "plots.style"))
    return hashlib.sha256(b"\0".join(pathlib.Path(module.__file__).read_bytes() for module in modules)).hexdigest()[:16]


def digest(name, picture):
    """The first line of the file, so that a picture that is out of date is known without drawing it anew."""
    content = json.dumps([picture.title, picture.note, picture.remark, picture.content], sort_keys=True)
    return f"<!-- drawn by plot.py {code_digest(name)} from rows {hashlib.sha256(content.encode()).hexdigest()[:16]} -->"


def select(rows, only=PLOTS):
    """({name: picture}, {name: why there is none}) of some plots. Needs no matplotlib. Unfit if the rows are from several devices."""
    rows = of_one_device(rows)
    pictures, reasons = {}, {}
    for name in (name for name in PLOTS if name in only):
        try:
            pictures[name] = PLOTS[name].select(rows)
        except Unfit as unfit:
            reasons[name] = str(unfit)
    return pictures, reasons


def svg(name, picture):
    """The text of the SVG file. ImportError without matplotlib."""
    import matplotlib

    from plots import style

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the reader's own style
        matplotlib.rcParams.update(style.SETTINGS)
        return style.finish(PLOTS[name].draw(picture), picture.title, digest(name, picture))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="ROWS.jsonl")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--only", type=lambda names: names.split(","), default=PLOTS, metavar="NAME,...")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    try:
        pictures, reasons = select(read(*options.rows), options.only)
        if pictures:
            import matplotlib  # noqa: F401

            options.out.mkdir(parents=True, exist_ok=True)
    except Unfit as unfit:
        raise Failure(2, str(unfit)) from None
    except ImportError as error:
        install = "python3 -m pip install matplotlib, or common/setup.sh --dev"
        raise Failure(3, f"matplotlib cannot be imported ({error}): {install}") from None
    except OSError as error:
        raise Failure(2, f"--out is '{options.out}', which cannot be made: {error.strerror}") from None
    shown = {name: options.out / f"{name}.svg" for name in pictures}
    for name, text in [(name, svg(name, picture)) for name, picture in pictures.items()]:
        shown[name].write_text(text)
        print(shown[name])
    for name, reason in reasons.items():
        print(f"no {name}: {reason}")
    if not pictures:
        raise Failure(2, "nothing to draw: the rows suffice for no picture")


if __name__ == "__main__":
    run("plot", main)
