"""The variants of the stages, as their kernel files describe them. A stage's program lists the same, but pages are generated without a build."""

import functools
import re
from pathlib import Path
from typing import NamedTuple

from common.compare.rows import ROOT, ladder_order

from .formatting import table

DESCRIPTION = re.compile(r'^const Variant variant[^"]*"(\w+)"[^"]*((?:"[^"]*"\s*)+)', re.MULTILINE)


class Variant(NamedTuple):
    file: str  # relative to the project
    name: str
    idea: str


@functools.cache
def variants():
    """{"06_fa2_forward/tuned": its Variant}, in the order of the ladders, what is in more/ after them."""
    files = sorted((path.relative_to(ROOT).as_posix() for path in ROOT.glob("[0-9][0-9]_*/**/*.cuh")), key=ladder_order)
    found = ((file, DESCRIPTION.search((ROOT / file).read_text())) for file in files)
    described = [Variant(file, match[1], "".join(re.findall('"([^"]*)"', match[2]))) for file, match in found if match]
    return {f"{variant.file.split('/')[0]}/{variant.name}": variant for variant in described}


def steps(folder):
    """The names of the variants of the ladder in a folder, its first step first."""
    return [variant.name for variant in variants().values() if variant.file.rpartition("/")[0] == folder]


def ideas(folder, only=""):
    """What is new in each kernel of a folder of a stage, or in its steps only: for the stage's README."""
    shown = [v for v in variants().values() if v.file.startswith(f"{folder}/") and not (only == "steps" and "/more/" in v.file)]
    return table("file | variant | new", [[f"[{Path(v.file).stem}]({v.file.partition('/')[2]})", f"`{v.name}`", v.idea] for v in shown])
