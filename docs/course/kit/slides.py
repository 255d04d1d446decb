"""course.py slides: docs/course/slides.md as one page to project, by pandoc. No network: pictures and formulas are in it."""

import re
import shutil
import subprocess
from pathlib import Path

from . import Usage
from .exercise import ROOT

SOURCE = ROOT / "docs/course/slides.md"


def for_pandoc(text):
    """GitHub's formulas as pandoc's; a projected page has nothing to click, and each title begins a slide."""
    text = re.sub(r"^```math\n(.*?)\n```$", r"$$\1$$", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$`(.+?)`\$", r"$\1$", text)
    text = re.sub(r"^## ", "# ", text, flags=re.MULTILINE)  # on GitHub and in the site one title has all others below it
    text = re.sub(r"```.*?```|(?<!!)\[([^\]]+)\]\([^)]+\)", lambda m: m[1] or m[0], text, flags=re.DOTALL)
    return re.sub(r"^---$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)


def command(arguments, _):
    out = Path(arguments.out)
    if out.exists():
        raise Usage(f"{out} is there already; allowed: a new file")
    if not shutil.which("pandoc"):
        raise Usage("pandoc is missing; common/setup.sh --dev installs it, and docs/course/slides.md shows the same slides without it")
    text = for_pandoc(SOURCE.read_text())
    title = re.search(r"^# (.*)$", text, re.MULTILINE).group(1)
    argv = ["pandoc", "--from", "gfm+tex_math_dollars", "--to", "html5", "--section-divs", "--self-contained", "--mathml", "--no-highlight"]
    argv += ["--metadata", f"pagetitle={title}", "--metadata", "document-css=false"]
    argv += ["--include-in-header", SOURCE.parent / "kit" / "slides.html", "--output", out.resolve()]
    done = subprocess.run(argv, input=text, cwd=SOURCE.parent, capture_output=True, text=True)
    if done.returncode or "Could not" in done.stderr:
        out.unlink(missing_ok=True)
        raise Usage(f"pandoc: {done.stderr.strip()}")
    print(f"{out}: {out.read_text().count('<section')} slides; arrow keys turn them, and printing gives a page for each")
    return 0
