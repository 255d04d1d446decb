"""Runs a program with limits on time, memory and files, and with nothing of the environment. `grade` puts the student's program into a
bubblewrap box as well, where there is one: a read-only system, no network, one folder to write."""

import contextlib
import functools
import os
import resource
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    code: int  # negative: ended by this signal; 124: out of time
    out: str
    err: str
    seconds: float


@contextlib.contextmanager
def workplace():
    with tempfile.TemporaryDirectory(prefix="flash_course.", ignore_cleanup_errors=True) as name:
        yield Path(name)


def box(folder):
    """The words before a command that put it into a box."""
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--remount-ro", "/dev"]
    return [*words, "--bind", str(folder), str(folder), "--chdir", str(folder), "--"]


@functools.cache
def has_box():
    """Does bubblewrap run on this machine?"""
    with workplace() as folder, contextlib.suppress(OSError):
        return subprocess.run([*box(folder), "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20).returncode == 0
    return False


class Limits(NamedTuple):
    seconds: int = 8  # of processor time; on the clock six times as many
    memory: int = 1536  # megabytes
    file_size: int = 32  # megabytes

    def set(self):
        """For this process and those that it will start."""
        limits = {
            resource.RLIMIT_CPU: self.seconds,
            resource.RLIMIT_AS: self.memory << 20,
            resource.RLIMIT_FSIZE: self.file_size << 20,
            resource.RLIMIT_CORE: 0,
        }
        for which, value in limits.items():  # those of a container may be lower
            most = resource.getrlimit(which)[1]
            hard = value + 1 if which == resource.RLIMIT_CPU else value  # a program may ignore the soft limit's signal
            hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(which, (min(value, hard), hard))


USUAL = Limits()


def run(argv, folder, limits=USUAL, *, env=None, cwd=None, boxed=False):
    """Runs argv, in `cwd` or else in `folder`, where its output stays, as a process group that does not outlive its leader."""
    folder = Path(folder)
    settings = {"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": "C.UTF-8"} | (env or {})
    words = [*(box(folder) if boxed else []), *map(str, argv)]
    began = time.monotonic()
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        process = subprocess.Popen(words, cwd=cwd or folder, env=settings, start_new_session=True, preexec_fn=limits.set, **files)
        try:
            code = process.wait(timeout=6 * limits.seconds)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()
    taken = time.monotonic() - began
    code = 128 - code if boxed and code > 128 else code
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and taken >= limits.seconds):
        code = 124
    said, complained = ((folder / name).read_bytes().decode(errors="replace") for name in ("stdout", "stderr"))
    return Done(code, said, complained, taken)
