#!/usr/bin/env python3
"""test_configure.py CMAKE GENERATOR: what configuring refuses, and what it makes. Nothing is built."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE, GENERATOR = sys.argv[1:3]


class Configure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="flash stëps.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def cmake(self, *words, program=CMAKE):
        """(exit code, what it printed, in one line)"""
        options = {"cwd": self.folder, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run([program, *map(str, words)], **options)
        return done.returncode, " ".join(done.stdout.split())

    def preset(self, name, *options):
        code, printed = self.cmake("--preset", name, "-S", ROOT, "-B", self.folder / "build", "-G", GENERATOR, "-DFLASH_CUDA=OFF", *options)
        self.assertEqual(code, 0, printed)

    def listed(self, build="build"):
        """(exit code, what ctest lists)"""
        return self.cmake("--test-dir", build, "-N", program=pathlib.Path(CMAKE).with_name("ctest"))

    def test_not_in_the_source_folder(self):
        shutil.copy(ROOT / "CMakeLists.txt", self.folder)
        shutil.copytree(ROOT / "common" / "cmake", self.folder / "common" / "cmake")
        code, printed = self.cmake(".")
        self.assertEqual((code, "cmake --workflow --preset demo" in printed), (1, True), printed)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"CMakeLists.txt", "common", "CMakeCache.txt", "CMakeFiles"})

    def test_demo_and_test_share_their_objects(self):
        self.preset("demo")
        commands = self.folder / "build/compile_commands.json"
        of_demo = commands.read_text()
        self.preset("test")
        self.assertEqual(of_demo, commands.read_text())
        shutil.copytree(self.folder / "build", self.folder / "copy")
        for build, refused in (("build", False), ("copy", True)):  # in a copy, ctest would run the tests of the original
            code, printed = self.listed(build)
            self.assertEqual((code != 0, "tests of another folder" in printed), (refused, refused), printed)
        self.preset("demo", "-DBUILD_TESTING=OFF")
        self.assertNotIn("doctest", commands.read_text())

    def test_an_editor_finds_a_command_for_each_source(self):
        self.preset("cpu")
        self.assertIn("simt/machine/worker.cpp", (self.folder / "build/compile_commands.json").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
