"""Runs a program that nobody has to trust, with limits on time, memory and files and nothing of the environment. For `grade` the program
runs in a bubblewrap box: namespaces of its own, a read-only system, one place to write that is in memory and as large as a file may be. What it
leaves there comes out as a tar stream once the program has ended. docs/SECURITY.md says what that is good for."""

import atexit
import contextlib
import fcntl
import functools
import os
import re
import resource
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from kit import Fault

MEGABYTE = 1 << 20
MOST_TEXT = 4 * MEGABYTE  # of what a program prints
boxed = False  # grade sets it; a student's own lines need no box on the student's own machine
SYSTEM_PATH = "/usr/bin:/bin"
# The program's exit code goes to our standard error, which the program cannot reach, and what it leaves to our standard output.
SCRIPT = """(cd "$1" && shift 1 && exec "$@") > stdout 2> stderr; echo "ended $?" >&2
exec {} -cf - --ignore-failed-read stdout stderr {}"""


class Done(NamedTuple):
    code: int  # negative: ended by this signal; 124: out of time
    out: str
    err: str
    seconds: float


@functools.cache
def own_folder():
    """This process's temporary files, and the lock that it holds on them. What a killed process has left, and nobody locks, is removed."""
    for old in Path(tempfile.gettempdir()).glob("flash_course.*"):
        with contextlib.suppress(OSError), open(old / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="flash_course."))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    lock = open(folder / "new", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(folder / "new", folder / "lock")
    return folder, lock


@contextlib.contextmanager
def workplace():
    folder = Path(tempfile.mkdtemp(dir=own_folder()[0]))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def missing():
    """Why there is no box on this machine; "" if there is one."""
    if not shutil.which("bwrap"):
        return "bwrap is missing (common/setup.sh --dev installs bubblewrap)"
    with workplace() as folder:
        try:
            done = boxed_run(["true"], folder, {}, folder, (), (), 8, 256, 1)
        except Fault as error:
            return str(error)
        return "" if done.code == 0 else f"a trial run ended with {done.code}"


def isolation():
    return "bubblewrap" if boxed else "none"


def run(argv, folder, *, env=None, seconds=8, memory=1536, file_size=32, cwd=None, read=(), keep=(), trusted=False):
    """Runs argv in `cwd`, or else in `folder`, which lies in a place of its own. A box has besides the system the files `read`, and leaves those
    named `keep` in `folder`; the project's own programs are `trusted` and need none. Limits: seconds of processor time, and six times as many
    on the clock; megabytes of memory, and of what it writes."""
    folder = Path(folder)
    settings = {"PATH": os.environ.get("PATH", SYSTEM_PATH), "TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": "C.UTF-8"} | (env or {})
    argv = [str(word) for word in argv]
    how = boxed_run if boxed and not trusted else plain_run
    return how(argv, folder, settings, cwd or folder, read, keep, seconds, memory, file_size)


def plain_run(argv, folder, settings, cwd, _, __, seconds, memory, file_size):
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        code, taken = process(argv, cwd, settings, out, err, seconds, memory, file_size)
    return done_with(folder, code, taken, seconds)


def boxed_run(argv, folder, settings, cwd, read, keep, seconds, memory, file_size):
    script = ["/bin/sh", "-c", SCRIPT.format(shutil.which("tar", path=SYSTEM_PATH), " ".join(keep)), "sh", str(cwd), *argv]
    words = [shutil.which("bwrap"), *box(folder, read, file_size), "--chdir", str(folder), "--", *script]
    with open(folder / "box.tar", "w+b") as out, open(folder / "box.err", "w+b") as err:
        code, taken = process(words, "/", settings, out, err, seconds, memory, file_size)
        err.seek(0)
        said = err.read(MOST_TEXT).decode(errors="replace").strip()
        ended = re.search(r"^ended (\d+)$", said, re.MULTILINE)
        if code == 124:
            return Done(124, "", "", taken)
        if not ended:
            raise Fault(f"the sandbox ended with {code}: {said.splitlines()[0] if said else 'killed from outside'}")
        if code != 0 and code != 128 + signal.SIGXFSZ:  # that is tar, at the limit of a file
            why = (said[ended.end() :].strip() or str(code)).splitlines()[0]
            full = re.search(r"No space left|Wrote only", why)  # tar's two ways to say so
            raise Fault(f"no space left in {tempfile.gettempdir()}" if full else f"the sandbox's results cannot be kept: {why}")
        unpack(out, folder)
    code = int(ended.group(1))
    code = 128 - code if code > 128 else code
    if code == -signal.SIGKILL and taken < seconds / 4:  # too early for the limit, even in four threads
        raise Fault("the program was killed from outside; is there enough memory?")
    return done_with(folder, code, taken, seconds)


def box(folder, read, file_size):
    """bubblewrap's options. Nothing of the machine can be written, and there is no /proc to look into other processes."""
    words = (
        "--unshare-all --unshare-user --uid 65534 --gid 65534 --die-with-parent --new-session --cap-drop ALL --ro-bind /usr /usr".split()
    )
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(name):
            words += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            words += ["--ro-bind", name, name]
    for name in ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--dev", "/dev", "--size", str(file_size * MEGABYTE), "--tmpfs", str(folder)]
    for path in map(str, read):
        words += ["--ro-bind", path, path]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]


def unpack(archive, folder):
    """The regular files of an archive, in `folder` or in folder/out."""
    archive.seek(0)
    try:
        with tarfile.open(fileobj=archive, mode="r:") as members:
            for member in members:
                if member.isfile() and re.fullmatch(r"(out/)?\w+([.]\w+)?", member.name):
                    (folder / member.name).parent.mkdir(exist_ok=True)
                    with open(folder / member.name, "wb") as file:
                        shutil.copyfileobj(members.extractfile(member), file)
    except tarfile.TarError:
        pass  # cut off at the limit of a file: what is missing counts as not written


def process(argv, cwd, settings, out, err, seconds, memory, file_size, begun=None):
    """(exit code, seconds) of a process group that does not outlive its leader; `begun` gets the process, to end it early."""
    wanted = (
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_AS, memory * MEGABYTE, memory * MEGABYTE),
        (resource.RLIMIT_FSIZE, file_size * MEGABYTE, file_size * MEGABYTE),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    )
    limits = []
    for which, soft, hard in wanted:
        most = resource.getrlimit(which)[1]
        limits.append((which, (soft, hard) if most == resource.RLIM_INFINITY else (min(soft, most), min(hard, most))))

    def limit():
        for which, values in limits:
            resource.setrlimit(which, values)

    began = time.monotonic()
    started = subprocess.Popen(
        argv, cwd=cwd, env=settings, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, preexec_fn=limit
    )
    try:
        if begun:
            begun(started)
        code = started.wait(timeout=6 * seconds)
    except subprocess.TimeoutExpired:
        code = 124
    finally:
        try:
            os.killpg(started.pid, signal.SIGKILL)  # whatever it has started
        except ProcessLookupError:
            pass
        started.wait()
    return code, time.monotonic() - began


def done_with(folder, code, taken, seconds):
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and taken >= seconds):
        code = 124

    def read(name):
        path = folder / name
        if not path.is_file():
            return ""
        with open(path, "rb") as file:
            return file.read(MOST_TEXT).decode(errors="replace")

    return Done(code, read("stdout"), read("stderr"), taken)
