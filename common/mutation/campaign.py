"""Builds and tests a copy of the project, each time with one synchronisation less."""

import os
import re
import shutil
import subprocess
import sys
import time

from mutation.mutants import ROOT, project_files

PRESETS = {"plain": "ci", "race": "race"}
SLOWEST = 10  # a mutant may take this many times as long as the unchanged tests, and a minute more
TIMEOUT = "timeout"


def found(verdict):
    """A hang that only the clock ended explains nothing to a reader, so it does not count."""
    return bool(verdict) and not verdict.startswith(TIMEOUT)


def unrandomised():
    """What starts a ThreadSanitizer program without address randomisation, of which older ones stand only little."""
    starter = ["setarch", "-R"]
    works = shutil.which("setarch") and subprocess.run([*starter, "true"], capture_output=True).returncode == 0
    return starter if works else []


class Campaign:
    """A copy of the project with a build folder for each kind of build."""

    def __init__(self, stages, folder):
        self.stages, self.folder = stages, folder
        self.limits = {}  # (kind, stage): seconds that the tests of a mutant may take
        for name in project_files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)

    def build(self, kind, stage):
        """None or the end of the build's log."""
        folder = self.folder / f"build-{kind}"
        clang = kind == "race" and (shutil.which("clang++-14") or shutil.which("clang++"))
        compiler = [f"-DCMAKE_CXX_COMPILER={clang}"] if clang else []
        options = ["-DFLASH_CUDA=OFF", "-DFLASH_WERROR=OFF", *compiler]
        configure = ["cmake", "--preset", PRESETS[kind], "-S", self.folder, "-B", folder, *options]
        commands = [] if (folder / "build.ninja").exists() else [configure]
        commands.append(["cmake", "--build", folder, "--target", f"{stage}_test", "-j", str(os.cpu_count())])
        for command in commands:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                return "\n".join(done.stdout.splitlines()[-30:])
        return None

    def test(self, kind, stage, limit):
        """(verdict, seconds): verdict is "" if all tests passed, else who noticed what."""
        program = self.folder / f"build-{kind}" / "tests" / f"{stage}_test"
        options = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
        command = [program, "--device=cpu", "--abort-after=1", "--no-colors=true"]
        if kind == "race":
            command = unrandomised() + command
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit, env=options
            )
        except subprocess.TimeoutExpired:
            return f"{TIMEOUT} after {limit:.0f} s", limit
        seconds = time.monotonic() - began
        if done.returncode == 0:
            return "", seconds
        race = re.search(r"SUMMARY: ThreadSanitizer: (.*)", done.stdout)
        if race:
            return f"race: {race[1].replace(str(self.folder) + '/', '')}", seconds
        case = re.search(r"TEST CASE:\s*(.*)", done.stdout)
        crash = f", killed by signal {-done.returncode}" if done.returncode < 0 else ""
        return f"{kind}: {case[1] if case else 'exit code ' + str(done.returncode)}{crash}", seconds

    def prepare(self, kind, stage):
        """The unchanged tests must build and pass, or the hunt would mean nothing."""
        if (kind, stage) in self.limits:
            return
        if log := self.build(kind, stage):
            sys.exit(f"mutate: the unchanged project does not build ({kind}, {stage}):\n{log}")
        verdict, seconds = self.test(kind, stage, limit=1800)
        if verdict:
            sys.exit(f"mutate: the unchanged tests of {stage} fail already, {verdict}")
        print(f"{stage}, unchanged, {kind}: green in {seconds:.0f} s", file=sys.stderr, flush=True)
        self.limits[kind, stage] = 60 + SLOWEST * seconds

    def verdict(self, kind, mutant):
        """Who notices the mutant in this kind of build: a verdict as of test(), "" if nobody."""
        stages = [stage for stage, files in self.stages.items() if mutant.path in files]
        for stage in stages:
            self.prepare(kind, stage)
        target = self.folder / mutant.path
        text = target.read_text()
        target.write_text(text[: mutant.start] + mutant.replacement + text[mutant.end :])
        unexplained = ""
        try:
            for stage in stages:
                if log := self.build(kind, stage):
                    sys.exit(f"mutate: does not build without {mutant}:\n{log}")
                verdict, _ = self.test(kind, stage, self.limits[kind, stage])
                if found(verdict):
                    return f"{stage}, {verdict}"
                unexplained = unexplained or verdict  # a hang helps no reader: another stage may do better
            return unexplained
        finally:
            target.write_text(text)

    def run(self, kinds, mutants, seconds):
        """{mutant: verdict} of the first kind that finds it, without those that could not begin in that time. There is always time for the
        first."""
        end = time.monotonic() + seconds
        verdicts = {}
        for mutant in mutants:
            if verdicts and time.monotonic() > end:
                break
            for kind in kinds:
                verdicts[mutant] = self.verdict(kind, mutant)
                if found(verdicts[mutant]):
                    break
            print(f"{mutant}  {verdicts[mutant] or 'not found'}", file=sys.stderr, flush=True)
        return verdicts
