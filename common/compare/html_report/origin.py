"""Where rows come from, whether that is one place, and how to make them again."""

import shlex
from pathlib import Path

from rows import text as words
from rows.files import ROOT, code_hash
from rows.row import device_name, grouped, is_gpu, is_peer, number, problem_key, text
from rows.text import short_commit

from .markup import Cell, Head, counted, join, table, tag

FOLDED_COMMANDS = 8


def distinct(values):
    return list(dict.fromkeys(value for value in values if value))


def devices(rows):
    """One line for each device: what its driver and CUDA are."""
    lines = []
    for name, same in grouped((row for row in rows if isinstance(row.get("device"), dict)), device_name).items():
        sm, cuda, driver = number(same[0], "device", "sm"), text(same[0], "device", "cuda"), text(same[0], "device", "driver")
        capability = f"compute capability {int(sm) // 10}.{int(sm) % 10}" if sm else ""
        machines = ", ".join(distinct(text(row, "device", "name") for row in same if not is_gpu(row)))
        facts = [name, capability, cuda and f"CUDA {cuda}", driver and f"driver {driver}", machines and f"on {machines}"]
        lines.append(", ".join(filter(None, facts)))
    return lines


def commits(rows):
    """[(commit, first date, last date, rows)] in the order of dates."""
    found = {commit: [text(row, "date")[:10] for row in of_it] for commit, of_it in grouped(rows, lambda row: text(row, "commit")).items()}
    return sorted(((commit, min(dates), max(dates), len(dates)) for commit, dates in found.items()), key=lambda one: one[1:])


def dates(rows):
    """From the first to the last; "" if none is told."""
    found = sorted({text(row, "date")[:10] for row in rows} - {""})
    return " to ".join(distinct([found[0], found[-1]])) if found else ""


def warnings(rows):
    """What forbids to compare rows without a second thought."""
    known = commits(rows)
    several = ", ".join(f"{short_commit({'commit': commit})} ({counted(count, 'row')})" for commit, _, _, count in known)
    dirty = [commit for commit, *_ in known if commit.endswith("-dirty")]
    names = distinct(device_name(row) for row in rows if isinstance(row.get("device"), dict))
    drivers = distinct(text(row, "device", "driver") for row in rows)
    stale = [path for path, saved in sources(rows) if state(path, saved) != "the same"]
    said = {
        f"These rows come from different commits: {several}.": len(known) > 1,
        "Some rows do not say which commit they belong to.": any(not commit for commit, *_ in known),
        "Some rows were made in a working tree with changes that no commit holds (-dirty).": dirty,
        f"These rows come from different devices: {', '.join(names)}. "
        "Compare times of one device only, unless the devices are what you compare.": len(names) > 1,
        f"These rows were made with different drivers: {', '.join(drivers)}.": len(drivers) > 1 and len(names) == 1,
        f"Changed since these rows were made: {', '.join(stale)}.": stale,
    }
    return [words for words, is_so in said.items() if is_so]


def sources(rows):
    """(path, hash) of every kernel file that a row ran."""
    listed = (row["sources"] for row in rows if isinstance(row.get("sources"), dict))
    return sorted({(path, saved) for files in listed for path, saved in files.items() if isinstance(saved, str)})


def state(path, saved):
    """Whether a kernel file is still what it was, in the project that this program belongs to."""
    try:
        file = (ROOT / path).resolve()
        if not file.is_relative_to(ROOT) or not file.is_file():
            return "not here"
        return "the same" if code_hash(file) == saved else "changed"
    except (OSError, ValueError):  # no name that a file can have
        return "not here"


def environment(rows):
    facts = [
        ("Device", devices(rows) or ["not told"]),
        ("Peers", [f"torch {version}" for version in distinct(text(row, "torch") for row in rows if is_peer(row))]),
        ("Date", distinct([dates(rows)])),
        ("Commit", [f"{commit or 'not told'} ({counted(count, 'row')})" for commit, _, _, count in commits(rows)]),
    ]
    listed = tag("dl", *(join([tag("dt", name), *(tag("dd", line) for line in lines)]) for name, lines in facts if lines))
    files = []
    for path, saved in sources(rows):
        cells = [Cell(content, kind=None) for content in (tag("code", saved), state(path, saved))]
        files.append((tag("th", tag("code", path), scope="row"), cells, None))
    if not files:
        return listed
    heads = [Head(title, kind=None) for title in ("kernel file", "hash of its code", "in the project now")]
    summary = tag("summary", f"{counted(len(files), 'kernel file')} behind these rows", id="kernel-files")
    return join([listed, tag("details", summary, table("Kernel files", "kernel-files", heads, files))])


def options(p):
    """The options of compare that mean a problem."""
    said = ["--batch", p["batch"], "--heads", p["heads"]]
    said += ["--kv-heads", p["kv_heads"]] if p["kv_heads"] != p["heads"] else []
    said += ["--seq", p["seq_q"]] if p["seq_q"] == p["seq_k"] else ["--seq-q", p["seq_q"], "--seq-k", p["seq_k"]]
    said += ["--head-dim", p["head_dim"], "--causal" if p["causal"] else "--no-causal", "--dtype", p["dtype"]]
    return [str(word) for word in said + [word for name, value in words.options(p) for word in (f"--{name}", value)]]


def run_commands(rows):
    """One command for each device, problem and program that the rows come from."""
    named = [row for row in rows if row.get("problem")]
    found = grouped(named, lambda row: (is_peer(row), is_gpu(row), problem_key(row["problem"])))
    lines = []
    for index, ((peer, gpu, _), (row, *_)) in enumerate(found.items(), start=1):
        of = ["--only", "peer"] if peer else ["--device", "gpu" if gpu else "cpu"]
        lines.append(shlex.join(["build/bin/compare", *of, *options(row["problem"]), "--save", f"rows_{index}.json"]))
    return lines


def again(rows, names, command):
    """How to make the rows and this page again. `names`: the files of the rows. `command`: what made them, or None."""
    known = commits(rows)
    best = max(known, key=lambda one: one[3])[0].removesuffix("-dirty")
    start = ["# in a clone of the project"] + ["# (the commit of most rows)"] * (len(known) > 1)
    start += [f"git checkout {shlex.quote(best)}"] if best else []
    start += ["common/setup.sh && cmake --workflow --preset demo"]
    runs = [command] if command else run_commands(rows)
    files = shlex.join(Path(name).name for name in names) if command else "rows_*.json"
    last = [] if command and "--html" in command else [f"common/compare/report.py {files} --out report.html"]

    def lines(*text):
        return tag("pre", tag("code", "\n".join(text)), tabindex="0")

    if len(runs) <= FOLDED_COMMANDS:
        return lines(*start, *runs, *last)
    shown = lines(*start, *runs[:2], f"# ... and {len(runs) - 2} more, see below", *last)
    return join([shown, tag("details", tag("summary", f"All {len(runs)} commands"), lines(*runs))])
