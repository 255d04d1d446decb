#!/usr/bin/env python3
"""Adds a variant and then a stage as docs/own_kernel.md says, and looks for them wherever results show.

  additions.py --build FOLDER    in a copy of the project; FOLDER: where the project was built, by Ninja

Exit code: 1 if a command fails, or if what was added shows in no table, saved row or page; 77 where this cannot run.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import commands
import reuse
from exercises import Copy, Wrong, expect

PAGE = "docs/own_kernel.md"
ROWS = "docs/results/cpu/compare.jsonl"
COMPARE = f"build/bin/compare --device cpu --only {{}} --save {ROWS} --resume"
GENERATE = "docs/generate.py"


class Addition(Copy):
    def follow(self, command, *words):
        """Runs a command of the page, which has to succeed and to print these words."""
        if f"{command}\n" not in (self.folder / PAGE).read_text():
            raise Wrong(f"{PAGE} does not show the command {command}")
        expect(self, command, 0, words)

    def rows(self):
        """{step and pass: row} of the saved rows."""
        rows = map(json.loads, (self.folder / ROWS).read_text().splitlines())
        return {f"{row['stage']}/{row['variant']} {row['pass']}": row for row in rows}

    def shows(self, step, kernel, before, pages):
        """Is a step, of which everything is saved, there beside the rows of `before`, and on these pages, which have to be right?"""
        rows = self.rows()
        added = {name: row for name, row in rows.items() if name not in before}
        if set(before) - set(rows) or {name.split()[0] for name in added} != {step}:
            raise Wrong(f"{ROWS} has lost {set(before) - set(rows)} and gained {set(added)}, not {step} alone")
        for name, row in added.items():
            if row["verdict"] != "ok" or not row["hbm_read_bytes"] or not row["sources"].get(kernel):
                raise Wrong(f"the row of {name} has no good verdict, no bytes, or not {kernel} among its sources")
        stage, variant = step.split("/")
        for page, shown in pages.items():
            if shown.format(stage=stage, variant=variant) not in (self.folder / page).read_text():
                raise Wrong(f"{page} does not show {step}")
        expect(self, f"{GENERATE} --check", 0)


def add_variant(copy):
    stage, before = "04_fa1_forward", copy.rows()
    copy.follow(f"cp -v {stage}/kernel.cuh {stage}/2_mine.cuh")
    copy.edit(f"{stage}/CMakeLists.txt", "KERNELS kernel.cuh", "KERNELS kernel.cuh 2_mine.cuh")
    copy.edit(f"{stage}/2_mine.cuh", '.name = "thread_per_row"', '.name = "mine"')
    expect(copy, f"cmake --build build --target compare {stage}", 0)
    copy.follow(f"build/bin/{stage} --list", "mine")
    copy.follow(COMPARE.format("04"), f"{stage}/mine", "ok", "wrote")
    expect(copy, GENERATE, 0)
    pages = {
        "docs/comparison.md": "| {stage} `{variant}` |",
        "docs/io_complexity.md": "| {stage} | `{variant}` |",
        "docs/04_fa1_forward.md": "counted, `{variant}`",
    }
    copy.shows(f"{stage}/mine", f"{stage}/2_mine.cuh", before, pages)


def add_stage(copy):
    stage, before = "09_mine", copy.rows()
    copy.follow(f"cp -rv 01_naive {stage}")
    copy.edit(f"{stage}/main.cpp", "01_naive", stage)
    copy.edit(f"{stage}/kernel.cuh", '.name = "naive"', '.name = "first"')
    copy.edit(f"{stage}/CMakeLists.txt", " PREDICT flash::naive::predicted", "")
    copy.edit("CMakeLists.txt", "add_subdirectory(08_tensor_cores)\n", f"add_subdirectory(08_tensor_cores)\nadd_subdirectory({stage})\n")
    (copy.folder / stage / "predicted.hpp").unlink()
    (copy.folder / stage / "test.cpp").write_text("")
    readme = copy.folder / stage / "README.md"
    readme.write_text(readme.read_text().replace("01_naive", stage))
    (copy.folder / f"docs/{stage}.md").write_text(f"# 09 Mine\n\n<!-- generated: quotes.printed {stage} -->\n<!-- end -->\n")
    copy.edit("docs/README.md", "(08_tensor_cores.md)", f"(08_tensor_cores.md) [09 Mine]({stage}.md)")
    copy.follow("common/try.sh 09", f"{stage}, variant first")
    expect(copy, f"{COMPARE.format('09')} --html report.html", 0, [f"{stage}/first", "ok", "wrote"])
    expect(copy, f"build/bin/{stage} --device cpu >docs/results/cpu/{stage}.txt", 0)
    expect(copy, GENERATE, 0)
    pages = {
        "docs/comparison.md": "| {stage} `{variant}` |",
        "docs/io_complexity.md": "| {stage} | `{variant}` |",
        "report.html": "{stage}/{variant}",
    }
    copy.shows(
        f"{stage}/first",
        f"{stage}/kernel.cuh",
        before,
        pages | {name: "{stage}, variant {variant}" for name in (f"{stage}/README.md", f"docs/{stage}.md")},
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    build = parser.parse_args().build.resolve()
    if not (build / "build.ninja").is_file():
        print(f"skipped: {build} was not built by Ninja")
        return 77
    with tempfile.TemporaryDirectory(prefix="flash stëps additions.") as name:
        folder = Path(name).resolve()
        commands.copy_project(folder)
        reuse.configure(folder, build)
        try:
            add_variant(Addition(folder))
            add_stage(Addition(folder))
        except Wrong as wrong:
            print(f"FAILED: {wrong}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
