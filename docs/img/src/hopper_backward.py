"""The pictures of docs/chapters/08_hopper_backward.md: which products are in flight when, drawn from a trace of the simulator (FLASH_SIMT_TRACE),
and which SM works on which head when, from a model."""

import heapq

from .hopper_forward import events_of, stages_of
from .lanes import LEFT, Lanes

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
    A wait for products is named after those that it completes. Places count what is drawn; wgmmas of one product count once."""
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
            visit[warp] = visit.get(warp, -1) + (1 if product == "S" else 0)
            mine[product] = [at, event["product"], visit[warp]]
        elif what in ("wait", "wgmma wait", "sync"):
            text = {"wait": names.get(event.get("barrier"), ""), "wgmma wait": "", "sync": "dS"}[what]
            begun[warp] = at, text
        else:
            done = [p for p, (_, last, _) in mine.items() if what == "wgmma waited" and last < event["products"]]
            lane.append(("waits", begun[warp][0], at, begun[warp][1] or ", ".join(done)))
            for product in done:
                first, _, of_visit = mine.pop(product)
                lane.append((product, first, at, f"{product}, tile {of_visit}"))
        at += 1
    return lanes, at


def order_08b():
    """The first tile of queries, from the wait for it to the last wait for a product of it."""
    lanes, _ = lanes_of(events_of("backward.jsonl", "backward_ring"))
    ends = {warp: next(last for _, _, last, text in bars if text == "dK, tile 0") for warp, bars in lanes.items()}
    begin = min(first for bars in lanes.values() for _, first, _, text in bars if text == "Q0")
    it = Lanes("Step 2, one tile of queries: waits of each warpgroup, and its products in flight", begin, max(ends.values()) + 1)
    for warp, bars in lanes.items():
        it.p.label(LEFT - 8, it.y + 19, f"warpgroup {warp // 4}", 17, "end", bold=True)
        it.y += it.row
        for kind in ["waits", *PRODUCTS]:
            colour = "c0" if kind == "waits" else kind.lower()
            shown = [bar for bar in bars if bar[0] == kind and bar[1] >= begin and bar[2] <= ends[warp]]
            it.lane(
                "waits for" if kind == "waits" else kind,
                [(first, last, colour, *([text] if kind == "waits" else [f"{kind} in flight", kind])) for _, first, last, text in shown],
                above=True,
            )
        it.y += 8
    return it.finish(
        "K and V have landed. Waits are for a tile of Q or dO to land, for the other warpgroup's dS, or for products to be complete. "
        "The left operand of S, dP and dQ is in shared memory, of dV and dK in registers. "
        "From left to right: the order of events in the simulator. Lengths are not times."
    )


SMS, HEADS, KEY_TILES, SEEN = 132, 8, 32, 256  # 32 query heads share 8 of keys; 4,096 keys in tiles of 128; visits of the first tile


def blocks_of(at_once):
    """[(SM, begin, end, head)] of blocks that start in index order, each on the SM that is free first. A block takes 3 units to start and 1 for
    each tile of 64 queries that it visits."""
    order = [
        (first + h, tile) for first in range(0, HEADS, at_once) for tile in range(KEY_TILES) for h in range(min(at_once, HEADS - first))
    ]
    free, blocks = [(0, sm) for sm in range(SMS)], []
    for head, tile in order:
        begin, sm = heapq.heappop(free)
        end = begin + 3 + SEEN - SEEN // KEY_TILES * tile
        blocks.append((sm, begin, end, head))
        heapq.heappush(free, (end, sm))
    return blocks


def heads_at_once_08b():
    """Every thirteenth SM: 13 shares no factor with 4 and 6, so that all heads are there."""
    all_blocks, high = {at_once: blocks_of(at_once) for at_once in (1, 4, 6)}, 15
    last = max(end for blocks in all_blocks.values() for _, _, end, _ in blocks)
    it = Lanes("Which key head each SM works on, causal mask", 0, last, left=12)
    for at_once, blocks in all_blocks.items():
        end = max(block[2] for block in blocks)
        busy = sum(block[2] - block[1] for block in blocks) / (SMS * end)
        it.p.label(12, it.y + 16, f"{at_once} at a time: SMs are {busy:.0%} busy", 18, "start", bold=True)
        it.y += 28
        for sm, begin, stop, head in blocks:
            if sm % 13 == 0:
                wide = it.x(stop) - it.x(begin)
                it.p.box(it.x(begin), it.y + high * (sm // 13), wide, high, f"c{1 + head % 4}", f"{head}" if wide > 30 else "", 15)
        it.p.line(it.x(end), it.y - 4, it.x(end), it.y + 11 * high + 4, "strong")
        it.y += 11 * high + 18
    return it.finish(
        "A model. A row is every thirteenth of 132 SMs, a bar a block, the number its head; time runs to the right, a line marks the end."
    )


PICTURES = [order_08b, heads_at_once_08b]
