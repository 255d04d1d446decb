"""HTML by functions. What is not Html already is escaped, so nothing that a rows file says can become markup."""

import html
import re

VOID = {"meta", "img", "input", "wbr"}
# Each ends a line, for readers of the source.
BLOCKS = {"section", "div", "details", "table", "tr", "p", "li", "dl", "figure", "h2", "h3", "h4"}
# Not allowed in HTML, not even as references: control characters, and halves of surrogate pairs, which JSON can spell.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is markup and stays as it is."""


def escape(text):
    return Html(html.escape(FORBIDDEN.sub("\ufffd", str(text))))


def join(parts, separator=""):
    """Parts that are None are left out."""
    return Html(escape_unless_html(separator).join(escape_unless_html(part) for part in parts if part is not None))


def escape_unless_html(part):
    return part if isinstance(part, Html) else escape(part)


def tag(name, /, *children, **attributes):
    """<name attributes>children</name>. class_ is class, aria_label is aria-label; an attribute that is None is left out."""
    pairs = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None]
    start = Html("<" + name + "".join(f' {key}="{escape(value)}"' for key, value in pairs) + ">")
    return start if name in VOID else join([start, *children, Html(f"</{name}>" + "\n" * (name in BLOCKS))])


def counted(count, what):
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
