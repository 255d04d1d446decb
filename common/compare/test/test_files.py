#!/usr/bin/env python3
"""rows/files.py: what may be replaced, and how."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rows import files
from rows.usage import Failure

OURS = files.begins("<!-- ours -->")


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "out.html"

    def refused(self, part, path):
        before = sorted(self.folder.rglob("*"))
        with self.assertRaises(Failure) as caught:
            files.target(path, "a page of ours", OURS)
        self.assertEqual(caught.exception.code, 2)
        self.assertIn(part, str(caught.exception))
        self.assertIn(str(path), str(caught.exception))
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_only_its_own_are_replaced(self):
        for text in ("my notes", " <!-- ours -->", "<!-- ours", "<!-- ours --\n"):
            self.path.write_text(text)
            self.refused("exists and is not a page of ours, so it is left as it is", self.path)
            self.assertEqual(self.path.read_text(), text)
        for text in ("<!-- ours --> and more", ""):
            self.path.write_text(text)
            self.assertEqual(files.target(self.path, "a page of ours", OURS), self.path.resolve())
            self.assertEqual(self.path.read_text(), text)

    def test_what_cannot_be_written_is_known_before(self):
        self.refused("is not a regular file", self.folder)
        self.refused("is not a regular file", pathlib.Path("/dev/null"))
        self.refused("cannot be written: No such file or directory", self.folder / "no" / "out.html")
        self.refused("cannot be written: Not a directory", pathlib.Path("/dev/null/out.html"))
        self.refused("cannot be written: File name too long", self.folder / ("x" * 300))
        with mock.patch("tempfile.mkstemp", side_effect=OSError(30, "Read-only file system")):
            self.refused("cannot be written: Read-only file system", self.path)
        self.path.write_text("<!-- ours -->")
        self.path.chmod(0o444)
        self.refused("it is read-only", self.path)  # by root as well
        self.path.chmod(0o644)
        with mock.patch("os.access", lambda path, mode: mode != os.W_OK):
            self.refused("it is read-only", self.path)

    def test_it_keeps_its_mode_and_the_links_to_it(self):
        link = self.folder / "link.html"
        link.symlink_to(self.path)
        new = files.target(link, "a page of ours", OURS)  # it leads to nothing yet
        mask = os.umask(0o027)
        files.write(new, "<!-- ours --> 1")
        os.umask(mask)
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o640)
        self.path.chmod(0o604)
        files.write(files.target(link, "a page of ours", OURS), "<!-- ours --> 2")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o604)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.path.read_text(), "<!-- ours --> 2")

    def test_rows_stand_one_a_line(self):
        rows = [{"idea": "α"}, {"n": 1.5, "of": [1, 2]}]
        self.assertEqual(files.rows_text(rows), '[\n{"idea":"α"},\n{"n":1.5,"of":[1,2]}\n]\n')
        self.assertEqual(files.rows_text([]), "[]\n")

    def test_the_old_text_stays_if_the_new_one_cannot_be_written(self):
        self.path.write_text("old")
        with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")), self.assertRaisesRegex(Failure, "No space left"):
            files.write(self.path, "new")
        self.assertEqual((self.path.read_text(), list(self.folder.iterdir())), ("old", [self.path]))


if __name__ == "__main__":
    unittest.main()
