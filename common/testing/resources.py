#!/usr/bin/env python3
"""What the kernels of a stage ask of an SM, from nvcc's object files. Needs no GPU.

    common/testing/resources.py --stage NAME --cuobjdump PROGRAM --strict 75,80,90a [--save FILE.json] OBJECT...

Prints registers, shared memory that is fixed at compile time, stack and local memory of each kernel and architecture. Exits 1 if a
kernel has a stack or local memory: that is where registers are spilled, and where arrays go that are indexed at run time. For other
architectures than those of --strict such a kernel is named, and no failure.
On sm_90 the shared memory includes the 1 KB that the system takes of each block that uses any. Architectures of WANTED that the
objects lack are named; they are not compiled here.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

WANTED = ("sm_80", "sm_90a")


def run(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"resources: {command[0]} failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def short_name(demangled):
    """'forward_kernel<64, float4>' of 'void flash::(anonymous namespace)::forward_kernel<64, float4>(flash::Problem)'."""
    name = demangled.replace("(anonymous namespace)::", "")
    found = re.match(r"(?:void )?(?:\w+::)*(\w+(?:<[^()]*(?:\(\w+\)[^()]*)*>)?)", name)
    return found.group(1) if found else name


def kernels_of(cuobjdump, stage, path):
    """A row for each kernel and architecture of an object file."""
    text = run([cuobjdump, "--dump-resource-usage", str(path)])
    if shutil.which("c++filt"):
        text = run(["c++filt"], text)
    rows, arch, kernel = [], None, None
    for line in text.splitlines():
        if found := re.match(r"arch = (\S+)", line.strip()):
            arch = found.group(1)
        elif found := re.match(r"Function (.+):$", line.strip()):
            kernel = short_name(found.group(1))
        elif found := re.match(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line.strip()):
            registers, stack, shared, local = map(int, found.groups())
            source = re.sub(r"^(.*_gpu\.dir/)?(.*)_gpu\.cu\.o(bj)?$", r"\2.cuh", str(path))  # of the line that add_stage() generates
            rows.append(
                {
                    "arch": arch,
                    "file": f"{stage}/{source}",
                    "kernel": kernel,
                    "registers": registers,
                    "static_shared_bytes": shared,
                    "stack_bytes": stack,
                    "local_bytes": local,
                }
            )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", required=True)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--strict", required=True, type=lambda text: {f"sm_{arch}" for arch in text.split(",")})
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("objects", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()

    rows = [row for path in arguments.objects for row in kernels_of(arguments.cuobjdump, arguments.stage, path)]
    if not rows:
        sys.exit(f"resources: no kernel in {', '.join(map(str, arguments.objects))}")
    rows.sort(key=lambda row: (row["arch"], row["file"], row["kernel"]))
    print(f"{'arch':8} {'registers':>9} {'shared':>7} {'stack':>6} {'local':>6}  kernel")
    for row in rows:
        numbers = f"{row['registers']:9} {row['static_shared_bytes']:7} {row['stack_bytes']:6} {row['local_bytes']:6}"
        print(f"{row['arch']:8} {numbers}  {row['file']}: {row['kernel']}")
    there = {row["arch"] for row in rows}
    for arch in WANTED:
        if arch not in there:
            print(f"not checked: {arch} is not among the configured architectures ({', '.join(sorted(there))})")
    if arguments.save:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text(json.dumps({"stage": arguments.stage, "kernels": rows}, indent=1) + "\n")

    bad = [row for row in rows if row["stack_bytes"] or row["local_bytes"]]
    for row in bad:
        print(
            f"{'FAILED' if row['arch'] in arguments.strict else 'slower than it could be'}: {row['kernel']} of {row['file']} for {row['arch']} uses {row['stack_bytes']} bytes of stack and "
            f"{row['local_bytes']} of local memory; allowed: none"
        )
    return 1 if any(row["arch"] in arguments.strict for row in bad) else 0


if __name__ == "__main__":
    sys.exit(main())
