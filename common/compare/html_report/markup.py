"""HTML by functions. What is not Html already is escaped, so nothing that a rows file says can become markup."""

import html
import re
import typing

VOID = {"meta", "img", "input", "wbr"}
# Each ends a line, for readers of the source.
BLOCKS = {"section", "div", "details", "table", "tr", "p", "li", "dl", "figure", "h2", "h3", "h4"}
# Not allowed in HTML, not even as references: control characters, and halves of surrogate pairs, which JSON can spell.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
DASH = "–"


class Html(str):
    """Text that is markup and stays as it is."""


def escape(text):
    return text if isinstance(text, Html) else Html(html.escape(FORBIDDEN.sub("\ufffd", str(text))))


def join(parts, separator=""):
    """Parts that are None are left out."""
    return Html(escape(separator).join(escape(part) for part in parts if part is not None))


def tag(name, /, *children, **attributes):
    """<name attributes>children</name>. class_ is class, aria_label is aria-label; an attribute that is None is left out."""
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None]
    start = Html("<" + name + "".join(f' {key}="{escape(value)}"' for key, value in pairs) + ">")
    return start if name in VOID else join([start, *children, Html(f"</{name}>" + "\n" * (name in BLOCKS))])


def say(template, *parts):
    """The parts, each in the place of a {}."""
    return Html(escape(template).format(*map(escape, parts)))


def part(title, id, content, folded=False, beside=None, is_open=False):
    """Something under its heading. If it is folded, that and what stands beside it are all that is seen."""
    heading = tag("h4" if folded else "h3", title, id=id)
    if not folded:
        return tag("section", heading, content)
    summary = tag("summary", heading, tag("span", beside) if beside else None)
    return tag("details", summary, content, open="open" if is_open else None)


def small(text):
    return tag("small", text) if text else None


def items(lines, **attributes):
    return tag("ul", *(tag("li", line) for line in lines), **attributes)


class Head(typing.NamedTuple):
    """Of a column."""

    title: str
    small: str = None
    kind: str = "number"
    href: str = None  # where the title leads
    told: str = None  # how a cell names its column where the head cannot be seen; usually by the title

    def th(self):
        title = tag("a", self.title, href=self.href) if self.href else self.title
        return tag("th", title, small(self.small), scope="col", class_=self.kind)


class Cell(typing.NamedTuple):
    """A figure, a small line under it, and a bar behind both of a share of the cell, 0 to 1."""

    content: str = DASH
    small: str = None
    share: float = None
    kind: str = "number"
    span: int = None

    def td(self, told):
        style = None if self.share is None else f"--share:{100 * min(max(self.share, 0), 1):.1f}%"
        kind = " ".join(filter(None, (self.kind, style and "bar"))) or None
        told = None if self.span else told
        return tag("td", self.content, small(self.small), colspan=self.span, class_=kind, style=style, data_title=told)


def table(caption, name, heads, lines, kind="narrow"):
    """`name`: the id of its heading. `lines`: (first cell, other cells, class or None)"""
    body = []
    for first, cells, class_ in lines:
        titles = [
            one.told or one.title for one in heads[cells[0].span or 1 :]
        ]  # of the last column that the first cell spans, and the next
        body.append(tag("tr", first, *(cell.td(title) for cell, title in zip(cells, titles)), class_=class_))
    head = tag("thead", tag("tr", *(one.th() for one in heads)))
    parts = tag("caption", caption, class_="unseen"), head, tag("tbody", *body)
    return tag("div", tag("table", *parts), class_=f"scroll {kind}", role="region", aria_labelledby=name, tabindex="0")


# ---- words -----------------------------------------------------------------------------------------------------------------


def counted(count, what):
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def figure(value):
    """Three significant digits, all digits of whole numbers, without an exponent where it can be read."""
    if value is None:
        return DASH
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def gain(value):
    return f"{figure(value)} ×"
