"""The pictures of docs/08_hopper_forward.md: who issues what when in a block, drawn from a trace of the simulator (FLASH_SIMT_TRACE)."""

import json

from .saved import RESULTS
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


PICTURES = [ring_08h, step_08h]


def of_step_4():
    """As a picture on the page."""
    return "![What the block of step 4 does, from the simulator's trace](img/step_08h.svg)"
