"""The default kernels that the pictures of chapters 06 and 07 show, as `--list --json` of their programs lists them: who holds what."""

from dataclasses import dataclass

WARP = 32


@dataclass
class ThreadTile:
    """rows x cols of a matrix in a thread's registers. `lanes` of a warp share a row; its rows and columns are neighbours in runs."""

    rows: int
    cols: int
    lanes: int
    row_run: int
    col_run: int

    along = property(lambda t: WARP // t.lanes)  # lanes along a column
    warp_rows = property(lambda t: t.rows * t.along)
    size = property(lambda t: t.rows * t.cols)
    sides = property(lambda t: t.rows + t.cols)

    def row(self, lane, r):
        """In the warp's part."""
        return lane // self.lanes * self.row_run + r % self.row_run + self.row_run * self.along * (r // self.row_run)

    def col(self, lane, c):
        return lane % self.lanes * self.col_run + c % self.col_run + self.col_run * self.lanes * (c // self.col_run)

    def places(self, lane):
        return {(self.row(lane, r), self.col(lane, c)) for r in range(self.rows) for c in range(self.cols)}

    def __str__(self):
        return f"{self.rows} × {self.cols}"


@dataclass
class Shape:
    width: int
    br: int
    bc: int
    threads: int
    thread: dict  # {matrix: ThreadTile}

    warps = property(lambda s: s.threads // WARP)
    tiles = property(lambda s: f"{s.br} × {s.bc}")


FORWARD = {
    64: Shape(64, 128, 64, 128, {"S": ThreadTile(8, 8, 8, 4, 1), "O": ThreadTile(8, 8, 8, 4, 4)}),
    128: Shape(128, 128, 128, 256, {"S": ThreadTile(8, 8, 16, 4, 1), "O": ThreadTile(8, 8, 16, 4, 4)}),
}
BACKWARD = {
    64: Shape(64, 64, 128, 256, {"S": ThreadTile(8, 8, 16, 4, 1), "dK": ThreadTile(8, 8, 8, 4, 4), "dQ": ThreadTile(4, 4, 8, 1, 4)}),
    128: Shape(128, 64, 64, 256, {"S": ThreadTile(4, 8, 8, 2, 1), "dK": ThreadTile(8, 8, 16, 4, 4), "dQ": ThreadTile(4, 8, 8, 1, 4)}),
}


def visited(p, br, bc):
    """[K tiles that a Q tile visits] of one head."""
    nq, nk = p["seq_q"], p["seq_k"]
    found = []
    for i in range(0, nq, br):
        end = min(i + br, nq)
        keys = min(nk, max(0, end + nk - nq)) if p["causal"] else nk
        found.append(-(-keys // bc))
    return found
