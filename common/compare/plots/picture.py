"""What a picture is made of, between the choice of rows and the drawing."""

from dataclasses import dataclass


@dataclass
class Picture:
    title: str  # says what one sees
    note: str  # device, problem, what is held fixed
    content: dict  # all that is drawn, as lists, numbers and texts: a picture is out of date if this has changed
    rows: list  # from which it was made, for their commits and dates
    remark: str = ""  # answers what a reader of the picture asks; a line under the note
