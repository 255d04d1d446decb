"""The command line of `compare`, and the problems that it asks for: one, or every combination of the values of its sweeps. The options of a
problem, their values and their help are those of the stage programs, which read them."""

import argparse
import itertools
import re
from pathlib import Path

from . import programs
from .rows import ROOT, SIZES, Failure

ABOUT = """\
Runs all stages and prints one table for each problem and pass. On a GPU it
times them; on the CPU simulator it counts. What does not take the problem is
left out, and named.

A sweep over lengths, head dimensions and masks, which may be interrupted (the
same command with --resume goes on):
  compare --sweep d=64,128 --sweep causal=no,yes --sweep seq=512,4096 \\
          --tokens 16384 --width 2048 --save sweep.jsonl
Torch's attention on the same problem, next to a stage's last steps:
  compare --only 08,peer --variant last --dtype fp16 --rounds 3
Pictures of saved rows, and what Nsight Compute says of them:
  compare plot --help      compare profile --help"""
EXIT_CODES = """\
Exit codes: 0 good; 1 a check failed, or a variant crashed or finished no run
within the time limit; 2 bad usage or nothing to run; 3 no usable device or not
enough memory. FLASH_COMMIT=ID in the environment is the commit that saved rows
name, in a copy of which git knows another or none; a stage's --help has those
variables that the simulator reads."""
DEFAULTS = {
    "cpu": {"batch": 1, "heads": 2, "seq": 256, "head_dim": 64},  # what all stages together simulate in seconds
    "gpu": {"batch": 8, "heads": 12, "seq": 1024, "head_dim": 64},
}
ABOUT_DEFAULTS = """
Default: B=1 H=2 N=256, on a GPU B=8 H=12 N=1024; d=64, --causal, --dtype fp32."""
SWEPT = {"seq": "seq", "batch": "batch", "heads": "heads", "d": "head_dim", "causal": "causal", "dtype": "dtype"}


class Parser(argparse.ArgumentParser):
    def __init__(self, name, about, **more):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(name, description=about, formatter_class=formatter, allow_abbrev=False, **more)
        self._negative_number_matcher = re.compile(r"-[\d.]")  # argparse takes -1,5 and -1e3 for options

    def error(self, message):
        raise Failure(2, f"{message}; --help lists the options")


def whole(high):
    """A function that reads such a number."""

    def read(text):
        if re.fullmatch("[0-9]{1,20}", text) and 1 <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"'{text}'; allowed: whole numbers from 1 to {high}")

    return read


COUNT, SIZE = whole(10**6), whole(2**30)


def names(text):
    if found := [one for one in text.split(",") if one]:
        return found
    raise argparse.ArgumentTypeError(f"'{text}'; allowed: names with commas between them")


def sweep(text):
    """(key, values)"""
    what, _, listed = text.partition("=")
    values = listed.split(",")
    if what not in SWEPT or (what == "causal" and not {*values} <= {"no", "yes"}):
        raise argparse.ArgumentTypeError(f"'{text}'; allowed: NAME=A,B,C with NAME seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16")
    if len({*values}) < len(values):  # rows could not be told apart
        raise argparse.ArgumentTypeError(f"'{text}', which has a value twice; allowed: different values")
    return SWEPT[what], [value == "yes" if what == "causal" else value if what == "dtype" else SIZE(value) for value in values]


def parser(folder, table):
    """`table`: the options of a problem, as a stage lists them."""
    of_all = Parser("compare", ABOUT, epilog=EXIT_CODES)
    version = re.search(r"VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text().split("project(")[1])[1]
    add = of_all.add_argument
    add("--version", action="version", version=f"compare (flash-steps {version})")
    add("--only", type=names, default=[], metavar="LIST", help="stages, such as 02,03; peer: torch's attention by each of its backends (needs "
        "torch and a GPU). Default: all stages")  # fmt: skip
    add(
        "--variant",
        type=names,
        default=[],
        metavar="LIST",
        help="variants, such as loop_order,tuned; last: of each stage and pass the last",
    )
    add("--pass", dest="which", choices=("forward", "backward"), help="one pass alone (default: both)")
    add("--device", choices=("auto", "gpu", "cpu"), default="auto", help="auto: a GPU if one works, else the CPU simulator")
    add("--iterations", type=COUNT, default=20, metavar="N", help="timed iterations on a GPU (default: 20)")
    add("--rounds", type=COUNT, default=1, metavar="N", help="on a GPU: time all of them N times, in turns, stages and peers of a problem one "
        "after the other. A row then has the median of the rounds (default: 1)")  # fmt: skip
    add("--tune", action="store_true", help="run each variant with all its compiled sizes of tiles")
    add("--time-limit", type=COUNT, default=600, metavar="SECONDS", help="a run that takes longer is stopped (default: 600)")
    add("--bin", default=folder, metavar="DIR", help="folder of the stage programs (default: where this program lies)")

    add = of_all.add_argument_group("sweep").add_argument
    add("--sweep", action="append", type=sweep, default=[], metavar="NAME=VALUES", help="A,B,C of seq, batch, heads or d; causal=no,yes; "
        "dtype=fp16,bf16. Several make all combinations, the first outermost")  # fmt: skip
    add("--tokens", type=whole(2**62), metavar="T", help="batch T / Nq (at least 1), so that each length has as many tokens")
    add("--width", type=whole(2**62), metavar="W", help="W / d heads (at least 1), so that each head dimension has as wide a model")

    add = of_all.add_argument_group("output").add_argument
    add("--wide", action="store_true", help="all columns; else those that fit 80 characters")
    add("--save", type=Path, metavar="FILE", help="append each row to this file of JSON Lines as its run ends, with commit, date and hashes of the kernels. "
        "Of rows of the same run the latest holds. A file that holds anything else than rows is refused")  # fmt: skip
    add("--resume", action="store_true", help="a run whose row is in that file, of the same code, is not run again")

    # What stands in the namespace are the options that were given.
    group = of_all.add_argument_group("problem", ABOUT_DEFAULTS, argument_default=argparse.SUPPRESS)
    masks = group.add_mutually_exclusive_group()
    for option in [*table, {"name": "--seq", "value": "N", "help": "As many queries as keys"}]:
        name, value, about = option["name"], option["value"], option["help"].replace("%", "%%")
        if value:
            group.add_argument(name, metavar=value, type=SIZE if key_of(name) in (*SIZES, "seq") else str, help=about)
        else:
            (masks if name == "--causal" else group).add_argument(name, action="store_true", help=about)
    masks.add_argument("--no-causal", dest="causal", action="store_false", help="Every query sees every key")
    return of_all


def key_of(name):
    return name[2:].replace("-", "_")


def parse(arguments, folder):
    """The options, with the paths of the stage `programs`; what was given of the problem stands in `given`. `folder`: of these programs,
    unless --bin names another."""
    early = Parser("compare", "", add_help=False)
    early.add_argument("--bin", default=folder)
    found = programs.find(early.parse_known_args(arguments)[0].bin)
    table = programs.ask(found[0])["options"]
    options = parser(folder, table).parse_args(arguments)
    options.programs = found
    options.given = {key: value for key, value in vars(options).items() if key in ["seq", *(key_of(one["name"]) for one in table)]}
    if options.resume and not options.save:
        raise Failure(2, "--resume needs --save")
    if "peer" in options.only and options.device == "cpu":
        raise Failure(2, "--only peer and --device cpu are both given; allowed: one of them, since peers run on a GPU")
    asked = [(f"--{key.replace('_', '-')}", key) for key in options.given] + [(f"--sweep of {key}", key) for key, _ in options.sweep]
    asked += [("--tokens", "batch")] * bool(options.tokens) + [("--width", "heads")] * bool(options.width)
    sets = {"seq": ("seq", "seq_q", "seq_k"), "lengths": ("batch", "seq", "seq_q", "seq_k")}
    for (one, key), (other, second) in itertools.combinations(asked, 2):
        if second in sets.get(key, (key,)) or key in sets.get(second, ()):
            raise Failure(2, f"{one} and {other} are both given; allowed: one of them")
    return options


def words(problem):
    """A problem as options of a stage's program."""
    return [f"--{key.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}" for key, value in problem.items()]


def problems(options, kind):
    """What is asked of each; one without a sweep. `kind` of the device: what nobody gave differs."""
    for values in itertools.product(*(values for _, values in options.sweep)):
        p = {**options.given, **{key: value for (key, _), value in zip(options.sweep, values)}}
        for key, value in {**DEFAULTS[kind], "causal": True, "dtype": "fp32"}.items():
            if "lengths" not in p or key not in ("batch", "seq"):
                p.setdefault(key, value)
        if seq := p.pop("seq", None):
            p = {"seq_q": seq, "seq_k": seq, **p}
        if options.tokens:
            p["batch"] = max(1, options.tokens // p["seq_q"])
        if options.width:
            p["heads"] = max(1, options.width // p["head_dim"])
        yield p
