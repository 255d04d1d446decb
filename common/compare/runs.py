"""Which runs are to be made, and making them: each is a program of its own, and costs one row however it ends."""

import datetime
import importlib
import itertools
import json
import os
import statistics
import sys
import time
from collections import namedtuple

from . import rows
from .options import problems, to_arguments
from .programs import complaint, list_json, run_program
from .rows import ROOT, Failure, describe, ladder_order, sources_of

Run = namedtuple("Run", "stage variant pass_ problem tiles", defaults=(None,))  # `stage`: its answer to this problem; `tiles`: to --tune
PEER = "peer"


def stage_programs(options):
    """The programs of --only."""
    wanted = [name for name in options.only if name != PEER]
    for name in wanted:
        if not any(name in (path.name, path.name[:2]) for path in options.programs):
            raise Failure(2, f"--only has '{name}'; allowed: {', '.join(path.name for path in options.programs)}, peer")
    return [path for path in options.programs if not options.only or {path.name, path.name[:2]} & {*wanted}]


def choose_device(options, program):
    """The device of all rows, as a report names it: for auto, a GPU if the program finds one, as peers need."""
    kind = "gpu" if PEER in options.only else options.device
    smallest = ["--batch", "1", "--heads", "1", "--seq", "1", "--head-dim", "32", "--no-check", "--json"]
    probe = run_program([str(program), "--device", kind, *smallest], options.time_limit)
    try:
        return {"name": "", **json.loads(probe.out)["device"]}
    except (ValueError, LookupError, TypeError):
        raise Failure(2 if probe.code == 2 else 3, f"--device {kind} does not work: {complaint(probe)}") from None


def tiles_of(run):
    return next((tiles["choices"] for tiles in run.variant.get("tiles", ()) if tiles["pass"] == run.pass_), [])


def planned_runs(options, peers, kind):
    """All runs, problem by problem, then pass by pass, stages in order; and what is left out, in sentences."""
    wanted = [name for name in options.variant if name != "last"]
    runs, left_out, known = [], {}, set()
    for given in problems(options, kind):
        first = list_json(options.programs[0], given)
        device = [f"--device={kind}"] if options.tune else []  # whose tiles are asked for
        stages = [list_json(program, [*to_arguments(first["problem"]), *device]) for program in stage_programs(options)]
        for pass_, stage in itertools.product([options.pass_] if options.pass_ else rows.PASSES, [*stages, *peers]):
            known.update(variant["name"] for variant in stage["variants"])
            fitting, only_last = [], "last" in options.variant and stage["stage"] != PEER  # peers are no steps
            having_it = [variant for variant in stage["variants"] if pass_ in variant["passes"]]
            ladder_takes_it = any(not variant.get("in_more") and not variant.get("refusal") for variant in having_it)
            for variant in having_it:
                run = Run(stage, variant, pass_, first["problem"])
                why = variant.get("refusal", "") or ("it has no tiles to choose from" if options.tune and not tiles_of(run) else "")
                is_rare = variant.get("in_more") and (why or ladder_takes_it)
                if variant["name"] in wanted or (only_last or not wanted) and not is_rare:
                    left_out.setdefault(why, {})[label(run)] = None
                    if not why:
                        fitting.append(run)
            if only_last:
                fitting = [run for run in fitting if run in last_steps(fitting) or run.variant["name"] in wanted]
            for run in sorted(fitting, key=lambda run: ladder_order(run.variant["kernel"])):
                runs += [run._replace(tiles=tiles) for tiles in tiles_of(run)] if options.tune else [run]
    for name in wanted:
        if name not in known:
            raise Failure(2, f"--variant has '{name}'; allowed: {', '.join(sorted(known))}")
    left_out.pop("", None)
    sentences = []
    for why, (one, *more) in left_out.items():
        sentences.append(f"left out: {one} and {len(more)} more: {why}" if more else f"left out: {one}: {why}")
    if not runs:
        raise Failure(2, "; ".join(["nothing to run", *sentences]))
    if options.rounds == 1:  # else stages and peers take turns
        runs.sort(key=lambda run: run.stage["stage"] == PEER)
    return runs, sentences


def last_steps(runs):
    """A ladder is a folder of kernels, and those in more/ are no steps of it."""
    return [*{os.path.dirname(run.variant["kernel"]): run for run in runs if not run.variant["in_more"]}.values()]


def label(run):
    return f"{run.stage['stage']}/{run.variant['name']}" + (f" {run.tiles['br']},{run.tiles['bc']}" if run.tiles else "")


def commit_and_date():
    """FLASH_COMMIT, or the id of HEAD, with "-dirty" if files have changed since."""
    git = run_program(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], 30)
    commit = os.environ.get("FLASH_COMMIT", git.out.strip() if git.code == 0 else "")
    return {"commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


def make_row(fixed, ended):
    """The row of a finished program. `fixed`: its fields whatever the program did; a report adds to them."""
    try:
        report = {**json.loads(ended.out)}
    except (ValueError, TypeError, RecursionError):
        report = {}
    verdicts = {None: "TIMED OUT", 1: "WRONG" if report else "STOPPED", 2: "refused", 3: "cannot run", 0: "ok" if report else "CRASHED"}
    verdict = verdicts.get(ended.code, "CRASHED")
    if verdict != "WRONG" and (message := complaint(ended)):
        report["message"] = message
    asked = {key: fixed[key] for key in ("stage", "variant", "pass", "idea")}
    try:
        return rows.make({"verdict": verdict, **fixed, **report, **asked})
    except ValueError as wrong:
        return rows.make({**fixed, "verdict": "CRASHED", "message": f"its report is {wrong}"})


def median_of(rounds):
    """One row of a run's rounds, which count alike: the median is the median of their medians. The last is all if it has no time."""
    row, times = rounds[0], [measured.time for measured in rounds]
    if len(rounds) == 1 or not times[-1]:
        return rounds[-1]
    medians = [timing["median_ms"] for timing in times]
    smallest, largest = (pick(timing[key] for timing in times) for key, pick in (("min_ms", min), ("max_ms", max)))
    row["time"] = {**row.time, "rounds_ms": medians, "median_ms": statistics.median(medians), "min_ms": smallest, "max_ms": largest}
    return row


def identity(row):
    """What --resume goes by: the run, the code, and the version of torch."""
    return row.key, json.dumps([row.sources, row.torch, row.cudnn], sort_keys=True)


class Comparison:
    def __init__(self, options, device):
        self.options, self.device, self.when = options, device, commit_and_date()

    def fixed_fields(self, run):
        """The fields of a row whatever its program does."""
        row = {"stage": run.stage["stage"], "variant": run.variant["name"], "pass": run.pass_, "idea": run.variant["idea"]}
        row |= {"device": self.device, "problem": run.problem, **self.when, **run.stage.get("about", {})}
        if row["stage"] != PEER:
            row |= {"kernel": run.variant["kernel"], "sources": sources_of(run.variant["kernel"])}
        return row | ({"tune": run.tiles} if run.tiles else {})

    def all_rows(self, runs, old):
        """Rows of all runs, of which `old` ones are there already."""
        kept = {identity(row): row for row in old}
        found = [kept.get(identity(rows.make({**self.fixed_fields(run), "verdict": "ok"}))) for run in runs]
        if self.options.resume:
            say(f"{len(found) - found.count(None)} of {len(found)} runs are saved\n")
        missing = [place for place, row in enumerate(found) if not row]
        described = len({describe(run.problem) for run in runs}) > 1
        for (problem, _), places in itertools.groupby(missing, lambda i: (describe(runs[i].problem), runs[i].pass_)):
            say(f"{problem}\n" if described else "")
            self.in_turns(places, runs, found)
        return found

    def in_turns(self, places, runs, found):
        """Round by round. Each round begins with another run: whoever comes first finds a cooler GPU. A row ends with its last round, or with
        the first that has no time."""
        rounds, total = {place: [] for place in places}, self.options.rounds
        for number in range(1, total + 1):
            turn = [*rounds.items()]
            first = (number - 1) * max(1, len(turn) // total) % max(1, len(turn))
            for place, made in turn[first:] + turn[:first]:
                of_rounds = f", round {number}" if total > 1 else ""
                say(f"[{place + 1}/{len(runs)}{of_rounds}] {runs[place].pass_} {label(runs[place])}")
                made.append(self.run_and_report(runs[place], number == 1))
                if number == total or not made[-1].time:
                    found[place] = median_of(rounds.pop(place))
                    if self.options.save:
                        append(self.options.save, rows.line(found[place]))
                if runs[place].stage["stage"] == PEER and made[-1].verdict == "STOPPED":
                    raise Failure(1, f"{label(runs[place])}: {made[-1].message}; in this process torch runs nothing any more")

    def run_and_report(self, run, is_checked):
        began = time.monotonic()
        if run.stage["stage"] == PEER:
            done = run.stage["run"](run.problem, run.variant["name"], run.pass_, self.options.iterations)
            row = rows.make({**self.fixed_fields(run), **done})
        else:
            command = [*self.command(run), *([] if is_checked else ["--no-check"]), *to_arguments(run.problem)]
            row = make_row(self.fixed_fields(run), run_program(command, self.options.time_limit))
        ending = "" if row.is_good else f", {row.verdict}" + (f": {' '.join(row.message.split())}" if row.message else "")
        say(f", {time.monotonic() - began:.1f} s{ending}\n")
        return row

    def command(self, run):
        command = [run.stage["program"], "--variant", run.variant["name"], "--pass", run.pass_, "--device", self.device["kind"], "--json"]
        # A stage by itself, and its tests, look for races; on the CPU this is about counts.
        command += ["--bench", "--iterations", str(self.options.iterations)] if self.device["kind"] == "gpu" else ["--no-watch"]
        return command + ([f"--tiles={run.tiles['br']},{run.tiles['bc']}"] if run.tiles else [])


def say(text):
    print(text, end="", file=sys.stderr, flush=True)


def append(file, text):
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(text)


def run_all(options):
    """Plans and runs everything, with progress on stderr. --save and --resume are part of it."""
    old = []
    if options.save:
        old = rows.read(options.save) if options.save.exists() else []
        append(options.save, "")  # nothing runs in vain
    peers = [importlib.import_module(".peers", __package__).stage()] if PEER in options.only else []  # it needs torch
    of_stages = stage_programs(options)
    device = choose_device(options, of_stages[0]) if of_stages else peers[0]["about"]["device"]
    runs, left_out = planned_runs(options, peers, device["kind"])
    say(f"comparing on the {'GPU' if device['kind'] == 'gpu' else 'CPU simulator'}; stages are checked against double precision\n")
    for sentence in left_out:
        say(f"{sentence}\n")
    found = Comparison(options, device).all_rows(runs, old if options.resume else [])
    if options.save:
        say(f"wrote {options.save}\n")
    return found


def exit_code(found):
    """0 if all is well; 1 after a failure; 2 or 3 if nothing ran at all, as the stage programs themselves ended."""
    if rows.failures(found):
        return 1
    return 0 if any(row.is_good for row in found) else 3 if any(row.verdict == "cannot run" for row in found) else 2
