#!/usr/bin/env python3
"""rows/files.py: what may be replaced, and how."""

import os
import pathlib
import unittest
from unittest import mock

from cases import Case

from rows import files

HASHED = "9d855cab8999c560"


class Files(Case):
    def test_hashes_of_code_see_tokens_alone(self):  # test_rows.cpp has the same
        code = 'int f(float x) {\n  return x < 2.0f ? 1 : g("a \\" b  // c", x);\n}\n'
        path = self.folder / "kernel.cuh"

        def hashed(text):
            path.write_text(text)
            return files.code_hash(path)

        self.assertEqual(hashed(code), HASHED)
        for same in (
            code.replace(" < ", "<"),
            code.replace("{", "{ // it's \"one"),
            "/* one\n// */" + code,
            code.replace("int f", "int/**/f"),
        ):
            self.assertEqual(hashed(same), HASHED, same)
        for other in (code.replace("int f", "intf"), code.replace("b  //", "b //"), code.replace("2.0f", "2.5f"), code + ";"):
            self.assertNotEqual(hashed(other), HASHED, other)

    def setUp(self):
        super().setUp()
        self.folder, self.path = self.path, self.path / "out.html"

    def target(self, path):
        return files.target(path, "a page of ours", files.begins("<!-- ours -->"))

    def refused(self, path, part):
        before = sorted(self.folder.rglob("*"))
        with self.fails(f"{path} {part}"):
            self.target(path)
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_only_its_own_are_replaced(self):
        for text in ("my notes", " <!-- ours -->", "<!-- ours", "<!-- ours --\n"):
            self.path.write_text(text)
            self.refused(self.path, "exists and is not a page of ours, so it is left as it is")
            self.assertEqual(self.path.read_text(), text)
        for text in ("<!-- ours --> and more", ""):
            self.path.write_text(text)
            self.assertEqual(self.target(self.path), self.path.resolve())
            self.assertEqual(self.path.read_text(), text)

    def test_what_cannot_be_written_is_known_before(self):
        self.refused(self.folder, "exists and is not a regular file")
        self.refused(pathlib.Path("/dev/null"), "exists and is not a regular file")
        self.refused(self.folder / "no" / "out.html", "cannot be written: No such file or directory")
        self.refused(pathlib.Path("/dev/null/out.html"), "cannot be written: Not a directory")
        self.refused(self.folder / ("x" * 300), "cannot be written: File name too long")
        with mock.patch("tempfile.mkstemp", side_effect=OSError(30, "Read-only file system")):
            self.refused(self.path, "cannot be written: Read-only file system")
        self.path.write_text("<!-- ours -->")
        self.path.chmod(0o444)
        self.refused(self.path, "cannot be written: it is read-only")  # by root as well
        self.path.chmod(0o644)
        with mock.patch("os.access", lambda path, mode: mode != os.W_OK):
            self.refused(self.path, "cannot be written: it is read-only")

    def test_it_keeps_its_mode_and_the_links_to_it(self):
        link = self.folder / "link.html"
        link.symlink_to(self.path)
        new = self.target(link)  # it leads to nothing yet
        mask = os.umask(0o027)
        files.write(new, "<!-- ours --> 1")
        os.umask(mask)
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o640)
        self.path.chmod(0o604)
        files.write(self.target(link), "<!-- ours --> 2")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o604)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.path.read_text(), "<!-- ours --> 2")

    def test_rows_stand_one_a_line(self):
        rows = [{"idea": "α"}, {"n": 1.5, "of": [1, 2]}]
        self.assertEqual(files.rows_text(rows), '[\n{"idea":"α"},\n{"n":1.5,"of":[1,2]}\n]\n')
        self.assertEqual(files.rows_text([]), "[]\n")

    def test_the_old_text_stays_if_the_new_one_cannot_be_written(self):
        self.path.write_text("old")
        with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")), self.fails("No space left"):
            files.write(self.path, "new")
        self.assertEqual((self.path.read_text(), list(self.folder.iterdir())), ("old", [self.path]))


if __name__ == "__main__":
    unittest.main()
