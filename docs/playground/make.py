#!/usr/bin/env python3
"""Makes the pages of the playground: each one file that runs a stage's kernels, or a program of docs/lab, in a browser, also from a disk and without
a network.

    docs/playground/make.py [PAGE...]     all pages, or these, into build-wasm/html

It builds their modules by the preset `wasm`: common/setup.sh --browser installs what that needs.
"""

import base64
import gzip
import html
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kernels import ROOT, pages, with_headers  # noqa: E402

BUILD = ROOT / "build-wasm"
ABOUT = """Each CUDA thread of this kernel runs in your browser, in a simulator that counts every byte, checks the result and looks for races.
    Change the problem, or break the kernel and see what the simulator says. Nothing leaves your machine."""
LIST = "require(process.argv[1])({print: console.log}).then((module) => module.callMain(['--list', '--device', 'cpu', '--json']))"


def variants(page, module):
    """What `--list` says of the page's kernels; a lab takes none of a kernel's options."""
    if page.lab:
        name = page.name.removeprefix("lab_")
        return [{"name": name, "kernel": page.kernels[0], "passes": ["forward"], "dtypes": ["fp32"], "tiles": [], "max_head_dim": 64}]
    done = subprocess.run(["node", "--no-experimental-fetch", "-e", LIST, module], check=True, stdout=subprocess.PIPE, text=True)
    broken = [each.id for each in page.breaks]
    return [variant for variant in json.loads(done.stdout)["variants"] if variant["name"] not in broken]


def start_of(variant, which=-1):
    """What a page begins with, besides what its form says: the last pass of this kernel, or another one."""
    return {"variant": variant["name"], "pass": variant["passes"][which], "dtype": variant["dtypes"][0]}


def title_and_about(page):
    """The title of the chapter, and what the page's second line says; a lab's is the comment that it begins with."""
    if not page.lab:
        return re.match(r"# (.*)", (ROOT / f"docs/chapters/{page.name}.md").read_text())[1], ABOUT
    comment = re.match(r"(?://.*\n)+", (ROOT / page.kernels[0]).read_text())[0].replace("// ", "")
    return page.name, f"{html.escape(' '.join(comment.split()))} Each CUDA thread runs in your browser. Nothing leaves your machine."


def filled(data, title, about, css, script, module="", wasm=""):
    """page.html with these parts"""
    parts = {"TITLE": title, "ABOUT": about, "CSS": css, "PAGE": script, "MODULE": module, "WASM": wasm}
    parts["DATA"] = json.dumps(data).replace("</", "<\\/")
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], (HERE / "page.html").read_text())


def compose(page, module):
    listed = variants(page, module)
    data = {
        "start": start_of(next(variant for variant in listed if variant["kernel"] == page.kernels[0])),
        "variants": listed,
        "breaks": [{**b._asdict(), "text": "", "changes": b.changes()} for b in page.breaks],
        "lab": page.lab,
        "files": {file: (ROOT / file).read_text() for file in with_headers(page.kernels)},
    }
    wasm = base64.b64encode(gzip.compress(module.with_suffix(".wasm").read_bytes(), 9)).decode()
    script = module.read_text() + (HERE / "worker.js").read_text()
    return filled(data, *title_and_about(page), (HERE / "page.css").read_text(), (HERE / "page.js").read_text(), script, wasm)


def main():
    every = {page.name: page for page in pages()}
    names = sys.argv[1:] or every
    if not {*names} <= {*every}:
        sys.exit(f"usage: docs/playground/make.py [PAGE...]; there are: {', '.join(every)}")
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "wasm"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", *(f"page_{name}" for name in names)], check=True)
    (BUILD / "html").mkdir(exist_ok=True)
    for name in names:
        target = BUILD / "html" / f"{name}.html"
        target.write_text(compose(every[name], BUILD / f"bin/page_{name}.js"))
        print(f"playground: {target}, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"playground: {' '.join(map(str, error.cmd[:4]))} failed with {error.returncode}")
