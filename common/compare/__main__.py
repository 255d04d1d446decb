"""Compares all stages on one problem or on those of a sweep: `python3 -m common.compare --help`, or build/bin/compare."""

import importlib
import signal

from . import options, rows, runs, table

COMMANDS = ("plot", "profile")


def compare(arguments, folder):
    """The exit code. `folder`: that of the stage programs"""
    if arguments and arguments[0] in COMMANDS:
        return importlib.import_module(f".{arguments[0]}", __package__).main(arguments[1:], folder)
    asked = options.parse(arguments, folder)
    found = runs.run_all(asked)
    code = runs.exit_code(found)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `compare | head` ends in silence
    print(table.tables(found, asked.wide) + ("\nFAILED: see the verdicts above\n" if code == 1 else ""), end="", flush=True)
    return code


def main(folder=rows.ROOT / "build/bin"):
    rows.run_main("compare", lambda arguments: compare(arguments, folder))


if __name__ == "__main__":
    main()
