#!/usr/bin/env python3
"""Deletes one synchronisation at a time from the kernels and expects the tests to notice.

A barrier that can go without any test turning red is either not needed or not tested. For each __syncthreads(), __syncwarp(),
arrival at a barrier, fence and wait for what is asynchronous in the kernel files, this script takes the statement out of a copy of the project,
builds the test program of a stage that uses the file, and runs it on the CPU: first as it is (a wrong result or the simulator's
complaint), then, if that stayed green, under ThreadSanitizer (a race report). Exit code 1 if any deletion went unnoticed.
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
from collections import namedtuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRESETS = ("ci", "race")

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


Mutant = namedtuple("Mutant", "path line begin end replacement statement")


def included_by(path, seen):
    """Adds to `seen` the project's files that a file includes, however deep."""
    for name in re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.MULTILINE):
        if name not in seen and (ROOT / name).is_file():
            seen.add(name)
            included_by(name, seen)
    return seen


def stages_and_kernels():
    """{stage: its kernel files and the device code of common/ that they include}, and the kernel of the binding"""
    stages = {}
    for file in sorted(ROOT.glob("[0-9][0-9]_*/**/*.cuh")):
        name = file.relative_to(ROOT).as_posix()
        device_code = {n for n in included_by(name, set()) if re.match(r"common/(parts|machine)/.*\.cuh$", n)}
        stages.setdefault(name.split("/")[0], set()).update({name}, device_code - {"common/machine/ptx.cuh"})
    return {**stages, "binding": {"common/binding/merge.cuh"}}  # no stage, but binding_test is named as theirs are


def mutants_of(path):
    code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), (ROOT / path).read_text())
    for match in DELETED.finditer(code):
        statement = " ".join(match.group().split())
        yield Mutant(path, code.count("\n", 0, match.start()) + 1, *match.span(), ";" * statement.endswith(";"), statement)


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)


class Campaign:
    """A copy of the project with a build folder for each preset."""

    def __init__(self, stages, folder):
        self.stages, self.folder = stages, folder
        self.seconds = {}  # (preset, stage): of the unchanged tests
        builds = [path.name for path in ROOT.iterdir() if re.match(r"build|\.git$", path.name)]
        shutil.copytree(ROOT, folder, ignore=lambda at, names: builds if pathlib.Path(at) == ROOT else [], dirs_exist_ok=True)

    def build(self, preset, stage):
        folder = self.folder / f"build-{preset}"
        if not (folder / "build.ninja").exists():
            clang = preset == "race" and (shutil.which("clang++-14") or shutil.which("clang++"))
            options = ["-DFLASH_CUDA=OFF", "-DFLASH_WERROR=OFF", *([f"-DCMAKE_CXX_COMPILER={clang}"] if clang else [])]
            run(["cmake", "--preset", preset, "-S", self.folder, "-B", folder, *options])
        done = run(["cmake", "--build", folder, "--target", f"{stage}_test", "-j", str(os.cpu_count())])
        if done.returncode != 0:
            sys.exit("\n".join([*done.stdout.splitlines()[-30:], f"mutate: {stage} does not build ({preset})"]))

    def test(self, preset, stage, limit):
        """Who noticed what: "" if all tests passed, None if they took longer than the limit."""
        # Without random addresses, of which older ThreadSanitizers stand only little
        fixed = preset == "race" and shutil.which("setarch") and run(["setarch", "-R", "true"]).returncode == 0
        program = self.folder / f"build-{preset}" / "tests" / f"{stage}_test"
        command = [*(["setarch", "-R"] if fixed else []), program, "--device=cpu", "--abort-after=1", "--no-colors=true"]
        try:
            done = run(command, timeout=limit, env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1:exitcode=66"})
        except subprocess.TimeoutExpired:
            return None
        if done.returncode == 0:
            return ""
        found = re.search(r"SUMMARY: ThreadSanitizer: (.*)", done.stdout) or re.search(r"TEST CASE:\s*(.*)", done.stdout)
        return f"{stage}, {found[1] if found else f'exit code {done.returncode}'}"

    def limit(self, preset, stage):
        """Seconds that the tests of a mutant may take. The unchanged tests must build and pass, or the hunt would mean nothing."""
        if (preset, stage) not in self.seconds:
            self.build(preset, stage)
            began = time.monotonic()
            if self.test(preset, stage, 1800) != "":
                sys.exit(f"mutate: the unchanged tests of {stage} fail already ({preset})")
            self.seconds[preset, stage] = time.monotonic() - began
        return 60 + 10 * self.seconds[preset, stage]

    def verdict(self, mutant):
        """Who notices the mutant; "" if nobody. A hang that only the clock ended explains nothing to a reader, so it does not count."""
        target, text = self.folder / mutant.path, (ROOT / mutant.path).read_text()
        for preset in PRESETS:
            for stage in (stage for stage, files in self.stages.items() if mutant.path in files):
                limit = self.limit(preset, stage)
                target.write_text(text[: mutant.begin] + mutant.replacement + text[mutant.end :])
                try:
                    self.build(preset, stage)
                    found = self.test(preset, stage, limit)
                finally:
                    target.write_text(text)
                if found:
                    return found
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", help="numbers or names of stages, separated by commas (default: all)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing later; each commit begins with other files")
    given = parser.parse_args()

    wanted = given.stage.split(",") if given.stage else None
    stages = stages_and_kernels()
    chosen = {name: files for name, files in stages.items() if wanted is None or name in wanted or name[:2] in wanted}
    if not chosen:
        parser.error(f"--stage {given.stage}: there are {', '.join(stages)}")
    files = sorted(set().union(*chosen.values()))
    random.Random(run(["git", "-C", ROOT, "rev-parse", "HEAD"]).stdout).shuffle(files)
    mutants = [mutant for path in files for mutant in mutants_of(path)]
    end, verdicts = time.monotonic() + 60 * given.minutes, []
    with tempfile.TemporaryDirectory(prefix="flash_mutate_") as scratch:
        campaign = Campaign(chosen, pathlib.Path(scratch))
        for mutant in mutants:
            if verdicts and time.monotonic() > end:
                break
            verdicts.append(campaign.verdict(mutant))
            print(f"{mutant.path}:{mutant.line}  {mutant.statement}  {verdicts[-1] or 'NOT FOUND'}", flush=True)
    survivors = verdicts.count("")
    print(f"{len(mutants)} deletions, {len(verdicts) - survivors} found, {survivors} not found, {len(mutants) - len(verdicts)} not run")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
