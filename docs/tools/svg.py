"""A few lines of SVG: shapes by class, so that one style sheet serves light and dark mode.

The whole book has one colour per matrix: its class is its name in lower case. Gradients are darker shades, S and P (dS and dP) one grey. A product
has the colour of its result, a copy that of what it copies. Levels of memory are four shades of red, from registers to HBM. `hit` marks the thread
or element that the text speaks of, c0 is empty or idle. c0, t, s and ds are tints of matrices A, B and C; c1 to c4 number things in pictures without
matrices. test_traces.py checks contrasts."""

import textwrap
from html import escape

COLOURS = {  # class: (fill, stroke) in light mode, in dark mode
    "c0": ("#f1f4f7", "#59636e", "#161b22", "#9198a1"),
    "q": ("#b3dcff", "#1f5f9f", "#0b3a70", "#79b8ff"),
    "k": ("#ffc880", "#96540a", "#633700", "#ffb757"),
    "v": ("#a5e8ae", "#256f37", "#14592f", "#7ee08f"),
    "o": ("#cfa2f2", "#6a2f96", "#623096", "#d8a6f5"),
    "t": ("#dde2e7", "#59636e", "#2a313a", "#b4bcc6"),
    "s": ("#c6ccd3", "#59636e", "#3d4550", "#b4bcc6"),
    "dq": ("#70b5fa", "#1f5f9f", "#1b5fae", "#a9d2ff"),
    "dk": ("#ec9c2a", "#7d4505", "#935500", "#ffd08a"),
    "dv": ("#5bbf78", "#1d5c2c", "#1f7a3a", "#a8f0b4"),
    "do": ("#b07be0", "#55207d", "#8448b8", "#ecd0ff"),
    "ds": ("#99a2ac", "#3f4852", "#5a6470", "#d5dbe2"),
    "reg": ("#ffe4e4", "#a34a52", "#3a1a1f", "#e89aa2"),
    "smem": ("#fac3c6", "#963f48", "#5c2830", "#f0a6ae"),
    "l2": ("#ec989e", "#85323c", "#84394a", "#f5b8be"),
    "hbm": ("#d8747c", "#6e222c", "#ab4a5a", "#ffd0d5"),
    "hit": ("#ffee58", "#5c5200", "#736c00", "#fff27a"),
}
ALSO = {"s": ",.p", "ds": ",.dp", "q": ",.c1", "k": ",.c2", "v": ",.c3", "o": ",.c4"}


def classes(at):
    return "\n".join(f".{kind}{ALSO.get(kind, '')}{{fill:{each[at]};stroke:{each[at + 1]}}}" for kind, each in COLOURS.items())


STYLE = f"""
.bg{{fill:#fff}}.fg{{fill:#1f2328}}.dim{{fill:#59636e}}
.line{{stroke:#59636e;fill:none;stroke-width:1.5}}.thin{{stroke:#d1d9e0;fill:none;stroke-width:1}}
.strong{{stroke:#1f2328;fill:none;stroke-width:2}}.head{{fill:#59636e}}.bar{{fill:#1f2328}}
{classes(0)}
@media (prefers-color-scheme:dark){{
.bg{{fill:#0d1117}}.fg{{fill:#e6edf3}}.dim{{fill:#9198a1}}
.line{{stroke:#9198a1}}.thin{{stroke:#3d444d}}.strong{{stroke:#e6edf3}}.head{{fill:#9198a1}}.bar{{fill:#e6edf3}}
{classes(2)}}}
text{{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif}}
"""
LETTER = 0.56  # of the size: how wide one is


class Picture:
    """Collects shapes; text() gives the finished file, as high as what is drawn. Of 720 units in width a text should have 17."""

    def __init__(self, width, title, heading=None):
        self.width, self.title, self.parts, self.bottom = width, title, [], 8
        if heading:
            for line in self.wrapped(heading, 18.5):
                self.label(width / 2, self.bottom + (22 if self.bottom == 8 else 17), line, 18, bold=True)

    def wrapped(self, text, size):
        """In lines of about the same length."""
        room = int((self.width - 24) / (LETTER * size))
        count = len(textwrap.wrap(text, room))
        return next(lines for at in range(len(text) // count, room + 1) if len(lines := textwrap.wrap(text, at)) <= count)

    def rect(self, x, y, w, h, kind):
        self.bottom = max(self.bottom, y + h)
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="0" class="{kind}"/>')

    def box(self, x, y, w, h, kind, text, size=17):
        """A rectangle with a text in its middle."""
        self.rect(x, y, w, h, kind)
        self.label(x + w / 2, y + h / 2 + 0.35 * size, text, size)

    def grid(self, x, y, rows, cols, cell, kind, gap=0):
        """Cells of a size (width, height), each of the class kind(row, column)."""
        for r in range(rows):
            for c in range(cols):
                self.rect(x + c * cell[0], y + r * cell[1], cell[0] - gap, cell[1] - gap, kind(r, c))

    def polygon(self, points, kind="c0"):
        self.bottom = max(self.bottom, *(y for _, y in points))
        self.parts.append(f'<polygon points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="{kind}"/>')

    def line(self, x1, y1, x2, y2, kind="line"):
        self.bottom = max(self.bottom, y1, y2)
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>')

    def arrow(self, x1, y1, x2, y2):
        """A line with a head at its second end."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 8 * ux, y2 - 8 * uy
        self.line(x1, y1, bx, by)
        self.polygon([(x2, y2), (bx - 4 * uy, by + 4 * ux), (bx + 4 * uy, by - 4 * ux)], "head")

    def label(self, x, y, text, size=17, anchor="middle", kind="fg", bold=False):
        self.bottom = max(self.bottom, y + 6)
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" class="{kind}"{weight}>{escape(text)}</text>'
        )

    def note(self, x, y, *lines, size=17, anchor="middle"):
        """Small print, a line below the other."""
        for n, text in enumerate(lines):
            self.label(x, y + 22 * n, text, size, anchor, "dim")

    def caption(self, *texts, size=17):
        """Small print below all that is drawn, in as many lines as it takes."""
        self.bottom += 8
        for text in texts:
            for line in self.wrapped(text, size):
                self.note(self.width / 2, self.bottom + 17, line, size=size)

    def legend(self, *named, size=17):
        """What colours mean, (kind, text), below all that is drawn."""
        rows, room = [[]], 0
        for kind, text in named:
            wide = 44 + LETTER * size * len(text)
            if rows[-1] and room + wide > self.width - 8:
                rows, room = [*rows, []], 0
            rows[-1].append((kind, text, wide))
            room += wide
        self.bottom += 8
        for row in rows:
            x, y = (self.width - sum(wide for *_, wide in row)) / 2 + 10, self.bottom + 6
            for kind, text, wide in row:
                self.rect(x, y, 18, 15, kind)
                self.note(x + 26, y + 14, text, size=size, anchor="start")
                x += wide

    def text(self):
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.bottom + 12:g}" width="{self.width:g}" '
            f'height="{self.bottom + 12:g}" role="img">\n<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n'
            f'<rect width="100%" height="100%" rx="8" class="bg"/>\n{body}\n</svg>\n'
        )
