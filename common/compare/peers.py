#!/usr/bin/env python3
"""Times torch's attention on the problems of `compare`: scaled_dot_product_attention by each of its backends, and plain torch.

    common/compare/peers.py [--batch B] [--heads H] [--seq N] [--head-dim d] [--causal | --no-causal] [--dtype fp32|fp16|bf16]
        [--sweep NAME=VALUES]... [--tokens T] [--width W] [--problem OPTIONS]... [--pass forward|backward] [--only LIST]
        [--iterations N] [--time-limit SECONDS] [--json] [--save FILE [--resume]]

--sweep is FIRST..LAST, doubling, or a list A,B,C; NAME is seq, batch, heads, d, causal (no, yes) or dtype. Several make all
combinations, the first outermost. --tokens: batch = T / N, at least 1; --width: heads = W / d, at least 1. So the problems of the
FlashAttention papers are
    peers.py --tokens 16384 --width 2048 --sweep dtype=fp16 --sweep causal=no,yes --sweep d=64,128 --sweep seq=512..16384
Each --problem is a problem of its own, as options in one word; what it leaves out comes from the others:
    peers.py --dtype fp16 --problem "--seq 1024" --problem "--seq 4096 --head-dim 128 --no-causal"

The rows are those of `compare --save`, with "peer" as their stage. Defaults, FLOPs and timing are compare's too: CUDA events around
the pass alone, a cold L2, the median after a warm-up; enqueue_ms is what a clock on the host shows that does not wait for the GPU. A
backward pass is timed without its forward. fp32 is computed without TF32.

What cannot fit into the free GPU memory, or would take longer than --time-limit (default: 600), is not run: a row with the verdict
"skipped" says why. --save writes FILE.partial after each run and renames it at the end; after an interruption the same command with
--resume goes on: rows of FILE.partial (or FILE) with the same problem, iterations, torch and GPU are not measured again.

Needs torch and a GPU. Exit codes: 0 good; 2 bad usage or nothing to run; 3 no torch, no GPU, or not enough memory; 130 interrupted.
"""
import datetime
import json
import pathlib
import re
import signal
import sys
import time

import peer_timing
import saved_rows
from peer_timing import PEERS
from provenance import commit
from rows import usage
from rows.usage import Failure
from run_times import RunTimes, duration_text
from sweep_options import add_problem_options, check_contradictions, describe, flops, problems


def parse(arguments):
    parser = usage.Parser("peers", __doc__)
    add_problem_options(parser)
    parser.add_argument("--iterations", type=usage.whole_number, default=20, metavar="N")
    parser.add_argument("--pass", choices=("forward", "backward"), dest="passes")
    parser.add_argument("--problem", action="append", default=[], metavar="OPTIONS")
    parser.add_argument("--only", type=usage.list_of(PEERS), default=list(PEERS), metavar="LIST")
    parser.add_argument("--time-limit", type=usage.whole_number, default=600, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    if options.resume and not options.save:
        raise Failure(2, "--resume is given without --save; allowed: both")
    return options


def each_problem(arguments, options):
    """The options of each --problem, or the given ones."""
    every = []
    for text in options.problem:
        one = text.split()
        if any(word.split("=")[0] in ("--problem", "--save", "--resume", "--json", "--time-limit", "--help", "-h") for word in one):
            raise Failure(2, f"--problem is '{text}'; allowed: options of a problem")
        every.append(parse([*arguments, *one]))
    every = every or [options]
    for one in every:
        check_contradictions(one)
    return every


def plan(every):
    """The runs, each once: a row without its result, and the iterations."""
    runs = {}
    for options in every:
        for problem in problems(options):
            for which in [options.passes] if options.passes else ["forward", "backward"]:
                for variant in options.only:
                    row = {"stage": "peer", "variant": variant, "pass": which, "idea": PEERS[variant][0], "problem": problem,
                           "flops": flops(problem, which)}  # fmt: skip
                    runs.setdefault(saved_rows.peer_key(row), (row, options.iterations))
    return list(runs.values())


def driver_version():
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if re.fullmatch(r"[0-9]+(\.[0-9]+)+", word)), "")


class Comparison:
    """All runs, one after the other, with progress on stderr."""

    def __init__(self, torch, options, saved):
        self.torch, self.saved, self.times = torch, saved, RunTimes(options.time_limit)
        properties = torch.cuda.get_device_properties(0)
        self.device = {"kind": "gpu", "name": properties.name, "sm": properties.major * 10 + properties.minor,
                       "cuda": torch.version.cuda, "driver": driver_version()}  # fmt: skip
        self.origin = {"torch": torch.__version__, "commit": commit(), "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"}

    def saved_before(self, row, iterations):
        """The row of an earlier run that need not be measured again."""
        old = self.saved.old.get(saved_rows.peer_key(row), {})
        timing = old.get("time", {"iterations": iterations, "enqueue_ms": None})
        good = old.get("verdict") in ("ok", "refused", "cannot run") and timing.get("iterations") == iterations and "enqueue_ms" in timing
        return old if good and old["torch"] == self.origin["torch"] and old["device"] == self.device else None

    def result(self, row, iterations, seconds):
        """What the row says about its run. `seconds`: what it will take, if that is known."""
        backend = PEERS[row["variant"]][1]
        if why := peer_timing.no_room(self.torch, row["problem"], backend, row["pass"]):
            return {"verdict": "skipped", "message": why}
        if seconds and seconds > self.times.limit:
            why = f"would take about {duration_text(seconds)}; the limit is {duration_text(self.times.limit)}"
            return {"verdict": "skipped", "message": why}
        try:
            return peer_timing.result_of(self.torch, row["problem"], backend, row["pass"], iterations)
        finally:
            self.torch.cuda.empty_cache()

    def rows(self, runs):
        kept = {at: old for at, (row, iterations) in enumerate(runs) if (old := self.saved_before(row, iterations))}
        if kept:
            print(f"{len(kept)} of {len(runs)} rows are kept from {self.saved.source}", file=sys.stderr)
        for row in kept.values():
            self.times.add(row)
        rows = []
        for at, (row, iterations) in enumerate(runs):
            if at in kept:
                rows.append(kept[at])
                continue
            to_come = [run for later, run in enumerate(runs) if later >= at and later not in kept]
            left = self.times.left_text(to_come) if len(runs) > 1 else ""
            count = f"[{at + 1}/{len(runs)}{', ' + left if left else ''}] " if len(runs) > 1 else ""
            print(f"{count}{row['pass']} {row['variant']} {describe(row['problem'])} ... ", end="", file=sys.stderr, flush=True)
            began = time.monotonic()
            try:
                result = self.result(row, iterations, self.times.predict(row, iterations))
            except BaseException:  # an interruption too: what is said of it gets a line of its own
                print(file=sys.stderr)
                raise
            row = {**row, "device": self.device, **result, **self.origin}
            print(f"{row['verdict']}: {row['message']}" if "message" in row else row["verdict"], file=sys.stderr, flush=True)
            self.times.add(row, time.monotonic() - began)
            rows.append(row)
            self.saved.keep(rows)
        self.saved.finish(rows)
        return rows


def table(rows):
    lines, heading = [], None
    for row in rows:
        title = f"{row['pass']}, {describe(row['problem'])}, on {row['device']['name']}, torch {row['torch']}"
        if title != heading:
            head = f"{'peer':18} {'median ms':>10} {'min':>9} {'max':>9} {'TFLOP/s':>8} {'enqueue ms':>11}"
            lines += ["", title, head, "-" * len(head)]
            heading = title
        if "time" in row:
            timing = row["time"]
            numbers = f"{timing['median_ms']:10.4g} {timing['min_ms']:9.4g} {timing['max_ms']:9.4g} {row['tflops']:8.1f}"
            lines.append(f"{row['variant']:18} {numbers} {timing['enqueue_ms']:11.3g}")
        else:
            lines.append(f"{row['variant']:18} {row['verdict']}: {row['message']}")
    skipped = sum(row["verdict"] == "skipped" for row in rows)
    if skipped:
        lines += ["", f"{skipped} of {len(rows)} runs were skipped, for the reasons above"]
    return "\n".join(lines[1:])


def main(arguments):
    options = parse(arguments)
    runs = plan(each_problem(arguments, options))
    saved = saved_rows.SavedRows(options.save, options.resume)
    torch = peer_timing.find_torch()
    one = torch.ones(1, 1, device="cuda", dtype=torch.float32)
    torch.matmul(one, one)  # what cuBLAS allocates once is no memory of a run
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        rows = Comparison(torch, options, saved).rows(runs)
    except KeyboardInterrupt:
        there = saved.partial and saved.partial.exists()
        raise Failure(130, f"interrupted; {f'{saved.partial} has the rows so far, --resume goes on' if there else 'nothing is saved'}") from None
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    verdicts = {row["verdict"] for row in rows}
    return 0 if "ok" in verdicts else 3 if verdicts & {"cannot run", "skipped"} else 2


if __name__ == "__main__":
    usage.run("peers", main)
