"""Copies of the project, in which tests run and edit what they like."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 900  # what a command may take, the build of a stage included


class Wrong(Exception):
    """What is wrong with a page, in words."""


class Copy:
    """The project without what was built or saved beside it, in a new folder."""

    def __init__(self, folder, seconds=SECONDS):
        self.folder = Path(folder).resolve()
        self.seconds = seconds
        self.before = {}  # file: its text before the first edit
        for path in ROOT.iterdir():
            if path.is_dir() and re.match(r"\d\d_|common$|docs$|\.ci$|\.devcontainer$|\.github$", path.name):
                shutil.copytree(path, self.folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.is_file():
                shutil.copy2(path, self.folder)

    def configure(self, into="build"):
        """For the CPU alone, like the preset ci, but with warnings that are no errors: a reader's edit may leave a variable unused."""
        self.expect(f"cmake --preset ci -B {into} -DFLASH_CUDA=OFF -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF")

    def run(self, command, program=("bash", "-o", "pipefail", "-c")):
        """(exit code, what it printed)"""
        settings = {name: value for name, value in os.environ.items() if not name.startswith("FLASH_SIMT")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{settings['PATH']}"  # a page's python3 is this one
        settings |= {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        try:
            done = subprocess.run([*program, command], cwd=self.folder, env=settings, timeout=self.seconds, **pipes)
        except subprocess.TimeoutExpired:
            return 124, f"stopped after {self.seconds} s"
        return done.returncode, done.stdout

    def expect(self, command, code=0, words=()):
        """Runs a command, which has to end with this exit code and to print these words, whatever the line breaks."""
        got, printed = self.run(command)
        missing = [f", and not '{word}'" for word in words if " ".join(word.split()) not in " ".join(printed.split())]
        if got != code or missing:
            raise Wrong("\n".join([f"{command}: exit code {got}, expected {code}{''.join(missing)}", *printed.splitlines()[-40:]]))
        print(f"      exit code {code}: {command}", flush=True)

    def edit(self, name, old, new):
        path = self.folder / name
        text = path.read_text() if path.is_file() else ""
        if text.count(old) != 1:
            raise Wrong(f"'{old}' occurs {text.count(old)} times in {name}, not once")
        self.before.setdefault(path, text)
        path.write_text(text.replace(old, new))

    def undo(self):
        for path, text in self.before.items():
            path.write_text(text)
        self.before = {}
