"""The commands that the Markdown pages show.

What counts as a command:
- a line of a block marked `sh`; a line that ends with a backslash goes on in the next. Each is a shell of its own.
- a block marked `python`, as a whole.
- a `span` of prose that starts, after NAME=value, with build/, or with a program or script of the project and an argument.
- on a stage's page and in its chapter a `span` that starts with --: options of the stage's program. A lone one has to exist there.
Generated parts and blocks with other marks are no commands. A block without a mark is an error.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from tools import check_pages  # what a page of the project is

# What does not run everywhere. A tuple: programs, Python modules, "gpu" or "GPU code" (of nvcc), without which a command is
# skipped, by name. A text: who runs it instead. An entry that is on no page is an error.
ELSEWHERE = "by .ci/run: common/setup.sh, then the workflows of the presets ci, with the demo, and race"
PROFILER = ("gpu", "ncu")
SWEEP = ("a machine without a GPU, which refuses at once",)  # on one it takes minutes, and common/check_gpu.sh runs it
PAPERS = "--sweep d=64,128 --sweep causal=no,yes --sweep seq=1024..16384 --save"
TORCH = "by whoever has torch: it compiles every kernel once more"
COURSE = "by the tests 'course: ...', which need no page to build for them"
NOT_EVERYWHERE = {
    "docs/course/course.py check mine 01_softmax": COURSE,
    "docs/course/course.py watch mine 01_softmax": COURSE,
    "docs/course/course.py grade mine 01 --format gradescope --out results --seed autumn": COURSE,
    "docs/course/course.py variant 04 ../autumn --seed WORD": COURSE,
    "docs/course/course.py grade mine 04 --format junit --out results --variants ../autumn/teacher": COURSE,
    "docs/course/course.py slides slides.html": ("pandoc",),
    "docs/course/course.py self-test": COURSE,
    "python3 docs/course/test_attacks.py build": COURSE,
    "docs/course/course.py self-test 01_softmax cheats": COURSE,
    "common/setup.sh && cmake --workflow --preset demo": ELSEWHERE,
    "cmake --workflow --preset test": ELSEWHERE,
    "cmake --preset race": ELSEWHERE,
    "cmake --preset test && cmake --build --preset test --target harness_test reference_test": "by .ci/run, which builds all targets",
    "cmake --workflow --preset binding": TORCH,
    'ctest --test-dir build-binding --no-tests=error --verbose -R "binding: "': TORCH,
    "python3 common/binding/tiny_gpt.py": "by the test 'binding: a tiny GPT'",
    "TRITON_INTERPRET=1 python3 common/compare/test/test_triton.py": ("torch", "triton"),
    "common/setup.sh --dev": "by .ci/run, which starts with it",
    "docs/site.sh": "by .ci/run, in its step 'site'",
    "docs/site.sh --check": "by .ci/run, in its step 'site'",
    ".ci/run": "by whoever changes something: it runs these tests",
    "cmake --build --preset race --target lab_barrier": ELSEWHERE,
    "build-race/bin/lab_barrier": "by the test 'lab: barrier' of the race preset",
    "common/try.sh 09": "by additions.py, which adds that stage",
    "docs/generate.py --check": "by .ci/run; here it would fail for everyone who has just changed a kernel",
    "common/compare/plot.py rows.jsonl --where causal --out plots": ("matplotlib", "pandas"),
    "common/compare/plot.py docs/results/nvidia_h200/sweep16.jsonl docs/results/nvidia_h200/sweep_peers.jsonl --out plots": (
        "matplotlib",
        "pandas",
    ),
    "build/bin/compare --rows rows.jsonl --html report.html": ("jinja2",),
    "common/compare/report.py docs/results/nvidia_h200/compare.jsonl docs/results/nvidia_h200/peers.jsonl --out report.html": ("jinja2",),
    f"build/bin/compare --device gpu --variant last --tokens 16384 --width 2048 {PAPERS} sweep.jsonl --resume": SWEEP,
    "build/bin/compare --device gpu --only 08,peer --variant tuned,scheduled,staggered,warpgroups,resident,flash,cudnn --rounds 2 --dtype fp16 --tokens 16384"
    " --width 2048 --sweep d=64,128 --sweep causal=no,yes --sweep seq=1024,4096,16384 --save sweep16.jsonl --resume": SWEEP,
    f"build/bin/compare --device gpu --only peer --tokens 16384 --width 2048 --sweep dtype=fp32,fp16 {PAPERS} sweep_peers.jsonl --resume": SWEEP,
    "ncu --clock-control none build/bin/08_tensor_cores --device gpu --dtype fp16 --batch 4 --heads 16 --seq 4096 --head-dim 128 --no-check": PROFILER,
    "common/profile_gpu.py build/bin profile.jsonl --details": PROFILER,
    "ncu --section SourceCounters --force-overwrite -o report build/bin/08_tensor_cores --device gpu --batch 4 --heads 16 --seq 4096 --no-check": PROFILER,
    "ncu --import report.ncu-rep --page source --csv": PROFILER,
    "nvcc -std=c++20 -o first docs/lab/first.cu && ./first": ("gpu", "nvcc"),
    "nvcc -O3 -arch=native 01_naive/standalone.cu && ./a.out": ("gpu", "nvcc"),
    "nvcc -O3 -arch=native 04_fa1_forward/standalone.cu && ./a.out": ("gpu", "nvcc"),
    "nvcc -O3 -arch=native 06_fa2_forward/standalone.cu && ./a.out": ("gpu", "nvcc"),
    "nvcc -O3 -arch=native 08_tensor_cores/standalone.cu && ./a.out": ("gpu", "nvcc"),
    "cuobjdump --dump-sass build/08_tensor_cores/CMakeFiles/step_08_tensor_cores_forward_6_tuned_gpu.dir/forward/6_tuned_gpu.cu.o"
    " | grep -oE '^ +/\\*[0-9a-f]{4}\\*/ +(@!?U?P[0-9T]+ )?[A-Z0-9]+' | awk '{print $NF}' | sort | uniq -c"
    " | sort -rn | head -20": ("GPU code", "cuobjdump"),
}
PROGRAMS = ("cmake", "ctest", "cuobjdump", "git", "ncu", "python3")


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


def exercises(text):
    """The exercises of a page that exercises.py does, each a list of (keyword, text)."""
    found = re.findall(r"^ *<!-- exercise\n(.*?)^ *-->$", text, re.DOTALL | re.MULTILINE)
    lines = [[line.strip() for line in block.splitlines() if line.strip()] for block in found]
    return [[(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in block] for block in lines]


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
    wrong += [f"page_commands.py: '{text}' of NOT_EVERYWHERE is on no page" for text in NOT_EVERYWHERE if text not in shown]
    presets = (ROOT / "CMakePresets.json").read_text().partition('"workflowPresets"')[2]
    for preset in re.findall(r"cmake --workflow --preset (\S+)", "\n".join(shown)):
        if f'"name": "{preset}",\n      "steps"' not in presets:
            wrong.append(f"a page shows the workflow preset '{preset}', which CMakePresets.json does not have")
    wanted = with_a_test()
    wrong += [f"{page}: shows commands and has no test; configure again" for page in wanted if page not in tested]
    wrong += [f"{page}: has a test and shows no command; configure again" for page in tested if page not in wanted]
    return wrong
