"""Of docs/howto/debugging.md: kernels of the bug zoo beside what the simulator says of them."""

import re
import textwrap

from .formatting import table
from .quotes import block, definition, source
from .saved import RESULTS

FOLDER = "common/machine/test"


def bug(file, kernel, *mark):
    """A kernel of a file of the zoo, and what was saved of the mistake in its line that ends with `// BUG mark`."""
    path, mark = f"{FOLDER}/{file}", " ".join(mark)
    numbers = [number for number, line in enumerate(source(path), 1) if line.endswith(f"// BUG {mark}")]
    saved = (RESULTS / "cpu" / "zoo.txt").read_text().splitlines()
    found = [line for line in saved if numbers and f"{path}:{numbers[0]}" in line]
    if not found:
        raise SystemExit(f"docs/results/cpu/zoo.txt has no message of 'BUG {mark}' in {path}; run docs/save_results.sh")
    lines = textwrap.wrap(found[0], 100, break_long_words=False, break_on_hyphens=False)
    return block(definition(path, kernel), "cpp") + "\n\n" + block(lines)


def hazards(*names):
    """What was saved of these mistakes of zoo_async.cuh."""
    same = rf"kernel zoo, block \(0,0,0\)(, |: )|{FOLDER}/| \(kernel zoo\)| of block \(0,0,0\)(, with no barrier between them)?"
    found = re.findall(r"^(\w+): (.+)$", (RESULTS / "cpu" / "zoo.txt").read_text(), re.M)
    return table("kernel | the simulator", [(f"`{name}`", re.sub(same, "", text)) for name, text in found if name in names])
