"""Command lines of the scripts: a failure is one line on stderr and an exit code."""

import argparse
import functools
import re
import sys
import textwrap


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """--help prints the text alone, which describes the options in its own order, in lines that a terminal has room for."""

    def __init__(self, name, text):
        super().__init__(prog=name, allow_abbrev=False)
        self.text = text

    def format_help(self):
        text = re.sub(r"(?m)^(?! )(.+)\n(?=\S)", r"\1 ", self.text.strip())  # a paragraph in a line; what is indented keeps its lines
        fill = functools.partial(textwrap.fill, width=80, break_long_words=False, break_on_hyphens=False)
        return "".join(fill(line, subsequent_indent=" " * 8 * line.startswith(" ")) + "\n" for line in text.split("\n"))

    def error(self, message):
        raise Failure(2, message)


def list_of(allowed):
    """The type of an option that takes some of these names, separated by commas."""

    def parse(text):
        names = [name for name in text.split(",") if name]
        if not names or any(name not in allowed for name in names):
            raise argparse.ArgumentTypeError(f"is '{text}'; allowed: {', '.join(allowed)}, separated by commas")
        return names

    return parse


def run(name, main):
    """Ends the program as main(arguments) says."""
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print(f"{name}: {' '.join(str(failure).split())}", file=sys.stderr)
        sys.exit(failure.code)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(130)
