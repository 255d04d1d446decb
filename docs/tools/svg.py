"""A few lines of SVG: shapes by class, so that one style sheet serves light and dark mode."""

from html import escape

STYLE = """
.bg{fill:#fff}.fg{fill:#1f2328}.dim{fill:#59636e}
.line{stroke:#59636e;fill:none;stroke-width:1.5}.thin{stroke:#d1d9e0;fill:none;stroke-width:1}
.strong{stroke:#1f2328;fill:none;stroke-width:2}
.head{fill:#59636e}
.c0{fill:#eef1f4;stroke:#59636e}.c1{fill:#b6d7ff;stroke:#2563a8}.c2{fill:#ffd8a8;stroke:#a85f10}
.c3{fill:#b7e4c0;stroke:#2b7a3d}.c4{fill:#e5c8f5;stroke:#7a3ba0}
@media (prefers-color-scheme:dark){
.bg{fill:#0d1117}.fg{fill:#e6edf3}.dim{fill:#9198a1}
.line{stroke:#9198a1}.thin{stroke:#3d444d}.strong{stroke:#e6edf3}.head{fill:#9198a1}
.c0{fill:#1c2128;stroke:#9198a1}.c1{fill:#123f70;stroke:#79b8ff}.c2{fill:#693c08;stroke:#ffb757}
.c3{fill:#174f25;stroke:#7ee08f}.c4{fill:#4a2464;stroke:#d8a6f5}}
text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif}
.mono{font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace}
"""


class Picture:
    """Collects shapes; text() gives the finished file."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def rect(self, x, y, w, h, kind):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="0" class="{kind}"/>')

    def box(self, x, y, w, h, kind, text, size=13):
        """A rectangle with a text in its middle."""
        self.rect(x, y, w, h, kind)
        self.label(x + w / 2, y + h / 2 + 5, text, size)

    def grid(self, x, y, rows, cols, cell, kind, gap=0):
        """Cells of a size (width, height), each of the class kind(row, column)."""
        for r in range(rows):
            for c in range(cols):
                self.rect(x + c * cell[0], y + r * cell[1], cell[0] - gap, cell[1] - gap, kind(r, c))

    def polygon(self, points, kind="c0"):
        self.parts.append(f'<polygon points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="{kind}"/>')

    def line(self, x1, y1, x2, y2, kind="line"):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>')

    def arrow(self, x1, y1, x2, y2):
        """A line with a head at its second end."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        bx, by = x2 - 8 * ux, y2 - 8 * uy
        self.line(x1, y1, bx, by)
        self.polygon([(x2, y2), (bx - 4 * uy, by + 4 * ux), (bx + 4 * uy, by - 4 * ux)], "head")

    def label(self, x, y, text, size=14, anchor="middle", kind="fg", bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" class="{kind}"{weight}>{escape(text)}</text>'
        )

    def note(self, x, y, *lines, size=13, anchor="middle"):
        """Small print, a line below the other."""
        for n, text in enumerate(lines):
            self.label(x, y + 20 * n, text, size, anchor, "dim")

    def text(self):
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'height="{self.height:g}" role="img">\n<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n'
            f'<rect width="100%" height="100%" rx="8" class="bg"/>\n{body}\n</svg>\n'
        )
