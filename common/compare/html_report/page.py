"""The whole page: its sections in order, and the text that is the same in each report."""

import base64
import html
import re
from collections import Counter
from pathlib import Path

import plot
from rows.files import REPORT
from rows.row import device_name, grouped, is_failure, is_gpu, is_peer, judged, label, latest, number, verdict
from rows.text import short_commit

from . import chapters, lessons, origin, overview, runs, tables
from .groups import groups
from .markup import Html, items, join, say, tag

TITLE = "FlashAttention, step by step: the comparison"
STYLE = Path(__file__).with_name("style.css")
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # nothing is loaded and nothing runs: all is in the page
WHAT = (
    "Attention, from the plain kernel that writes its scores to memory to FlashAttention-2 on tensor cores: each stage runs on the same "
    "problem and is checked against a double-precision reference."
)
# Each said if it is about some row.
READING = {
    "B is the batch, H the number of heads (Hkv: of keys and values, if they are fewer), N the number of queries and of keys (Nq and Nk where "
    "they differ), d the length of a head's vectors. In a causal problem a query sees no later key.": lambda row: True,
    "TFLOP/s: 4·B·H·d floating-point operations for each pair of query and key that the mask lets see each other, times 2.5 in the backward "
    "pass, divided by the median time. What a kernel computes beyond that, or again, does not count.": is_gpu,
    "Cold L2: the L2 cache is flushed before each timed run, so that inputs come from memory. Times are those of the launches alone, "
    "by CUDA events, after a warm-up.": is_gpu,
    "Median, min and max (in small print) are of all timed runs. Where the ranges of two lines overlap, neither is clearly the faster "
    "one.": is_gpu,
    "Counts come from a simulator that runs each CUDA thread on the CPU. They are exact and the same on every machine, but they are not times: "
    "a stage that moves fewer bytes can still be slower.": lambda row: not is_gpu(row),
    "Bytes are what threads ask of global memory, before caches, read + written; extra memory is what a stage needs beside its inputs and "
    "outputs.": lambda row: True,
    "Max error is the largest difference from double precision of the pass's results; ok means that it is within a tolerance measured on a "
    "plain computation of the same precision.": lambda row: True,
    "Until the launch returned: host time until the launches of a pass had returned, a median. A timer that does not wait for the GPU reads "
    "this.": lambda row: number(row, "time", "enqueue_ms") is not None,
    "Peers are torch's kernels on the same problem, timed in the same way; they are not part of the gains.": is_peer,
}
NO_PLOTS = (
    "There are no plots here, since matplotlib is not installed. {} installs it, and so does {} as root; then make this page again. The tables "
    "are complete without it."
)


def head_facts(rows, older):
    """Devices, dates, commits in a line each. `older`: how many rows are not shown, since a later one is of the same run."""
    commits = ", ".join(short_commit({"commit": commit}) for commit, *_ in origin.commits(rows) if commit)
    verdicts = Counter(sorted((verdict(row) for row in rows), key=lambda name: (name != "ok", name)))
    counted = f"{len(rows)}: " + ", ".join(f"{count} {name}" for name, count in verdicts.items())
    counted += f"; {older} older of the same runs {'is' if older == 1 else 'are'} not in the tables" if older else ""
    devices = ", ".join(dict.fromkeys(device_name(row) for row in rows if row.get("device")))
    facts = [("Device", devices), ("Date", origin.dates(rows)), ("Commit", commits), ("Rows", counted)]
    return tag("dl", *(join([tag("dt", name), tag("dd", text or "not told")]) for name, text in facts), class_="facts")


def notices(rows):
    """Failures and doubts, before any figure is read."""
    count = Counter(f"{label(row)}, {row['pass']}: {verdict(row)}" for row in rows if is_failure(row))
    failed = [line + (f" ({times} problems)" if times > 1 else "") for line, times in count.items()]
    said = [f"Failed: {'; '.join(failed[:10])}{' and more' if len(failed) > 10 else ''}."] if failed else []
    if all(is_peer(row) for row in rows):
        said.append("Only peers are in these rows: there is no stage to compare them with.")
    said += origin.warnings(rows)
    return items(said, class_="notices", aria_label="Warnings") if said else None


def figure_of(svg, name):
    """Seen, it has a title of its own; told, it has that one too. A box that is checked by a click on the picture makes it large."""
    title = html.unescape(re.search(r"<title>(.*?)</title>", svg, re.DOTALL)[1].strip())
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    picture = tag("img", src=source, alt=f"Plot: {title}. The figures are in the tables.")
    box = tag("input", type="checkbox", id=name, class_="unseen", aria_label=f"Larger: {title}")
    return tag("figure", box, tag("label", picture, for_=name))


def plots(rows):
    """All that the rows suffice for, or a sentence that says how to get them."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return tag("p", say(NO_PLOTS, *(tag("code", way) for way in ("python3 -m pip install matplotlib", "common/setup.sh --dev"))))
    drawn, missing = [], []
    for of_device in grouped([row for row in rows if row.get("problem")], device_name).values():
        try:
            pictures, reasons = plot.select(of_device)
            drawn += [plot.svg(name, picture) for name, picture in pictures.items()]
            missing += [f"no {name}: {why}" for name, why in reasons.items()]
        except Exception as error:  # rows may be damaged in more ways than plots know: the tables are worth having without them
            missing.append(f"plot.py fails: {type(error).__name__}: {error}")
    folded = tag("details", tag("summary", "What could not be drawn"), items(missing)) if missing else None
    if not drawn:
        return join([tag("p", "Nothing can be drawn from these rows."), folded])
    hint = tag("p", "Click a plot to enlarge it; click again to restore it.", class_="caption hint")
    figures = (figure_of(svg, f"plot-{index}") for index, svg in enumerate(drawn, start=1))
    return join([hint, tag("div", *figures, class_="plots"), folded])


def page(rows, names, title=None, command=None, docs=None):
    """`names`: the files of the rows. `command`: what made them, `docs`: a URL of the chapters' folder, or None."""
    every, rows = rows, judged(latest(rows, by_tiles=True))
    found = groups(rows)
    lesson = lessons.chosen(found)
    lost = [row for row in rows if not row.get("problem")]
    sections = [
        ("lesson", "What it shows", lessons.section(found, lesson)),
        ("overview", "Overview", overview.section(found)),
        ("runs", "Runs side by side", runs.section(every, names)),
        ("tables", "Tables", join([tables.section(found, tables.peaks(rows), lesson), tables.without_problem(lost)])),
        ("plots", "Plots", plots(rows)),
        ("chapters", "Chapters", chapters.section(rows, docs)),
        ("reading", "How to read it", items(text for text, is_about in READING.items() if any(map(is_about, rows)))),
        ("environment", "Where it comes from", origin.environment(rows)),
        ("again", "How to make it again", origin.again(rows, names, command)),
    ]
    sections = [section for section in sections if section[2]]
    links = tag("nav", *(tag("a", name, href=f"#{key}") for key, name, _ in sections), aria_label="Sections")
    header = tag("header", tag("h1", title or TITLE), tag("p", WHAT), head_facts(rows, len(every) - len(rows)), notices(rows))
    body = tag("main", *(tag("section", tag("h2", name), content, id=key) for key, name, content in sections))
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title or TITLE),
        tag("style", Html(STYLE.read_text(encoding="utf-8"))),
    )
    return join([Html(REPORT), tag("html", tag("head", *head), tag("body", header, links, body), lang="en"), Html("\n")])
