"""The picture of docs/08_hopper_backward.md of what a block does when, from the stamps of an SM's clock that hopper_stamps.py reads."""

from .hopper_stamps import CONSUMERS, LOOP, PRODUCTS, SAVED, Stamps
from .lanes import LEFT, RIGHT, TEXT, Lanes

HEAD = 24  # what stands above the lanes of a warpgroup
NAMES = {"S": "Sᵀ", "dP": "dPᵀ"}
COLOURS = {"dV": "c4", "dK": "c4"}  # as in order_08b(): the left operand in registers
# What the warps do up to an event: the colour and the names of work; for the others, the names of what they wait for
WORKS = {"P": ("c1", "exponentials", "exp"), "dS": ("c1", "dSᵀ"), "stored": ("c3", "stores dQ", "dQ")}
WAITS = {"barrier": ("the other's dSᵀ", "dSᵀ"), "issued": ("issue of dQ", "issue")}


class Drawing(Lanes):
    """Two visits of the middle, over one axis of clocks."""

    def __init__(self, stamps):
        self.stamps, self.clock = stamps, stamps.clock
        visit = stamps.visits[(len(stamps.visits) - 1) // 2]
        first = min(self.clock[who][visit]["start"] for who in CONSUMERS)
        self.last = max(self.clock[who][visit + 1]["dK"] for who in CONSUMERS)
        title = f"Step 3 on an {SAVED['device']}, two tiles of queries: products in flight, by the clock of the SM"
        super().__init__(title, first, self.last, row=26, high=20)

    def warpgroup(self, who):
        visits = [(visit, self.clock[who][visit]) for visit in self.stamps.visits]
        self.p.label(LEFT - 12, self.y + 15, who, TEXT, "end", bold=True)
        for visit, at in visits:
            x = self.x(at["start"])
            if LEFT <= x < RIGHT - 60:
                self.p.line(x, self.y, x, self.y + HEAD + (len(PRODUCTS) + 2) * self.row - 3)
                self.p.note(x + 6, self.y + 15, f"tile {visit}", size=TEXT, anchor="start")
        self.y += HEAD
        for product, (issued, there) in PRODUCTS.items():
            name, colour = NAMES.get(product, product), COLOURS.get(product, "c2")
            self.lane(name, [(at[issued], at[there], colour, f"{name}: {at[there] - at[issued]:,}", name) for _, at in visits])
        phases = [(at[before], at[event], event) for _, at in visits for before, event in zip(LOOP, LOOP[1:])]
        self.lane("its warps work", [(of, to, *WORKS[event]) for of, to, event in phases if event in WORKS])
        waits = [(of, to, "c0", *WAITS.get(event, [NAMES.get(event, event)])) for of, to, event in phases if event not in WORKS]
        self.lane("they wait for", waits)
        self.y += 8

    def loads(self):
        """Moments: a mark, and the tile to the right of it."""
        y = self.y
        self.lane("producer loads Q, dO")
        for visit, at in self.clock["producer"].items():
            x = self.x(at["empty"])
            if LEFT <= x < RIGHT - 60:
                self.p.rect(x, y, 4, self.high, "c1")
                self.p.label(x + 9, y + 15, f"tile {visit}", TEXT, "start")

    def adder(self):
        visits = [(visit, at) for visit, at in self.clock["adder"].items() if len(at) == 2]
        self.lane("adder sends dQ", [(at["full_dQ"], at["read"], "c3", f"tile {visit}", "dQ") for visit, at in visits])

    def axis(self, unit, clocks):
        """Round numbers, ten at most."""
        end = (self.last - self.first) / clocks
        step = next(size for power in range(9) for size in (10**power, 2 * 10**power, 5 * 10**power) if end <= 10 * size)
        self.p.note(LEFT - 12, self.y + 15, unit, size=TEXT, anchor="end")
        for value in range(0, int(end) + 1, step):
            x = self.x(self.first + value * clocks)
            self.p.line(x, self.y - 3, x, self.y + 2)
            self.p.note(min(x, RIGHT - 2), self.y + 15, f"{value:,}", size=TEXT)
        self.y += self.row


def stamps_08b():
    stamps = Stamps(SAVED["stamps"])
    it = Drawing(stamps)
    for who in CONSUMERS:
        it.warpgroup(who)
    it.lane("any product", [(of, to, "c2", "in flight") for of, to in stamps.any_in_flight()])
    it.loads()
    it.adder()
    it.y += 4
    it.axis("clocks", 1)
    it.axis("nanoseconds", SAVED["clock_mhz"] / 1000)
    return it.finish(
        22,
        84,
        "A product begins where it is issued, and ends where its warps notice that it is there: it may have been complete before.",
        "Orange: both operands in shared memory. Purple: the left one in registers. Blue: arithmetic; marks where loads are issued.",
        "Green: dQ, stored once there is a place, then read by the TMA. Grey: waits. Numbers: clocks.",
    )


PICTURES = [stamps_08b]
