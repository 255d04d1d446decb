"""For the tests in Python: a folder to work in, and what a failure says."""

import contextlib
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "common" / "compare"))

from rows import Failure  # noqa: E402


class Case(unittest.TestCase):
    """In a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    @contextlib.contextmanager
    def fails(self, part, code=2):
        with self.assertRaises(Failure) as caught:
            yield
        self.assertEqual(caught.exception.args[0], code)
        self.assertIn(part, caught.exception.args[1])

    def save(self, rows, name="rows.jsonl"):
        path = self.path / name
        path.write_text(rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows))
        return path
