"""Of docs/debugging.md: kernels of the bug zoo beside what the simulator says of them; what compute-sanitizer said of the stages."""

import re
import textwrap

from .formatting import details, table, tabled
from .quotes import block, definition, source
from .saved import RESULTS, newest, of_each_gpu, said

FOLDER = "common/simt/test"


def message(path, mark):
    """What was saved of the mistake in the line that ends with `// BUG mark`."""
    numbers = [number for number, line in enumerate(source(path), 1) if line.endswith(f"// BUG {mark}")]
    saved = (RESULTS / "cpu" / "zoo.txt").read_text().splitlines()
    found = [line for line in saved if numbers and f"{path}:{numbers[0]}" in line]
    if not found:
        raise SystemExit(f"docs/results/cpu/zoo.txt has no message of 'BUG {mark}' in {path}; run docs/save_results.sh")
    return found[0]


def bug(file, kernel, *mark):
    """A kernel of a file of the zoo, and the message; the mark is that of its comment `// BUG ...`."""
    path = f"{FOLDER}/{file}"
    lines = textwrap.wrap(message(path, " ".join(mark)), 100, break_long_words=False, break_on_hyphens=False)
    return block(definition(path, kernel), "cpp") + "\n\n" + block(lines)


@of_each_gpu
def sanitizers(device):
    """How many runs of each tool of compute-sanitizer were clean."""
    path = RESULTS / device / "sanitizers.txt"
    if not path.exists():
        return None
    runs = {}
    for line in filter(None, path.read_text().splitlines()):
        verdict, tool, stage, step = line.split()[:4]
        of_tool = runs.setdefault(tool, {"runs": 0, "clean": 0, "steps": set()})
        of_tool["runs"] += 1
        of_tool["clean"] += verdict == "clean:"
        of_tool["steps"].add((stage, step))
    lines = [[f"`{tool}`", len(of["steps"]), of["runs"], of["clean"]] for tool, of in sorted(runs.items())]
    return f"{newest(device, 'compare.jsonl')[0]['device']['name']}:\n\n{table('tool | steps | runs | clean', lines)}"


@tabled("kernel | the simulator")
def hazards():
    """What was saved of the mistakes of zoo_async.hpp."""
    for name, text in re.findall(r"^(\w+): (.+)$", (RESULTS / "cpu" / "zoo.txt").read_text(), re.M):
        yield f"`{name}`", re.sub(rf"kernel zoo, block \(0,0,0\)(, |: )|{FOLDER}/| \(kernel zoo\)", "", text)


@of_each_gpu
def zoo_sanitizer(device):
    """What the tools of compute-sanitizer said of the same kernels, and of their twins if they were not silent."""
    if not (RESULTS / device / "zoo_sanitizer.json").exists():
        return None
    saved = said(device, "zoo_sanitizer.json")
    lines = [[f"`{case['kernel']}`", *list(case.values())[1:]] for case in saved["cases"]]
    return details(f"{saved['device']}, compute-sanitizer {saved['compute_sanitizer']}", table(list(saved["cases"][0]), lines))
