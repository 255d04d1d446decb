"""What course.py is made of. Errors of the reader are told by Usage: one line, exit code 2."""

import sys

if sys.version_info < (3, 11):
    sys.exit("course.py needs Python 3.11 or newer (it reads TOML); this is " + sys.version.split()[0])


class Usage(Exception):
    """Bad input: what was got, and what is allowed."""
