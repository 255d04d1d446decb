#!/usr/bin/env python3
"""Runs the cells of colab.ipynb in a copy of the project, one after the other, as a notebook would."""

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "docs" / "testing"))
from scratch import Copy


def main():
    notebook = json.loads((HERE / "colab.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    wrong = [f"cell {n} was saved with its output" for n, cell in enumerate(cells) if cell["outputs"] or cell["execution_count"]]
    os.environ["CMAKE_GENERATOR"] = "Ninja"
    usual = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="flash stëps notebook.") as name:
        copy = Copy(name)
        copy.configure(into="build-colab")
        folder = copy.folder
        os.chdir(folder / "docs" / "course")
        names = {}
        kernel = (folder / "04_fa1_forward/thread_rows.cuh").read_text()
        for number, cell in enumerate(cells):
            print(f"--- cell {number}", flush=True)
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        if (folder / "04_fa1_forward/thread_rows.cuh").read_text() != kernel:
            wrong.append("the file that was edited was not put back")
        if not (folder / "mine/04_merge_output.cuh").is_file():
            wrong.append("no exercise was written")
        os.chdir(usual)
    print("\n".join(wrong) or "all cells ran")
    return 1 if wrong or not cells else 0


if __name__ == "__main__":
    sys.exit(main())
