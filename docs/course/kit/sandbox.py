"""Runs a program that nobody has to trust: limits on time, memory and files, nothing of the environment, a process group to end."""

import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

MEGABYTE = 1 << 20
MOST_TEXT = MEGABYTE  # of what a program prints


class Done(NamedTuple):
    code: int  # negative: ended by this signal; 124: out of time
    out: str
    err: str
    seconds: float


def run(argv, folder, *, env=None, seconds=8, memory=1536, file_size=32):
    """Runs argv in `folder`, an empty place of its own. Limits: seconds of processor time, and six times as many on the clock; megabytes of
    memory, and of each file that it writes. What it prints goes to files, so that they are limited too."""
    folder = Path(folder)

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory * MEGABYTE,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size * MEGABYTE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    settings = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": "C.UTF-8"} | (
        env or {}
    )
    began = time.monotonic()
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        started = subprocess.Popen(
            [str(word) for word in argv],
            cwd=folder,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            code = started.wait(timeout=6 * seconds)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            try:
                os.killpg(started.pid, signal.SIGKILL)  # whatever it has started
            except ProcessLookupError:
                pass
            started.wait()
    if code == -signal.SIGXCPU:
        code = 124

    def read(name):
        with open(folder / name, "rb") as file:
            return file.read(MOST_TEXT).decode(errors="replace")

    return Done(code, read("stdout"), read("stderr"), time.monotonic() - began)
