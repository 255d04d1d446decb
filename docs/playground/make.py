#!/usr/bin/env python3
"""Makes the pages of the playground: each one file that runs a stage's kernels, or a program of docs/lab, in a browser, also from a disk and without
a network.

    docs/playground/make.py                    all pages, into build-wasm/html
    docs/playground/make.py --out FOLDER 04_fa1_forward
    docs/playground/make.py --list             the pages and their kernels, nothing built

It builds their modules by the preset `wasm` (common/setup.sh --browser installs what that needs). In node it then looks for a problem that shows
each mistake, with the words that the course promises for it; a mistake that no problem shows is an error, as is a page of more than 2 MB.
"""

import argparse
import base64
import functools
import gzip
import hashlib
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kernels import LAB, ROOT, check, labs, pages  # noqa: E402
from kit import measure, words  # noqa: E402

BUILD = ROOT / "build-wasm"
LARGEST = 2_000_000  # bytes of a page
STEPS = "16777216"
START = {
    "pass": "forward", "N": "40", "keys": "", "d": "24", "mask": "none", "tiles": "", "order": "forward", "heads": "1", "kv": "",
    "bias": "none", "input": "normal", "dtype": "fp32", "target": "90", "seed": "1", "arguments": "", "break": "",
}  # fmt: skip
FIELDS = {
    "--pass": "pass", "--seq": "N", "--seq-q": "N", "--seq-k": "keys", "--head-dim": "d", "--heads": "heads", "--kv-heads": "kv",
    "--bias": "bias", "--input": "input", "--dtype": "dtype",
}  # fmt: skip
ABOUT = """Each CUDA thread of this kernel runs in your browser, in a simulator that counts every byte, checks the result and looks for races.
    Change the problem, or break the kernel and see what the simulator says. Nothing leaves your machine."""


class Unmade(Exception):
    pass


class Program:
    """A page's module in node."""

    def __init__(self, module):
        command = ["node", "--no-experimental-fetch", HERE / "run.cjs", module]
        self.name, self.node = module.name, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.node.stdin.close()
        self.node.wait()

    def run(self, arguments, target=90):
        """{code, out, err, ms}"""
        environment = {"FLASH_SIMT_STEPS": STEPS, "FLASH_SIMT_TARGET": str(target)}
        self.node.stdin.write(json.dumps({"args": [*arguments, "--device", "cpu", "--json"], "env": environment}) + "\n")
        self.node.stdin.flush()
        line = self.node.stdout.readline()
        if not line:
            raise Unmade(f"{self.name} in node did not survive {' '.join(arguments)}")
        return json.loads(line)


def told(broken, options, result, usual):
    """What the course tells a student about this result; `usual`: the result of the kernel as it is, where one is needed. Of a lab: all it prints."""
    if broken.file.startswith(LAB):
        return " ".join((result["out"] + result["err"]).split())
    report = measure.parted(result["out"])[1] if result["code"] < 2 else None
    sentences = words.of_failure(broken.exercise, SimpleNamespace(code=result["code"], err=result["err"]), report, options)
    if not sentences:
        sentences = check.too_much(broken.exercise, measure.counts(report), measure.counts(usual()), options, "")
    return " ".join(" ".join(sentences).split())


def promised(broken):
    """Without the problem, which the page may have chosen otherwise."""
    return broken.says.split(": ")[-1] if broken.says.startswith("--") else broken.says


def state_of(broken, options, target):
    """The fields of the page for such options."""
    state = {
        "variant": broken.variant,
        "break": broken.id,
        "tiles": "",
        "mask": "causal" if "--causal" in options else "none",
        "target": str(target),
    }
    for name, value in zip(options, options[1:]):
        if name in FIELDS:
            state[FIELDS[name]] = value
    return state


def state_that_shows(broken, program):
    heard = []
    for options, target in broken.problems:
        result, usual = (functools.partial(program.run, [*options, "--variant", name], target) for name in (broken.id, broken.variant))
        heard.append(told(broken, options, result(), lambda usual=usual: json.loads(usual()["out"])))
        if promised(broken) in heard[-1]:
            return state_of(broken, options, target)
    raise Unmade(f"no problem shows '{broken.name}' with the words '{broken.says}', but: {heard}")


def states(page, module, program):
    """{id of a mistake: the state of the page that shows it}; remembered in the build folder until the module changes."""
    memory = BUILD / f"docs/playground/{page.name}/states.json"
    key = hashlib.sha256(module.with_suffix(".wasm").read_bytes()).hexdigest()
    if memory.exists() and (known := json.loads(memory.read_text()))["key"] == key:
        return known["states"]
    found = {broken.id: state_that_shows(broken, program) for broken in page.breaks}
    memory.write_text(json.dumps({"key": key, "states": found}))
    return found


def variants(program):
    """{name: what `--list` says of a kernel}, broken ones included"""
    for variant in json.loads(program.run(["--list"])["out"])["variants"]:
        tiles = [{**t, "choices": [{"br": choice["br"], "bc": choice["bc"]} for choice in t["choices"]]} for t in variant["tiles"]]
        yield variant["name"], {**variant, "tiles": tiles}


def lab_variants(page):
    """The same of a program and its broken copies, which take none of a kernel's options."""
    for name in (page.name.removeprefix("lab_"), *(broken.id for broken in page.breaks)):
        yield name, {"name": name, "kernel": page.kernels[0], "passes": ["forward"], "dtypes": ["fp32"], "tiles": [], "max_head_dim": 256}


def start_of(first):
    """The state in which a page begins, for the first of its kernels; of a backward pass, which takes longer, a smaller one."""
    start = {**START, "variant": first["name"], "pass": first["passes"][-1], "dtype": first["dtypes"][0]}
    if start["pass"] == "backward":
        start["N"] = "24"
        for sizes in first["tiles"]:
            if sizes["pass"] == "backward" and max(sizes["head_dims"]) >= int(start["d"]):
                small = min(sizes["choices"], key=lambda size: size["br"] * size["bc"])
                return {**start, "tiles": f"{small['br']},{small['bc']}"}
    return start


def title_of(page):
    """That of the chapter with the longest name that the page's begins with, or else of its stage's; a lab has its own name."""
    if page.stage == LAB:
        return page.name
    chapters = {path.stem: path for path in (ROOT / "docs/chapters").glob("*.md")}
    chapter = max((name for name in chapters if page.name.startswith(name)), key=len, default=page.stage)
    return re.match(r"# (.*)", chapters[chapter].read_text())[1]


def about(page):
    """What the page's second line says; a lab's is the comment that it begins with."""
    if page.stage != LAB:
        return ABOUT
    comment = re.match(r"(?://.*\n)+", (ROOT / page.kernels[0]).read_text())[0].replace("// ", "")
    return f"{html.escape(' '.join(comment.split()))} Break the program, and see what it says. Nothing leaves your machine."


def compose(page, module):
    with Program(module) as program:
        listed, found = dict(lab_variants(page) if page.stage == LAB else variants(program)), states(page, module, program)
    broken = {b.id: listed.pop(b.id) for b in page.breaks}
    data = {
        "start": start_of(next(iter(listed.values()))),
        "variants": list(listed.values()),
        "elsewhere": [
            [Path(file).stem, f"{other.name}.html"]
            for other in (*pages(), *labs())
            if other.stage == page.stage and other.name != page.name
            for file in other.kernels
        ],
        "breaks": [
            {
                **{key: broken[b.id][key] for key in ("max_head_dim", "tiles")},
                **{"id": b.id, "name": b.name, "file": b.file, "lesson": b.lesson, "changes": b.changes(), "state": found[b.id]},
            }
            for b in page.breaks
        ],
        "lab": page.stage == LAB,
        "arguments": sorted(set(re.findall(r'"(--\w+)"', (ROOT / page.kernels[0]).read_text()))) if page.stage == LAB else [],
        "files": {file: (ROOT / file).read_text() for file in page.sources()},
    }
    wasm = base64.b64encode(gzip.compress(module.with_suffix(".wasm").read_bytes(), 9)).decode()
    parts = {
        "TITLE": title_of(page),
        "ABOUT": about(page),
        "CSS": (HERE / "page.css").read_text(),
        "PAGE": (HERE / "page.js").read_text(),
        "DATA": json.dumps(data).replace("</", "<\\/"),
        "MODULE": module.read_text() + (HERE / "worker.js").read_text(),
        "WASM": wasm,
    }
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], (HERE / "page.html").read_text())


def build(names):
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "wasm"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", *(f"page_{name}" for name in names)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE")
    parser.add_argument("--out", type=Path, default=BUILD / "html", help="where to (default: build-wasm/html)")
    parser.add_argument("--list", action="store_true", help="list the pages and stop")
    arguments = parser.parse_args()
    everything = {page.name: page for page in (*pages(), *labs())}
    unknown = set(arguments.pages) - set(everything)
    if unknown:
        parser.error(f"there is no page {', '.join(sorted(unknown))}; there are: {', '.join(everything)}")
    wanted = [everything[name] for name in arguments.pages or everything]
    if arguments.list:
        print("\n".join(f"{page.name}: {', '.join(page.kernels)}; {len(page.breaks)} mistakes" for page in wanted))
        return
    build([page.name for page in wanted])
    arguments.out.mkdir(parents=True, exist_ok=True)
    for page in wanted:
        text = compose(page, BUILD / f"bin/page_{page.name}.js").encode()
        if len(text) > LARGEST:
            raise Unmade(f"{page.name} has {len(text):,} bytes; allowed: {LARGEST:,}. docs/playground/pages.toml splits a stage")
        target = arguments.out / f"{page.name}.html"
        target.write_bytes(text)
        print(f"playground: {target}, {len(text):,} bytes, {len(page.breaks)} mistakes")


if __name__ == "__main__":
    try:
        main()
    except Unmade as error:
        sys.exit(f"playground: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"playground: {' '.join(map(str, error.cmd[:4]))} failed with {error.returncode}")
