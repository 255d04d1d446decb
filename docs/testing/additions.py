#!/usr/bin/env python3
"""Adds a variant and then a stage as docs/howto/own_kernel.md says, and looks for them wherever results show.

It works in a copy of the project. Exit code: 1 if a command fails, or if what was added shows in no table, saved row or page; 77 where
there is no matplotlib, which draws the plots anew.
"""

import importlib.util
import json
import sys
import tempfile

from scratch import Copy, Wrong

PAGE = "docs/howto/own_kernel.md"
ROWS = "docs/results/cpu/compare.jsonl"
COMPARE = f"build/bin/compare --device cpu --only {{}} --save {ROWS} --resume"
GENERATE = "docs/generate.py"


class Addition(Copy):
    def follow(self, command, *words):
        """Runs a command of the page, which has to succeed and to print these words."""
        if f"{command}\n" not in (self.folder / PAGE).read_text():
            raise Wrong(f"{PAGE} does not show the command {command}")
        self.expect(command, 0, words)

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
            if row["verdict"] != "ok" or not row["counters"]["read_bytes"] or not row["sources"].get(kernel):
                raise Wrong(f"the row of {name} has no good verdict, no bytes, or not {kernel} among its sources")
        stage, variant = step.split("/")
        for page, shown in pages.items():
            if shown.format(stage=stage, variant=variant) not in (self.folder / page).read_text():
                raise Wrong(f"{page} does not show {step}")
        self.expect(f"{GENERATE} --check")


def add_variant(copy):
    stage, before = "04_fa1_forward", copy.rows()
    copy.follow(f"cp -v {stage}/2_tiled.cuh {stage}/3_mine.cuh")
    copy.edit(f"{stage}/CMakeLists.txt", "2_tiled.cuh", "2_tiled.cuh 3_mine.cuh")
    copy.edit(f"{stage}/3_mine.cuh", "namespace flash::fa1_forward::step_2 {", "namespace flash::fa1_forward::step_3 {")
    copy.edit(f"{stage}/3_mine.cuh", '.name = "tiled"', '.name = "mine"')
    copy.expect(f"cmake --build build --target compare {stage}")
    copy.follow(f"build/bin/{stage} --list", "mine")
    copy.follow(COMPARE.format("04"), f"{stage}/mine", "ok", "wrote")
    copy.expect(GENERATE)
    pages = {"docs/logbook/comparison.md": "| {stage} `{variant}` |", "docs/reference/io_complexity.md": "| {stage} | `{variant}` |"}
    copy.shows(f"{stage}/mine", f"{stage}/3_mine.cuh", before, pages)


def add_stage(copy):
    stage, before = "09_mine", copy.rows()
    copy.follow(f"cp -rv 01_naive {stage}")
    copy.edit(f"{stage}/main.cpp", "01_naive", stage)
    copy.edit(f"{stage}/kernel.cuh", '.name = "naive"', '.name = "first"')
    copy.edit(f"{stage}/CMakeLists.txt", " PREDICT flash::naive::predicted", "")
    copy.edit(f"{stage}/CMakeLists.txt", "options.cuh@flash::options ", "")
    copy.edit("CMakeLists.txt", "add_subdirectory(08_tensor_cores)\n", f"add_subdirectory(08_tensor_cores)\nadd_subdirectory({stage})\n")
    (copy.folder / stage / "predicted.hpp").unlink()
    (copy.folder / stage / "test.cpp").write_text("")
    readme = copy.folder / stage / "README.md"
    readme.write_text(readme.read_text().replace("01_naive", stage))
    (copy.folder / f"docs/chapters/{stage}.md").write_text(f"# 09 Mine\n\n<!-- generated: quotes.printed {stage} -->\n<!-- end -->\n")
    copy.edit(
        "docs/README.md", "forward](chapters/08_tensor_cores.md)", f"forward](chapters/08_tensor_cores.md) [09 Mine](chapters/{stage}.md)"
    )
    copy.follow("common/try.sh 09", f"{stage}, variant first")
    copy.expect(COMPARE.format("09"), 0, [f"{stage}/first", "ok", "wrote"])
    copy.expect(f"build/bin/{stage} --device cpu >docs/results/cpu/{stage}.txt")
    copy.expect(GENERATE)
    pages = {"docs/logbook/comparison.md": "| {stage} `{variant}` |", "docs/reference/io_complexity.md": "| {stage} | `{variant}` |"}
    copy.shows(
        f"{stage}/first",
        f"{stage}/kernel.cuh",
        before,
        pages | {name: "{stage}, variant {variant}" for name in (f"{stage}/README.md", f"docs/chapters/{stage}.md")},
    )


def main():
    if not importlib.util.find_spec("matplotlib"):
        print("skipped: there is no matplotlib")
        return 77
    with tempfile.TemporaryDirectory(prefix="flash stëps additions.") as folder:
        copy = Addition(folder)
        copy.configure()
        try:
            add_variant(copy)
            add_stage(copy)
        except Wrong as wrong:
            print(f"FAILED: {wrong}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
