#!/usr/bin/env python3
"""Runs the commands that the Markdown pages show, as a reader would, and says which of them do not end as the page says.

  commands.py --list                        the pages that have a test
  commands.py --check PAGE...               the pages and the table below fit together; PAGE...: those that have a test
  commands.py --page PAGE --build FOLDER    runs the commands of one page; its build/ is FOLDER

What counts as a command:
- a line of a block marked `sh`; a line that ends with a backslash goes on in the next. Each is a shell of its own.
- a block marked `python`, as a whole.
- a `span` of prose that starts, after NAME=value, with build/, or with a program or script of the project and an argument.
- on a stage's page and in its chapter a `span` that starts with --: options of the stage's program. A lone one has to exist there.
Generated parts and blocks with other marks are no commands. A block without a mark is an error.

How it has to end: having printed something, with exit code 0, unless the page says `exits with N` in the comment at the end of the line, or
<!-- exits with N --> right after the span. `git diff --no-index` has to find a difference: 1. A program that
needs a GPU or torch has to say that there is none: 3, where there is none. A ctest command is only asked which tests it would run.

They run one after another, in a copy of the project, so nothing of the reader's is overwritten. Exit code: 1 if one ended in another
way, 77 if none could run here.
"""

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from tools import check_pages  # noqa: E402  what a page of the project is

# What does not run everywhere. A tuple: programs, Python modules, "gpu" or "GPU code" (of nvcc), without which a command is
# skipped, by name. A text: who runs it instead. An entry that is on no page is an error.
ELSEWHERE = "by .ci/run: common/setup.sh, then the workflows of the presets ci, with the demo, and race"
PROFILER = ("gpu", "ncu")
SWEEP = ("a machine without a GPU, which refuses at once",)  # on one it takes minutes, and common/check_gpu.sh runs it
NOT_EVERYWHERE = {
    "common/setup.sh && cmake --workflow --preset demo": ELSEWHERE,
    "common/setup.sh && cmake --workflow --preset test": ELSEWHERE,
    "cmake --workflow --preset test": ELSEWHERE,
    "cmake --workflow --preset race": ELSEWHERE,
    "build-race/bin/lab_barrier": "by the test 'lab: barrier' of the race preset",
    "docs/generate.py --check": "by .ci/run; here it would fail for everyone who has just changed a kernel",
    "common/compare/plot.py rows.json --out plots": ("matplotlib",),
    "common/compare/plot.py docs/results/nvidia_h200/tensor_cores.json docs/results/nvidia_h200/peers16.json --out plots": ("matplotlib",),
    "build/bin/compare --device gpu --tokens 16384 --width 2048 --sweep d=64,128 --sweep causal=no,yes --sweep seq=512..16384 --save sweep.json --resume": SWEEP,
    "build/bin/compare --device gpu --dtype fp16 --tokens 16384 --width 2048 --sweep d=64,128 --sweep causal=no,yes --sweep seq=512..16384 --save sweep16.json --resume": SWEEP,
    "common/compare/peers.py --tokens 16384 --width 2048 --sweep dtype=fp32,fp16 --sweep d=64,128 --sweep causal=no,yes --sweep seq=512..16384 --save sweep_peers.json --resume": SWEEP,
    "ncu --clock-control none build/bin/08_tensor_cores --device gpu --dtype fp16 --batch 4 --heads 16 --seq 4096 --head-dim 128 --no-check": PROFILER,
    "common/profile_gpu.py build/bin profile.json --details": PROFILER,
    "ncu --section SourceCounters --force-overwrite -o report build/bin/08_tensor_cores --device gpu --batch 4 --heads 16 --seq 4096 --no-check": PROFILER,
    "ncu --import report.ncu-rep --page source --csv": PROFILER,
    "cuobjdump --dump-sass build/bin/08_tensor_cores | grep -oE '^ +/\\*[0-9a-f]{4}\\*/ +(@!?U?P[0-9T]+ )?[A-Z0-9]+' | awk '{print $NF}' | sort | uniq -c"
    " | sort -rn | head -20": ("GPU code", "cuobjdump"),
}
# What ends with exit code 3 unless these are there, after a look at its options.
NEEDED = {r"\bbuild/bin/.* --device gpu\b": ("gpu",), r"\bpeers\.py\b": ("gpu", "torch"), r"\bcheck_peers\.py\b": ("torch", "numpy")}
PROGRAMS = ("cmake", "ctest", "cuobjdump", "git", "ncu", "python3")
SECONDS = 120  # more than any page may ask of its reader


class Command(NamedTuple):
    text: str
    expected: int = 0
    kind: str = "sh"  # "python": a program; "option": the name of an option; of the program in `stage`
    stage: str = ""


def pages():
    return {str(path.relative_to(ROOT)): path for path in check_pages.pages()}


def stage_of(page):
    """The program that a page is about, or ''."""
    number = re.match(r"(?:docs/)?(\d\d)_", page)
    folders = sorted(folder.name for folder in ROOT.glob(f"{number.group(1)}_*")) if number else []
    return folders[0] if folders else ""


def of_block(lines):
    """The commands of a block of shell lines."""
    for line in re.sub(r"\\\n *", "", "\n".join(lines)).split("\n"):
        text, _, comment = line.partition(" #")
        said = re.search(r"exits with (\d)", comment)
        if text.strip() and not text.startswith("#"):
            yield Command(text.strip(), *([int(said.group(1))] if said else []))


def of_prose(text, stage):
    """The commands in the spans of a line."""
    for span, said in re.findall(r"`([^`]+)`(?: *<!-- exits with (\d) -->)?", re.sub(r"\$`.*?`\$", "", text)):
        words = [word for word in span.split() if not re.match(r"[A-Z_]+=", word)] or [""]
        known = words[0] in PROGRAMS or (words[0].endswith((".py", ".sh")) and (ROOT / words[0]).exists())
        expected = int(said or 0)
        if words[0].startswith("build/bin/") and words[0] != "build/bin/" or known and len(words) > 1:
            yield Command(span, expected)
        elif stage and words[0].startswith("--") and (len(words) > 1 or said):
            yield Command(f"build/bin/{stage} {span}", expected)
        elif stage and words[0].startswith("--"):
            yield Command(span, 0, "option", stage)


def commands(page, text):
    """The commands of a page, each once, in its order, and what is wrong with its blocks."""
    found, wrong, mark, lines = [], [], None, []
    for line in re.sub(r"<!-- generated: .*?<!-- end -->", "", text, flags=re.DOTALL).split("\n"):
        fence = re.match(r" *```(.*)$", line)
        if fence and mark is None:
            mark, lines = fence.group(1).strip(), []
            if not mark:
                wrong.append(f"{page}: a block without a mark: sh for commands, text for what they print")
        elif fence:
            found += of_block(lines) if mark == "sh" else [Command("\n".join(lines), kind="python")] if mark == "python" else []
            mark = None
        elif mark is not None:
            lines.append(line)
        else:
            found += of_prose(line, stage_of(page))
    found = [Command(c.text, 1) if c.text.startswith("git diff --no-index ") else c for c in found]
    return list(dict.fromkeys(found)), wrong


def all_commands():
    return {page: commands(page, path.read_text()) for page, path in pages().items()}


def with_a_test():
    """The pages that show commands which something else does not run anyway."""
    return [page for page, (found, _) in all_commands().items() if any(not isinstance(NOT_EVERYWHERE.get(c.text), str) for c in found)]


def check(tested):
    """What is wrong with the pages, the table above, and the list of tests."""
    found = all_commands()
    wrong = [problem for _, problems in found.values() for problem in problems]
    shown = {command.text for those, _ in found.values() for command in those}
    wrong += [f"commands.py: '{text}' of NOT_EVERYWHERE is on no page" for text in NOT_EVERYWHERE if text not in shown]
    presets = (ROOT / "CMakePresets.json").read_text().partition('"workflowPresets"')[2]
    for preset in re.findall(r"cmake --workflow --preset (\S+)", "\n".join(shown)):
        if f'"name": "{preset}",\n      "steps"' not in presets:
            wrong.append(f"a page shows the workflow preset '{preset}', which CMakePresets.json does not have")
    wanted = with_a_test()
    wrong += [f"{page}: shows commands and has no test; configure again" for page in wanted if page not in tested]
    wrong += [f"{page}: has a test and shows no command; configure again" for page in tested if page not in wanted]
    return wrong


# ---- running them ----------------------------------------------------------------------------------------------------------


def scratch_copy(folder, build):
    """The project without what was built or saved beside it. Its build/ leads to `build`, but has a log of tests of its own."""
    for path in ROOT.iterdir():
        if path.is_dir() and (re.match(r"\d\d_|common$|docs$|\.ci$", path.name)):
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copy2(path, folder)
    (folder / "build").mkdir()
    for path in build.iterdir():
        if path.name != "Testing":
            (folder / "build" / path.name).symlink_to(path)


def environment():
    settings = {name: value for name, value in os.environ.items() if not name.startswith("FLASH_SIMT")}
    folder = str(Path(sys.executable).parent)  # a page's python3 is this one
    return settings | {"PATH": folder + os.pathsep + settings["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}


class Runner:
    def __init__(self, folder):
        self.folder = folder
        code, printed = self.run("build/bin/01_naive --device gpu --seq 8 --no-check")
        self.here = {"gpu": code == 0, SWEEP[0]: code != 0, "GPU code": "built without nvcc" not in printed}

    def run(self, text, program="bash"):
        """(exit code, what it printed)"""
        argv = ["bash", "-c", text] if program == "bash" else [sys.executable, "-c", text]
        try:
            done = subprocess.run(argv, cwd=self.folder, env=environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=SECONDS, errors="replace")  # fmt: skip
        except subprocess.TimeoutExpired as stopped:
            return 124, f"stopped after {stopped.timeout} s"
        return done.returncode, done.stdout

    def missing(self, needs):
        def has(need):
            return self.here[need] if need in self.here else shutil.which(need) or importlib.util.find_spec(need)

        return [need for need in needs if not has(need)]

    def needs(self, command):
        if command.kind == "python":
            return re.findall(r"^import (numpy|matplotlib|torch)", command.text, re.MULTILINE)
        return NOT_EVERYWHERE.get(command.text, ())

    def answer(self, command):
        """(ended as it should, what to show if it did not)"""
        text, expected = command.text, command.expected
        if command.kind == "option":
            code, printed = self.run(f"build/bin/{command.stage} --help")
            return code == 0 and re.search(rf"^ +(-\w,)?{text}\b", printed, re.MULTILINE), f"{command.stage} has no option {text}"
        if text.startswith("ctest "):
            code, printed = self.run(f"{text} -N")
            return code == 0 and int((re.findall(r"Total Tests: (\d+)", printed) or ["0"])[0]) > 0, "it runs no test: " + printed
        if not expected and any(re.search(pattern, text) and self.missing(needs) for pattern, needs in NEEDED.items()):
            expected = 3
        code, printed = self.run(text, "python" if command.kind == "python" else "bash")
        if code == expected:
            return bool(printed.strip()), "it printed nothing"
        return False, f"exit code {code} instead of {expected}; it printed last:\n" + "\n".join(printed.split("\n")[-15:])


def run_page(page, build):
    found, wrong = commands(page, pages()[page].read_text())
    failed, ran = bool(wrong), 0
    print("\n".join(wrong), end="\n" if wrong else "")
    with tempfile.TemporaryDirectory(prefix="flash_commands.") as name:
        scratch_copy(Path(name), build)
        runner = Runner(Path(name))
        for command in found:
            needs, shown = runner.needs(command), command.text.split("\n")[0] + (" ..." if command.kind == "python" else "")
            if isinstance(needs, str):
                print(f"not here         {shown}\n                 {needs}")
                continue
            missing = runner.missing(needs)
            if missing:
                print(f"skipped          {shown}\n                 not here: {', '.join(missing)}")
                continue
            began = time.monotonic()
            good, why = runner.answer(command)
            ran += 1
            failed = failed or not good
            print(f"{'ok    ' if good else 'FAILED'} {time.monotonic() - began:6.1f} s  {shown}", flush=True)
            if not good:
                print(why)
    return 1 if failed else 0 if ran else 77


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true")
    what.add_argument("--check", nargs="*", metavar="PAGE")
    what.add_argument("--page", choices=sorted(pages()), metavar="PAGE")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(with_a_test()))
        return 0
    if arguments.check is not None:
        wrong = check(arguments.check)
        print("\n".join(wrong) or "all commands are accounted for")
        return 1 if wrong else 0
    if not (arguments.build / "bin").is_dir():
        parser.error(f"--build is {arguments.build}; it has to be a folder in which the project was built")
    return run_page(arguments.page, arguments.build.resolve())


if __name__ == "__main__":
    sys.exit(main())
