"""Finds the synchronisations of the kernels, and which stages use them."""

import dataclasses
import hashlib
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Statements that only wait, arrive or fence; PTX wrappers are named after their instruction. release(): of parts/panels.cuh.
WAITS = (
    r"__syncthreads|__syncwarp|barrier_sync|named_barrier_\w+|cp_async_wait\w*|mbarrier_wait\w*|wait_full|wait_empty|mbarrier_arrive\w*|"
    r"fence_mbarrier_init|fence_proxy_async\w*|__threadfence|bulk_commit|bulk_wait\w*|wgmma_fence|wgmma_commit|wgmma_wait\w*|release|"
    r"wait_until_equal"
)
WAIT_STATEMENT = re.compile(rf"(?<![\w:.>])(?:flash::)?(?:{WAITS})\s*(?:<[^;<>()]*>)?\s*\([^;{{}}]*?\)\s*;")
# Barriers that also return a value: the barrier goes, the value stays (this thread's own).
VALUE_BARRIER = re.compile(r"(?<![\w:.>])__syncthreads_(?:or|and|count)(?=\s*\()")


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str  # relative to the project
    line: int
    start: int
    end: int
    statement: str
    replacement: str

    def __str__(self):
        return f"{self.path}:{self.line}  {self.statement}"


def without_comments(text):
    """The text with comments and string literals blanked, so that positions stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def mutants_of(path):
    code = without_comments((ROOT / path).read_text())
    found = []
    for pattern, replacement in ((WAIT_STATEMENT, ";"), (VALUE_BARRIER, "")):
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            statement = " ".join(match.group().split())
            found.append(Mutant(path, line, match.start(), match.end(), statement, replacement))
    return sorted(found, key=lambda mutant: mutant.start)


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def drawn(mutants):
    """The mutants file by file, files and lines in an order that the last commit decides: who has time for a few takes the first."""
    commit = git("rev-parse", "HEAD").strip()

    def lot(*what):
        return hashlib.sha256(repr((commit, *what)).encode()).hexdigest()

    return sorted(mutants, key=lambda mutant: (lot(mutant.path), lot(mutant.path, mutant.line, mutant.start)))


def project_files():
    names = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def included_by(path, seen):
    """Adds to `seen` the project's files that a file includes, however deep."""
    for name in re.findall(r'^#include "([^"]+)"', (ROOT / path).read_text(), re.MULTILINE):
        if name not in seen and (ROOT / name).is_file():
            seen.add(name)
            included_by(name, seen)
    return seen


def stages_and_kernels():
    """{stage: its kernel files and the device code of common/ that they include}"""
    stages = {}
    for name in project_files():
        match = re.fullmatch(r"(\d\d_\w+)/.+\.cuh", name)
        if match:
            device_code = {n for n in included_by(name, set()) if n.startswith("common/device/") and n.endswith(".cuh")}
            stages.setdefault(match[1], set()).update({name}, device_code - {"common/device/ptx.cuh"})
    return dict(sorted(stages.items()))
