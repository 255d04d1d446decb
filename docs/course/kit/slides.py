"""course.py slides: docs/course/slides.md as one page to project. No library, no network: pictures and formulas are in it."""

import base64
import re
from html import escape
from pathlib import Path

from kit import Usage
from kit.exercise import ROOT
from kit.mathml import mathml

SOURCE = ROOT / "docs" / "course" / "slides.md"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title><style>
html { scroll-snap-type: y mandatory; font: 2.6vh/1.45 system-ui, sans-serif; color: #111; background: #fff }
body { margin: 0 }
section { scroll-snap-align: start; min-height: 100vh; box-sizing: border-box; padding: 6vh 8vw; display: flex; flex-direction: column;
  justify-content: center; position: relative }
h1 { font-size: 1.9em; line-height: 1.2; margin: 0 0 0.7em }
li, p { margin: 0.4em 0; max-width: 60em }
img { max-width: 84vw; max-height: 50vh; background: #fff; align-self: center; margin: 1em 0 }
pre { font-size: 0.85em; background: #f2f2f2; padding: 0.8em 1em; overflow: auto }
math { font-size: 1.2em; margin: 0.7em 0 }
footer { position: absolute; bottom: 2vh; right: 3vw; font-size: 0.6em; color: #555 }
@page { size: 297mm 167mm; margin: 0 }
@media print { section { break-after: page; min-height: 0; height: 100vh } }
</style></head><body>
@SLIDES@
<script>
addEventListener("keydown", (event) => {
  const step = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1}[event.key];
  if (!step) return;
  event.preventDefault();
  const slides = [...document.querySelectorAll("section")];
  const here = slides.findIndex((slide) => slide.getBoundingClientRect().bottom > innerHeight / 2);
  slides[Math.max(0, Math.min(slides.length - 1, here + step))].scrollIntoView();
});
</script></body></html>
"""


def inline(text):
    """A line of prose."""
    kept = []

    def keep(html):
        kept.append(html)
        return f"\0{len(kept) - 1}\0"

    text = re.sub(r"\$`(.+?)`\$", lambda m: keep(mathml(m.group(1))), text)
    text = re.sub(r"`([^`]+)`", lambda m: keep(f"<code>{escape(m.group(1))}</code>"), text)
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)  # a projected page has nothing to click
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text, quote=False))
    text = re.sub(r"\*(.+?)\*", r"<i>\1</i>", text)
    return re.sub(r"\0(\d+)\0", lambda m: kept[int(m.group(1))], text)


def picture(alt, target):
    path = (SOURCE.parent / target).resolve()
    if not path.is_file() or path.suffix != ".svg":
        raise Usage(f"slides.md: there is no picture {target}")
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{data}" />'


def slide(text):
    html, lines, at, items = [], text.strip().split("\n"), 0, []

    def close():
        if items:
            html.append("<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>")
            items.clear()

    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if line.startswith("- "):
            items.append(inline(line[2:]))
            continue
        close()
        shown = re.fullmatch(r"!\[([^\]]*)\]\(([^)]+)\)", line)
        if line.startswith("# "):
            html.append(f"<h1>{inline(line[2:])}</h1>")
        elif line.startswith("```"):
            end = next((n for n in range(at, len(lines)) if lines[n].startswith("```")), None)
            if end is None:
                raise Usage("slides.md: a block does not end")
            block, at = "\n".join(lines[at:end]), end + 1
            html.append(mathml(block, display=True) if line == "```math" else f"<pre>{escape(block)}</pre>")
        elif shown:
            html.append(picture(*shown.groups()))
        elif line.startswith(("#", "|", "* ", ">", "1. ")):
            raise Usage(f"slides.md: a slide has a title, prose, lists with -, pictures and blocks, and not '{line[:40]}'")
        elif line:
            html.append(f"<p>{inline(line)}</p>")
    close()
    return "\n".join(html)


def page():
    text = re.sub(r"<!--.*?-->\n?", "", SOURCE.read_text(), flags=re.DOTALL)
    slides = [part for part in re.split(r"^---$", text, flags=re.MULTILINE) if part.strip()]
    sections = [f"<section>\n{slide(part)}\n<footer>{n} / {len(slides)}</footer>\n</section>" for n, part in enumerate(slides, 1)]
    title = re.search(r"^# (.*)$", text, re.MULTILINE).group(1)
    return PAGE.replace("@TITLE@", escape(title)).replace("@SLIDES@", "\n".join(sections))


def command(arguments, _):
    out = Path(arguments.out)
    if out.exists():
        raise Usage(f"{out} is there already; allowed: a new file")
    html = page()
    out.write_text(html)
    print(f"{out}: {html.count('<section>')} slides; arrow keys turn them, and printing gives a page for each")
    return 0
