"""The pictures of docs/chapters/08h_instruments.md and 08_hopper_forward.md that are drawn from traces: who issues what when in a block (FLASH_SIMT_TRACE of the
simulator)."""

import json

from docs.tools.saved import RESULTS

from .lanes import Lanes

TRACES = RESULTS / "cpu" / "traces"


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
        self.ring = 1  # stages of the same tensor

    tensor = property(lambda self: self.name.rstrip("0123456789"))

    def tile(self, phase):
        """The tile that it holds in a phase. Tiles of a tensor are numbered in the order of their loads."""
        return self.name if self.ring == 1 else f"{self.tensor}{phase * self.ring + int(self.name[len(self.tensor) :])}"

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
            full, begin, size, name = event["barrier"], event["to"], event["bytes"], event.get("tensor", "?")
            if stage := stages.get((full, name)):  # two tensors may share a full mbarrier
                stage.begin, stage.end = min(stage.begin, begin), max(stage.end, begin + size)
            else:
                number = sum(stage.name.startswith(name) for stage in stages.values())
                stages[full, name] = Stage(full, waited.pop(warp, None), f"{name}{number}", begin, size)
    for stage in stages.values():
        stage.ring = sum(other.tensor == stage.tensor for other in stages.values())
    for stage in stages.values():
        stage.name = stage.tensor if stage.ring == 1 else stage.name
    tensors = list(dict.fromkeys(stage.tensor for stage in stages.values()))
    return sorted(stages.values(), key=lambda stage: (tensors.index(stage.tensor), stage.name))


class Timeline:
    """Places of events: each that is drawn is a step to the right. Of a warpgroup its first warp is drawn, for the others."""

    def __init__(self, events, producer):
        shown = [e for e in events if e["warp"] == producer or e["warp"] % 4 == 0 or e["event"] == "phase ends"]
        self.events = [e for e in shown if e["event"] not in ("mbarrier", "syncthreads", "commit", "landed", "setmaxnreg")][:100]

    def of_warp(self, warp):
        return [(at, e) for at, e in enumerate(self.events) if e["warp"] == warp]

    def phase_ends(self, barrier, phase):
        """Where it ends; the end of the picture if it does not."""
        same = [at for at, e in enumerate(self.events) if e["event"] == "phase ends" and (e["barrier"], e["phase"]) == (barrier, phase)]
        return same[0] if same else len(self.events)

    def phase_at(self, stage, place):
        """The last phase in which it was filled before a place."""
        return sum(e["event"] == "phase ends" and e["barrier"] == stage.full for e in self.events[:place]) - 1


def waits(line, warp, stages):
    """From the wait for a phase, or for products, to its end."""
    full, empty = {s.full: s for s in stages}, {s.empty: s for s in stages}

    def awaited(event):
        if event["event"] == "wgmma wait":
            return ["products"]
        barrier, phase = event["barrier"], event["phase"]
        if barrier in full:
            return [full[barrier].tile(phase)]
        if barrier not in empty or phase < 0:
            return []
        tile = empty[barrier].tile(phase)
        return [f"waits until {tile} is read", f"until {tile} is read", f"{tile} read?"]

    begun = None
    for at, event in [*line.of_warp(warp), (len(line.events), {"event": "waited"})]:
        if event["event"] in ("wait", "wgmma wait"):
            begun = at, awaited(event)
        elif event["event"] in ("waited", "wgmma waited") and begun:
            yield begun[0], at, "c0", *begun[1]
            begun = None


def groups_of(line, warp, stages):
    """Products that follow each other with the same operands: where the first is issued, and where a wait for the last one ends."""
    groups = []
    for at, event in line.of_warp(warp):
        if event["event"] == "wgmma":
            operands = [next((s.tile(line.phase_at(s, at)) for s in stages if s.has(event[side])), "P") for side in "ab"]
            if groups and groups[-1]["end"] is None and groups[-1]["text"] == "·".join(operands):
                groups[-1]["last"] = event["product"]
            else:
                groups.append({"at": at, "last": event["product"], "text": "·".join(operands), "end": None, "left": operands[0]})
        elif event["event"] == "wgmma waited":
            for group in groups:
                if group["end"] is None and group["last"] < event["products"]:
                    group["end"] = at
    return groups


def loads(it, line, y, producer, stages):
    """Too short for their names, which stand above them, in two rows where one has no room."""
    beyond = [0, 0]
    marks = ((at, s.tile(phase), s.tensor.lower()) for s in stages for phase, at in phases_of(line, s, producer).items())
    for at, name, kind in sorted(marks):
        wide, half = max(it.scale - 2, 4), 6 * len(name)
        x = it.x(at) + wide / 2
        upper = x - half < beyond[0]
        beyond[upper] = x + half
        it.p.line(x, y - 3 - 18 * upper, x, y)
        it.p.rect(it.x(at), y, wide, it.high, kind)
        it.p.label(x, y - 6 - 18 * upper, name, 16)


def phases_of(line, stage, producer):
    """{phase of a stage: where its first load is issued}"""
    begun = {}
    for at, event in line.of_warp(producer):
        if event["event"] == "load" and event["barrier"] == stage.full:
            begun.setdefault(event["phase"], at)
    return begun


def life(line, stage, producer):
    """Of a stage: filled, full, and given back, phase by phase."""
    for phase, at in phases_of(line, stage, producer).items():
        full = line.phase_ends(stage.full, phase)
        given_back = len(line.events) if stage.empty is None else line.phase_ends(stage.empty, phase)
        kind, tile = stage.tensor.lower(), stage.tile(phase)
        yield at, full, "c0", f"{tile} in flight", "in flight", tile
        yield full, given_back, kind, f"{tile} is full, phase {phase}", f"{tile} is full", tile


def timeline(file, kernel, title, note, above=False, **size):
    """Lanes of the producer and the warpgroups; below them the stages. above: waits that return at once are left out, and names of narrow
    bars stand above them."""
    events = events_of(file, kernel)
    stages = stages_of(events)
    producer = next(e["warp"] for e in events if e["event"] == "load")
    line = Timeline(events, producer)
    end = len(line.events)
    it = Lanes(title, 0, end, **size)
    it.y += 18 if above else 36
    it.lane("producer", [wait for wait in waits(line, producer, stages) if wait[3:] or not above])
    loads(it, line, it.y - it.row, producer, stages)
    it.y += 26 if above else 10
    for warp in sorted({e["warp"] // 4 * 4 for e in events if e["event"] == "wgmma"}):
        groups = groups_of(line, warp, stages)
        it.lane(f"group {warp // 4} waits", waits(line, warp, stages), above=above)
        for left in dict.fromkeys(group["left"] for group in groups):
            kind = "o" if left == "P" else "s"
            it.lane(f"products of {left}", [(g["at"], g["end"] or end, kind, g["text"]) for g in groups if g["left"] == left])
        it.y += 10
    for stage in stages:
        name = stage.name if stage.ring == 1 else f"{stage.tensor}, stage {stage.name[len(stage.tensor) :]}"
        it.lane(name, life(line, stage, producer))
    return it.finish(note + " From left to right the order in which the simulator came to each event; widths are not times.")


def ring_08h():
    return timeline(
        "ring.jsonl",
        "ring",
        "Three tiles of K through a ring of two: who issues what, and what each stage holds",
        "Marks of the producer: the issue of a load. Only outlined: waits for the tile they name or for products, and tiles in flight.",
        above=True,
    )


def step_08h():
    return timeline(
        "overlap.jsonl",
        "tensor_overlap",
        "S of the next tile is issued before PV of this one",
        "Marks of the producer: the issue of a load. Only outlined: waits for what they name, and tiles in flight. "
        "What is too short for its name is left out.",
        width=560,
        omitted=("c0", "s"),
    )


PICTURES = [ring_08h, step_08h]
