#!/usr/bin/env python3
"""Runs each example whole, where nothing may be found, and without each line that it marks, which has to be reported.

  prove.py [FILE.cu...]     default: all examples; exit code 1 if one is not as its marks say

A mark is `// <- without this: RULE on NAME`: a finding has this rule id, and each of its lines mentions NAME.
"""

import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
RUN = HERE.parents[1] / "run"
MARK = re.compile(r"// <- without this: (\w+) on (\w+)$")


def run(file, *options):
    """What common/run finds, and all of it in words."""
    done = subprocess.run([RUN, file, "--json", *options], capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {"error": done.stderr.strip()}
    findings = [f for part in said.get("kernels", []) for f in part["findings"]] + said.get("host", [])
    return done.returncode, findings, said.get("error") or "; ".join(f["text"] for f in findings) or "nothing found"


def named(finding, rule, name, file, text):
    """The numbers of the lines that a finding names, if the rule is the one and each of the lines mentions the name."""
    places = [re.match(rf"(?:.*/)?{file.name}:(\d+)", line) for line in finding["lines"]]
    numbers = [int(place[1]) for place in places if place]
    right = finding["rule"] == rule and 0 < len(numbers) == len(places) and all(re.search(rf"\b{name}\b", text[n - 1]) for n in numbers)
    return numbers if right else []


def prove(file):
    """True if the file is as its marks say; prints a line for each."""
    text = file.read_text().splitlines()
    code, _, words = run(file)
    print(f"{file.name}: {'nothing found' if code == 0 else f'WRONG: exit code {code}, {words}'}", flush=True)
    right = code == 0
    for number, line in enumerate(text, 1):
        if not (mark := MARK.search(line)):
            continue
        code, findings, words = run(file, "--without", f"{file}:{number}")
        found = [lines for f in findings if (lines := named(f, *mark.groups(), file, text))]
        lines = " and ".join(map(str, sorted(set(found[0])))) if code == 1 and found else f"WRONG: exit code {code}, {words}"
        print(f"{file.name}:{number}, left out: {mark[1]} on {mark[2]}, lines {lines}", flush=True)
        right = right and code == 1 and bool(found)
    return right


if __name__ == "__main__":
    files = [pathlib.Path(f).resolve() for f in sys.argv[1:]] or sorted(HERE.glob("*.cu"))
    sys.exit(not all([prove(file) for file in files]))
