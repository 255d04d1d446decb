"""What a block of step 4 of chapter 08B does when, from the clock of an SM.

docs/results/nvidia_h200/hopper_stamps.csv has what threads of block 1,000 of `bulk`, of B=4 H=16 N=4096 d=128 fp16, read from clock64() at
places of its loop, in a copy of the step at 9418b26 that was not kept: a line for each warpgroup (lane 0 of its first warp), the producer
and the adder in a visit, that is a tile of queries. Clocks count from the first load of the block."""

import csv

from docs.tools.saved import RESULTS

from .lanes import LEFT, TEXT, Lanes

DEVICE = "NVIDIA H200"
CONSUMERS = ["warpgroup 0", "warpgroup 1"]
# Of a visit, in the order of the code. Most are the ends of waits; "P" and "dS" have been computed, dQ has been "issued" and "stored".
LOOP = ["start", "Q", "dO", "S", "P", "dP", "dS", "barrier", "issued", "dQ", "stored", "dK"]
# Where each product is issued, and where its warps notice that it is there
PRODUCTS = {"S": ("Q", "S"), "dP": ("dO", "dP"), "dV": ("dS", "dQ"), "dQ": ("barrier", "dQ"), "dK": ("issued", "dK")}

HEAD = 28  # what stands above the lanes of a warpgroup
NAMES = {"S": "Sᵀ", "dP": "dPᵀ"}
# What the warps do up to an event: the colour and the names of work; for the others, the names of what they wait for
WORKS = {"P": ("p", "exponentials", "exp"), "dS": ("ds", "dSᵀ"), "stored": ("dq", "dQ")}
WAITS = {"barrier": ("dSᵀ",), "issued": ("issue",)}


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
    """A visit of the middle."""

    def __init__(self, clock):
        self.clock = clock
        visit = (len(clock[CONSUMERS[0]]) - 1) // 2
        first = min(self.clock[who][visit]["start"] for who in CONSUMERS)
        last = max(self.clock[who][visit]["dK"] for who in CONSUMERS)
        title = f"bulk on an {DEVICE}: products in flight"
        super().__init__(title, first, last, row=30, high=24, width=580, omitted=("c0",))
        self.cycles = last - first

    def warpgroup(self, who):
        visits = [(visit, self.clock[who][visit]) for visit in self.clock[who]]
        self.p.label(LEFT - 8, self.y + 18, who, TEXT, "end", bold=True)
        for visit, at in visits:
            x = self.x(at["start"])
            if LEFT <= x < self.right - 60:
                self.p.line(x, self.y, x, self.y + HEAD + (len(PRODUCTS) + 2) * self.row - 3)
                self.p.note(x + 6, self.y + 18, f"tile {visit}", size=TEXT, anchor="start")
        self.y += HEAD
        for product, (issued, there) in PRODUCTS.items():
            name, colour = NAMES.get(product, product), product.lower()
            self.lane(name, [(at[issued], at[there], colour, f"{name}: {at[there] - at[issued]:,}", name) for _, at in visits])
        phases = [(at[before], at[event], event) for _, at in visits for before, event in zip(LOOP, LOOP[1:])]
        self.lane("warps work", [(of, to, *WORKS[event]) for of, to, event in phases if event in WORKS])
        waits = [(of, to, "c0", *WAITS.get(event, [NAMES.get(event, event)])) for of, to, event in phases if event not in WORKS]
        self.lane("they wait for", waits)
        self.y += 8

    def axis(self):
        for cycles in range(0, self.cycles + 1, 1000):
            x = self.x(self.first + cycles)
            self.p.line(x, self.y - 3, x, self.y + 2)
            self.p.note(x, self.y + 17, f"{cycles:,}", size=TEXT)
        self.p.note(LEFT - 30, self.y + 17, "cycles", size=TEXT, anchor="end")
        self.y += self.row


def stamps_08b():
    clock = stamps()
    it = Drawing(clock)
    for who in CONSUMERS:
        it.warpgroup(who)
    it.lane("any product", [(of, to, "c0", "in flight") for of, to in any_in_flight(clock)])
    it.y += 4
    it.axis()
    return it.finish(
        "A product begins where it is issued, and ends where its warps notice that it is there: it may have been complete before. "
        "The number in a bar is its cycles; short waits are left out. dQ of the warps' work is stored to shared memory, as soon as there is a place."
    )


PICTURES = [stamps_08b]
