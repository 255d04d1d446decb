"""The whole page: its sections in order, and the text that is the same in each report."""

import dataclasses
from collections import Counter
from pathlib import Path

from rows.files import REPORT
from rows.row import device_name, is_failure, is_gpu, is_peer, judged, label, latest, number, verdict
from rows.text import short_commit

from . import chapters, columns, lessons, origin, overview, pictures, runs, tables
from .groups import Group, groups
from .markup import Html, join, tag

TITLE = "FlashAttention, step by step: the comparison"
STYLE = Path(__file__).with_name("style.css")
# Nothing is loaded and nothing runs: all a page may use is in it.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

WHAT = (
    "Attention, from the plain kernel that writes its scores to memory to FlashAttention-2 on tensor cores: each stage runs on the same "
    "problem and is checked against a double-precision reference."
)
READING_SIZES = (
    "B is the batch, H the number of heads (Hkv: of keys and values, if they are fewer), N the number of queries and of keys (Nq and Nk where "
    "they differ), d the length of a head's vectors. In a causal problem a query sees no later key."
)
READING_TIMES = [
    "TFLOP/s: 4·B·H·d floating-point operations for each pair of query and key that the mask lets see each other, times 2.5 in the backward pass, "
    "divided by the median time. What a kernel computes beyond that, or again, does not count.",
    "Cold L2: the L2 cache is flushed before each timed run, so that inputs come from memory. Times are those of the launches alone, "
    "by CUDA events, after a warm-up.",
    "Median, min and max (in small print) are of all timed runs. Where the ranges of two lines overlap, neither is clearly the faster one.",
]
READING_ENQUEUE = (
    "Until the launch returned: host time until the launches of a pass had returned, a median. A timer that does not wait for the GPU reads this."
)
READING_COUNTS = [
    "Counts come from a simulator that runs each CUDA thread on the CPU. They are exact and the same on every machine, but they are no times: "
    "a stage with fewer bytes can be slower.",
]
READING_ALL = [
    "Bytes are what threads ask of global memory, before caches, read + written; extra memory is what a stage needs beside its inputs and outputs.",
    "Max error is the largest difference from double precision of the pass's results; ok means that it is within a tolerance measured on a plain "
    "computation of the same precision.",
]


@dataclasses.dataclass
class Report:
    """What all tables of a page share."""

    peaks: dict
    has_enqueue: bool
    lesson: list  # the groups that the lesson is about


def head_facts(rows, older):
    """Devices, dates, commits in a line each. `older`: how many rows are not shown, since a later one is of the same run."""
    known = origin.commits(rows)
    dates = sorted({date for _, first, last, _ in known for date in (first, last) if date})
    commits = ", ".join(short_commit({"commit": commit}) for commit, *_ in known if commit) or "not told"
    verdicts = sorted((verdict(row) for row in rows), key=lambda name: (name != "ok", name))
    counted = f"{len(rows)}: " + ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
    counted += f"; {older} older of the same runs {'is' if older == 1 else 'are'} not in the tables" if older else ""
    facts = [("Device", ", ".join(dict.fromkeys(device_name(row) for row in rows if row.get("device"))) or "not told"),
             ("Date", " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "not told"),
             ("Commit", commits), ("Rows", counted)]  # fmt: skip
    return tag("dl", *(join([tag("dt", name), tag("dd", text)]) for name, text in facts), class_="facts")


def notices(rows):
    """Failures and doubts, before any figure is read."""
    count = Counter(f"{label(row)}, {row['pass']}: {verdict(row)}" for row in rows if is_failure(row))
    failed = [line + (f" ({times} problems)" if times > 1 else "") for line, times in count.items()]
    said = [f"Failed: {'; '.join(failed[:10])}{' and more' if len(failed) > 10 else ''}."] if failed else []
    if all(is_peer(row) for row in rows):
        said.append("Only peers are in these rows: there is no stage to compare them with.")
    said += origin.warnings(rows)
    return tag("ul", *(tag("li", line) for line in said), class_="notices", aria_label="Warnings") if said else None


def reading(rows, report):
    timed, counted = any(is_gpu(row) for row in rows), any(not is_gpu(row) for row in rows)
    lines = [READING_SIZES, *(READING_TIMES if timed else []), *(READING_COUNTS if counted else []), *READING_ALL]
    if report.has_enqueue:
        lines.append(READING_ENQUEUE)
    if any(is_peer(row) for row in rows):
        lines.append("Peers are torch's kernels on the same problem, timed in the same way; they are not part of the gains.")
    return tag("ul", *(tag("li", line) for line in lines))


def page(rows, names, title=None, command=None, docs=None):
    """`names`: the files of the rows. `command`: what made them, `docs`: a URL of the chapters' folder, or None."""
    every, rows = rows, judged(latest(rows, by_tiles=True))
    found: list[Group] = groups(rows)
    report = Report(columns.peaks(rows), any(number(row, "time", "enqueue_ms") is not None for row in rows), lessons.chosen(found))
    lost = [row for row in rows if not row.get("problem")]
    matrices = overview.section(found)
    sections = [
        ("lesson", "What it shows", lessons.section(found, report.lesson)),
        ("overview", "Overview", matrices),
        ("runs", "Runs side by side", runs.section(every, names)),
        ("tables", "Tables", join([tables.section(found, report), tables.without_problem(lost)])),
        ("plots", "Plots", pictures.section(rows)),
        ("chapters", "Chapters", chapters.section(rows, docs)),
        ("reading", "How to read it", reading(rows, report)),
        ("environment", "Where it comes from", origin.environment(rows)),
        ("again", "How to make it again", origin.again(rows, names, command)),
    ]
    sections = [section for section in sections if section[2]]
    links = tag("nav", *(tag("a", name, href=f"#{key}") for key, name, _ in sections), aria_label="Sections")
    header = tag("header", tag("h1", title or TITLE), tag("p", WHAT), head_facts(rows, len(every) - len(rows)), notices(rows))
    body = tag("main", *(tag("section", tag("h2", name), content, id=key) for key, name, content in sections))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title or TITLE),
        tag("style", Html(STYLE.read_text(encoding="utf-8"))),
    )
    return join([Html(REPORT), tag("html", head, tag("body", header, links, body), lang="en"), Html("\n")])
