"""What course.py is made of. Errors of the reader are told by Usage: one line, exit code 2."""


class Usage(Exception):
    """Bad input: what was got, and what is allowed."""
