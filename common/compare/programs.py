"""The programs that compare asks and starts: those of the stages, and peers.py."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

from .rows import ROOT, Failure

Ended = namedtuple("Ended", "code out err")  # code: None past the time limit, negative for a signal
TORCH_LOADS_IN = 300  # seconds


def start(command, limit):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return Ended(None, "", "")
    except OSError as error:
        return Ended(127, "", f"it cannot be started: {error.strerror}")
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def complaint(ended):
    """ "" if a program ended well, else the last line of its stderr without the names of the stage and the variant, and how it ended, where
    that says more than an exit code."""
    if ended.code is None:
        return "it took too long"
    last = re.sub(r"^(\d\d_\w+|peers): (\d\d_\w+ variant \w+ )?", "", ended.err.strip().split("\n")[-1])
    if ended.code < 0:
        return f"ended by signal {-ended.code} ({signal.strsignal(-ended.code)})" + (f": {last}" if last else "")
    return "" if ended.code == 0 else last or f"it ended with exit code {ended.code}"


def find(folder):
    """The paths of the stage programs in a folder."""
    if not Path(folder).is_dir():
        raise Failure(2, f"'{folder}' is no folder; allowed: one of stage programs")
    files = sorted(path.resolve() for path in Path(folder).iterdir() if re.fullmatch(r"\d\d_\w+", path.name))
    found = [path for path in files if path.is_file() and os.access(path, os.X_OK)]
    if not found:
        raise Failure(2, f"no stage programs (NN_name) in '{folder}'; build them, or name their folder by --bin")
    return found


def ask(program, words=()):
    """What a stage says of itself and of a problem. A backward pass takes all options."""
    answer = start([str(program), "--list", "--json", "--pass=backward", *words], 60)
    if why := complaint(answer):
        raise Failure(2, why if answer.code == 2 else f"{program} --list --json does not answer: {why}")
    try:
        return {**json.loads(answer.out), "program": str(program)}
    except (ValueError, TypeError):
        raise Failure(2, f"{program} does not answer --list --json as a stage program does") from None


class Peers:
    """The process of peers.py: it answers questions, and is started anew if one ended it. Loading torch is no part of a run."""

    process = None

    def ask(self, question, limit):
        if not self.process:
            self.errors, limit = tempfile.TemporaryFile("w+"), limit + TORCH_LOADS_IN
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
            command = [os.environ.get("PYTHON") or sys.executable, "-m", "common.compare.peers"]
            self.process = subprocess.Popen(command, cwd=ROOT, **pipes)
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its silence tells too
            print(json.dumps(question), file=self.process.stdin, flush=True)
        in_time, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if in_time else ""
        return Ended(0, line, "") if line.endswith("\n") else self.end(in_time)

    def end(self, by_itself=False):
        if not by_itself:
            self.process.kill()
        code, self.process = self.process.wait(), None
        self.errors.seek(0)
        return Ended(code if by_itself else None, "", self.errors.read())

    def list(self):
        """What peers.py says of itself. While stages run, torch has no part of the GPU."""
        answer = self.ask({"list": True}, 0)
        if why := complaint(answer):
            raise Failure(3 if answer.code == 3 else 2, f"--only peer needs torch and a GPU: {why}")
        self.end()
        return json.loads(answer.out)
