"""Which runs are to be made, and making them: each is a program of its own, and costs one row however it ends."""

import contextlib
import ctypes
import datetime
import itertools
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

from . import rows as saved
from .options import problems
from .rows import ROOT, Failure, arguments, describe, sources_of

Run = namedtuple("Run", "stage variant which problem")
Ended = namedtuple("Ended", "code out err")  # code: None past the time limit, negative for a signal
TORCH_LOADS_IN = 300  # seconds
NO_OPTIONS = re.compile("--(causal|bias [a-z]+|layout [a-z]+|seq-q .*)|fewer .*")  # what every general kernel takes


def end_with_parent():
    """In a child: a run can last hours, and nobody would know of one that outlived this program."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux
    if prctl:
        prctl(1, signal.SIGKILL)


def start(command, limit):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, preexec_fn=end_with_parent)
    except subprocess.TimeoutExpired:
        return Ended(None, "", "")
    except OSError as error:
        return Ended(127, "", f"it cannot be started: {error.strerror}")
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def complaint(ended):
    """ "" if a program ended well, else the last line of its stderr, and how it ended, where that says more than an exit code."""
    if ended.code is None:
        return "it took too long"
    last = ended.err.strip().split("\n")[-1]
    if ended.code < 0:
        return f"ended by signal {-ended.code} ({signal.strsignal(-ended.code)})" + (f": {last}" if last else "")
    return "" if ended.code == 0 else last or f"it ended with exit code {ended.code}"


class Peers:
    """The process of peers.py: it answers questions, and is started anew if one ended it."""

    def __init__(self):
        self.process = None

    def ask(self, question, limit):
        if not self.process:
            self.errors = tempfile.TemporaryFile()
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
            command = [os.environ.get("PYTHON") or sys.executable, "-m", "common.compare.peers"]
            self.process = subprocess.Popen(command, cwd=ROOT, bufsize=0, preexec_fn=end_with_parent, **pipes)
            ready = self.ask({"list": True}, TORCH_LOADS_IN)  # loading torch is no part of a run
            if not self.process:
                return ready
        with contextlib.suppress(BrokenPipeError):  # it has ended, which its silence tells too
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
        line, deadline = b"", time.monotonic() + limit
        while not line.endswith(b"\n"):
            in_time = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]
            part = os.read(self.process.stdout.fileno(), 1 << 16) if in_time else b""
            line += part
            if not part:
                return self.ended(in_time)
        return Ended(0, line.decode(), "")

    def ended(self, by_itself):
        if not by_itself:
            self.process.kill()
        code = self.process.wait()
        self.process = None
        self.errors.seek(0)
        return Ended(code if by_itself else None, "", self.errors.read().decode(errors="replace"))


# ---- what there is to run ------------------------------------------------------------------------------------------------------


def ask_stage(program, limit):
    """What it answers to --list --json, with its path."""
    answer = start([program, "--list", "--json"], min(60, limit))
    if why := complaint(answer):
        raise Failure(2, f"{program} --list --json does not answer: {why}")
    try:
        stage = json.loads(answer.out)
        if any({"name", "idea", "kernel", "passes", "dtypes"} - set(variant) for variant in stage["variants"]):
            raise ValueError
        return {**stage, "name": stage["stage"], "program": program}
    except (ValueError, LookupError, TypeError):
        raise Failure(2, f"{program} does not answer --list --json as a stage program does") from None


def ask_peers():
    peers = Peers()
    answer = peers.ask({"list": True}, TORCH_LOADS_IN)
    if why := complaint(answer):
        raise Failure(3 if answer.code == 3 else 2, f"--only peer needs torch and a GPU: {why}")
    peers.ended(False)  # while stages run, torch has no part of the GPU
    return {"name": "peer", **json.loads(answer.out)}


def find_stages(options):
    folder = Path(options.bin)
    if not folder.is_dir():
        raise Failure(2, f"'{folder}' is no folder; allowed: one of stage programs")
    found = sorted(
        path for path in folder.iterdir() if re.fullmatch(r"\d\d_\w+", path.name) and path.is_file() and os.access(path, os.X_OK)
    )
    if not found:
        raise Failure(2, f"no stage programs (NN_name) in '{folder}'; build them, or name their folder by --bin")
    wanted = [name for name in options.only if name != "peer"]
    for name in wanted:
        if not any(name in (path.name, path.name[:2]) for path in found):
            raise Failure(2, f"--only has '{name}'; allowed: {', '.join(path.name for path in found)}, peer")
    return [str(path.resolve()) for path in found if not wanted or path.name in wanted or path.name[:2] in wanted]


def choose_device(options, first):
    """The device of all rows, as a report names it: for auto, a GPU if the first stage's program finds one."""
    if first["name"] == "peer":
        return first["about"]["device"]
    smallest = ["--batch", "1", "--heads", "1", "--seq", "1", "--head-dim", "32", "--no-check", "--json"]
    for kind in ("gpu", "cpu") if options.device == "auto" and not options.peers else ("cpu" if options.device == "cpu" else "gpu",):
        probe = start([first["program"], "--device", kind, *smallest], options.time_limit)
        try:
            return {"kind": kind, "name": "", **json.loads(probe.out)["device"]}
        except (ValueError, LookupError, TypeError):
            pass
    asked = "--only peer needs a GPU, but it" if options.peers else f"--device {kind}"
    raise Failure(2 if probe.code == 2 else 3, f"{asked} does not work: {complaint(probe)}")


def features(p):
    """What a problem asks of a kernel, in the words of --list --json."""
    found = {
        "--causal": p["causal"],
        f"--bias {p['bias']}": p["bias"] != "none",
        "fewer --kv-heads than --heads": p["kv_heads"] != p["heads"],
        "--seq-q unlike --seq-k": p["seq_q"] != p["seq_k"],
        f"--layout {p['layout']}": p["layout"] != "bhnd",
        **{f"--{name.replace('_', '-')}": name in p for name in ("window", "softcap", "lengths", "dropout", "bias_gradient")},
        **{f"--{name} {p.get(name)}": name in p for name in ("score", "values")},
    }
    return [name for name, is_asked in found.items() if is_asked]


def refusal(variant, asked):
    """ "" or what is between a variant and a problem."""
    if lacks := [name for name in asked if name not in variant.get("takes", asked)]:
        return f"not made for {', '.join(lacks)}"
    needs = [name for name in variant.get("needs", ()) if name not in asked]
    return f"made only for {', '.join(needs)}" if needs else ""


def is_about(variant, which):
    """A step of the backward pass runs the forward pass of another step first, which has a row of its own."""
    return which in variant["passes"] and not (which == "forward" and "backward/" in variant["kernel"])


def plan(options, stages, tasks):
    """All runs, problem by problem, then pass by pass, stages in order; and what is left out, in sentences."""
    known = {variant["name"] for stage in stages for variant in stage["variants"]}
    wanted = [] if options.variant == ["last"] else options.variant
    for name in wanted:
        if name not in known:
            raise Failure(2, f"--variant has '{name}'; allowed: {', '.join(sorted(known))}")
    runs, of_dtype, refused, able = [], set(), {}, {}
    for task in tasks:
        asked = features(task)
        has_options = not all(map(NO_OPTIONS.fullmatch, asked))
        for which in [options.which] if options.which else saved.PASSES:
            for stage in stages:
                if not any(task["dtype"] in variant["dtypes"] for variant in stage["variants"]):
                    of_dtype.add(f"{stage['name']}, which does not take {task['dtype']}")
                fitting = []
                for variant in stage["variants"]:
                    if not is_about(variant, which) or task["dtype"] not in variant["dtypes"]:
                        continue
                    label, why = f"{stage['name']}/{variant['name']}", refusal(variant, asked)
                    is_rare = variant.get("only_if_fastest") and not wanted  # made for some problems only
                    if not why:
                        able.setdefault(tuple(asked), {})[label] = None
                    if variant["name"] not in wanted if wanted else is_rare and (why or not has_options):
                        continue
                    if why:
                        refused.setdefault((why, tuple(asked) if why.startswith("not") else ()), set()).add(label)
                    elif options.tune and not tiles_of(variant, which, task):
                        refused.setdefault(("without tiles to choose from", ()), set()).add(label)
                    else:
                        fitting.append(Run(stage, variant, which, task))
                if options.variant == ["last"] and stage["name"] != "peer":  # peers are no steps
                    fitting = fitting[-1:]
                runs += sorted(fitting, key=lambda run: run.variant["kernel"])  # the order of the ladder is that of the files
    left_out = sorted(of_dtype)
    for (why, asked), labels in sorted(refused.items()):
        others = f"; made for it: {', '.join(able[asked])}" if asked in able else "; no variant here is" if asked else ""
        left_out.append(f"{labels.pop() if len(labels) == 1 else f'{len(labels)} variants'}, {why}{others}")
    if not runs:
        raise Failure(2, f"nothing to run; left out: {'; '.join(left_out)}" if left_out else "nothing to run: no stage here has this pass")
    if options.rounds == 1:  # else stages and peers take turns
        runs.sort(key=lambda run: run.stage["name"] == "peer")
    return runs, left_out


def commit_and_date():
    """FLASH_COMMIT, or the id of HEAD, with "-dirty" if files have changed since."""
    git = start(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], 30)
    commit = os.environ.get("FLASH_COMMIT", git.out.strip() if git.code == 0 else "")
    return {"commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


# ---- running it ----------------------------------------------------------------------------------------------------------------


def make_row(known, ended):
    """The row of a finished program. `known`: its fields whatever the program did; a report adds to them."""
    try:
        report = json.loads(ended.out)
    except (ValueError, RecursionError):
        report = None
    has_report = isinstance(report, dict)
    said = {None: "TIMED OUT", 1: "WRONG" if has_report else "STOPPED", 2: "refused", 3: "cannot run", 0: "ok" if has_report else "CRASHED"}
    verdict = said.get(ended.code, "CRASHED")
    message = re.sub(rf"^{known['stage']}: ({known['stage']} variant \w+ )?", "", complaint(ended))  # the row has both
    merged = {**known, **(report if has_report else {}), **{key: known[key] for key in ("stage", "variant", "pass", "idea")}}
    if not (verdict == "ok" and "verdict" in merged):  # a peer has one
        merged |= {"verdict": verdict} if verdict in ("ok", "WRONG") else {"verdict": verdict, "message": message}
    try:
        return saved.make(merged)
    except ValueError as wrong:
        return saved.make({**known, "verdict": "CRASHED", "message": f"its report is no row: {wrong}"})


def tiles_of(variant, which, problem):
    """The compiled sizes for a head dimension: those of the next listed one."""
    fitting = [one for one in variant.get("tiles", ()) if one["pass"] == which and max(one["head_dims"]) >= problem["head_dim"]]
    return min(fitting, key=lambda one: max(one["head_dims"]))["choices"] if fitting else []


def add_round(row, again):
    """All rounds count alike: the median is the median of their medians."""
    before, added = dict(row.time), again.time
    medians = [*before.get("rounds_ms", [before["median_ms"]]), added["median_ms"]]
    row.time.update(rounds_ms=medians, median_ms=statistics.median(medians))
    for key, best in (("min_ms", min), ("max_ms", max)):
        row.time[key] = best(before.get(key, before["median_ms"]), added.get(key, added["median_ms"]))
    for rate in {"tflops", "percent_of_peak"} & set(row):
        row[rate] *= before["median_ms"] / row.time["median_ms"]


def identity(row):
    """What --resume goes by: the run, the code, and the version of torch."""
    return row.key, json.dumps([row.sources, row.torch, row.cudnn], sort_keys=True)


class Runner:
    def __init__(self, options, device, runs):
        self.options, self.device, self.runs, self.peers = options, device, runs, Peers()
        self.when, self.done, self.shown = commit_and_date(), 0, None

    def known(self, run):
        """The fields of a row whatever its program does."""
        row = {"stage": run.stage["name"], "variant": run.variant["name"], "pass": run.which, "idea": run.variant["idea"]}
        row |= {"device": self.device, "problem": run.problem, **self.when, **run.stage.get("about", {})}
        if run.stage["name"] != "peer":
            row |= {"kernel": run.variant["kernel"], "sources": sources_of(run.variant["kernel"])}
        return row | ({"tune": {}} if self.options.tune else {})

    def all_rows(self, old):
        """Rows of all runs, of which `old` ones are there already."""
        kept = {identity(row): row for row in old}
        found = [kept.get(identity(saved.make({**self.known(run), "verdict": "ok"}))) for run in self.runs]
        if self.options.resume:
            self.say(f"{len(found) - found.count(None)} of {len(found)} runs are saved\n")
        for _, places in itertools.groupby(range(len(found)), lambda i: (id(self.runs[i].problem), self.runs[i].which)):
            self.in_turns([*places], found)
        return found

    def in_turns(self, places, found):
        """Round by round. A row ends with its last round, or with the first that has no time."""
        total = self.options.rounds
        still = [i for i in places if not found[i]]
        self.done += total * (len(places) - len(still))
        for number in range(1, total + 1):
            for i in list(still):
                row = self.run_one(self.runs[i], number)
                self.done += 1
                if number > 1 and row.time:
                    add_round(found[i], row)
                else:
                    found[i] = row
                if number == total or not row.time:
                    still.remove(i)
                    self.done += total - number
                    if self.options.save:
                        append(self.options.save, saved.line(found[i]))

    def say(self, text):
        print(text, end="", file=sys.stderr, flush=True)

    def run_one(self, run, number):
        if self.shown is not run.problem and any(one.problem is not run.problem for one in self.runs):
            self.say(f"{describe(run.problem)}\n")
        self.shown, began = run.problem, time.monotonic()
        label = f"{run.which} {run.stage['name']}/{run.variant['name']}"
        self.say(f"[{self.done + 1}/{len(self.runs) * self.options.rounds}] {label}")
        row = self.run_peer(run) if run.stage["name"] == "peer" else self.tuned(run) if self.options.tune else self.run_stage(run, number)
        message = " ".join(row.message.split())
        verdict = "" if row.is_good else f", {row.verdict}"
        self.say(f", {time.monotonic() - began:.1f} s{verdict}{f': {message}' if message else ''}\n")
        return row

    def run_peer(self, run):
        asked = {"variant": run.variant["name"], "pass": run.which, "iterations": self.options.iterations, "problem": run.problem}
        return make_row(self.known(run), self.peers.ask(asked, self.options.time_limit))

    def run_stage(self, run, number=1, *more):
        command = [run.stage["program"], "--variant", run.variant["name"], "--pass", run.which, "--device", self.device["kind"], "--json"]
        command += [*arguments(run.problem), *more]
        if self.device["kind"] == "gpu":
            command += ["--bench", "--iterations", str(self.options.iterations)]
        else:
            command += ["--no-watch"]  # a stage by itself, and its tests, look for races; here it is about counts
        return make_row(self.known(run), start(command + ["--no-check"] * (number > 1), self.options.time_limit))

    def tuned(self, run):
        """The row of the default tiles, with what each of the compiled sizes gives in its field `tune`."""
        row, choices = self.run_stage(run), []
        for tiles in tiles_of(run.variant, run.which, run.problem) if row.tiles else ():
            size = {"br": tiles["br"], "bc": tiles["bc"]}
            one = row if row.tiles == size else self.run_stage(run, 1, f"--tiles={size['br']},{size['bc']}")
            results = ("check", "time", "tflops", "predicted", "counters", "verdict", "message")
            choices.append({**tiles, **{key: one[key] for key in results if key in one}})
            if one.verdict in saved.FAILED:
                row["verdict"] = one.verdict
        timed = [choice for choice in choices if "time" in choice]
        fastest = min(timed, key=lambda choice: choice["time"]["median_ms"], default=None)
        row["tune"] = {"default": row.tiles, "fastest": fastest and {"br": fastest["br"], "bc": fastest["bc"]}, "choices": choices}
        return row


def append(file, text):
    try:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise Failure(2, f"{file} cannot be written: {error.strerror}") from None


def run_all(options):
    """Plans and runs everything, with progress on stderr. --save and --resume are part of it."""
    old = []
    if options.save:
        path = Path(options.save)
        if path.exists() and not path.is_file():
            raise Failure(2, f"{path} is not a regular file")
        old = saved.read(path) if path.exists() else []
        append(path, "")  # nothing runs in vain
    stages = [ask_stage(program, options.time_limit) for program in (find_stages(options) if options.stages else ())]
    stages += [ask_peers()] if options.peers else []
    device = choose_device(options, stages[0])
    runs, left_out = plan(options, stages, problems(options, device["kind"]))
    runner = Runner(options, device, runs)
    runner.say(f"comparing on the {'GPU' if device['kind'] == 'gpu' else 'CPU simulator'}; stages are checked against double precision\n")
    for sentence in left_out:
        runner.say(f"left out: {sentence}\n")
    found = runner.all_rows(old if options.resume else [])
    if options.save:
        runner.say(f"wrote {options.save}\n")
    said = {(row.verdict, row.message) for row in found}
    if len(said) == 1 and found[0].verdict == "refused":  # it is the problem that is wrong
        raise Failure(2, found[0].message)
    return found


def exit_code(rows):
    """0 if all is well; 1 after a failure; 2 or 3 if nothing ran at all, as the stage programs themselves ended."""
    if saved.failures(rows):
        return 1
    return 0 if any(row.is_good for row in rows) else 3 if any(row.verdict == "cannot run" for row in rows) else 2
