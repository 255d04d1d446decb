"""Rows of a script in a file: written as they come, so that an interrupted run goes on where it was.

Rows go to FILE.partial, which takes the place of FILE at the end. Both are always whole: each is written under another name and renamed.
"""
import json
import os
import sys
import typing

from rows import files
from rows.usage import Failure


class Kind(typing.NamedTuple):
    """Whose rows they are."""

    program: str
    key: typing.Callable  # of a row: what it is about
    is_row: typing.Callable  # of anything that JSON can hold: is it a row of this program?


def peer_key(row):
    return json.dumps([row["variant"], row["pass"], row["problem"]], sort_keys=True)


def has(row, **kinds):
    return isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in kinds.items())


def is_peer_row(row):
    return has(row, stage=str, variant=str, problem=dict, device=dict, verdict=str, torch=str, **{"pass": str}) and row["stage"] == "peer"


PEERS = Kind("peers.py", peer_key, is_peer_row)


def read(path, kind):
    """The rows; None if the file is damaged or of another program."""
    try:
        rows = json.loads(path.read_text())
    except (ValueError, RecursionError):  # not JSON, or not even text
        return None
    except OSError as error:
        raise Failure(2, f"{path} cannot be read: {error.strerror}") from None
    return rows if isinstance(rows, list) and all(kind.is_row(row) for row in rows) else None


def write(path, rows):
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("x") as file:
            file.write(files.rows_text(rows))
            file.flush()
            os.fsync(file.fileno())  # on the medium before it takes the name
        part.replace(path)
    except OSError as error:
        raise Failure(2, f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


class SavedRows:
    """The file of --save, or none. Failure before anything runs if it cannot be written, or if rows or anything else would be lost."""

    def __init__(self, path, resume, kind=PEERS):
        self.kind = kind
        self.path, self.partial, self.source = path, None, None
        self.old, self.replaced = {}, []  # rows that stay, and rows of FILE that do not
        if path is None:
            return
        self.partial = path.with_name(path.name + ".partial")
        for file in (path, self.partial):
            if file.is_symlink():
                raise Failure(2, f"{file} exists and is not a regular file")
            files.target(file, f"a file of rows that {kind.program} saved", lambda file: read(file, kind) is not None)
        if self.partial.exists() and not resume:
            raise Failure(2, f"{self.partial} has the rows of a run that was interrupted; allowed: --resume to go on, or move it away")
        # What was interrupted began with the rows of FILE if it was to.
        self.source = self.partial if self.partial.exists() else path
        rows = read(self.source, kind) or [] if self.source.exists() else []
        if resume:
            self.old = {kind.key(row): row for row in rows}
        else:
            self.replaced = rows

    def keep(self, rows):
        """Saves these, and those of before that are of no run here. Returns how many they are."""
        if not self.path:
            return 0
        new = {self.kind.key(row) for row in rows}
        every = rows + [row for name, row in self.old.items() if name not in new]
        write(self.partial, every)
        return len(every)

    def finish(self, rows):
        if self.path:
            count = self.keep(rows)
            try:
                self.partial.replace(self.path)
            except OSError as error:
                raise Failure(2, f"{self.path} cannot be written: {error.strerror}; the rows are in {self.partial}") from None
            print(f"wrote {self.path}: {count} {'row' if count == 1 else 'rows'}", file=sys.stderr)
