#!/usr/bin/env python3
"""Tables and pictures are made before anything is built, from what docs/save_results.sh saved of these programs: is it what they say today?

  docs/tools/test_programs.py PROGRAM...
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / "docs" / "save_results.sh").read_text()

for program in map(Path, sys.argv[1:]):
    line = next(line for line in SCRIPT.splitlines() if line.startswith(f'"$bin/{program.name}" ') and "/programs/" in line)
    arguments = line.split('"')[2].split(">")[0].split()
    said = subprocess.run([program, *arguments], capture_output=True, check=True, text=True).stdout
    if said != (ROOT / "docs" / "results" / "cpu" / "programs" / f"{program.name}.json").read_text():
        sys.exit(f"{program.name} {' '.join(arguments)}: not what is saved; run docs/save_results.sh and docs/generate.py")
