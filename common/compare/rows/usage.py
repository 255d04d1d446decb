"""Command lines of the scripts: a failure is one line on stderr and an exit code."""

import argparse
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
        paragraphs = []
        for line in self.text.strip().split("\n"):
            if line and not line.startswith(" ") and paragraphs and paragraphs[-1] and not paragraphs[-1].startswith(" "):
                paragraphs[-1] += " " + line
            else:
                paragraphs.append(line)
        indents = [" " * (len(paragraph) - len(paragraph.lstrip())) for paragraph in paragraphs]
        filled = [textwrap.fill(one, 80, subsequent_indent=indent and " " * 8, break_long_words=False, break_on_hyphens=False)
                  for one, indent in zip(paragraphs, indents)]  # fmt: skip
        return "\n".join(filled) + "\n"

    def error(self, message):
        raise Failure(2, message)


def whole_number(text):
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"is '{text}'; allowed: whole numbers from 1 to 999999999")
    return int(text)


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
