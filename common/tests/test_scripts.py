#!/usr/bin/env python3
"""What scripts and CMake refuse: they leave a user's files alone, and begin nothing that nobody asked for. Nothing is built."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXERCISES = sys.executable, "-B", "-m", "docs.testing.exercises"


def run(*words, cwd=ROOT):
    """(exit code, what it printed)"""
    done = subprocess.run(words, cwd=cwd, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash stëps.")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_unknown_options(self):
        scripts = "setup.sh check_gpu.sh try.sh format.sh lines.py ../docs/site.sh ../docs/save_results.sh ../docs/generate.py ../.ci/run"
        for script in scripts.split():
            code, out = run(f"common/{script}", "--hepl")
            self.assertEqual((code, out.count("\n"), "'--hepl'" in out), (2, 1, True), out)
            self.assertEqual(run(f"common/{script}", "--help")[0], 0)

    def test_other_bad_usage(self):
        for words in (
            ["env", "FLASH_CHECK_PARTS=tests tenzor", "common/check_gpu.sh"],
            ["docs/save_results.sh", self.folder / "tenzor"],
            ["docs/save_results.sh", "build", "tenzor"],
            ["common/lines.py", "--help", "tenzor"],
            ["docs/generate.py", "--check", "tenzor"],
            [".ci/run", "--full", "tenzor"],
            [*EXERCISES, "tenzor"],
        ):
            code, out = run(*words)
            self.assertEqual((code, out.count("\n"), "tenzor" in out), (2, 1, True), out)
        self.assertEqual(run(*EXERCISES, "--help")[0], 0)

    def test_the_site_does_not_replace_a_folder_of_the_user(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/book").write_text("words")
        for place in ("mine", "mine/book"):
            code, out = run("docs/site.sh", self.folder / place)
            self.assertEqual((code, "was not made by docs/site.sh" in out), (1, True), out)
        self.assertEqual((self.folder / "mine/book").read_text(), "words")

    def test_cmake_does_not_build_among_the_sources(self):
        shutil.copy(ROOT / "CMakeLists.txt", self.folder)
        code, out = run("cmake", ".", cwd=self.folder)
        self.assertEqual((code, "cmake --workflow --preset demo" in " ".join(out.split())), (1, True), out)

    def test_cmake_refuses_a_stage_without_its_kernels(self):
        stage = self.folder / "09_test"
        stage.mkdir()
        (stage / "1_no_variant.cuh").write_text("namespace flash {\n}\n")
        for kernel in ("1_no_variant.cuh", "2_no_file.cuh"):
            lines = (
                f'set(PROJECT_SOURCE_DIR "{self.folder}")',
                "cmake_minimum_required(VERSION 3.25)\nset(FLASH_BACKENDS cpu)",
                f'include("{ROOT}/common/cmake/stage.cmake")',
                f"add_stage(KERNELS {kernel})",
            )
            (stage / "run.cmake").write_text("\n".join(lines))
            code, out = run("cmake", "-P", "run.cmake", cwd=stage)
            self.assertEqual((code, f"KERNELS names 09_test/{kernel}" in " ".join(out.split())), (1, True), out)


if __name__ == "__main__":
    unittest.main()
