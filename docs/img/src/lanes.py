"""Pictures of lanes below each other over one axis, for chapters 08H and 08B: who does what when."""

from docs.tools.svg import LETTER, Picture

WIDTH, LEFT, RIGHT = 720, 132, 712  # of a picture; where time begins and ends
TEXT = 17


class Lanes:
    """From `first` to `last` on the axis. `row` is from lane to lane, `high` a bar; `left` the room for names."""

    def __init__(self, title, first, last, row=34, high=26, left=LEFT):
        self.first, self.left, self.scale = first, left, (RIGHT - left) / (last - first)
        self.row, self.high = row, high
        self.p = Picture(WIDTH, title, title)
        self.y = self.p.bottom + 12

    def x(self, at):
        return self.left + (at - self.first) * self.scale

    def lane(self, name, bars=(), size=TEXT):
        """Bars are (first, last, colour, texts): the first text for which there is room."""
        middle, below = self.y + self.high / 2 + 6, self.y + (self.row + self.high) / 2
        self.p.note(self.left - 8, middle, name, anchor="end")
        self.p.line(self.left, below, RIGHT, below, "thin")
        for first, last, kind, *texts in bars:
            left, right = max(self.x(first), self.left), min(self.x(last), RIGHT)
            if left < right:
                self.p.rect(left, self.y, right - left, self.high, kind)
                fitting = [text for text in texts if right - left > LETTER * size * len(text) + 6]
                for text in fitting[:1]:
                    self.p.label((left + right) / 2, middle, text, size)
        self.y += self.row

    def finish(self, *lines):
        """Small print below the lanes."""
        self.p.caption(*lines)
        return self.p
