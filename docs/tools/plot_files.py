"""docs/plots/DEVICE/NAME.svg: what common/compare/plot.py draws from all rows saved of a device. Whether a file is out of date is seen from
the digest in it, without matplotlib; its bytes differ from one matplotlib to the next."""

import os
from functools import cache

import plot
from plots.choose import Unfit, of_one_device

from .saved import RESULTS, ROOT, origin, rows_of

PLOTS = ROOT / "docs" / "plots"
INSTALL = "python3 -m pip install matplotlib"


@cache
def saved(device):
    """[(file name, row)] of all files of a device. Other results (histories, tile sizes) lie beside rows."""
    names = sorted(path.name for path in (RESULTS / device).glob("*.jsonl") if path.name != "front.jsonl")  # one problem, in other files too
    return [(file, row) for file in names for row in rows_of(device, file) if row.tune is None]


def rows(device):
    """Of stages' own kernels and of peers."""
    return of_one_device([row for _, row in saved(device)])


@cache
def selected(device):
    """({name: picture}, {name: why there is none}) of a device."""
    try:
        return plot.select([row for _, row in saved(device)])
    except Unfit as unfit:
        raise SystemExit(f"docs/results/{device}: {unfit}") from None


def expected():
    """{file: (name, picture)}"""
    devices = sorted(path.name for path in RESULTS.glob("*") if path.is_dir())
    return {PLOTS / device / f"{name}.svg": (name, picture) for device in devices for name, picture in selected(device)[0].items()}


def is_fresh(path, name, picture):
    return path.exists() and path.read_text().startswith(plot.digest(name, picture))


def stale():
    """[(file, name and picture)], with None for a file that no rows make any more."""
    wanted = expected()
    old = [(path, None) for path in sorted(PLOTS.glob("*/*.svg")) if path not in wanted]
    return [(path, drawn) for path, drawn in wanted.items() if not is_fresh(path, *drawn)] + old


def check():
    return [f"{path.relative_to(ROOT)} is stale; run docs/generate.py with matplotlib installed ({INSTALL})" for path, _ in stale()]


def draw():
    """Draws what is stale. Gives (files written or removed, what is wrong)."""
    changed = []
    for path, drawn in stale():
        name = str(path.relative_to(ROOT))
        if drawn is None:
            path.unlink()
        else:
            try:
                text = plot.svg(*drawn)
            except ImportError as error:
                why = f"matplotlib cannot be imported ({error}): {INSTALL}, or common/setup.sh --dev"
                return changed, [f"{name} is stale and cannot be drawn, as {why}"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        changed.append(name)
    return changed, []


def picture(page, device, name):
    """The part `plot DEVICE NAME` of a page: the picture, and where its rows come from."""
    if name not in plot.PLOTS:
        raise SystemExit(f"{page}: there is no plot '{name}'; there are: {', '.join(plot.PLOTS)}")
    pictures, reasons = selected(device)
    if name not in pictures:
        return f"*The plot `{name}` of {device} is not saved yet: {reasons[name]}.*"
    drawn = pictures[name]
    used = {id(row) for row in drawn.rows}
    named = sorted({file for file, row in saved(device) if id(row) in used})
    link = os.path.relpath(PLOTS / device / f"{name}.svg", (ROOT / page).parent)
    alt = f"{drawn.title}. {drawn.note} {drawn.remark}".strip()
    return f"![{alt}]({link})\n\nFrom {', '.join(f'`{file}`' for file in named)} of `docs/results/{device}`. {origin(drawn.rows)}"
