"""What the scripts write: nothing of the user's is replaced, and a file is there whole or not at all."""

import json
import os
import pathlib
import re
import shutil
import stat
import tempfile

from .usage import Failure

ROOT = pathlib.Path(__file__).resolve().parents[3]

# How files begin that these programs may replace.
REPORT = "<!DOCTYPE html>\n<!-- a report of flash-steps -->\n"
PLOT = "<!-- drawn by plot.py "


def begins(mark):
    """For target(): does a file begin so?"""

    def is_ours(path):
        with path.open("rb") as file:
            return file.read(len(mark.encode())) == mark.encode()

    return is_ours


def target(path, kind, is_ours):
    """The file that `path` means, behind links; to be asked for before the work begins. Failure if nothing can be written there, or if
    there is something that is_ours(file) does not know as `kind`, such as "a report of report.py". In an empty file there is nothing."""
    real = pathlib.Path(os.path.realpath(path))
    try:
        try:
            found = real.stat()
        except FileNotFoundError:
            found = None
        if found:
            if not stat.S_ISREG(found.st_mode):
                raise Failure(2, f"{path} exists and is not a regular file")
            if found.st_size and not is_ours(real):
                raise Failure(2, f"{path} exists and is not {kind}, so it is left as it is; allowed: a new name, or {kind}")
            if not (found.st_mode & 0o222 and os.access(real, os.W_OK)):  # root may write what nobody may
                raise Failure(2, f"{path} cannot be written: it is read-only")
        handle, part = tempfile.mkstemp(dir=real.parent)
        os.close(handle)
        os.unlink(part)
    except OSError as error:
        raise Failure(2, f"{path} cannot be written: {error.strerror}") from None
    return real


def write(path, text):
    """Under another name first, so that whoever reads the file finds the old text or the new one. It keeps the mode that it had."""
    part = path.with_name(f".{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # on the medium before it takes the name
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError as error:
        raise Failure(2, f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def rows_text(rows):
    """A JSON array with a row a line, so that a diff shows which of them changed."""
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows) + "\n]\n" if rows else "[]\n"


TOKEN = re.compile(r'//[^\n]*|/\*.*?(?:\*/|$)|"(?:\\.|[^"\\])*"?|\w+|\S', re.DOTALL | re.ASCII)


def code_hash(path):
    """What compare writes of a kernel file: a hash of its tokens without comments, however they are laid out. plan.cpp has the same function."""
    hashed, last = 0xCBF29CE484222325, ""
    for token in TOKEN.findall(path.read_text(errors="surrogateescape")):
        if token.startswith(("//", "/*")):
            continue
        words = re.fullmatch(r"\w\w", last[-1:] + token[:1], re.ASCII)
        for byte in f"{' ' if words else ''}{token}".encode(errors="surrogateescape"):
            hashed = (hashed ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        last = token
    return f"{hashed:016x}"
