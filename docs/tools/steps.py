"""The steps as files: what each changes of the step before it, and how much there is to read to follow it. Steps are those of
docs/ladder.json; a step's file is found by the name of its variant, wherever it lies in its stage's folder."""

import json
import re
import subprocess
from pathlib import Path

from .formatting import table

ROOT = Path(__file__).resolve().parents[2]
# Not counted: views, launches, scores, PTX wrappers and tables of sizes are the same for all kernels, and chapters 00 and 01 introduce them.
HARNESS = "common/"
LESSONS = ["common/device/softmax.cuh"]  # but this is counted: what chapters have introduced and later ones share
HARNESS_OF_08 = ["08_tensor_cores/parts/launch.cuh", "08_tensor_cores/parts/padding.cuh"]  # tables of sizes, the order of blocks; unaligned rows


def file_of(step):
    """'06_fa2_forward/tuned': its path, relative to the project."""
    stage, variant = step.split("/")
    for path in sorted((ROOT / stage).rglob("*.cuh")):
        if re.search(rf'(\.name = |_step<shapes[^>]*>\(\s*)"{variant}"', path.read_text()):
            return path.relative_to(ROOT).as_posix()
    return None


def changed(before, after):
    """Added and removed lines, as git counts them."""
    done = subprocess.run(["git", "diff", "--no-index", "--numstat", before, after], cwd=ROOT, capture_output=True, text=True, check=False)
    added, removed, *_ = done.stdout.split()
    return f"+{added} −{removed}"


def to_read(path, seen=None):
    """The files that a kernel is made of, itself first."""
    seen = [] if seen is None else seen
    if path in seen or path in HARNESS_OF_08 or (path.startswith(HARNESS) and path not in LESSONS) or not (ROOT / path).exists():
        return seen
    seen.append(path)
    for name in re.findall(r'^#include "([^"]+\.cuh)"', (ROOT / path).read_text(), re.MULTILINE):
        to_read(name, seen)
    return seen


def lines_of(path):
    return len((ROOT / path).read_text().splitlines())


def steps():
    ladder = json.loads((ROOT / "docs" / "ladder.json").read_text())
    rows = []
    for direction in (name for name in ladder if name != "about"):
        for entry in ladder[direction]:
            path, before = file_of(entry["step"]), file_of(entry["over"]) if "over" in entry else None
            if path is None:
                continue
            files = to_read(path)
            rows.append(
                ["backward" if "backward" in direction else "forward", f"[`{path}`](../{path})", lines_of(path), changed(before, path) if before else "–"]
                + [len(files), sum(map(lines_of, files)), ", ".join(f"`{Path(name).name}`" for name in files[1:]) or "–"]
            )
    return table(["pass", "step", "lines", "changed lines", "files to read", "lines to read", "beside it"], rows)
