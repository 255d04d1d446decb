"""The problems that are to be run, from sizes, --sweep, --tokens and --width: the same options as those of `compare`."""
import argparse
import itertools
import re

from rows.usage import Failure, whole_number

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # names of torch and NumPy
DEFAULTS = {"batch": 8, "heads": 12, "seq": 1024, "head_dim": 64, "causal": True, "dtype": "fp32"}
SWEPT = {"seq": "seq", "batch": "batch", "heads": "heads", "d": "head_dim", "head-dim": "head_dim", "causal": "causal", "dtype": "dtype"}
WORDS = {"causal": {"no": False, "yes": True}, "dtype": {name: name for name in DTYPES}}
ALLOWED = (
    "NAME=FIRST..LAST or NAME=A,B,C with NAME seq, batch, heads, d (whole numbers from 1 to 999999999), causal (no, yes) or dtype (fp32, fp16, bf16)"
)


def doubling(first, last):
    values = [first]
    while values[-1] * 2 <= last:
        values.append(values[-1] * 2)
    return values


def sweep(text):
    """("seq", [128, 256, 512]) of "seq=128..512" and of "seq=128,256,512"."""
    bad = argparse.ArgumentTypeError(f"is '{text}'; allowed: {ALLOWED}")
    name, equals, listed = text.partition("=")
    if name not in SWEPT or not equals:
        raise bad
    swept = SWEPT[name]
    words = WORDS.get(swept)
    found = re.fullmatch(r"([1-9][0-9]{0,8})\.\.([1-9][0-9]{0,8})", listed)
    try:
        if found and words is None:
            values = doubling(int(found[1]), int(found[2])) if int(found[1]) <= int(found[2]) else []
        else:
            values = [words[value] if words else whole_number(value) for value in listed.split(",")]
    except (KeyError, argparse.ArgumentTypeError):
        raise bad from None
    if not values or len(set(values)) < len(values):
        raise bad
    return swept, values


def add_problem_options(parser):
    for name in ("batch", "heads", "seq", "head-dim"):
        parser.add_argument(f"--{name}", type=whole_number, metavar="N")
    parser.add_argument("--causal", action=argparse.BooleanOptionalAction)
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--sweep", type=sweep, action="append", default=[], metavar="NAME=VALUES")
    parser.add_argument("--tokens", type=whole_number, metavar="T")
    parser.add_argument("--width", type=whole_number, metavar="W")


def check_contradictions(options):
    swept = [name for name, _ in options.sweep]
    for name in swept:
        if swept.count(name) > 1:
            raise Failure(2, f"--sweep {name} is given twice; allowed: once")
        if getattr(options, name) is not None:
            raise Failure(2, f"--sweep {name} and an option for the same are both given; allowed: one of them")
    for option, size in (("tokens", "batch"), ("width", "heads")):
        if getattr(options, option) is not None and (size in swept or getattr(options, size) is not None):
            raise Failure(2, f"--{option} and a size for {size} are both given; allowed: one of them")


def problems(options):
    """As a row has them, the first sweep outermost. Queries and keys are equally long: torch aligns its causal mask at the top left."""
    given = {name: getattr(options, name) for name in DEFAULTS}
    start = {name: DEFAULTS[name] if value is None else value for name, value in given.items()}
    names = [name for name, _ in options.sweep]
    for values in itertools.product(*(values for _, values in options.sweep)):
        sizes = start | dict(zip(names, values))
        if options.tokens:
            sizes["batch"] = max(1, options.tokens // sizes["seq"])
        if options.width:
            sizes["heads"] = max(1, options.width // sizes["head_dim"])
        yield {"batch": sizes["batch"], "heads": sizes["heads"], "kv_heads": sizes["heads"], "seq_q": sizes["seq"],
               "seq_k": sizes["seq"], "head_dim": sizes["head_dim"], "scale": sizes["head_dim"] ** -0.5, "causal": sizes["causal"],
               "bias": "none", "dtype": sizes["dtype"], "layout": "bhnd", "input": "normal", "seed": 1}  # fmt: skip


def flops(problem, which):
    """Two products of 2*pairs*d each forward, five backward; pairs (query, key) that the mask leaves visible."""
    n = problem["seq_q"]
    pairs = n * (n + 1) // 2 if problem["causal"] else n * n
    forward = 4.0 * problem["batch"] * problem["heads"] * pairs * problem["head_dim"]
    return forward if which == "forward" else 2.5 * forward


def describe(problem):
    p = problem
    mask = " causal" if p["causal"] else ""
    return f"B={p['batch']} H={p['heads']} N={p['seq_q']} d={p['head_dim']}{mask} {p['dtype']}"
