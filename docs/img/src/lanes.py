"""Pictures of lanes below each other over one axis, for chapters 08H and 08B: who does what when."""

from docs.tools.svg import Picture

WIDTH, LEFT, RIGHT = 960, 164, 940  # of a picture; where time begins and ends
TEXT = 14  # so that it stays legible where a page is narrower


class Lanes:
    """From `first` to `last` on the axis. `row` is from lane to lane, `high` a bar, `letter` the room for one."""

    def __init__(self, title, first, last, row=30, high=22, letter=7):
        self.first, self.scale = first, (RIGHT - LEFT) / (last - first)
        self.row, self.high, self.letter = row, high, letter
        self.p, self.y = Picture(WIDTH, 0, title), 50
        self.p.label(WIDTH / 2, 28, title, 15, bold=True)

    def x(self, at):
        return LEFT + (at - self.first) * self.scale

    def lane(self, name, bars=()):
        """Bars are (first, last, colour, texts): the first text for which there is room."""
        middle = self.y + self.high / 2 + 5
        self.p.note(LEFT - 12, middle, name, size=TEXT, anchor="end")
        self.p.line(LEFT, self.y + (self.row + self.high) / 2, RIGHT, self.y + (self.row + self.high) / 2, "thin")
        for first, last, kind, *texts in bars:
            left, right = max(self.x(first), LEFT), min(self.x(last), RIGHT)
            if left < right:
                self.p.rect(left, self.y, right - left, self.high, kind)
                fitting = [text for text in texts if right - left > self.letter * len(text) + 8]
                for text in fitting[:1]:
                    self.p.label((left + right) / 2, middle, text, TEXT)
        self.y += self.row

    def finish(self, note, height, *lines):
        """Small print, and where the picture ends, both so far below the lanes."""
        self.p.note(WIDTH / 2, self.y + note, *lines, size=TEXT)
        self.p.height = self.y + height
        return self.p
