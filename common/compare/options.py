"""The command line of `compare`, and the problems that it asks for: one, or every combination of the values of its sweeps. The options of a
problem are those of the stage programs, which read them, and say what is wrong with them."""

import argparse
import itertools
import re
from pathlib import Path

from . import programs
from .rows import Failure

ABOUT = """\
Runs all stages and prints one table for each problem and pass. On a GPU it
times them; on the CPU simulator it counts. What does not take the problem is
left out, and named.

A sweep, which may be interrupted (the same command with --resume goes on):
  compare --sweep d=64,128 --sweep seq=512,4096 --save sweep.jsonl
The pictures of the pages, and what Nsight Compute says of saved rows:
  compare plot --help      compare profile --help"""
EXIT_CODES = """\
Exit codes: 0 good; 1 a check failed, or a variant crashed or finished no run
within the time limit; 2 bad usage or nothing to run; 3 no usable device or not
enough memory. FLASH_COMMIT=ID in the environment is the commit that saved rows
name, in a copy of which git knows another or none; a stage's --help has those
variables that the simulator reads."""
DEFAULTS = {
    "cpu": {"--batch": 1, "--heads": 2, "--seq-q": 256, "--seq-k": 256},  # what all stages together simulate in seconds
    "gpu": {"--batch": 8, "--heads": 12, "--seq-q": 1024, "--seq-k": 1024},
}
ABOUT_PROBLEM = """\
The options of a problem are those of the stages, such as --batch, --heads,
--seq, --head-dim, --bias, --window: 01_naive --help explains them. Default:
B=1 H=2 N=256, on a GPU B=8 H=12 N=1024; d=64, --dtype fp32, --causal, which
--causal=false undoes."""
SWEPT = {"seq": "--seq", "batch": "--batch", "heads": "--heads", "d": "--head-dim", "causal": "--causal", "dtype": "--dtype"}
LIST = {"type": lambda text: text.split(","), "action": "extend", "default": [], "metavar": "LIST"}


class Parser(argparse.ArgumentParser):
    def __init__(self, name, about, **more):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(name, description=about, formatter_class=formatter, allow_abbrev=False, **more)

    def error(self, message):
        raise Failure(2, f"{message}; --help lists the options")


def count(text):
    if re.fullmatch("[0-9]{1,7}", text) and 1 <= int(text) <= 2000000:
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}'; allowed: whole numbers from 1 to 2000000")


def sweep(text):
    """(option, values)"""
    what, _, listed = text.partition("=")
    values = [value.lstrip("0") or value for value in listed.split(",")]  # 08 is 8
    if what not in SWEPT or "" in values or len({*values}) < len(values) or (what == "causal" and not {*values} <= {"no", "yes"}):
        raise argparse.ArgumentTypeError(
            f"'{text}'; allowed: NAME=A,B,C, each once, with NAME seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16"
        )
    return SWEPT[what], [{"no": "false", "yes": "true"}.get(value, value) for value in values]


def parser():
    command = Parser("compare", ABOUT, usage="compare [OPTION...]", epilog=EXIT_CODES)
    add = command.add_argument
    add("--only", **LIST, help="stages, such as 02,03; peer: torch's attention by each of its backends (needs "
        "torch and a GPU). Default: all stages")  # fmt: skip
    add("--variant", **LIST, help="such as loop_order,tuned; last: of each ladder the last step")
    add("--pass", dest="pass_", choices=("forward", "backward"), help="one pass alone (default: both)")
    add("--device", choices=("auto", "gpu", "cpu"), default="auto", help="auto: a GPU if one works, else the CPU simulator")
    add("--iterations", type=count, default=20, metavar="N", help="timed iterations on a GPU (default: 20)")
    add("--rounds", type=count, default=1, metavar="N", help="on a GPU: time all of them N times, in turns, stages and peers of a problem one "
        "after the other. A row then has the median of the rounds (default: 1)")  # fmt: skip
    add("--tune", action="store_true", help="run each variant with all its compiled sizes of tiles")
    add("--time-limit", type=count, default=600, metavar="SECONDS", help="a stage that runs longer is stopped (default: 600)")

    add = command.add_argument_group("sweep").add_argument
    add("--sweep", action="append", type=sweep, default=[], metavar="NAME=VALUES", help="A,B,C of seq, batch, heads or d; causal=no,yes; "
        "dtype=fp16,bf16. Several make all combinations, the first outermost")  # fmt: skip
    add("--tokens", type=count, metavar="T", help="batch T / Nq (at least 1), so that each length has as many tokens")
    add("--width", type=count, metavar="W", help="W / d heads (at least 1), so that each head dimension has as wide a model")

    add = command.add_argument_group("output").add_argument
    add("--wide", action="store_true", help="all columns; else those that fit 80 characters")
    add("--save", type=Path, metavar="FILE", help="append each row to this file of JSON Lines as its run ends, with commit, date and hashes of the kernels. "
        "Of rows of the same run the latest holds. A file that holds anything else than rows is refused")  # fmt: skip
    add("--resume", action="store_true", help="a run whose row is in that file, of the same code, is not run again")

    command.add_argument_group("problem", ABOUT_PROBLEM)
    return command


def parse(arguments, folder):
    """The options, with the paths of the stage `programs` of a folder; the words of the problem stand in `given`."""
    options, options.given = parser().parse_known_args(arguments)
    options.programs = programs.find(folder)
    known = {"--seq", *(option["name"] for option in programs.list_json(options.programs[0])["options"])}
    if unknown := {name_of(word) for word in options.given if word.startswith("--")} - known:
        raise Failure(2, f"unknown option '{min(unknown)}'; --help lists the options")
    swept = [name for name, _ in options.sweep]
    if twice := [name for name in swept if [*swept, *map(name_of, options.given)].count(name) > 1]:
        raise Failure(2, f"{twice[0]} is swept and given again; allowed: one --sweep with all its values")
    if options.resume and not options.save:
        raise Failure(2, "--resume needs --save")
    if "peer" in options.only and options.device == "cpu":
        raise Failure(2, "--only peer and --device cpu are both given; allowed: one of them, since peers run on a GPU")
    return options


def name_of(word):
    return word.partition("=")[0]


def to_arguments(problem):
    """A problem as options of a stage's program."""
    return [f"--{key.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}" for key, value in problem.items()]


def problems(options, kind):
    """What is asked of each, in words for a stage; one without a sweep. `kind` of the device: what nobody gave differs."""
    for values in itertools.product(*(values for _, values in options.sweep)):
        asked = options.given + [f"{name}={value}" for (name, _), value in zip(options.sweep, values)]
        names = {name_of(word) for word in asked}
        if names & {"--seq", "--lengths"}:
            names |= {"--seq-q", "--seq-k"}
        if options.tokens or "--lengths" in names:
            names.add("--batch")
        if options.width:
            names.add("--heads")
        usual = {**DEFAULTS[kind], "--head-dim": 64, "--causal": "true", "--dtype": "fp32"}
        asked += [f"{name}={value}" for name, value in usual.items() if name not in names]
        if options.tokens or options.width:
            p = programs.list_json(options.programs[0], asked)["problem"]
            if options.tokens:
                asked += [f"--batch={max(1, options.tokens // p['seq_q'])}"]
            if options.width:
                asked += [f"--heads={max(1, options.width // p['head_dim'])}"]
        yield asked
