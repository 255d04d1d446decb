"""Reading files of saved rows: `compare --save` writes them, also those of peers."""

import json
from pathlib import Path

from .row import CHECKED, device_name, problem_key
from .text import SIZES
from .usage import Failure

WORDS = ("dtype", "bias", "layout")
OPTIONAL = {"device": dict, "idea": str, "date": str, "message": str}
ALLOWED = "allowed: rows of compare --save"


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON number")


def contents(path):
    """What JSON the file holds. Failure if none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse_constant)
    except OSError as error:
        raise Failure(2, f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Failure(2, f"'{path}' is damaged or no JSON ({error}); {ALLOWED}") from None


def read_file(path):
    """The rows of one file, as they are. Failure if it is not one."""
    rows = contents(path)
    rows = rows.get("rows") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise Failure(2, f"'{path}' holds no list of rows; {ALLOWED}")
    if not rows:
        raise Failure(2, f"'{path}' has no rows; {ALLOWED}")
    for index, row in enumerate(rows, start=1):
        wrong = what_is_wrong(row)
        if wrong:
            raise Failure(2, f"'{path}', row {index}: {wrong}; {ALLOWED}")
    return rows


def shown(value):
    return json.dumps(value)[:60]


def what_is_wrong(row):
    """ "" or why this is no row."""
    if not isinstance(row, dict):
        return "is no object"
    for key in ("stage", "variant"):
        if not isinstance(row.get(key), str):
            return f"{key} is {shown(row.get(key))}, no name"
    if "tune" in row:
        return "is a choice of tile sizes (compare --tune)"
    if row.get("pass") not in CHECKED:
        return f"pass is {shown(row.get('pass'))}, not forward or backward"
    if not isinstance(row.get("verdict"), str) and not isinstance(row.get("check"), dict) and not isinstance(row.get("time"), dict):
        return "has no verdict"
    for key, kind in OPTIONAL.items():
        if row.get(key) is not None and not isinstance(row[key], kind):
            return f"{key} is {shown(row[key])}, no {'object' if kind is dict else 'text'}"
    problem = row.get("problem")
    return "" if problem is None else "problem is no object" if not isinstance(problem, dict) else what_is_wrong_in(problem)


def what_is_wrong_in(problem):
    for key in SIZES:
        if type(problem.get(key)) is not int or not 1 <= problem[key] < 2**63:
            return f"problem.{key} is {shown(problem.get(key))}, no whole number from 1"
    for key in WORDS:
        if not isinstance(problem.get(key), str):
            return f"problem.{key} is {shown(problem.get(key))}, no name"
    for key, value in problem.items():
        if isinstance(value, (dict, list)):
            return f"problem.{key} is {shown(value)}, no number or name"
    return "" if isinstance(problem.get("causal"), bool) else "problem.causal is neither true nor false"


def read(paths):
    """The rows of all files, each with the number of its `file`. A run that ended without a report says nothing about its problem and its
    device: it has those of the other rows of its file where these agree."""
    every = []
    for index, path in enumerate(paths):
        rows = read_file(path)
        for key, name in (("device", device_name), ("problem", lambda row: problem_key(row["problem"]))):
            known = {name(row): row[key] for row in rows if row.get(key)}
            if len(known) == 1:
                rows = [row if row.get(key) else {**row, key: next(iter(known.values()))} for row in rows]
        every += [{**row, "file": index} for row in rows]
    return every
