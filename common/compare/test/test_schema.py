#!/usr/bin/env python3
"""Both sides of a file of rows have the same fields: schema() in row.cpp, which compare --schema prints, and Row in rows.py.

test_schema.py COMPARE
"""

import dataclasses
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import rows

NAMES = {str: "string", float: "number", int: "integer", dict: "object", list: "array"}

of_compare = json.loads(subprocess.run([sys.argv[1], "--schema"], check=True, capture_output=True).stdout)
of_python = {field.name.rstrip("_"): NAMES[field.type] for field in dataclasses.fields(rows.Row)}
for name in sorted({*of_compare, *of_python}):
    if of_compare.get(name) != of_python.get(name):
        sys.exit(f"{name} is {of_compare.get(name)} in row.cpp and {of_python.get(name)} in rows.py")
