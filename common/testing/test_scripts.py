#!/usr/bin/env python3
"""What the scripts refuse: they leave a user's files alone, and begin nothing that nobody asked for."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*words):
    """(exit code, what it printed)"""
    done = subprocess.run(words, cwd=ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash scripts.")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def test_unknown_options(self):
        for script in ("common/setup.sh", "common/check_gpu.sh", "docs/site.sh", ".ci/run"):
            code, out = run(script, "--hepl")
            self.assertEqual((code, out.count("\n"), "'--hepl'" in out), (2, 1, True), out)
            self.assertEqual(run(script, "--help")[0], 0)

    def test_the_site_does_not_replace_a_folder_of_the_user(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/book").write_text("words")
        for place in ("mine", "mine/book"):
            code, out = run("docs/site.sh", self.folder / place)
            self.assertEqual((code, "was not made by docs/site.sh" in out), (1, True), out)
        self.assertEqual((self.folder / "mine/book").read_text(), "words")


if __name__ == "__main__":
    unittest.main()
