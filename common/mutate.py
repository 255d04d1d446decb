#!/usr/bin/env python3
"""Deletes one synchronisation at a time from the kernels and expects the tests to notice.

A barrier that can go without any test turning red is either not needed or not tested. For each __syncthreads(), __syncwarp(),
arrival at a barrier, fence and wait for what is asynchronous in the kernel files, this script takes the statement out of a copy of the project,
builds the test program of a stage that uses the file, and runs it on the CPU: first as it is (a wrong result or the simulator's
complaint), then those that stayed green under ThreadSanitizer (a race report). Exit code 1 if any deletion went unnoticed.

    common/mutate.py                      all stages
    common/mutate.py --stage 01,03        these stages
    common/mutate.py --minutes 5          as many as can begin in that time, others at each commit; the rest is NOT RUN
    common/mutate.py --list               what would be deleted, nothing built
    common/mutate.py --exercises [NN...]  instead: a wrong token in solutions of the course, which its checker has to refuse

The copy is built by the presets ci and race, the latter by clang where it is installed.
"""

import argparse
import math
import os
import pathlib
import sys
import tempfile

from mutation.campaign import PRESETS, Campaign, found
from mutation.mutants import drawn, mutants_of, stages_and_kernels


def main():
    if sys.argv[1:2] == ["--exercises"]:
        course = pathlib.Path(__file__).resolve().parent.parent / "docs" / "course" / "course.py"
        os.execv(sys.executable, [sys.executable, "-B", course, "mutate", *sys.argv[2:]])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", help="numbers or names of stages, separated by commas")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing later than that (default: run all)")
    parser.add_argument("--list", action="store_true", help="list the mutants and stop")
    arguments = parser.parse_args()

    stages = stages_and_kernels()
    chosen = list(stages)
    if arguments.stage:
        chosen = [name for want in arguments.stage.split(",") for name in stages if want in (name, name[:2])]
        if not chosen:
            parser.error(f"--stage {arguments.stage}: there are {', '.join(stages)}")
    stages = {name: stages[name] for name in chosen}
    mutants = [mutant for path in sorted(set().union(*stages.values())) for mutant in mutants_of(path)]
    if arguments.list or not mutants:
        print("\n".join(map(str, mutants)) or f"mutate: nothing to delete in {', '.join(stages) or 'no stage'}")
        return 0

    with tempfile.TemporaryDirectory(prefix="flash_mutate_") as scratch:
        verdicts = Campaign(stages, pathlib.Path(scratch)).run(list(PRESETS), drawn(mutants), 60 * arguments.minutes)

    places = [f"{mutant.path}:{mutant.line}" for mutant in mutants]
    for place, mutant in zip(places, mutants):
        verdict = (verdicts[mutant] or "NOT FOUND") if mutant in verdicts else "NOT RUN"
        print(f"{place:{max(map(len, places))}}  {mutant.statement:24}  {verdict}")
    survivors = sum(not found(verdict) for verdict in verdicts.values())
    print(f"{len(mutants)} deletions, {len(verdicts) - survivors} found, {survivors} not found, {len(mutants) - len(verdicts)} not run")
    return 1 if survivors or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
