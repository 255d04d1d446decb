"""The programs of the stages: finding them, asking them, running them."""

import json
import os
import re
import signal
import subprocess
from collections import namedtuple
from pathlib import Path

from .rows import Failure

Ended = namedtuple("Ended", "code out err")  # code: None past the time limit, negative for a signal


def run_program(command, limit):
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
    last = re.sub(r"^\d\d_\w+: (\d\d_\w+ variant \w+ )?", "", ended.err.strip().split("\n")[-1])
    if ended.code < 0:
        return f"ended by signal {-ended.code} ({signal.strsignal(-ended.code)})" + (f": {last}" if last else "")
    return "" if ended.code == 0 else last or f"it ended with exit code {ended.code}"


def find(folder):
    """The paths of the stage programs in a folder."""
    found = sorted(path.resolve() for path in Path(folder).glob("[0-9][0-9]_*") if path.is_file() and os.access(path, os.X_OK))
    if not found:
        raise Failure(2, f"no stage programs (NN_name) in '{folder}'; build them first")
    return found


def list_json(program, words=()):
    """What a stage says of itself and of a problem."""
    answer = run_program([str(program), "--list", "--json", *words], 60)
    if why := complaint(answer):
        raise Failure(2, why if answer.code == 2 else f"{program} --list --json does not answer: {why}")
    try:
        return {**json.loads(answer.out), "program": str(program)}
    except (ValueError, TypeError):
        raise Failure(2, f"{program} does not answer --list --json as a stage program does") from None
