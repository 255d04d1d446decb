"""common/run: compiles plain CUDA C++ for the simulator, runs it and says what is wrong with it."""

import argparse
import difflib
import fcntl
import hashlib
import json
import math
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

import keys
import messages
import rewrite

ROOT = pathlib.Path(__file__).resolve().parents[3]
MACHINE = ROOT / "common/machine"
EPILOG = f"""exit code: 0 nothing found; 1 findings; 2 it does not compile, or uses what is not simulated; 3 the program failed by itself.
The findings go to stderr, after what the program prints. {messages.PAGE} says more."""


class Stop(Exception):
    """Exit code 2, with one line."""


def say(text):
    print(f"common/run: {text}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        prog="common/run",
        description="Runs CUDA C++ on the CPU, without a CUDA Toolkit, and looks for races and wrong accesses.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE.cu", help="sources; after -- come arguments of the program")
    parser.add_argument("-I", action="append", default=[], metavar="DIR", dest="folders", help="look for headers there")
    parser.add_argument("-D", action="append", default=[], metavar="NAME[=VALUE]", dest="macros", help="define a macro")
    parser.add_argument("--json", action="store_true", help="one object on stdout instead; what the program prints goes to stderr")
    parser.add_argument("--counts", action="store_true", help="bytes and sectors per allocation, bank conflicts, barriers, too")
    parser.add_argument("--strict", action="store_true", help="take as errors what GPUs since Volta tolerate, and remarks as findings")
    parser.add_argument("--order", default="forward", metavar="ORDER", help="of threads: forward, reverse or random:SEED")
    parser.add_argument("--target", default="90", choices=["75", "80", "90"], help="the GPU's compute capability")
    parser.add_argument(
        "--without", action="append", default=[], metavar="FILE:LINE", help="leave out the barrier, guard or statement there"
    )
    parser.add_argument("--keep", metavar="DIR", help="leave the program and the rewritten sources in a new folder")
    parser.add_argument("--watch", action="store_true", help="do all this again at each save of a FILE; keys are shown")
    words, program = sys.argv[1:], []
    if "--" in words:
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    options = parser.parse_args(words)
    options.program, options.listener = program, None
    if not re.fullmatch(r"forward|reverse|random:\d{1,19}", options.order):
        parser.error(f"--order is '{options.order}'; allowed: forward, reverse, random:SEED")
    for path in map(pathlib.Path, options.files):
        if not path.is_file():
            near = difflib.get_close_matches(path.name, [f.name for f in path.parent.glob("*.cu")], 1)
            parser.exit(2, f"common/run: {path} is no file{f'; did you mean {path.with_name(near[0])}?' if near else ''}\n")
    usual = re.search(r"^// +common/run \S+ -- (.+)$", pathlib.Path(options.files[0]).read_text(errors="replace"), re.M)
    if usual and "--" not in sys.argv:
        options.program = usual[1].split()
        say(f"takes the arguments that {options.files[0]} names, -- {usual[1]}")
    if len(options.files) == 1:
        options.without = [f"{options.files[0]}:{place}" if place.isdecimal() else place for place in options.without]
    for place in options.without:
        if not re.fullmatch(r".+:\d+", place):
            parser.error(f"--without is '{place}'; allowed: FILE:LINE")
    if options.keep:
        try:
            os.makedirs(options.keep)
        except OSError as error:
            parser.error(f"--keep: {options.keep}: {error.strerror}; allowed: a new folder")
    return options


def digest(*folders):
    """Of the sources in folders of the machine: a copied checkout has other times."""
    files = sorted(f for folder in folders for f in (MACHINE / folder).rglob("*") if f.suffix in ("", ".cpp", ".hpp", ".h") and f.is_file())
    return hashlib.sha256(b"".join(b"%s\n%s" % (os.fsencode(f), f.read_bytes()) for f in files)).hexdigest()


def noted(file):
    """The note beside what was made: of which sources it is; "" if there is none."""
    return file.read_text() if file.is_file() else ""


def made(command, what):
    """Runs a command. A terminal shows how far it is and for how long, on one line."""
    output, part, begin = b"", b" ", time.time()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while part:
            if sys.stderr.isatty():
                far = re.findall(rb"^\[.*?\]", output, re.M)
                print(f"\r{what} {far[-1].decode() if far else ''} {time.time() - begin:.0f} s\x1b[K", end="", file=sys.stderr, flush=True)
            if select.select([process.stdout], [], [], 1)[0]:
                part = os.read(process.stdout.fileno(), 1 << 16)
                output += part
    output = output.decode(errors="replace")
    print("\r\x1b[K" if sys.stderr.isatty() else "", end="", file=sys.stderr, flush=True)
    if process.returncode:
        told = re.search(r"CMake Error at .*\n+((?:  .*\n)+)|(.*\b[Ee]rror\b.*)|(.*)\n*$", output)
        command = shlex.join(map(str, command))
        raise Stop(f"{what} fails: {' '.join((told[1] or told[2] or told[3]).split()) or 'no message'}\n  the command was {command}")


def simulator(build):
    """Builds the library in a folder, where it is missing or was built of other sources; returns the compiler and its flags for kernels."""
    cache, library = build / "CMakeCache.txt", build / "libflash_run.a"
    cached = cache.read_text() if cache.is_file() else ""
    if re.search(r"^FLASH_SANITIZE:\w+=.", cached, re.M):
        raise Stop(f"{build} is configured with FLASH_SANITIZE; allowed: without. cmake --fresh --preset demo")
    sources = digest("cpu", "engine", "isa", "run", "include")
    if not library.is_file() or noted(build / "run_sources") != f"{sources} {library.stat().st_mtime_ns}":
        if not library.is_file():
            say(f"builds the simulator in {build}, once: a minute on two cores, less on more; your file can be edited meanwhile")
        home = re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", cached, re.M)
        if not home or not os.path.exists(home[1]) or not os.path.samefile(home[1], ROOT):  # nobody has, or it is a copy of another's
            check = subprocess.run([ROOT / "common/setup.sh", "--check"], stdout=subprocess.PIPE, text=True)
            if check.returncode != 0:
                raise Stop(check.stdout.strip().rpartition("setup: ")[2])
            made(["cmake", "--fresh", "--preset", "demo", "-B", build], "configuring the simulator")
        made(["cmake", "--build", build, "--target", "flash_run", "-j", str(os.cpu_count())], "building the simulator")
        (build / "run_sources").write_text(f"{sources} {library.stat().st_mtime_ns}")
    compiler, *rest = (build / "run_flags").read_text().split("\n")
    words = [word for flag in rest if flag for word in (shlex.split(flag[6:]) if flag.startswith("SHELL:") else [flag])]
    return compiler, words


def prelude(build, compiler, flags):
    """The header that every file includes first, precompiled for these flags."""
    folder = build / "run_headers" / hashlib.sha256(repr([compiler, *flags]).encode()).hexdigest()[:16]
    header, compiled = folder / "prelude.hpp", folder / "prelude.hpp.gch"
    sources = digest("cpu", "include", "isa")
    if not compiled.is_file() or noted(folder / "sources") != sources:
        folder.mkdir(parents=True, exist_ok=True)
        header.write_text(f'#include "{MACHINE}/include/cuda_runtime.h"\n')
        untimed = ["-Xclang", "-fno-pch-timestamp"] if "clang" in pathlib.Path(shutil.which(compiler)).resolve().name else []
        made([compiler, *flags, *untimed, "-x", "c++-header", header, "-o", f"{compiled}.new"], "precompiling the headers")
        os.replace(f"{compiled}.new", compiled)  # others may read it
        (folder / "sources").write_text(sources)
    return ["-include", str(header)]


def compiled(options, folder):
    build = pathlib.Path(os.environ.get("FLASH_RUN_BUILD", ROOT / "build"))
    build.mkdir(parents=True, exist_ok=True)
    with open(build / "run_lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compiler, flags = simulator(build)
        flags += ["-pthread", f"-D__CUDA_ARCH__={options.target}0", f"-I{MACHINE / 'include'}", f"-I{ROOT}"]
        first = prelude(build, compiler, flags)
    without = [(place.rpartition(":")[0], int(place.rpartition(":")[2])) for place in options.without]
    project = rewrite.Project(folder / "source", options.folders, without)
    here = pathlib.Path.cwd()
    files = [pathlib.Path(f).relative_to(here) if pathlib.Path(f).is_relative_to(here) else f for f in options.files]
    sources = [project.add(file) for file in files]
    for path, text in project.texts.items():
        copy = folder / "read" / path.relative_to(path.anchor)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    for place in without:
        if place not in project.used:
            raise Stop(f"--without {place[0]}:{place[1]}: the program does not use this file")
    mirrored = [word for f in options.folders for word in (f"-I{folder / 'source'}{pathlib.Path(f).resolve()}", f"-I{f}")]
    local = [f"-I{pathlib.Path(f).resolve().parent}" for f in options.files]
    # Messages name files as the user does, and know the simulator's own.
    first += [f"-fdebug-prefix-map={os.getcwd()}=", f"-fdebug-prefix-map={MACHINE}={MACHINE}"]
    macros = [f"-D{macro}" for macro in options.macros]
    flags.remove("-w")
    objects, running = [], []
    for number, source in enumerate(sources):
        objects.append(folder / f"{number}.o")
        command = [compiler, *first, *flags, *messages.WARNINGS, *mirrored, *macros, "-x", "c++", "-c", source, "-o", objects[-1], *local]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}))
    log = "".join(process.communicate()[1] for process in running)
    log = re.sub(r"(?:(?:struct|class) )?flash::(?:\w+::)*", "", log).replace(
        rewrite.THEIRS, "flash"
    )  # what a message's reader does not know
    refused = re.sub(r"warning: (return-statement with|invalid conv)(.*) \[-fpermissive\]", r"error: \1\2", log)
    if refused == log and not any(process.returncode for process in running):
        machine = next(build.rglob("libflash_machine.a"))
        command = [compiler, *objects, "-o", folder / "program", build / "libflash_run.a", machine, "-ldl", "-pthread"]
        link = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        log, refused = log + link.stderr, refused + link.stderr
        if link.returncode == 0:
            messages.show_warnings(log, project, options.without)
            return folder / "program"
    raise Stop(messages.why_not(refused, project))


SLOW = "still running: an endless loop, or a large problem, since what takes a GPU a millisecond takes minutes here; {} stops it"


def waited_for(process):
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which is the program's
    try:
        return process.wait(5)
    except subprocess.TimeoutExpired:
        say(SLOW.format("Ctrl-C"))
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, previous)


def run(options, folder):
    program = compiled(options, folder)
    environment = {**os.environ, "FLASH_SIMT_ORDER": options.order, "FLASH_SIMT_TARGET": options.target}
    report = folder / "report.json"
    for name, value in {
        "FLASH_RUN_STRICT": options.strict,
        "FLASH_RUN_COUNTS": options.counts,
        "FLASH_RUN_RIGHT": folder / "right",  # where the puzzles of docs/lab note which of them are right
        "FLASH_RUN_BRIEF": options.watch,  # no word about kernels in which nothing is found
        "FLASH_RUN_JSON": options.json and report,
    }.items():
        environment.pop(name, None)
        if value:
            environment[name] = str(value)
    environment["FLASH_RUN_DONE"] = str(folder / "done")
    environment["FLASH_RUN_READ"] = str(folder / "read")  # the files as they were compiled, which findings quote
    bits = 22 if options.listener and options.listener.puzzles() else 25  # an endless loop ends after seconds
    environment.setdefault("FLASH_SIMT_STEPS", str(1 << bits))
    begin = time.time()
    process = subprocess.Popen(
        [program, *options.program],
        env=environment,
        stdin=subprocess.DEVNULL if options.listener else None,  # the keys are the watch's
        stdout=sys.stderr if options.json else None,
    )
    status = options.listener.listen(process, folder / "right") if options.listener else waited_for(process)
    if status is None:
        return 2
    done = (folder / "done").read_text() if (folder / "done").is_file() else ""
    code = 2 if done.startswith("unsupported") else 1 if done.startswith("found") else 3 if status != 0 else 0
    if code == 3:
        how = f"by signal {-status} ({signal.Signals(-status).name})" if status < 0 else f"with exit code {status}"
        say(f"the program ended {how}")
    elif not done:
        say("no kernel was launched")
    if options.json:
        found = json.loads(report.read_text()) if report.is_file() else {"kernels": [], "host": []}
        print(json.dumps({"exit": code, "program_exit": status, "seconds": round(time.time() - begin, 3), **found}))
    return code


def judged(options):
    with tempfile.TemporaryDirectory(prefix="common-run-") as folder:
        try:
            return run(options, pathlib.Path(folder).resolve())
        except (Stop, rewrite.Unsupported, FileNotFoundError) as stop:
            if isinstance(stop, FileNotFoundError):  # deleted since the last look, as by an editor
                stop = Stop(f"{stop.filename} is gone; put it back")
            said, where = (json.dumps({"exit": 2, "error": str(stop)}), sys.stdout) if options.json else (stop, sys.stderr)
            print(said, file=where)
            return 2
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)


def stamps(files):
    """When they were saved; None while an editor replaces one of them."""
    return [os.stat(file).st_mtime_ns for file in files] if all(map(os.path.exists, files)) else None


PART = re.compile(r'(?m)^(?=// (?:\d\. |----)|  judge\("|}\s*\Z)')  # of a file of puzzles: a kernel, main(), its calls, its end


def given_out(file):
    """The file as git has it, which sh asks, since there may be no git; "" if it has none."""
    file = pathlib.Path(file).resolve()
    git = subprocess.run(["sh", "-c", 'git show "HEAD:./$0"', file.name], cwd=file.parent, capture_output=True, text=True, errors="replace")
    return git.stdout


class Watch:
    """Judges again at each save. Saves and keys count while a program runs, too."""

    def __init__(self, options, keyboard):
        self.options, self.keyboard = options, keyboard
        self.right, self.hints = None, Counter()  # puzzles that are right, hints per puzzle
        self.then = ""  # a command to run in place of this one
        self.gone, self.asked = 0, ""  # since when a file is missing; the puzzle that the next b begins anew
        self.given = given_out(options.files[0])
        options.listener = self

    def text(self):
        file = pathlib.Path(self.options.files[0])
        return file.read_text(errors="replace") if file.is_file() else ""

    def puzzles(self):
        """Their names. A file that has lost some of them, as by a slip in the editor, keeps those that git has."""
        return max((re.findall(r'\bjudge\("(.+?)"', text) for text in (self.text(), self.given)), key=len)

    def whole(self):
        """Has the file all the parts that were given out?"""
        return not self.given or len(PART.findall(self.text())) == len(PART.findall(self.given))

    def puzzle(self):
        """The first that is not right, by its name; "" if there is none."""
        if self.right is None and (line := re.search(r"// YOUR LINE (\d)", self.text())):  # nothing has compiled so far
            return dict(enumerate(self.puzzles(), 1)).get(int(line[1]), "")
        left = [name for name in self.puzzles() if name not in (self.right or [])]
        return (left or ([] if self.whole() else self.puzzles()) or [""])[0]

    def following(self):
        """The file, or else the command, that this one calls next; "" if there is none."""
        command = re.search(r"Next: press n, or (.+?)(?::|\\n)", self.text())
        file = command and re.search(r"common/run .*?(\w+\.cu)$", command[1])
        there = not file or pathlib.Path(self.options.files[0]).with_name(file[1]).is_file()
        return (file or command)[1] if command and there else ""

    def offered(self):
        forward = {"n": f"next, {self.following()}"} if self.following() else {}
        forward = (
            {"h": "hint", "b": "begin this kernel anew" if self.whole() else "bring the whole file back"} if self.puzzle() else forward
        )
        return {**forward, "r": "run again", "q": "quit"}

    def begin_anew(self):
        """Puts the puzzle back as git has it, or a file that is no longer whole; the file is kept beside. The first b only asks."""
        name, file = self.puzzle(), pathlib.Path(self.options.files[0])
        at, parts, given = self.puzzles().index(name) + 1, PART.split(self.text()), PART.split(self.given)
        what = name if self.whole() else f"the whole of {file.name}"
        if len(given) <= at or "YOUR LINE" not in given[at]:
            say(f"b needs git, which has no {file.name} as it was given out")
        elif self.asked != what:
            print(f"  Press b again to put {what} back as it was given out; your file is kept beside, as {file.name}.TIME", flush=True)
            self.asked = what
        else:
            if file.is_file():
                shutil.copy(file, f"{file}.{time.strftime('%H%M%S')}")
            file.write_text("".join([*parts[:at], given[at], *parts[at + 1 :]]) if self.whole() else self.given)

    def hint(self):
        name, hints = self.puzzle(), pathlib.Path(self.options.files[0]).with_name("hints.txt")
        line = re.search(rf"^{re.escape(name)}: (.*) \|\| (.*)$", hints.read_text() if hints.is_file() else "", re.M)
        if line:
            told = (f"Hint: {line[1]}", f"Answer: {line[2]}", "There is no other hint.")
            print(f"  {name}. {told[min(self.hints[name], 2)]}", flush=True)
            self.hints[name] += 1

    def interrupted(self, seconds):
        """Waits so long. Did a save or a key end the waiting?"""
        key = self.keyboard.pressed(seconds)
        self.asked = "" if key not in ("", "b") else self.asked
        if key in ("h", "b") and self.puzzle():
            self.hint() if key == "h" else self.begin_anew()
        elif key in self.offered():
            self.key = key
        elif key:
            self.keyboard.offer(self.offered())
        now = stamps(self.options.files)
        self.gone = 0 if now else self.gone or time.time()
        if self.gone and self.saved and time.time() > self.gone + 1:
            say(f"{' or '.join(self.options.files)} is gone; it is judged once it is there again")
            self.saved = []
        return self.key != "" or now not in (self.saved, None)

    def listen(self, process, right):
        """The program's status. None: a save or a key has ended it, and what it found is not worth saying."""
        slow, over = time.time() + (2 if self.puzzles() else 5), False
        try:
            while not over:
                over = process.poll() is not None
                self.right = right.read_text().splitlines() if right.is_file() else self.right
                over = over or self.interrupted(0.05)
                if time.time() > slow:
                    slow = math.inf
                    say(SLOW.format("a save"))
            return process.returncode
        finally:
            process.kill()
            process.wait()

    def judge(self):
        """Returns the exit code, and whether to go on."""
        options = self.options
        self.saved, self.key = stamps(options.files), ""
        code = judged(options)
        if not self.interrupted(0):
            done = f"; {sum(name in self.right for name in self.puzzles())} of {len(self.puzzles())} are right" if self.right else ""
            say(f"waits for you to save {' or '.join(options.files)}{done}{'' if self.keyboard.on_terminal else '; Ctrl-C ends it'}")
            self.keyboard.offer(self.offered())
            while not self.interrupted(0.2):
                pass
        if self.key == "n" and not self.following().endswith(".cu"):
            self.then = self.following()
        elif self.key == "n":
            options.files, self.right = [str(pathlib.Path(options.files[0]).with_name(self.following()))], None
            self.given = given_out(options.files[0])
        print("\033[2J\033[H" if sys.stdout.isatty() and self.key != "q" else "", end="", flush=True)  # a clear screen
        return code, self.key != "q" and not self.then


def main():
    options, code, more = arguments(), 2, True
    if not options.watch:
        return judged(options)
    with keys.Keys() as keyboard:
        try:
            watch = Watch(options, keyboard)
            while more:
                code, more = watch.judge()
        except KeyboardInterrupt:
            pass
    if watch.then:
        os.chdir(ROOT)
        os.execlp("sh", "sh", "-c", watch.then)
    return code


sys.exit(main())
