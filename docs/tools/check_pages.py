"""Finds broken relative links, missing anchors, equation numbers that no page derives, and math that GitHub would not render."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Macros that GitHub refuses or that its MathJax does not have.
REFUSED = ["\\operatorname", "\\newcommand", "\\def", "\\bm", "\\label", "\\eqref", "\\ref", "\\href", "\\require", "\\lbrace"]


def pages():
    """All Markdown pages of the project."""
    found = list(ROOT.glob("*.md")) + list((ROOT / "docs").rglob("*.md")) + list(ROOT.glob("[0-9][0-9]_*/**/*.md"))
    return sorted(found) + sorted((ROOT / "common").rglob("*.md"))


def without_code(text):
    """Blanks code blocks and comments, so that what they show is not taken for a link. Math blocks are code blocks too."""
    return re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The anchors that GitHub gives to a page's headings."""
    found, seen = set(), {}
    for title in re.findall(r"^#{1,6} +(.*?) *$", without_code(path.read_text()), re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)  # a link is its text
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(slug if count == 0 else f"{slug}-{count}")
    return found


def link_problems(path):
    text = re.sub(r"`[^`\n]*`", "", without_code(path.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        file, _, anchor = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        if not goal.exists():
            yield f"link to {target}: no such file"
        elif anchor and anchor not in anchors(goal):
            yield f"link to {target}: no such heading"


def math_problems(text):
    blocks = re.findall(r"^```math\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    inline = without_code(text)
    for formula in blocks + re.findall(r"\$`(.*?)`\$", inline):
        start = " ".join(formula.split())[:50]
        if "$" in formula:
            yield f"a formula that is not closed by `$: {start}"
        for macro in REFUSED:
            if re.search(re.escape(macro) + r"(?![a-zA-Z])", formula):
                yield f"{macro} in {start}: GitHub does not render it"
    if re.search(r"(?<![$`\\])\$(?![`$({\w])|(?<!`)\$\$", re.sub(r"\$`.*?`\$|`[^`\n]*`", "", inline)):
        yield "a '$' that belongs to no formula; inline math is written $`...`$"


def equation_problems():
    """Equation numbers that two pages derive, and numbers in kernels and pages that no page derives."""
    known = {}
    for path in pages():
        for tag in re.findall(r"\\tag\{([^}]+)\}", path.read_text()):
            if tag in known:
                yield f"{path.relative_to(ROOT)}: equation ({tag}) also stands in {known[tag].relative_to(ROOT)}"
            known[tag] = path
    sources = [*ROOT.glob("[0-9][0-9]_*/**/*.cuh"), *(ROOT / "common").rglob("*.cuh"), *(ROOT / "docs").rglob("*.py"), *pages()]
    for path in sorted(sources):
        for number in sorted(set(re.findall(r"\(((?:0?\dH?|[A-Z])\.\d+)\)", path.read_text(errors="replace")))):
            if number not in known:
                yield f"{path.relative_to(ROOT)}: cites equation ({number}), which no page derives"


def problems():
    wrong = list(equation_problems())
    for path in pages():
        wrong += [f"{path.relative_to(ROOT)}: {problem}" for problem in [*link_problems(path), *math_problems(path.read_text())]]
    return wrong
