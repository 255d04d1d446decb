"""Builds and tests copies of the project, each with one synchronisation less."""

import concurrent.futures
import math
import os
import queue
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


class Workspace:
    """A copy of the project with a build folder for each kind of build."""

    def __init__(self, folder, build_jobs):
        self.folder = folder
        self.build_jobs = str(build_jobs)
        for name in project_files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)

    def build(self, kind, stage):
        """None or the end of the build's log."""
        folder = self.folder / f"build-{kind}"
        clang = kind == "race" and (shutil.which("clang++-14") or shutil.which("clang++"))
        compiler = [f"-DCMAKE_CXX_COMPILER={clang}"] if clang else []
        configure = [
            "cmake",
            "--preset",
            PRESETS[kind],
            "-S",
            self.folder,
            "-B",
            folder,
            "-DFLASH_CUDA=OFF",
            "-DFLASH_WERROR=OFF",
            *compiler,
        ]
        commands = [] if (folder / "build.ninja").exists() else [configure]
        commands.append(["cmake", "--build", folder, "--target", f"{stage}_test", "-j", self.build_jobs])
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


class Campaign:
    def __init__(self, stages, jobs, scratch):
        self.stages = stages
        build_jobs = max(1, (os.cpu_count() or 1) // jobs)
        self.workspaces = [Workspace(scratch / f"tree{n}", build_jobs) for n in range(jobs)]
        self.limits = {}  # (kind, stage): seconds that the tests of a mutant may take

    def stages_using(self, path):
        return [stage for stage, files in self.stages.items() if path in files]

    def prepare(self, kind, mutants):
        """The unchanged tests of the mutants' stages must build and pass, or the hunt would mean nothing."""
        stages = sorted({stage for mutant in mutants for stage in self.stages_using(mutant.path)})
        stages = [stage for stage in stages if (kind, stage) not in self.limits]

        def build(workspace):
            for stage in stages:
                log = workspace.build(kind, stage)
                if log:
                    sys.exit(f"mutate: the unchanged project does not build ({kind}, {stage}):\n{log}")

        with concurrent.futures.ThreadPoolExecutor(len(self.workspaces)) as pool:
            list(pool.map(build, self.workspaces))
        for stage in stages:
            verdict, seconds = self.workspaces[0].test(kind, stage, limit=1800)
            if verdict:
                sys.exit(f"mutate: the unchanged tests of {stage} fail already, {verdict}")
            print(f"{stage}, unchanged, {kind}: green in {seconds:.0f} s", file=sys.stderr, flush=True)
            self.limits[kind, stage] = 60 + SLOWEST * seconds

    def hunt(self, workspace, kind, mutant):
        """Who notices the mutant: a verdict as of Workspace.test(), "" if nobody."""
        target = workspace.folder / mutant.path
        text = target.read_text()
        target.write_text(text[: mutant.start] + mutant.replacement + text[mutant.end :])
        unexplained = ""
        try:
            for stage in self.stages_using(mutant.path):
                log = workspace.build(kind, stage)
                if log:
                    sys.exit(f"mutate: does not build without {mutant}:\n{log}")
                verdict, _ = workspace.test(kind, stage, self.limits[kind, stage])
                if found(verdict):
                    return f"{stage}, {verdict}"
                unexplained = unexplained or verdict  # a hang helps no reader: another stage may do better
            return unexplained
        finally:
            target.write_text(text)

    def run(self, kind, mutants, deadline=math.inf):
        """{mutant: verdict}, without those that could not begin before the deadline (as of time.monotonic())"""
        if not mutants or time.monotonic() > deadline:
            return {}
        self.prepare(kind, mutants)
        free = queue.SimpleQueue()
        for workspace in self.workspaces:
            free.put(workspace)

        def one(mutant):
            workspace = free.get()
            try:
                if time.monotonic() > deadline:
                    return None
                verdict = self.hunt(workspace, kind, mutant)
            finally:
                free.put(workspace)
            print(f"{mutant}  {verdict or f'not found ({kind})'}", file=sys.stderr, flush=True)
            return verdict

        with concurrent.futures.ThreadPoolExecutor(len(self.workspaces)) as pool:
            verdicts = zip(mutants, pool.map(one, mutants))
            return {mutant: verdict for mutant, verdict in verdicts if verdict is not None}

    def run_all(self, kinds, mutants, seconds=math.inf):
        """{mutant: verdict} of run() for the first kind and, for those that it did not find, for the next ones.

        The unchanged tests count; they are run as each file needs them, and each gets its share of what is left. A mutant has no
        verdict if there was no time to be sure of it; there always is for the first."""
        end = time.monotonic() + seconds
        verdicts, waiting = {}, len(mutants)
        for path in dict.fromkeys(mutant.path for mutant in mutants):
            if verdicts and time.monotonic() > end:
                break
            group = [mutant for mutant in mutants if mutant.path == path]
            self.prepare(kinds[0], group)
            now = time.monotonic()
            if verdicts and now > end:
                break
            deadline = now + max(end - now, 1) * len(group) / waiting
            waiting -= len(group)
            for kind in kinds:
                new = self.run(kind, group, deadline)
                for mutant in group:
                    verdicts.pop(mutant, None)  # "not found" by another kind was not the last word
                verdicts.update(new)
                group = [mutant for mutant, verdict in new.items() if not found(verdict)]
        return verdicts
