"""The steps as files."""

import re

from common.compare.rows import ROOT

from .formatting import table


def file_of(step):
    """'06_fa2_forward/tuned': its path, relative to the project; found by the name of its variant."""
    stage, variant = step.split("/")
    for path in sorted((ROOT / stage).rglob("*.cuh")):
        if re.search(rf'(\.name = |_step<[^(]*>\(\s*)"{variant}"', path.read_text()):
            return path.relative_to(ROOT).as_posix()


def last_step(folder):
    """That with the highest number."""
    return max((path.stem.split("_", 1) for path in (ROOT / folder).glob("[0-9]*.cuh")), key=lambda file: int(file[0]))[1]


def ideas(folder):
    """What is new in each kernel of a folder of a stage, in the order of their numbers, then in more/: for the stage's README."""
    order = lambda path: (path.parent.name == "more", *map(int, re.findall(r"^\d+", path.name)), path.name)  # noqa: E731
    paths = sorted((ROOT / folder).rglob("*.cuh"), key=order)
    found = ((path, re.search(r'"(\w+)"[,;]\s*(?:(?:step)?\.idea = )?"([^"]{9,})"', path.read_text())) for path in paths)
    stage = ROOT / folder.split("/")[0]
    return table("file | variant | new", [[f"[{p.stem}]({p.relative_to(stage)})", f"`{m[1]}`", m[2]] for p, m in found if m])
