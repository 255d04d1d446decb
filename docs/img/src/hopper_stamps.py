"""What a block of step 4 of chapter 08B does when, from the clock of an SM.

docs/results/nvidia_h200/hopper_stamps.csv has what threads of block 1,000 of `bulk`, of B=4 H=16 N=4096 d=128 fp16, read from clock64() at
places of its loop, in a copy of the step at 9418b26 that was not kept: a line for each warpgroup (lane 0 of its first warp), the producer
and the adder in a visit, that is a tile of queries. Clocks count from the first load of the block."""

import csv

from tools.saved import RESULTS

from .lanes import LEFT, RIGHT, TEXT, Lanes

DEVICE, CLOCK_MHZ = "NVIDIA H200", 1550
CONSUMERS = ["warpgroup 0", "warpgroup 1"]
# Of a visit, in the order of the code. Most are the ends of waits; "P" and "dS" have been computed, dQ has been "issued" and "stored".
LOOP = ["start", "Q", "dO", "S", "P", "dP", "dS", "barrier", "issued", "dQ", "stored", "dK"]
# Where each product is issued, and where its warps notice that it is there
PRODUCTS = {"S": ("Q", "S"), "dP": ("dO", "dP"), "dV": ("dS", "dQ"), "dQ": ("barrier", "dQ"), "dK": ("issued", "dK")}

HEAD = 24  # what stands above the lanes of a warpgroup
NAMES = {"S": "Sᵀ", "dP": "dPᵀ"}
COLOURS = {"dV": "c4", "dK": "c4"}  # as in order_08b(): the left operand in registers
# What the warps do up to an event: the colour and the names of work; for the others, the names of what they wait for
WORKS = {"P": ("c1", "exponentials", "exp"), "dS": ("c1", "dSᵀ"), "stored": ("c3", "stores dQ", "dQ")}
WAITS = {"barrier": ("the other's dSᵀ", "dSᵀ"), "issued": ("issue of dQ", "issue")}


def stamps():
    """{who: {visit: {event: clock}}}"""
    found = {}
    with open(RESULTS / "nvidia_h200" / "hopper_stamps.csv", newline="") as file:
        for row in csv.DictReader(file):
            at = {event: int(clock) for event, clock in row.items() if clock and event not in ("who", "visit")}
            found.setdefault(row["who"], {})[int(row["visit"])] = at
    return found


def any_in_flight(clock):
    """[[from, to]]: when either warpgroup has a product in flight."""
    visits = [at for who in CONSUMERS for at in clock[who].values()]
    merged = []
    for begin, end in sorted((at[issued], at[there]) for at in visits for issued, there in PRODUCTS.values()):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


class Drawing(Lanes):
    """Two visits of the middle, over one axis of clocks."""

    def __init__(self, clock):
        self.clock = clock
        visit = (len(clock[CONSUMERS[0]]) - 1) // 2
        first = min(self.clock[who][visit]["start"] for who in CONSUMERS)
        self.last = max(self.clock[who][visit + 1]["dK"] for who in CONSUMERS)
        title = f"bulk on an {DEVICE}, two tiles of queries: products in flight, by the clock of the SM"
        super().__init__(title, first, self.last, row=26, high=20)

    def warpgroup(self, who):
        visits = [(visit, self.clock[who][visit]) for visit in self.clock[who]]
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
    clock = stamps()
    it = Drawing(clock)
    for who in CONSUMERS:
        it.warpgroup(who)
    it.lane("any product", [(of, to, "c2", "in flight") for of, to in any_in_flight(clock)])
    it.loads()
    it.adder()
    it.y += 4
    it.axis("cycles", 1)
    it.axis("nanoseconds", CLOCK_MHZ / 1000)
    return it.finish(
        22,
        84,
        "A product begins where it is issued, and ends where its warps notice that it is there: it may have been complete before.",
        "The number in a bar is its cycles. dQ in the line of work is its store to shared memory, as soon as there is a place;",
        "the TMA then reads it (adder). The mark of the producer is the issue of a load.",
    )


PICTURES = [stamps_08b]
