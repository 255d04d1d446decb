"""Of docs/08_hopper_backward.md: how long each phase of step 3 takes by the clock of an SM. The picture is in hopper_stamps_pictures.py.

docs/results/nvidia_h200/hopper_stamps.json has device, step, commit, date, problem, the number of the block, clock_mhz, and stamps.
A stamp is what a thread of a copy of the step read from clock64() when it came to a place of its loop:
  who    "warpgroup 0" or "warpgroup 1": lane 0 of its first warp; "producer", "adder"
  visit  the number of the tile of queries, from 0
  event  the place: for warpgroups of LOOP; "empty" for the producer; "full_dQ", "read" for the adder
  clock  of the SM, from the first load of the block on
"""

from statistics import mean

from rows import describe

from .formatting import table, tabled
from .hopper_backward import TILES, clocks_of_products, through_shared
from .hopper_forward import SHARED_BYTES, TENSOR_FLOPS
from .saved import origin, said

SAVED = said("nvidia_h200", "hopper_stamps.json")
TILE = next(tile for tile in TILES if tile[0] == SAVED["problem"]["head_dim"])  # d, queries and keys
CONSUMERS = ["warpgroup 0", "warpgroup 1"]
# Of a visit, in the order of the code. Most are the ends of waits; "P" and "dS" have been computed, dQ has been "issued" and "stored".
LOOP = ["start", "Q", "dO", "S", "P", "dP", "dS", "barrier", "issued", "dQ", "stored", "dK"]
# Where each product is issued, and where its warps notice that it is there
PRODUCTS = {"S": ("Q", "S"), "dP": ("dO", "dP"), "dV": ("dS", "dQ"), "dQ": ("barrier", "dQ"), "dK": ("issued", "dK")}
# What the warps do up to an event
PHASES = {
    "Q": "wait for $`Q`$",
    "dO": "issue $`S^T`$, wait for $`dO`$",
    "S": "issue $`dP^T`$, wait for $`S^T`$",
    "P": "exponentials",
    "dP": "wait for $`dP^T`$",
    "dS": "compute, pack and store $`dS^T`$",
    "barrier": "issue $`dV`$, wait for the other warpgroup's $`dS^T`$",
    "issued": "issue $`dQ`$",
    "dQ": "issue $`dK`$, wait for $`dV`$ and $`dQ`$",
    "stored": "store $`dQ`$, once there is a place",
    "dK": "wait for $`dK`$",
    "start": "on to the next visit",
}
# A visit in fewer parts: the events that end their phases, and the products that are in flight
PARTS = [
    ("first part, with the exponentials", ["dO", "S", "P", "dP"], ["S", "dP"]),
    ("gap: compute, pack and store $`dS^T`$", ["dS"], []),
    ("second part, from the issue of $`dV`$ to the end of $`dK`$", ["barrier", "issued", "dQ", "stored", "dK"], ["dV", "dQ", "dK"]),
    ("gap: from the end of $`dK`$ to the issue of the next $`S^T`$", ["start", "Q"], []),
]
FORMULAS = {name: f"$`{name}^T`$" if name in ("S", "dP") else f"$`{name}`$" for name in PRODUCTS}


class Stamps:
    """clock[who][visit][event]. Its visits are those of which both consumers have all stamps."""

    def __init__(self, stamps):
        self.clock = {}
        for stamp in stamps:
            self.clock.setdefault(stamp["who"], {}).setdefault(stamp["visit"], {})[stamp["event"]] = stamp["clock"]
        whole = ({visit for visit, at in self.clock[who].items() if len(at) == len(LOOP)} for who in CONSUMERS)
        self.visits = sorted(set.intersection(*whole))

    def steady(self):
        """Without the first, for which nothing was loaded ahead, and the last, which no other follows."""
        return self.visits[1:-1]

    def phases(self, who):
        """{event: mean clocks up to it, over the steady visits}; "start" is that of the next visit."""
        visits = [self.clock[who][visit] for visit in self.steady()]
        means = {event: mean(at[event] - at[before] for at in visits) for before, event in zip(LOOP, LOOP[1:])}
        to_next = (self.clock[who][visit + 1]["start"] - self.clock[who][visit]["dK"] for visit in self.steady())
        return means | {"start": mean(to_next)}

    def any_in_flight(self):
        """[[from, to]]: when either warpgroup has a product in flight."""
        visits = [self.clock[who][visit] for who in CONSUMERS for visit in self.visits]
        merged = []
        for begin, end in sorted((at[issued], at[there]) for at in visits for issued, there in PRODUCTS.values()):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return merged

    def share_in_flight(self):
        """Of the time in which both are in steady visits."""
        first, last = self.steady()[0], self.steady()[-1]
        begin = max(self.clock[who][first]["start"] for who in CONSUMERS)
        end = min(self.clock[who][last + 1]["start"] for who in CONSUMERS)
        return sum(max(0, min(to, end) - max(of, begin)) for of, to in self.any_in_flight()) / (end - begin)


def in_flight(event):
    """The products that a warpgroup has in flight from the event before to this one."""
    at = LOOP.index(event)
    return [name for name, (issued, there) in PRODUCTS.items() if LOOP.index(issued) < at <= LOOP.index(there)]


def of_phases(stamps):
    """A line for each phase and one for the visit; and the mean of a visit."""
    means = [stamps.phases(who) for who in CONSUMERS]
    visit = sum(sum(of_one.values()) for of_one in means) / len(means)

    def line(words, products, clocks):
        return [words, products, *(f"{of_one:,.0f}" for of_one in clocks), f"{sum(clocks) / len(clocks) / visit:.2f}"]

    lines = []
    for event, words in PHASES.items():
        products = ", ".join(FORMULAS[name] for name in in_flight(event))
        lines.append(line(words, products or "–", [of_one[event] for of_one in means]))
    lines.append(line("**a visit**", "", [sum(of_one.values()) for of_one in means]))
    return table(["the warps", "in flight", *(f"{who}, clocks" for who in CONSUMERS), "of a visit"], lines), visit


def of_units(stamps, visit):
    """What the units of the SM need at least, beside what a visit takes."""
    products, shared, mhz = clocks_of_products(*TILE), through_shared(*TILE, in_bulk=True) / SHARED_BYTES, SAVED["clock_mhz"]
    return (
        f"At {TENSOR_FLOPS:,} FLOPs a clock the five products of a visit, for {TILE[1]} queries and {TILE[2]} keys, take {products:,.0f} clocks, a "
        f"warpgroup's part of one of them {products / len(PRODUCTS) / len(CONSUMERS):,.0f}; what passes through shared memory takes "
        f"{shared:,.0f}, by the table of section 2. A visit takes {visit:,.0f}, or {visit / mhz * 1000:,.0f} ns at {mhz:,.0f} MHz. "
        f"So on average the tensor cores work at {products / visit:.2f} of their full rate, and shared memory is busy for "
        f"{shared / visit:.2f} of the time or more. At least one product, of either warpgroup, counts as in flight for {stamps.share_in_flight():.2f} of the time."
    )


def of_step_3():
    """The picture, the phases of a visit, and what the units of the SM need."""
    stamps = Stamps(SAVED["stamps"])
    phases, visit = of_phases(stamps)
    steady, usual = stamps.steady(), {"kv_heads": SAVED["problem"]["heads"], "seq_k": SAVED["problem"]["seq_q"]}
    which = f"`{SAVED['step']}`, {describe(usual | SAVED['problem'])}, block {SAVED['block']:,}"
    return "\n\n".join(
        [
            "![Products in flight by the clock of an SM, and what the warps do meanwhile](img/stamps_08b.svg)",
            f"{SAVED['device']}, {which}, means of the visits {steady[0]} to {steady[-1]}:",
            phases,
            of_units(stamps, visit),
            "By stamps of the first warp of each warpgroup, in a copy of the step that was not kept; the stamps themselves take some clocks. "
            + origin([SAVED]),
        ]
    )


@tabled("of a visit | a warpgroup has in flight | clocks | of both warpgroups' products at the full rate")
def of_parts():
    """A visit in four parts: the mean clocks of both warpgroups, beside those of their products at the full rate."""
    stamps = Stamps(SAVED["stamps"])
    means = [stamps.phases(who) for who in CONSUMERS]
    of_product = clocks_of_products(*TILE) / len(PRODUCTS)
    for words, events, products in PARTS:
        clocks = sum(of_one[event] for of_one in means for event in events) / len(means)
        at_full_rate = f"{len(products) * of_product:,.0f}" if products else "–"
        yield [words, ", ".join(FORMULAS[name] for name in products) or "nothing", f"{clocks:,.0f}", at_full_rate]
