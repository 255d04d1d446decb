"""The picture of docs/chapters/08_hopper_backward.md: which products are in flight when, drawn from a trace of the simulator (FLASH_SIMT_TRACE)."""

from .hopper_forward import events_of, stages_of
from .lanes import Lanes

PRODUCTS = ["S", "dP", "dV", "dQ", "dK"]
REGISTERS = -1  # in place of an address in shared memory


def product_of(event, stages):
    """Which of the five a wgmma belongs to, by its operands."""
    left, right = (next((s.name.rstrip("0123456789") for s in stages if s.has(event[side])), None) for side in "ab")
    if event["a"] == REGISTERS:
        return {"dO": "dV", "Q": "dK"}[right]
    return {"K": "S", "V": "dP", None: "dQ"}[left]  # dS is stored, not loaded


def lanes_of(events):
    """{warp: [(kind, first, last, text)]} of the first warp of each warpgroup: waits, and products from their issue to the end of the wait for them.
    Places count what is drawn; wgmmas of one product count once."""
    stages = stages_of([e for e in events if e["event"] != "load" or "tensor" in e])
    lanes, begun, flying, visit, at = {}, {}, {}, {}, 0
    names = {s.full: s.name for s in stages}
    consumers = {e["warp"] // 4 * 4 for e in events if e["event"] == "wgmma"}
    for event in events:
        warp, what = event["warp"] // 4 * 4, event["event"]
        waits = what in ("wait", "waited", "wgmma wait", "wgmma waited", "sync", "synced") and event["warp"] == warp
        if warp not in consumers or not (waits or what == "wgmma"):  # a wgmma is of the warp that came last
            continue
        lane, mine = lanes.setdefault(warp, []), flying.setdefault(warp, {})
        if what == "wgmma":
            product = product_of(event, stages)
            if product in mine:
                mine[product][1] = event["product"]
                continue
            visit[warp] = visit.get(warp, -1) + (product == "S")
            mine[product] = [at, event["product"], visit[warp]]
        elif what in ("wait", "wgmma wait", "sync"):
            text = {"wait": names.get(event.get("barrier"), ""), "wgmma wait": "products", "sync": "dS of all"}[what]
            begun[warp] = at, text
        else:
            lane.append(("waits", begun[warp][0], at, begun[warp][1]))
            if what == "wgmma waited":
                for product in [p for p, (_, last, _) in mine.items() if last < event["products"]]:
                    first, _, of_visit = mine.pop(product)
                    lane.append((product, first, at, f"{product}, tile {of_visit}"))
        at += 1
    return lanes, at


def order_08b():
    lanes, end = lanes_of(events_of("backward.jsonl", "backward_ring"))
    it = Lanes("Step 2, two tiles of queries: what each warpgroup waits for, and which of its five products are in flight", 0, end)
    for warp, bars in lanes.items():
        for kind in ["waits", *PRODUCTS]:
            colour = {"waits": "c0", "dV": "c4", "dK": "c4"}.get(kind, "c2")
            name = f"warpgroup {warp // 4}, waits" if kind == "waits" else kind
            it.lane(name, [(first, last, colour, text) for of_kind, first, last, text in bars if of_kind == kind])
        it.y += 14
    return it.finish(
        14,
        68,
        "Waits are for a tile, for products, or for what the other warpgroup stores.",
        "S, dP, dQ: both operands in shared memory. dV, dK: the left one in registers.",
        "From left to right the order in which the simulator came to each event; widths are no times.",
    )


PICTURES = [order_08b]
