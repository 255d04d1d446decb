#!/usr/bin/env python3
"""test_configure.py CMAKE GENERATOR: what configuring says where something is missing, and what it makes. Nothing is built or downloaded."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE, GENERATOR = sys.argv[1:3]


class Configure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="flash stëps.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items() if name != "CUDAARCHS"}

    def cmake(self, *words, program=CMAKE):
        """(exit code, what it printed, in one line)"""
        done = subprocess.run(
            [program, *map(str, words)], cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return done.returncode, " ".join(done.stdout.split())

    def preset(self, name):
        code, printed = self.cmake("--preset", name, "-S", ROOT, "-B", self.folder / "build", "-G", GENERATOR)
        self.assertEqual(code, 0, printed)
        return printed

    def gpu(self, answer):
        """From now on nvidia-smi gives this answer; None: it fails."""
        script = self.folder / "nvidia-smi"
        script.write_text("#!/bin/sh\n" + ("exit 9" if answer is None else f"echo {answer}") + "\n")
        script.chmod(0o755)
        self.environment["PATH"] = f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def test_not_in_the_source_folder(self):
        shutil.copy(ROOT / "CMakeLists.txt", self.folder)
        shutil.copytree(ROOT / "common" / "cmake", self.folder / "common" / "cmake")
        code, printed = self.cmake(".")
        self.assertEqual(code, 1)
        self.assertIn("cmake --workflow --preset demo", printed)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"CMakeLists.txt", "common", "CMakeCache.txt", "CMakeFiles"})
        self.assertIn("rm -r CMakeCache.txt CMakeFiles", printed)

    def test_without_ninja(self):
        nowhere = ["-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"]
        code, printed = self.cmake("-S", ROOT, "-B", self.folder / "build", "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=NOTFOUND", *nowhere)
        self.assertEqual((code, "common/setup.sh" in printed, "unable to find a build program" in printed), (1, True, False), printed)

    def test_demo_and_test_share_their_objects(self):
        self.gpu(None)
        self.assertIn("GPU backend: not built, because no GPU answered", self.preset("demo"))
        made = ["CMakeCache.txt", "compile_commands.json"]
        of_demo = [(self.folder / "build" / name).read_text() for name in made]
        self.preset("test")
        self.assertEqual(of_demo, [(self.folder / "build" / name).read_text() for name in made])
        # In a copy, ctest would run the tests of the original.
        shutil.copytree(self.folder / "build", self.folder / "copy")
        for build, refused in (("build", False), ("copy", True)):
            code, printed = self.cmake("--test-dir", build, "-N", program=pathlib.Path(CMAKE).with_name("ctest"))
            self.assertEqual((code != 0, "tests of another folder" in printed), (refused, refused), printed)

    def test_code_for_the_gpu_that_answers(self):
        if not shutil.which("nvcc", path=os.environ["PATH"] + os.pathsep + "/usr/local/cuda/bin"):
            self.skipTest("no nvcc")
        self.gpu("8.6")
        self.assertRegex(self.preset("test"), r"GPU backend: nvcc [\d.]+, architectures 86 ")

    def unpack(self, url, sha256):
        script = self.folder / "unpack.cmake"
        script.write_text(
            f'include("{ROOT}/common/cmake/unpack_release.cmake")\nset(PROJECT_BINARY_DIR "{self.folder}")\n'
            f'unpack_release(source "Thing is missing" "{url}" {sha256})\nmessage(STATUS "in ${{source}}")\n'
        )
        return self.cmake("-P", script)

    def test_libraries_without_a_network(self):
        (self.folder / "thing-1.0").mkdir()
        with tarfile.open(self.folder / "thing.tar.gz", "w:gz") as archive:
            archive.add(self.folder / "thing-1.0", "thing-1.0")
        sha256 = hashlib.sha256((self.folder / "thing.tar.gz").read_bytes()).hexdigest()

        code, printed = self.unpack((self.folder / "missing.tar.gz").as_uri(), sha256)
        self.assertEqual((code, printed.count("common/setup.sh")), (1, 1), printed)
        self.assertIn(f"put that file into {self.folder}/_deps", printed)
        code, printed = self.unpack((self.folder / "thing.tar.gz").as_uri(), "0" * 64)
        self.assertEqual((code, "is something else" in printed), (1, True), printed)
        for _ in range(2):  # the second time it is there
            code, printed = self.unpack((self.folder / "thing.tar.gz").as_uri(), sha256)
            self.assertEqual((code, f"in {self.folder}/_deps/{sha256}/thing-1.0" in printed), (0, True), printed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
