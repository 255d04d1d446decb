"""Deletes one synchronisation at a time from the kernels and expects the tests to notice.

A barrier that can go without any test turning red is either not needed or not tested. For each __syncthreads(), __syncwarp(),
arrival at a barrier, fence and wait for what is asynchronous in the kernel files, this script takes the statement out of a copy of the project,
builds the test program of a stage that uses the file, and runs it on the CPU: a wrong result, or the simulator complains. Exit code 1
if any deletion went unnoticed. From the root: python3 -m common.tests.mutate
docs/course/course.py mutate does the like to the solutions of the exercises.
"""

import argparse
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

from common.compare.rows import ROOT, device_code

SLOWEST = 10  # a mutant may take this many times as long as the unchanged tests, and a minute more

# Statements that only wait, arrive or fence; PTX wrappers are named after their instruction. Of a barrier that also returns a value the barrier
# goes and the value stays (this thread's own).
WAITS = (
    r"__syncthreads|__syncwarp|barrier_sync|named_barrier_\w+|cp_async_wait\w*|mbarrier_wait\w*|wait_full|wait_empty|mbarrier_arrive\w*|"
    r"fence_mbarrier_init|fence_proxy_async\w*|__threadfence|bulk_commit|bulk_wait\w*|wgmma_fence|wgmma_commit|wgmma_wait\w*|release|"
    r"wait_until_equal"
)
DELETED = re.compile(
    rf"(?<![\w:.>])(?:(?:flash::)?(?:{WAITS})\s*(?:<[^;<>()]*>)?\s*\([^;{{}}]*?\)\s*;|__syncthreads_(?:or|and|count)(?=\s*\())"
)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def stages_and_kernels():
    """{stage: its kernel files and the device code of common/ that they include}"""
    stages = {}
    for file in sorted(ROOT.glob("[0-9][0-9]_*/**/*.cuh")):
        name = file.relative_to(ROOT).as_posix()
        of_common = {path for path in device_code(name) if path.startswith("common/")}
        stages.setdefault(name.split("/")[0], set()).update({name}, of_common - {"common/machine/ptx.cuh"})
    return stages


def mutants_of(path):
    """(path, line, begin, end, replacement, statement) of each deletion."""
    code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), (ROOT / path).read_text())
    for match in DELETED.finditer(code):
        statement = " ".join(match.group().split())
        yield path, code.count("\n", 0, match.start()) + 1, *match.span(), ";" if statement.endswith(";") else "", statement


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)


class Campaign:
    """A copy of the project with a build folder"""

    def __init__(self, stages, folder):
        self.stages, self.folder = stages, folder
        self.limits = {}  # stage: seconds that the tests of a mutant may take
        builds = [path.name for path in ROOT.iterdir() if re.match(r"build|\.git$", path.name)]
        shutil.copytree(ROOT, folder, ignore=lambda at, names: builds if pathlib.Path(at) == ROOT else [], dirs_exist_ok=True)

    def build(self, stage):
        folder, options = self.folder / "build-ci", ["-DFLASH_CUDA=OFF", "-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF"]
        commands = [] if (folder / "build.ninja").exists() else [["cmake", "--preset", "ci", "-S", self.folder, "-B", folder, *options]]
        for command in [*commands, ["cmake", "--build", folder, "--target", f"{stage}_test", "-j", str(os.cpu_count())]]:
            done = run(command)
            if done.returncode != 0:
                sys.exit("\n".join([*done.stdout.splitlines()[-30:], f"mutate: {stage} does not build"]))

    def test(self, stage, limit):
        """Who noticed what: "" if all tests passed, None if they took longer than the limit."""
        program = self.folder / "build-ci/tests" / f"{stage}_test"
        try:
            done = run([program, "--device=cpu", "--abort-after=1", "--no-colors=true"], timeout=limit)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode == 0:
            return ""
        found = re.search(r"TEST CASE:\s*(.*)", done.stdout)
        return f"{stage}, {found[1] if found else f'exit code {done.returncode}'}"

    def limit(self, stage):
        """The unchanged tests must build and pass, or the hunt would mean nothing."""
        if stage not in self.limits:
            self.build(stage)
            began = time.monotonic()
            if self.test(stage, 1800) != "":
                sys.exit(f"mutate: the unchanged tests of {stage} fail already")
            self.limits[stage] = 60 + SLOWEST * (time.monotonic() - began)
        return self.limits[stage]

    def verdict(self, mutant):
        """Who notices the mutant; "" if nobody. A hang that only the clock ended explains nothing to a reader, so it does not count."""
        path, _, begin, end, replacement, _ = mutant
        target, text = self.folder / path, (ROOT / path).read_text()
        for stage in (stage for stage, files in self.stages.items() if path in files):
            limit = self.limit(stage)
            target.write_text(text[:begin] + replacement + text[end:])
            try:
                self.build(stage)
                found = self.test(stage, limit)
            finally:
                target.write_text(text)
            if found:
                return found
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin nothing later than that; each commit begins with other files"
    )
    given = parser.parse_args()
    if not given.minutes > 0:
        parser.error(f"--minutes is {given.minutes}; allowed: numbers above 0")

    stages = stages_and_kernels()
    files = sorted(set().union(*stages.values()))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).stdout
    random.Random(commit).shuffle(files)
    mutants = [mutant for path in files for mutant in mutants_of(path)]
    end, verdicts = time.monotonic() + 60 * given.minutes, []
    with tempfile.TemporaryDirectory(prefix="flash_mutate_") as scratch:
        campaign = Campaign(stages, pathlib.Path(scratch))
        for path, line, *place, statement in mutants:
            if verdicts and time.monotonic() > end:
                break
            verdicts.append(campaign.verdict((path, line, *place, statement)))
            print(f"{path}:{line}  {statement}  {verdicts[-1] or 'NOT FOUND'}", flush=True)
    survivors = verdicts.count("")
    print(f"{len(mutants)} deletions, {len(verdicts) - survivors} found, {survivors} not found, {len(mutants) - len(verdicts)} not run")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
