#!/usr/bin/env python3
"""Compares the outputs of stage 08 with those of torch's attention, on the same arrays.

    common/compare/check_peers.py BIN_DIR [--device auto|gpu|cpu] [--variant LIST] [--only LIST] [--json]

Writes Q, K, V and dO as .npy files, runs 08_tensor_cores --load on them with each of its variants, and torch's attention by each of
its backends: flash, cudnn, memory_efficient, triton and plain on a GPU; flash, math and plain on a CPU. --variant and --only take some of them.
It never uses a formula of this project: what is exact are plain torch in float64 and its autograd.

With E = max|plain torch in 16 bits - float64|, the error of a straightforward implementation, each tensor of stage 08 passes if
    max|stage 08 - float64| <= 2 E + tiny      (gradients: 3 E + tiny), as in the tests of FlashAttention
    max|stage 08 - peer|    <= 2 E' + 2 tiny   (gradients: 3 E' + 2 tiny), E' = max(E, max|peer - float64|)
tiny is half a unit in the last place of the largest element, which any result in 16 bits may be off. L is fp32 in stage 08, so its E is
that of plain torch in fp32. A peer may be less exact than plain torch, but more than 10 times that is another function: WRONG as well.

Needs torch and NumPy. Exit codes: 0 good; 1 something is wrong; 2 bad usage or nothing to compare; 3 no torch, no NumPy, or no GPU.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import peer_outputs
from peer_timing import find_torch
from rows import Failure, describe, grouped, usage

STAGE = "08_tensor_cores"
TENSORS = {"o": "O", "lse": "L", "dq": "dQ", "dk": "dK", "dv": "dV"}
SHAPES = (("q", "heads", "seq_q"), ("k", "kv_heads", "seq_k"), ("v", "kv_heads", "seq_k"), ("do", "heads", "seq_q"))
HALF_UNIT = {"fp16": 2**-11, "bf16": 2**-8}  # of 1
SECONDS = 600  # of one run of the stage


def parse(arguments):
    parser = usage.Parser("check_peers", __doc__)
    parser.add_argument("bin_dir", type=pathlib.Path, metavar="BIN_DIR")
    parser.add_argument("--device", choices=("auto", "gpu", "cpu"), default="auto")
    parser.add_argument("--variant", default="")
    parser.add_argument("--only", type=usage.list_of(dict.fromkeys([*peer_outputs.ON_CPU, *peer_outputs.PEERS])))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def problems(device):
    """Both widths with kernels of their own, masks, types, a length that fills no tile, Nq != Nk, grouped heads. The simulator gets small ones."""
    n = 128 if device == "cpu" else 1024
    names = ("dtype", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "causal")
    for values in (
        ("fp16", 2, 2, n, n, 64, False),
        ("fp16", 2, 2, n, n, 128, True),
        ("fp16", 2, 2, n - 15, n - 15, 64, True),
        ("fp16", 2, 2, n - 31, n + 75, 128, False),
        ("fp16", 4, 2, n, n, 64, True),
        ("bf16", 4, 1, n - 15, n - 15, 128, True),
        ("bf16", 2, 2, n, n, 64, False),
    ):
        problem = {"batch": 2, **dict(zip(names, values))}
        yield {**problem, "scale": problem["head_dim"] ** -0.5}


def rounded(np, values, dtype):
    """float32 values that the type has, to nearest even."""
    if dtype == "fp16":
        return values.astype(np.float16).astype(np.float32)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def make_arrays(np, problem, seed):
    random = np.random.default_rng(seed)
    shapes = {name: (problem["batch"], problem[heads], problem[n], problem["head_dim"]) for name, heads, n in SHAPES}
    return {name: rounded(np, random.standard_normal(shape, dtype=np.float32), problem["dtype"]) for name, shape in shapes.items()}


def run_stage(program, *arguments):
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=SECONDS)
    except OSError as error:
        raise Failure(2, f"BIN_DIR is '{program.parent}'; {STAGE} there cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        return 1, f"took longer than {SECONDS} s", ""
    said = (done.stderr.strip() or f"ended with {done.returncode}").splitlines()[0]
    if done.returncode == 3:
        raise Failure(3, said)
    return done.returncode, said, done.stdout


def variants(program, wanted):
    """{name: last pass}: a variant with a backward pass runs its forward pass as well."""
    code, said, text = run_stage(program, "--list", "--json")
    if code != 0:
        raise Failure(2, f"{program} --list fails: {said}")
    found = {variant["name"]: variant["passes"][-1] for variant in json.loads(text)["variants"]}
    names = [name for name in wanted.split(",") if name]
    for name in names:
        if name not in found:
            raise Failure(2, f"--variant has '{name}'; allowed: {', '.join(found)}")
    return {name: which for name, which in found.items() if not names or name in names}


def stage_outputs(np, program, problem, variant, which, device, folder):
    """({tensor: array}, code, what it said) of one run on the arrays in a folder."""
    target = folder / variant
    options = ["--load", folder, "--save", target, "--dtype", problem["dtype"], "--variant", variant, "--pass", which, "--device", device]
    code, said, _ = run_stage(program, *options, "--no-check", *(["--causal"] if problem["causal"] else []))
    names = TENSORS if which == "backward" else ("o", "lse")
    if code != 0:
        return {}, code, said
    try:
        return {name: np.load(target / f"{name}.npy").astype(np.float64) for name in names}, 0, ""
    except (OSError, ValueError) as error:
        return {}, 1, f"what it saved cannot be read: {error}"


def difference(np, left, right):
    return float(np.max(np.abs(left - right))) if left.shape == right.shape else float("nan")


def bounds(np, problem, arrays, found):
    """{tensor: (factor, E, tiny)}"""
    result = {}
    for name, values in found["float64"].items():
        tiny = HALF_UNIT[problem["dtype"]] * np.abs(values).max() + 2**-25  # the smallest number of fp16, halved
        if name == "lse":  # terms of a score may cancel; tensor cores truncate, and exponentials of the hardware are good to some units
            largest = np.sqrt((arrays["q"] ** 2).sum(-1).max() * (arrays["k"] ** 2).sum(-1).max()) * problem["scale"]
            tiny = 16 * 2**-24 * (1 + largest)
        result[name] = (2 if name in ("o", "lse") else 3, difference(np, found["plain"][name], values), float(tiny))
    return result


def differences(np, problem, of, ours, others, exact, limits, loose=1):
    """A row for each tensor of a result that one of the others has as well."""
    for peer, theirs in others.items():
        for tensor in (tensor for tensor in TENSORS if tensor in ours and tensor in theirs):
            factor, error, tiny = limits[tensor]
            error = max(error, difference(np, theirs[tensor], exact[tensor]))
            figures = {"max_difference": difference(np, ours[tensor], theirs[tensor])}
            figures["allowed"] = loose * (factor * error + tiny * (1 if peer == "float64" else 2))
            verdict = "ok" if figures["max_difference"] <= figures["allowed"] else "WRONG"
            figures = {name: figure if np.isfinite(figure) else None for name, figure in figures.items()}
            yield {"problem": problem, "of": of, "with": peer, "tensor": tensor, **figures, "verdict": verdict}


def rows_of_problem(np, torch, program, problem, chosen, device, only, seed):
    arrays = make_arrays(np, problem, seed)
    try:
        found, refused = peer_outputs.outputs(torch, problem, arrays, "cuda" if device == "gpu" else "cpu", only)
    except RuntimeError as error:  # of float64 and plain torch, or a GPU that fails
        raise Failure(3, f"torch fails: {str(error).strip().splitlines()[0]}") from None
    limits, exact = bounds(np, problem, arrays, found), found["float64"]
    for peer, why in refused.items():
        yield {"problem": problem, "of": peer, "verdict": "refused", "message": why}
    for peer in (peer for peer in found if peer != "float64"):
        yield from differences(np, problem, peer, found[peer], {"float64": exact}, exact, limits, loose=10)
    asked = {peer: theirs for peer, theirs in found.items() if peer in ("float64", *only)}
    with tempfile.TemporaryDirectory() as folder:
        for name, values in arrays.items():
            np.save(pathlib.Path(folder) / f"{name}.npy", values.astype(np.float16) if problem["dtype"] == "fp16" else values)
        for variant, which in chosen.items():
            ours, code, said = stage_outputs(np, program, problem, variant, which, device, pathlib.Path(folder))
            if code != 0:
                yield {"problem": problem, "of": variant, "verdict": "refused" if code == 2 else "WRONG", "message": said}
            yield from differences(np, problem, variant, ours, asked, exact, limits)


def table(rows):
    """A line for each pair that was compared, with the largest difference and what is allowed for each tensor."""
    lines, heading = [], None
    pairs = grouped(rows, lambda row: (describe(row["problem"]), row["of"], row.get("with", "")))
    for (problem, of, peer), group in pairs.items():
        if problem != heading:
            head = f"{'':16} {'against':16}" + "".join(f"{text:>20}" for text in TENSORS.values()) + "  verdict"
            lines += ["", f"{problem}: largest difference / allowed", head, "-" * len(head)]
            heading = problem
        if "message" in group[0]:
            lines.append(f"{of:16} {group[0]['verdict']}: {group[0]['message']}")
            continue
        cells = {row["tensor"]: " / ".join(figure(row[name]) for name in ("max_difference", "allowed")) for row in group}
        verdict = "ok" if all(row["verdict"] == "ok" for row in group) else "WRONG"
        lines.append(f"{of:16} {peer:16}" + "".join(f"{cells.get(tensor, '-'):>20}" for tensor in TENSORS) + f"  {verdict}")
    return "\n".join(lines[1:])


def figure(value):
    return "nan" if value is None else f"{value:.1e}"


def main(arguments):
    options = parse(arguments)
    program = options.bin_dir / STAGE
    if not program.is_file():
        raise Failure(2, f"BIN_DIR is '{options.bin_dir}'; allowed: a folder with {STAGE}")
    torch = find_torch(needs_gpu=options.device == "gpu")
    try:
        import numpy as np
    except ImportError as error:
        raise Failure(3, f"NumPy cannot be imported ({error})") from None
    device = options.device if options.device != "auto" else "gpu" if torch.cuda.is_available() else "cpu"
    known = peer_outputs.peers_on("cuda" if device == "gpu" else "cpu")
    only = options.only or list(known)
    if any(name not in known for name in only):
        raise Failure(2, f"--only is '{','.join(only)}'; allowed on the {device.upper()}: {', '.join(known)}, separated by commas")
    chosen = variants(program.resolve(), options.variant)
    rows = []
    for seed, problem in enumerate(problems(device)):
        print(describe(problem), file=sys.stderr, flush=True)
        rows += rows_of_problem(np, torch, program.resolve(), problem, chosen, device, only, seed)
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    if any(row["verdict"] == "WRONG" for row in rows):
        print("FAILED: see the verdicts above", file=sys.stderr)
        return 1
    return 0 if any(row["of"] in chosen and row["verdict"] == "ok" for row in rows) else 2


if __name__ == "__main__":
    usage.run("check_peers", main)
