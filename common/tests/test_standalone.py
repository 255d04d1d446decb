"""Tests of a standalone file.

test_standalone.py sizes PROGRAM N...     the program runs with so many queries and keys, without and with a mask
test_standalone.py barriers FILE.cu       on the simulator it has a race without any one of its barriers, and the report names the lines
"""

import re
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parents[1] / "run"
BARRIER = re.compile(
    r"^ *__sync"  # __syncthreads(), __syncwarp()
    r"|^ *wait\("  # for an mbarrier
    r"|(fence|wait_group)[a-z_.]*[ ;]"  # of Hopper's, in PTX
)


def sizes(program, *lengths):
    """The exit code of the first run that fails, else 0."""
    runs = [[program, length, "2", "0", *mask] for length in lengths for mask in ([], ["causal"])]
    return next(filter(None, (subprocess.run(words).returncode for words in runs)), 0)


def barriers(file):
    place = rf"{Path(file).name}:\d+"
    found = re.compile(rf"\[([a-z_]*race\] .*{place} .* and .*{place} |(in_flight|missing_fence|mbarrier)\] .*{place})")
    length = "300" if "hopper" in file else "130"  # three tiles
    lines = [number for number, line in enumerate(Path(file).read_text().splitlines(), 1) if BARRIER.search(line)]
    for line in lines:
        report = subprocess.run(
            [RUN, "--without", f"{file}:{line}", file, "--", length, "1", "0"], stderr=subprocess.PIPE, text=True
        ).stderr
        said = [words for words in report.splitlines() if found.search(words)]
        print(said[0] if said else f"{file}:{line}: nothing is found without it\n{report}", flush=True)
        if not said:
            return 1
    return 0 if lines else 1


sys.exit({"sizes": sizes, "barriers": barriers}[sys.argv[1]](*sys.argv[2:]))
