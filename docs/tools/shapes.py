"""The compiled kernels of stages with tile sizes, as their programs list them, and what follows from that: who holds what, and banks."""

import json
from dataclasses import dataclass

from .saved import RESULTS

WARP = 32
SHARED_BYTES = {75: 64 * 1024, 80: 163 * 1024, 90: 227 * 1024}  # dynamic shared memory of a block, at most


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
    variant: str
    width: int
    br: int
    bc: int
    threads: int
    shared_bytes: int
    why: str
    thread: dict  # {matrix: ThreadTile}

    warps = property(lambda s: s.threads // WARP)
    tiles = property(lambda s: f"{s.br} × {s.bc}")
    kib = property(lambda s: f"{s.shared_bytes / 1024:.0f} KiB")

    @property
    def fits(self):
        """On which GPUs."""
        return ", ".join(f"sm_{sm}" for sm, available in SHARED_BYTES.items() if self.shared_bytes <= available)


def variants(stage):
    """{name: what the program says of it}, in the order of the steps."""
    return {v["name"]: v for v in json.loads((RESULTS / "cpu" / "programs" / f"{stage}.json").read_text())["variants"]}


def shapes(stage, variant, direction):
    """For each width the default of large problems first."""
    listed = variants(stage).get(variant)
    if listed is None:
        raise SystemExit(f"docs/results/cpu/programs/{stage}.json does not list '{variant}'; run docs/save_results.sh")
    return [
        Shape(variant, width, **{**choice, "thread": {name: ThreadTile(**tile) for name, tile in (choice.get("thread") or {}).items()}})
        for tiles in listed["tiles"]
        if tiles["pass"] == direction
        for width in tiles["head_dims"]
        for choice in tiles["choices"]
    ]


def shape_of(stage, variant, direction, width, tiles=None):
    """The default of a width, or the one with these tiles ({"br", "bc"})."""
    for shape in shapes(stage, variant, direction):
        if shape.width == width and tiles in (None, {"br": shape.br, "bc": shape.bc}):
            return shape
    raise SystemExit(f"{stage}, {variant}: no kernel of width {width} with tiles {tiles}")


def wavefronts(first_word, words):
    """Of one warp-wide access of `words` words a lane: lanes are served in groups of 32 / words; each group takes as many wavefronts as its
    fullest bank has different words."""
    group = WARP // words
    return sum(
        fullest_bank(first_word(lane) + word for lane in range(first, first + group) for word in range(words))
        for first in range(0, WARP, group)
    )


def fullest_bank(words):
    """How many different words it has of those that are asked for at once."""
    banks = [set() for _ in range(32)]
    for word in words:
        banks[word % 32].add(word)
    return max(map(len, banks))


def visited(p, br, bc):
    """[K tiles that a Q tile visits] of one head."""
    nq, nk = p["seq_q"], p["seq_k"]
    found = []
    for i in range(0, nq, br):
        end = min(i + br, nq)
        keys = min(nk, max(0, end + nk - nq)) if p["causal"] else nk
        found.append(-(-keys // bc))
    return found
