#!/usr/bin/env python3
"""Draws saved rows of `compare --save` as SVG pictures for light
and dark pages.

    common/compare/plot.py ROWS.json... --out DIR [--only NAME,...]

From times: time, tflops_forward, tflops_backward, tflops_both (and the same
with _fp32), roofline, ladder. From counts of the CPU simulator: bytes, counts.
From both: memory. Writes DIR/NAME.svg for each picture that the rows suffice
for, one line for each, and says of the others why they cannot be drawn. A file
that exists is replaced only if it is such a picture. All rows have to come from
one device. Which rows a picture shows is chosen by rules that stand in
common/compare/plots, and said in its title. Needs matplotlib 3.6 or newer.
Exit codes: 0 good; 2 bad usage or input, or nothing to draw; 3 no matplotlib.
"""
import hashlib
import inspect
import json
import pathlib
import sys

from plots import bars, draw_bars, draw_lines, draw_roofline, draw_steps, lines, roofline, steps
from plots.choose import Unfit, of_one_device
from rows import files, usage
from rows.read import read_file
from rows.usage import Failure

PICTURES = {  # name: (what selects its content, what draws it)
    "time": (lines.time, draw_lines.draw),
    **{f"tflops_{which}{'_fp32' * wide}": (bars.tflops_of(which, wide), draw_bars.draw) for wide in (False, True) for which in bars.LABELS},
    "memory": (lines.memory, draw_lines.draw),
    "roofline": (roofline.roofline, draw_roofline.draw),
    "ladder": (steps.ladder, draw_steps.draw_ladder),
    "bytes": (lines.moved, draw_lines.draw),
    "counts": (steps.counts, draw_steps.draw_counts),
}


def code_digest(draw):
    """Of what decides how a picture looks: the modules of plots that draw it, and the functions that they have from rows."""
    module = sys.modules[draw.__module__]
    parts = [part for part in vars(module).values() if inspect.isfunction(part)]
    files_of = {pathlib.Path(sys.modules[part.__module__].__file__) for part in parts if part.__module__.startswith("plots.")}
    texts = [path.read_text() for path in sorted(files_of)] + [inspect.getsource(part) for part in parts if part.__module__.startswith("rows.")]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def digest(name, picture):
    """The first line of the file, so that a picture that is out of date is known without drawing it anew."""
    content = json.dumps([picture.title, picture.note, picture.remark, picture.content], sort_keys=True)
    return f"{files.PLOT}{code_digest(PICTURES[name][1])} from rows {hashlib.sha256(content.encode()).hexdigest()[:16]} -->"


def select(rows, only=None):
    """({name: picture}, {name: why there is none}) of the pictures, or of those in `only`. Needs no matplotlib. Unfit if the rows are
    from several devices."""
    rows = of_one_device(rows)
    pictures, reasons = {}, {}
    for name, (selected, _) in PICTURES.items():
        if only is None or name in only:
            try:
                pictures[name] = selected(rows)
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
        return style.finish(PICTURES[name][1](picture), picture.title, digest(name, picture))


def parse(arguments):
    parser = usage.Parser("plot", __doc__)
    parser.add_argument("rows", nargs="+", metavar="ROWS.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--only", type=usage.list_of(PICTURES), metavar="NAME,...")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    try:
        rows = [row for path in options.rows for row in read_file(path)]
        pictures, reasons = select(rows, options.only)
    except Unfit as unfit:
        raise Failure(2, str(unfit)) from None
    if pictures:
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise Failure(3, f"matplotlib cannot be imported ({error}): python3 -m pip install matplotlib, or common/setup.sh --dev") from None
        try:
            options.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(2, f"--out is '{options.out}', which cannot be made: {error.strerror}") from None
        shown = {name: options.out / f"{name}.svg" for name in pictures}
        targets = {name: files.target(file, "a plot of this program", files.begins(files.PLOT)) for name, file in shown.items()}
        texts = {name: svg(name, picture) for name, picture in pictures.items()}
        for name, text in texts.items():
            files.write(targets[name], text)
            print(shown[name])
    for name, reason in reasons.items():
        print(f"no {name}: {reason}")
    if not pictures:
        raise Failure(2, "nothing to draw: the rows suffice for no picture")


if __name__ == "__main__":
    usage.run("plot", main)
