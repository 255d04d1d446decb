"""Pictures of lanes below each other over one axis, for chapters 08H and 08B: who does what when."""

from docs.tools.svg import LETTER, Picture

WIDTH, LEFT, RIGHT = 720, 132, 712  # of a picture; where time begins and ends
TEXT = 17


class Lanes:
    """From `first` to `last` on the axis. `row` is from lane to lane, `high` a bar; `left` the room for names.
    omitted: the colours of bars that are left out where they have no room for a name."""

    def __init__(self, title, first, last, row=34, high=26, left=LEFT, width=WIDTH, omitted=()):
        self.right, self.omitted = width - WIDTH + RIGHT, omitted
        self.first, self.left, self.scale = first, left, (self.right - left) / (last - first)
        self.row, self.high = row, high
        self.p = Picture(width, title, title)
        self.y = self.p.bottom + 12

    def x(self, at):
        return self.left + (at - self.first) * self.scale

    def lane(self, name, bars=(), size=TEXT, above=False):
        """Bars are (first, last, colour, texts): the first text for which there is room. above: else the first stands above the bar."""
        middle, below, beyond = self.y + self.high / 2 + 6, self.y + (self.row + self.high) / 2, 0
        self.p.note(self.left - 8, middle, name, anchor="end")
        self.p.line(self.left, below, self.right, below, "thin")
        for first, last, kind, *texts in bars:
            left, right = max(self.x(first), self.left), min(self.x(last), self.right)
            fitting = [text for text in texts if right - left > LETTER * size * len(text) + 8]
            if left < right and (fitting or kind not in self.omitted):
                self.p.rect(left, self.y, right - left, self.high, kind)
                for text in fitting[:1]:
                    self.p.label((left + right) / 2, middle, text, size)
                half = LETTER * size * len(texts[0]) / 2 if texts else 0
                if above and texts and not fitting and (left + right) / 2 - half > beyond:
                    self.p.label((left + right) / 2, self.y - 6, texts[0], size)
                    beyond = (left + right) / 2 + half
        self.y += self.row

    def finish(self, *lines):
        """Small print below the lanes."""
        self.p.caption(*lines)
        return self.p
