"""Finds broken relative links, missing anchors, equation numbers that no page derives, and math that GitHub would not render."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Macros that GitHub refuses or that its MathJax does not have.
REFUSED = ["\\operatorname", "\\newcommand", "\\def", "\\bm", "\\label", "\\eqref", "\\ref", "\\href", "\\require", "\\lbrace"]


def pages():
    """All Markdown pages of the project."""
    found = list(ROOT.glob("*.md")) + list((ROOT / "docs").rglob("*.md")) + list(ROOT.glob("[0-9][0-9]_*/*.md"))
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


def formulas(text):
    """(where, formula) of all math on a page."""
    for block in re.findall(r"^```math\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield "block", block
    inline = without_code(text)
    for formula in re.findall(r"\$`(.*?)`\$", inline):
        yield "inline", formula
    for stray in re.findall(r"(?<![$`\\])\$(?![`$({\w])|(?<!`)\$\$", re.sub(r"\$`.*?`\$|`[^`\n]*`", "", inline)):
        yield "stray", stray


def math_problems(text):
    for where, formula in formulas(text):
        start = " ".join(formula.split())[:50]
        if where == "stray":
            yield "a '$' that belongs to no formula; inline math is written $`...`$"
        bare = re.sub(r"\\[{}\\]", "", formula)
        if bare.count("{") != bare.count("}"):
            yield f"unbalanced braces in {start}"
        if "$" in formula:
            yield f"a formula that is not closed by `$: {start}"
        if formula.count("\\left") - formula.count("\\leftarrow") != formula.count("\\right") - formula.count("\\rightarrow"):
            yield f"\\left without \\right in {start}"
        for macro in REFUSED:
            if re.search(re.escape(macro) + r"(?![a-zA-Z])", formula):
                yield f"{macro} in {start}: GitHub does not render it"


def equations():
    """Equation number -> page that derives it. Problems are duplicates."""
    found, wrong = {}, []
    for path in pages():
        for tag in re.findall(r"\\tag\{([^}]+)\}", path.read_text()):
            if tag in found:
                wrong.append(f"{path.relative_to(ROOT)}: equation ({tag}) also stands in {found[tag].relative_to(ROOT)}")
            found[tag] = path
    return found, wrong


def citation_problems(known):
    """Equation numbers in kernels and pages have to exist."""
    sources = list(ROOT.glob("[0-9][0-9]_*/**/*.cuh")) + list((ROOT / "common" / "device").glob("*.cuh")) + pages()
    sources += list((ROOT / "docs").rglob("*.py"))
    for path in sorted(sources):
        for number in sorted(set(re.findall(r"\(((?:0?\dH?|[A-Z])\.\d+)\)", path.read_text(errors="replace")))):
            if number not in known:
                yield f"{path.relative_to(ROOT)}: cites equation ({number}), which no page derives"


def problems():
    known, wrong = equations()
    wrong += citation_problems(known)
    for path in pages():
        text = path.read_text()
        for problem in [*link_problems(path), *math_problems(text)]:
            wrong.append(f"{path.relative_to(ROOT)}: {problem}")
    return wrong
