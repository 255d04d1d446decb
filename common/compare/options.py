"""The command line of `compare`, and the problems that it asks for: one, or every combination of the values of its sweeps."""

import argparse
import itertools
import re

from .rows import ROOT, SIZES, Failure

ABOUT = """\
Runs all stages and prints one table for each problem and pass. On a GPU it
times them; on the CPU simulator it counts. Without --dtype it compares fp32;
what does not take the problem is left out, and named.

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
SWEPT = {"seq": "seq", "batch": "batch", "heads": "heads", "d": "head_dim", "causal": "causal", "dtype": "dtype"}
DTYPES = ("fp32", "fp16", "bf16")
LARGEST = 2**30


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(2, f"{message}; --help lists the options")


def whole(low, high):
    """A function that reads such a number."""

    def read(text):
        if re.fullmatch("-?[0-9]{1,20}", text) and low <= int(text) <= high:
            return int(text)
        raise argparse.ArgumentTypeError(f"'{text}'; allowed: whole numbers from {low} to {high}")

    return read


def words(pattern, allowed):
    """A function that takes text of this pattern."""

    def read(text):
        if re.fullmatch(pattern, text):
            return text
        raise argparse.ArgumentTypeError(f"'{text}'; allowed: {allowed}")

    return read


def finite(text):
    try:
        if abs(float(text)) < 2**128:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"'{text}'; allowed: finite numbers")


def names(text):
    return [one for one in words(r".*[^,].*", "names with commas between them")(text).split(",") if one]


def sweep(text):
    """(name, values)"""
    what, _, listed = text.partition("=")
    size = whole(1, 256 if what == "d" else LARGEST)
    allowed = {"causal": ("no", "yes"), "dtype": DTYPES}.get(what)
    if what not in SWEPT:
        raise argparse.ArgumentTypeError(f"'{what}'; allowed: NAME=A,B,C with NAME seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16")
    for value in listed.split(",") if allowed else ():
        if value not in allowed:
            raise argparse.ArgumentTypeError(f"{what} '{value}'; allowed: {', '.join(allowed)}")
    values = [value == "yes" if what == "causal" else value if allowed else size(value) for value in listed.split(",")]
    if len(set(values)) < len(values):  # rows could not be told apart
        raise argparse.ArgumentTypeError(f"'{text}', which has a value twice; allowed: different values")
    return what, values


def parser(folder):
    of_all = Parser(
        prog="compare", description=ABOUT, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    of_all._negative_number_matcher = re.compile(r"-[\d.]")  # argparse takes -1,5 and -1e3 for options
    version = re.search(r"VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text().split("project(")[1])[1]
    of_all.add_argument("--version", action="version", version=f"compare (flash-steps {version})")
    add = of_all.add_argument
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
    add("--iterations", type=whole(1, 10**6), default=20, metavar="N", help="timed iterations on a GPU (default: 20)")
    add("--rounds", type=whole(1, 1000), default=1, metavar="N", help="on a GPU: time all of them N times, in turns, stages and peers of a "
        "problem one after the other. A row then has the median of the rounds (default: 1)")  # fmt: skip
    add("--tune", action="store_true", help="run each variant with all its compiled sizes of tiles")
    add("--time-limit", type=whole(1, 10**6), default=600, metavar="SECONDS", help="a run that takes longer is stopped (default: 600)")
    add(
        "--bin",
        type=words(".+", "a name"),
        default=folder,
        metavar="DIR",
        help="folder of the stage programs (default: where this program lies)",
    )

    add = of_all.add_argument_group("sweep").add_argument
    add("--sweep", action="append", type=sweep, default=[], metavar="NAME=VALUES", help="A,B,C of seq, batch, heads or d; causal=no,yes; "
        "dtype=fp16,bf16. Several make all combinations, the first outermost")  # fmt: skip
    add("--tokens", type=whole(1, 2**62), metavar="T", help="batch T / Nq (at least 1), so that each length has as many tokens")
    add("--width", type=whole(1, 2**62), metavar="W", help="W / d heads (at least 1), so that each head dimension has as wide a model")

    add = of_all.add_argument_group("output").add_argument
    add("--wide", action="store_true", help="all columns; else those that fit 80 characters")
    add("--save", type=words(".+", "a name"), metavar="FILE", help="append each row to this file of JSON Lines as its run ends, with commit, date and hashes of "
        "the kernels. Of rows of the same run the latest holds. A file that holds anything else than rows is refused")  # fmt: skip
    add("--resume", action="store_true", help="a run whose row is in that file, of the same code, is not run again")

    # What stands in the namespace are the options that were given.
    group = of_all.add_argument_group(
        "problem", "As the stage programs have it; their --help says more.", argument_default=argparse.SUPPRESS
    )

    def size(option, metavar, text, largest=LARGEST):
        group.add_argument(option, type=whole(1, largest), metavar=metavar, help=text)

    size("--batch", "B", "batch (default: 1, on a GPU 8)")
    size("--heads", "H", "query heads (default: 2, on a GPU 12)")
    size("--kv-heads", "Hkv", "key/value heads, a divisor of H (default: H)")
    size("--seq", "N", "length of queries and keys (default: 256, on a GPU 1024)")
    size("--seq-q", "Nq", "number of queries (default: as --seq)")
    size("--seq-k", "Nk", "number of keys (default: as --seq)")
    size("--head-dim", "d", "head dimension (default: 64)", 256)
    mask = group.add_mutually_exclusive_group()
    mask.add_argument("--causal", action="store_true", help="query i sees key j only if j <= i + Nk - Nq (default)")
    mask.add_argument("--no-causal", dest="causal", action="store_false", help="every query sees every key")
    add = group.add_argument
    add(
        "--window",
        type=words("(-1|[0-9]{1,9}),(-1|[0-9]{1,9})", "left,right, each a number or -1 for no bound"),
        metavar="left,right",
        help="and only so many keys to the left and to the right; -1: no bound",
    )
    add("--softcap", type=finite, metavar="c", help="scaled scores s become c tanh(s / c); 0: they stay")
    add(
        "--lengths",
        type=words("[0-9]{1,9}(:[0-9]{1,9})?(,[0-9]{1,9}(:[0-9]{1,9})?)*", "lengths such as 100,0,7:20"),
        metavar="n,n:m,...",
        help="a ragged batch: sequences of n queries and keys, or n queries and m keys",
    )
    add("--dropout", type=finite, metavar="p", help="each weight becomes 0 with this probability")
    add("--dropout-seed", type=whole(0, 2**64 - 1), metavar="S", help="which weights are dropped (default: 0)")
    add("--bias", choices=("none", "vector", "matrix", "alibi"), help="added to the scaled scores (default: none)")
    add("--bias-gradient", action="store_true", help="the backward pass also computes the gradient of a matrix")
    add("--score", choices=("dot", "lorentz"), help="(default: dot)")
    add("--values", choices=("tangent", "centroid"), help="(default: tangent)")
    add("--scale", type=finite, metavar="X", help="factor of Q K^T (default: 1/sqrt(d))")
    add("--dtype", choices=DTYPES, help="type of Q, K, V, O and their gradients (default: fp32)")
    add("--layout", choices=("bhnd", "bnhd", "qkv", "kv"), help="order in memory (default: bhnd)")
    add("--input", choices=("normal", "ones", "identity", "ramp", "large"), help="(default: normal)")
    add("--seed", type=whole(0, 2**64 - 1), metavar="S", help="seed of the random inputs (default: 1)")
    return of_all


PROBLEM = (*SIZES, "seq", "causal", "window", "softcap", "lengths", "dropout", "dropout_seed", "bias", "bias_gradient", "score", "values",
           "scale", "dtype", "layout", "input", "seed")  # fmt: skip


def parse(arguments, folder):
    """The options; what was given of the problem stands in `given`. `folder`: of the stage programs, unless --bin names another."""
    if "--json" in arguments:  # stages have it, and people try it
        raise Failure(2, "there is no --json; --save FILE writes the rows as JSON Lines")
    options = parser(folder).parse_args(arguments)
    options.given = {key: getattr(options, key) for key in PROBLEM if hasattr(options, key)}
    options.peers = "peer" in options.only
    options.stages = not options.only or options.only != ["peer"]
    if options.resume and not options.save:
        raise Failure(2, "--resume needs --save")
    if options.peers and options.device == "cpu":
        raise Failure(2, "--only peer and --device cpu are both given; allowed: one of them, since peers run on a GPU")
    if options.tune and options.rounds > 1:
        raise Failure(2, "--tune and --rounds are both given; allowed: one of them")
    taken = set(options.given)

    def take(by, *keys):
        """UsageError if what `by` sets is set already."""
        for key in filter(taken.__contains__, keys):
            raise Failure(2, f"{by} and --{key.replace('_', '-')} are both given; allowed: one of them")
        taken.update(keys)

    for what, _ in options.sweep:
        take(f"--sweep {what}", SWEPT[what], *(("seq_q", "seq_k") if what == "seq" else ()))
    if options.tokens:
        take("--tokens", "batch")
    if options.width:
        take("--width", "heads")
    if "lengths" in options.given:
        take("--lengths", "batch", "seq", "seq_q", "seq_k")
    if "seq" in options.given:
        taken.remove("seq")
        take("--seq", "seq_q", "seq_k")
    return options


def problem(given, defaults, tokens, width):
    """A problem as rows have it: every size, and options that are not as usual."""
    p = {"causal": True, "bias": "none", "dtype": "fp32", "layout": "bhnd", "input": "normal", "seed": 1, **defaults, **given}
    seq = p.pop("seq")
    for key in ("seq_q", "seq_k"):
        p.setdefault(key, seq)
    if "lengths" in p:
        pairs = [[int(n) for n in (one.split(":") * 2)[:2]] for one in p["lengths"].split(",")]  # n is n:n
        p.update(batch=1, seq_q=sum(q for q, _ in pairs), seq_k=sum(k for _, k in pairs))
        p["lengths"] = ",".join(f"{q}" if q == k else f"{q}:{k}" for q, k in pairs)
    if tokens:
        p["batch"] = max(1, tokens // p["seq_q"])
    if width:
        p["heads"] = max(1, width // p["head_dim"])
    p.setdefault("kv_heads", p["heads"])
    if p["heads"] % p["kv_heads"]:
        raise Failure(2, f"--heads {p['heads']} with --kv-heads {p['kv_heads']}: heads must be a multiple of kv-heads")
    if not p["seq_q"] or not p["seq_k"]:
        raise Failure(2, "--lengths has no queries, or no keys, at all; allowed: at least one of each")
    if "dropout" in p:
        p.setdefault("dropout_seed", 0)
    unused = {"window": "-1,-1", "softcap": 0, "dropout": 0, "bias_gradient": False, "score": "dot", "values": "tangent"}
    for key in [key for key, value in unused.items() if p.get(key) == value]:
        del p[key]
    if "dropout" not in p:
        p.pop("dropout_seed", None)
    return {key: p[key] for key in PROBLEM if key in p}


def problems(options, kind):
    """All problems; one without a sweep. `kind` of the device: what nobody gave differs."""
    swept = [[(SWEPT[what], value) for value in values] for what, values in options.sweep]
    return [problem({**options.given, **dict(each)}, DEFAULTS[kind], options.tokens, options.width) for each in itertools.product(*swept)]
