#!/usr/bin/env python3
"""Runs each example whole, where nothing may be found, and without each line that it marks, which has to be reported.

  prove.py [FILE.cu...]     prints a Markdown table (default: all examples); exit code 1 if one is not as its marks say

A mark is `// <- without this: RULE on NAME`: a finding has this rule id, and each of its lines mentions NAME.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
RUN = HERE.parents[1] / "run"
MARK = re.compile(r"(\S.*?) *// <- without this: (\w+) on (\w+)$")


def run(file, *options):
    """What common/run finds, and the processor's seconds that it takes."""
    start = os.times()
    done = subprocess.run([RUN, file, "--json", *options], capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        said = {"error": done.stderr.strip()}
    said["findings"] = [f for part in said.get("kernels", []) for f in part["findings"]] + said.get("host", [])
    said["wrong"] = said.get("error") or "; ".join(f["text"] for f in said["findings"])
    end = os.times()
    return done.returncode, said, end.children_user + end.children_system - start.children_user - start.children_system


def named(finding, rule, name, file, text):
    """The numbers of the lines that a finding names, if the rule is the one and each of the lines mentions the name."""
    places = [re.match(rf"(?:.*/)?{file.name}:(\d+)", line) for line in finding["lines"]]
    numbers = [int(place[1]) for place in places if place]
    right = finding["rule"] == rule and 0 < len(numbers) == len(places) and all(re.search(rf"\b{name}\b", text[n - 1]) for n in numbers)
    return numbers if right else []


def prove(file):
    """Rows of the table, and what is not as it should be."""
    text = file.read_text().splitlines()
    code, said, seconds = run(file)
    wrong = [] if code == 0 else [f"{file.name}, whole: exit code {code}, {said['wrong']}"]
    kernels = sum("__global__" in line for line in text)
    first = f"| {text[0][3:].partition(':')[0]} | [`{file.name}`](../../{file.relative_to(HERE.parents[2])}) | {len(text)} | {kernels} | {seconds:.1f} s |"
    rows = []
    for number, line in enumerate(text, 1):
        if not (mark := MARK.search(line)):
            continue
        statement, rule, name = mark.groups()
        statement = statement.replace("|", "\\|")
        code, said, _ = run(file, "--without", f"{file}:{number}")
        found = [lines for f in said["findings"] if (lines := named(f, rule, name, file, text))]
        if code != 1 or not found:
            wrong.append(f"{file.name}:{number}, left out: exit code {code}, no {rule} on {name}; {said['wrong'] or 'nothing found'}")
        lines = " and ".join(map(str, sorted(set(found[0])))) if found else "missed"
        rows.append(f"{first} {number}: `{statement}` | `{rule}` | {lines} |")
        first = "| | | | | |"
    return rows, wrong


def main():
    files = [pathlib.Path(f).resolve() for f in sys.argv[1:]] or sorted(HERE.glob("*.cu"))
    print("| kind | file | lines | kernels | time, whole | left out | rule | lines named |")
    print("| --- | --- | ---: | ---: | ---: | --- | --- | ---: |")
    wrong = []
    for file in files:
        rows, problems = prove(file)
        print("\n".join(rows), flush=True)
        wrong += problems
    print("\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
