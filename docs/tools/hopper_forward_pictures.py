"""The pictures of docs/08_hopper_forward.md: who issues what when in a block, drawn from a trace of the simulator (FLASH_SIMT_TRACE)."""

import json

from .saved import NOTHING_SAVED, RESULTS
from .svg import Picture

TRACES = RESULTS / "cpu" / "traces"
WIDTH, LEFT, ROW = 960, 164, 30  # of a picture; where time begins; the height of a lane
TEXT = 14  # so that it stays legible where a page is narrower


def events_of(file, kernel):
    """The events of the first launch of a kernel."""
    found = None
    for line in (TRACES / file).read_text().splitlines()[1:]:
        event = json.loads(line)
        if "kernel" in event:
            if found:
                break
            found = [] if event["kernel"] == kernel else None
        elif found is not None:
            found.append(event)
    if not found:
        raise SystemExit(f"docs/results/cpu/traces/{file} has no events of a kernel '{kernel}'; run docs/save_results.sh")
    return found


class Stage:
    """A tile of shared memory that loads fill: the mbarrier that says it is full, and the one that says it is empty, if there is one."""

    def __init__(self, full, empty, name, begin, bytes_of_box):
        self.full, self.empty, self.name, self.begin, self.end = full, empty, name, begin, begin + bytes_of_box

    def has(self, place):
        return self.begin <= place < self.end


def stages_of(events):
    """By what their loads and waits say. A producer waits for the empty mbarrier of a stage and then expects bytes in its full one."""
    stages, waited = {}, {}
    for event in events:
        warp = event["warp"]
        if event["event"] == "waited":
            waited[warp] = event["barrier"]
        elif event["event"] == "load":
            full, begin, size = event["barrier"], event["to"], event["bytes"]
            if full in stages:
                stages[full].begin, stages[full].end = min(stages[full].begin, begin), max(stages[full].end, begin + size)
            else:
                name = event.get("tensor", "?")
                number = sum(stage.name.startswith(name) for stage in stages.values())
                stages[full] = Stage(full, waited.pop(warp, None), f"{name}{number}", begin, size)
    alone = [stage for stage in stages.values() if sum(other.name[:-1] == stage.name[:-1] for other in stages.values()) == 1]
    for stage in alone:
        stage.name = stage.name[:-1]
    tensors = list(dict.fromkeys(stage.name.rstrip("0123456789") for stage in stages.values()))
    return sorted(stages.values(), key=lambda stage: (tensors.index(stage.name.rstrip("0123456789")), stage.name))


class Timeline:
    """Places of events: each that is drawn is a step to the right. Of a warpgroup its first warp is drawn, for the others."""

    def __init__(self, events, producer, most=100):
        shown = [e for e in events if e["warp"] == producer or e["warp"] % 4 == 0 or e["event"] in ("landed", "phase ends")]
        self.events = [e for e in shown if e["event"] not in ("mbarrier", "syncthreads", "commit", "landed", "setmaxnreg")][:most]
        self.step = (WIDTH - LEFT - 20) / len(self.events)

    def x(self, at):
        return LEFT + at * self.step

    def of_warp(self, warp):
        return [(at, e) for at, e in enumerate(self.events) if e["warp"] == warp]

    def phase_ends(self, barrier, phase):
        """Where it ends; the end of the picture if it does not."""
        same = [at for at, e in enumerate(self.events) if e["event"] == "phase ends" and (e["barrier"], e["phase"]) == (barrier, phase)]
        return same[0] if same else len(self.events)


def bar(p, line, y, first, last, kind, text, high=ROW - 8):
    """From one event to another; the text only where there is room."""
    wide = line.x(last) - line.x(first)
    p.rect(line.x(first), y, wide, high, kind)
    if wide > 5.6 * len(text) + 10:
        p.label(line.x(first) + wide / 2, y + high / 2 + 5, text, TEXT)


def waits(p, line, y, warp, names):
    """Grey: from the wait for a phase, or for products, to its end."""
    begun = None
    for at, event in line.of_warp(warp):
        if event["event"] in ("wait", "wgmma wait"):
            begun = at, names.get(event["barrier"], "") if event["event"] == "wait" else "products"
        elif event["event"] in ("waited", "wgmma waited") and begun:
            bar(p, line, y, begun[0], at, "c0", begun[1])
            begun = None
    if begun:
        bar(p, line, y, begun[0], len(line.events), "c0", begun[1])


def groups_of(line, warp, stages):
    """Products that follow each other with the same operands: where the first is issued, and where a wait for the last one ends."""
    groups = []
    for at, event in line.of_warp(warp):
        if event["event"] == "wgmma":
            operands = [next((s.name for s in stages if s.has(event[side])), "P") for side in "ab"]
            if groups and groups[-1]["end"] is None and groups[-1]["text"] == "·".join(operands):
                groups[-1]["last"] = event["product"]
            else:
                groups.append({"at": at, "last": event["product"], "text": "·".join(operands), "end": None, "left": operands[0]})
        elif event["event"] == "wgmma waited":
            for group in groups:
                if group["end"] is None and group["last"] < event["products"]:
                    group["end"] = at
    return groups


def loads(p, line, y, producer, stages):
    """Too short for their names, which stand above them."""
    for stage in stages:
        phases = {e["phase"]: at for at, e in reversed(line.of_warp(producer)) if e["event"] == "load" and e["barrier"] == stage.full}
        for at in phases.values():
            p.rect(line.x(at), y, max(line.step - 2, 3), ROW - 8, "c1")
            p.label(line.x(at) + line.step / 2, y - 6, stage.name, TEXT)


def life(p, line, y, stage, producer):
    """Of a stage: filled, full, and given back, phase by phase."""
    begun = {}
    for at, event in line.of_warp(producer):
        if event["event"] == "load" and event["barrier"] == stage.full:
            begun.setdefault(event["phase"], at)
    for phase, at in begun.items():
        full = line.phase_ends(stage.full, phase)
        given_back = len(line.events) if stage.empty is None else line.phase_ends(stage.empty, phase)
        bar(p, line, y, at, full, "c1", f"filled, {phase}")
        bar(p, line, y, full, given_back, "c3", f"full, phase {phase}")


def timeline(file, kernel, title):
    """Lanes of the producer and the warpgroups; below them the stages."""
    events = events_of(file, kernel)
    stages = stages_of(events)
    producer = next(e["warp"] for e in events if e["event"] == "load")
    line = Timeline(events, producer)
    products = {warp: groups_of(line, warp, stages) for warp in sorted({e["warp"] // 4 * 4 for e in events if e["event"] == "wgmma"})}
    kinds = [(warp, left) for warp in products for left in dict.fromkeys(group["left"] for group in products[warp])]
    names = {s.full: s.name for s in stages} | {s.empty: s.name for s in stages}
    lanes = 1 + len(products) + len(kinds) + len(stages)
    p = Picture(WIDTH, 148 + lanes * ROW + 10 * len(products), title)
    p.label(WIDTH / 2, 28, title, 15, bold=True)
    y = 68

    def lane(name):
        p.note(LEFT - 12, y + 16, name, size=TEXT, anchor="end")
        p.line(LEFT, y + ROW - 4, WIDTH - 20, y + ROW - 4, "thin")

    lane(f"producer, warp {producer}")
    waits(p, line, y, producer, names)
    loads(p, line, y, producer, stages)
    y += ROW + 10
    for warp, groups in products.items():
        lane(f"warpgroup {warp // 4}, threads")
        waits(p, line, y, warp, names)
        y += ROW
        for left in [left for of_warp, left in kinds if of_warp == warp]:
            lane(f"products of {left}")
            for group in groups:
                if group["left"] == left:
                    bar(p, line, y, group["at"], group["end"] or len(line.events), "c4" if left == "P" else "c2", group["text"])
            y += ROW
        y += 10
    for stage in stages:
        lane(f"shared memory, {stage.name}")
        life(p, line, y, stage, producer)
        y += ROW
    p.note(
        WIDTH / 2,
        y + 22,
        "Grey: a wait for the mbarrier of that tile, or for products. Blue: loads, issued above and in flight below. Green: a full tile.",
        "From left to right the order in which the simulator came to each event; widths are no times.",
        size=TEXT,
    )
    return p


def ring_08h():
    return timeline("ring.jsonl", "ring", "Three tiles of K through a ring of two: who issues what, and what each stage holds")


def step_08h():
    return timeline(
        "overlap.jsonl", "tensor_overlap", "Step 4: S of the next tile is issued before P V of this one; two warpgroups, rings of two"
    )


def overlap_08h():
    """Schemes, with products twice as long as the exponentials: d = 128."""
    p = Picture(
        WIDTH, 440, "Two warpgroups tied by a barrier; two that drift apart; one that has products in flight while it exponentiates"
    )
    unit = 64
    kinds = {"S": "c2", "PV": "c3", "softmax": "c1", "wait": "c0"}
    schemes = [
        (
            "Step 2: a barrier for each tile. Both multiply, then both exponentiate",
            {
                "warpgroup 0": [("S", 0, 4, "S"), ("softmax", 4, 8, "softmax"), ("PV", 8, 12, "PV")],
                "warpgroup 1": [("S", 0, 4, "S"), ("softmax", 4, 8, "softmax"), ("PV", 8, 12, "PV")],
                "tensor cores": [("S", 0, 4, "busy"), ("wait", 4, 8, "idle"), ("PV", 8, 12, "busy")],
            },
        ),
        (
            "Step 3: roles. One exponentiates while the other multiplies",
            {
                "warpgroup 0": [
                    ("S", 0, 2, "S"),
                    ("softmax", 2, 4, "softmax"),
                    ("PV", 4, 6, "PV"),
                    ("wait", 6, 8, "waits"),
                    ("S", 8, 10, "S"),
                ],
                "warpgroup 1": [
                    ("wait", 0, 2, "waits"),
                    ("S", 2, 4, "S"),
                    ("softmax", 4, 6, "softmax"),
                    ("PV", 6, 8, "PV"),
                    ("wait", 8, 10, "waits"),
                ],
                "tensor cores": [
                    ("S", 0, 2, "S of 0"),
                    ("S", 2, 4, "S of 1"),
                    ("PV", 4, 6, "PV of 0"),
                    ("PV", 6, 8, "PV of 1"),
                    ("S", 8, 10, "S of 0"),
                ],
            },
        ),
        (
            "Step 4: overlap, one warpgroup alone. Its own products run beside its softmax",
            {
                "threads": [(kind, 2 * i, 2 * i + 2, text) for i, (kind, text) in enumerate(SOFTMAX_BESIDE)],
                "products in flight": [(kind, 2 * i, 2 * i + 2, text) for i, (kind, text) in enumerate(PRODUCTS_BESIDE)],
            },
        ),
    ]
    y = 34
    for title, lanes in schemes:
        p.label(LEFT, y, title, 15, "start", bold=True)
        y += 14
        for name, parts in lanes.items():
            p.note(LEFT - 12, y + 17, name, size=TEXT, anchor="end")
            for kind, first, last, text in parts:
                p.box(LEFT + first * unit, y, (last - first) * unit - 2, 24, kinds[kind], text, TEXT)
            y += 32
        y += 32
    p.note(
        WIDTH / 2,
        y,
        "To scale for d = 128 if nothing but products and exponentials took time: the other latencies are what the steps have to hide.",
        size=TEXT,
    )
    return p


def operands_08h():
    """How the depth of a product walks through a tile, and which warp has which rows of the result; d = 128, tiles of 64 keys."""
    p = Picture(980, 370, "K-major: along the rows, panel by panel; MN-major: down the rows; the accumulators of a warpgroup")
    top, panel, gap = 84, 128, 10  # a panel of 64 rows and 64 columns

    def head(x, title, *lines):
        p.label(x, 28, title, 15, bold=True)
        p.note(x, 48, *lines, size=TEXT)

    left = 26
    head(left + panel + gap / 2, "Q or K in S = Q Kᵀ: K-major", "16 of d are 32 bytes of each row")
    for half in range(2):
        x = left + half * (panel + gap)
        for step in range(4):
            p.rect(x + step * panel / 4, top, panel / 4, panel, "c1" if (half, step) == (0, 1) else "c0")
            p.label(x + (step + 0.5) * panel / 4, top + panel / 2 + 5, f"{4 * half + step}", TEXT)
        p.note(x + panel / 2, top + panel + 18, f"panel {half}", size=TEXT)
    p.arrow(left + 6, top + panel + 36, left + 2 * panel + gap - 6, top + panel + 36)
    p.note(left + panel + gap / 2, top + panel + 58, "+ 32 bytes; from step 3 to 4 a panel on", size=TEXT)

    left = 356
    head(left + panel + gap / 2, "V in O = P V: MN-major", "16 keys are 16 rows of 128 bytes")
    for half in range(2):
        x = left + half * (panel + gap)
        for step in range(4):
            p.rect(x, top + step * panel / 4, panel, panel / 4, "c1" if step == 1 else "c0")
            p.label(x + panel / 2, top + (step + 0.5) * panel / 4 + 5, f"{step}", TEXT)
        p.note(x + panel / 2, top + panel + 18, f"panel {half}", size=TEXT)
    p.arrow(left - 14, top + 4, left - 14, top + panel - 4)
    p.note(left + panel + gap / 2, top + panel + 40, "+ 2,048 bytes a step", "leading offset: from panel to panel", size=TEXT)

    left, wide = 692, 250
    head(left + wide / 2, "S or O: accumulators", "64 rows, 16 for each warp")
    for warp in range(4):
        y = top + warp * panel / 4
        p.rect(left, y, wide, panel / 4, ["c3", "c2", "c4", "c0"][warp])
        p.note(left - 8, y + 20, f"w{warp}", size=TEXT, anchor="end")
    for tile in range(1, 8):
        p.line(left + tile * wide / 8, top, left + tile * wide / 8, top + panel, "thin")
    for y in (2, 10):
        p.rect(left + 2 * wide / 8 + wide / 32, top + panel / 4 + y * panel / 64, wide / 32, panel / 64 + 1, "c1")
    p.note(left + wide / 2, top + panel + 18, "tiles of 8 columns: registers 4i to 4i + 3", size=TEXT)
    p.note(
        left + wide / 2,
        top + panel + 40,
        "blue: the four numbers of a lane in tile 2,",
        "two columns of rows g and g + 8 of its warp",
        size=TEXT,
    )
    p.note(
        490,
        top + panel + 104,
        "Blue strips: what step 1 of a product reads. The swizzle within rows is left out: hardware undoes it.",
        "Both panels of V belong to one product: its N is d = 128, and step 1 reads 16 rows of both.",
        size=TEXT,
    )
    return p


PRODUCTS_BESIDE = [
    ("S", "S of tile 1"),
    ("PV", "PV of tile 0"),
    ("S", "S of tile 2"),
    ("PV", "PV of tile 1"),
    ("S", "S of tile 3"),
    ("PV", "PV of 2"),
]
SOFTMAX_BESIDE = [("wait", "waits"), ("softmax", "softmax of tile 1"), ("wait", "waits"), ("softmax", "softmax of tile 2")]
SOFTMAX_BESIDE += [("wait", "waits"), ("softmax", "softmax of tile 3")]

PICTURES = [ring_08h, overlap_08h, operands_08h]
if (TRACES / "overlap.jsonl").exists():
    PICTURES.append(step_08h)


def of_step_4():
    """As a picture on the page, where it is saved."""
    return "![What the block of step 4 does, from the simulator's trace](img/step_08h.svg)" if step_08h in PICTURES else NOTHING_SAVED
