#!/usr/bin/env python3
"""Times torch's attention on the problems of `compare`: scaled_dot_product_attention by each of its backends, and plain torch.

    common/compare/peers.py [--batch B] [--heads H] [--seq N] [--head-dim d] [--causal | --no-causal] [--dtype fp32|fp16|bf16]
        [--pass forward|backward] [--sweep NAME=FIRST..LAST] [--only LIST] [--iterations N] [--json] [--save FILE]
        [--problem OPTIONS]...

Each --problem is a problem of its own, as options in one word; what it leaves out comes from the others:
    peers.py --dtype fp16 --problem "--seq 1024" --problem "--seq 4096 --head-dim 128 --no-causal"

The rows are those of `compare --save`, with "peer" as their stage. Defaults, FLOPs and timing are compare's too: CUDA events around
the pass alone, a cold L2, the median after a warm-up. A backward pass is timed without its forward. fp32 is computed without TF32.
Needs torch and a GPU; nothing else in the project does. Exit codes: 0 good; 2 bad usage or nothing to run; 3 no torch, no GPU, or
not enough memory.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import sys
import warnings

from provenance import commit

PEERS = {  # variant: (idea, backend of torch.nn.attention.SDPBackend or None)
    "flash": ("torch SDPA, FlashAttention-2 (16-bit types only)", "FLASH_ATTENTION"),
    "cudnn": ("torch SDPA, cuDNN (16-bit types only)", "CUDNN_ATTENTION"),
    "memory_efficient": ("torch SDPA, memory-efficient attention", "EFFICIENT_ATTENTION"),
    "plain": ("plain torch: matmul, softmax, matmul", None),
}
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
SWEPT = {"seq": "seq", "batch": "batch", "heads": "heads", "d": "head_dim", "head-dim": "head_dim"}
WARM_UPS = 3
FLUSHES = 8


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(2, message)


def whole_number(text):
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"is '{text}'; allowed: whole numbers from 1 to 999999999")
    return int(text)


def list_of_peers(text):
    names = [name for name in text.split(",") if name]
    if not names or any(name not in PEERS for name in names):
        raise argparse.ArgumentTypeError(f"is '{text}'; allowed: {', '.join(PEERS)}, separated by commas")
    return names


def sweep(text):
    """("seq", [128, 256, 512]) of "seq=128..512"."""
    found = re.fullmatch(r"([a-z-]+)=([1-9][0-9]{0,8})\.\.([1-9][0-9]{0,8})", text)
    if not found or found[1] not in SWEPT or int(found[2]) > int(found[3]):
        raise argparse.ArgumentTypeError(f"is '{text}'; allowed: NAME=FIRST..LAST with NAME seq, batch, heads or d")
    values = [int(found[2])]
    while values[-1] * 2 <= int(found[3]):
        values.append(values[-1] * 2)
    return SWEPT[found[1]], values


def parse(arguments):
    parser = Parser(prog="peers", description=__doc__.splitlines()[0], allow_abbrev=False)
    for name, default in (("batch", 8), ("heads", 12), ("seq", 1024), ("head-dim", 64), ("iterations", 20)):
        parser.add_argument(f"--{name}", type=whole_number, default=default, metavar="N")
    parser.add_argument("--causal", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--pass", choices=("forward", "backward"), dest="passes", default=None)
    parser.add_argument("--problem", action="append", default=[], metavar="OPTIONS")
    parser.add_argument("--sweep", type=sweep, metavar="NAME=FIRST..LAST")
    parser.add_argument("--only", type=list_of_peers, default=list(PEERS), metavar="LIST")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args(arguments)
    options.passes = [options.passes] if options.passes else ["forward", "backward"]
    return options


def each_problem(arguments, options):
    """The options of each --problem, or the given ones."""
    if not options.problem:
        return [options]
    words = [text.split() for text in options.problem]
    for one in words:
        if any(word.split("=")[0] in ("--problem", "--save", "--json") for word in one):
            raise Failure(2, f"--problem is '{' '.join(one)}'; allowed: options of a problem")
    return [parse([*arguments, *one]) for one in words]


def problems(options):
    """The problems to run, as a row has them. Queries and keys are equally long: torch aligns its causal mask at the top left."""
    name, values = options.sweep or ("seq", [options.seq])
    for value in values:
        sizes = {"batch": options.batch, "heads": options.heads, "seq": options.seq, "head_dim": options.head_dim, name: value}
        yield {"batch": sizes["batch"], "heads": sizes["heads"], "kv_heads": sizes["heads"], "seq_q": sizes["seq"],
               "seq_k": sizes["seq"], "head_dim": sizes["head_dim"], "scale": sizes["head_dim"] ** -0.5, "causal": options.causal,
               "bias": "none", "dtype": options.dtype, "layout": "bhnd", "input": "normal", "seed": 1}  # fmt: skip


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


def time_ms(torch, work, iterations, flush):
    """The sorted times of `work` in milliseconds, each with a cold L2."""
    for _ in range(WARM_UPS):
        work()
    torch.cuda.synchronize()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(iterations):
        for _ in range(FLUSHES):  # one would do for the L2; the others give Python the time to queue the work behind them
            flush.zero_()
        start.record()
        work()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return sorted(times)


def median(values):
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def attention(torch, problem, backend, mask):
    """A function of Q, K, V."""
    if backend is None:

        def plain(q, k, v):
            scores = torch.matmul(q, k.transpose(-2, -1)) * problem["scale"]
            if mask is not None:
                scores = scores.masked_fill(mask, float("-inf"))
            return torch.matmul(torch.softmax(scores, dim=-1), v)

        return plain

    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fused(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=problem["causal"])

    return fused


def measure(torch, problem, backend, which, iterations):
    dtype = getattr(torch, DTYPES[problem["dtype"]])
    shape = (problem["batch"], problem["heads"], problem["seq_q"], problem["head_dim"])
    torch.manual_seed(problem["seed"])
    backward = which == "backward"
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype, requires_grad=backward) for _ in range(3))
    mask = None
    if backend is None and problem["causal"]:
        mask = torch.ones(shape[2], shape[2], device="cuda", dtype=torch.bool).triu(1)
    l2_bytes = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
    flush = torch.empty(4 * l2_bytes, device="cuda", dtype=torch.uint8)
    run = attention(torch, problem, backend, mask)
    if not backward:
        with torch.no_grad():
            return time_ms(torch, lambda: run(q, k, v), iterations, flush)
    out = run(q, k, v)
    gradient = torch.randn(shape, device="cuda", dtype=dtype)
    return time_ms(torch, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), iterations, flush)


def reason(error, caught):
    """Why a backend does not take the problem: torch says so in warnings, each with the place in its sources."""
    said = [re.sub(r"\s*\(Triggered internally.*", "", str(w.message), flags=re.S).strip() for w in caught]
    said = [text for text in said if text and not re.search(r"not used because|runtime disabled", text)]
    return " ".join(dict.fromkeys(said)) or str(error).strip().splitlines()[0]


def result_of(torch, problem, backend, which, iterations):
    """What a row says about the run: times, or why there are none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            times = measure(torch, problem, backend, which, iterations)
        except RuntimeError as error:
            if "out of memory" in str(error):
                return {"verdict": "cannot run", "message": "not enough GPU memory"}
            return {"verdict": "refused", "message": reason(error, caught)}
    time = {"median_ms": median(times), "min_ms": times[0], "max_ms": times[-1], "iterations": iterations, "cold_l2": True}
    return {"time": time, "tflops": flops(problem, which) / (time["median_ms"] * 1e9), "verdict": "ok"}


def driver_version():
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if re.fullmatch(r"[0-9]+(\.[0-9]+)+", word)), "")


def all_rows(torch, options):
    properties = torch.cuda.get_device_properties(0)
    device = {"kind": "gpu", "name": properties.name, "sm": properties.major * 10 + properties.minor,
              "cuda": torch.version.cuda, "driver": driver_version()}  # fmt: skip
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    origin = {"torch": torch.__version__, "commit": commit(), "date": date}
    for problem in problems(options):
        for which in options.passes:
            for variant in options.only:
                idea, backend = PEERS[variant]
                result = result_of(torch, problem, backend, which, options.iterations)
                torch.cuda.empty_cache()
                yield {"stage": "peer", "variant": variant, "pass": which, "idea": idea, "device": device, "problem": problem,
                       "flops": flops(problem, which), **result, **origin}  # fmt: skip


def table(rows):
    lines, heading = [], None
    for row in rows:
        title = f"{row['pass']}, {describe(row['problem'])}, on {row['device']['name']}, torch {row['torch']}"
        if title != heading:
            head = f"{'peer':18} {'median ms':>10} {'min':>9} {'max':>9} {'TFLOP/s':>8}"
            lines += ["", title, head, "-" * len(head)]
            heading = title
        if row["verdict"] == "ok":
            time = row["time"]
            numbers = f"{time['median_ms']:10.4g} {time['min_ms']:9.4g} {time['max_ms']:9.4g} {row['tflops']:8.1f}"
            lines.append(f"{row['variant']:18} {numbers}")
        else:
            lines.append(f"{row['variant']:18} {row['verdict']}: {row['message']}")
    return "\n".join(lines[1:])


def find_torch():
    try:
        import torch
    except ImportError as error:
        raise Failure(3, f"torch cannot be imported ({error}); it is only needed for this comparison") from None
    if not torch.cuda.is_available():
        raise Failure(3, f"torch {torch.__version__} finds no GPU")
    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.set_warn_always(True)  # the reason of a refusal each time, not only the first
    return torch


def save(path, rows):
    """Writes a new file and renames it, so that nothing half-written remains."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(rows, indent=2) + "\n")
        part.replace(path)
    except OSError as error:
        raise Failure(2, f"--save is '{path}', which cannot be written: {error.strerror}") from None


def main(arguments):
    options = parse(arguments)
    if options.save and not (options.save.parent.is_dir() and os.access(options.save.parent, os.W_OK)):
        raise Failure(2, f"--save is '{options.save}'; allowed: a file in a folder that can be written")
    every = each_problem(arguments, options)
    torch = find_torch()
    rows = []
    for row in (row for one in every for row in all_rows(torch, one)):
        print(f"{row['pass']} {row['variant']} {describe(row['problem'])} ... {row['verdict']}", file=sys.stderr, flush=True)
        rows.append(row)
    if options.save:
        save(options.save, rows)
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    verdicts = {row["verdict"] for row in rows}
    return 0 if "ok" in verdicts else 3 if "cannot run" in verdicts else 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print(f"peers: {failure}", file=sys.stderr)
        sys.exit(failure.code)
