"""Rows of peers.py in a file: written as they come, so that an interrupted sweep goes on where it was.

Rows go to FILE.partial, which takes the place of FILE at the end. Both are always whole: each is written under another name and renamed.
"""
import json
import os

from usage import Failure


def key(row):
    """What a row is about."""
    return json.dumps([row["variant"], row["pass"], row["problem"]], sort_keys=True)


def read(path):
    wanted = {"stage": str, "variant": str, "pass": str, "problem": dict, "device": dict, "verdict": str, "torch": str}
    try:
        rows = json.loads(path.read_text())
        good = isinstance(rows, list) and all(
            isinstance(row, dict) and row.get("stage") == "peer" and all(isinstance(row.get(name), kind) for name, kind in wanted.items())
            for row in rows
        )
    except (ValueError, RecursionError):  # not JSON, or not even text
        good = False
    except OSError as error:
        raise Failure(2, f"--resume: {path} cannot be read: {error.strerror}") from None
    if not good:
        raise Failure(2, f"--resume: {path} is damaged or of another program; allowed: rows that peers.py saved. It is left as it is")
    return rows


def write(path, rows):
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("x") as file:
            file.write(json.dumps(rows, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())  # on the medium before it takes the name
        part.replace(path)
    except OSError as error:
        raise Failure(2, f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


class SavedRows:
    """The file of --save, or none. Failure before anything runs if it cannot be written, or if rows would be lost."""

    def __init__(self, path, resume):
        self.path, self.partial, self.source, self.old = path, None, None, {}
        if path is None:
            return
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise Failure(2, f"--save is '{path}'; allowed: a file in a folder that can be written")
        self.partial = path.with_name(path.name + ".partial")
        for file in (path, self.partial):
            if os.path.lexists(file) and (file.is_symlink() or not file.is_file()):
                raise Failure(2, f"{file} exists and is not a regular file")
        if self.partial.exists() and not resume:
            raise Failure(2, f"{self.partial} has the rows of a run that was interrupted; allowed: --resume to go on, or move it away")
        # What was interrupted began with the rows of FILE if it was to.
        self.source = self.partial if self.partial.exists() else path
        if resume and self.source.exists():
            self.old = {key(row): row for row in read(self.source)}

    def keep(self, rows):
        """Saves these, and those of before that are of no run here."""
        if self.path:
            new = {key(row) for row in rows}
            write(self.partial, rows + [row for name, row in self.old.items() if name not in new])

    def finish(self, rows):
        if self.path:
            self.keep(rows)
            try:
                self.partial.replace(self.path)
            except OSError as error:
                raise Failure(2, f"{self.path} cannot be written: {error.strerror}; the rows are in {self.partial}") from None
