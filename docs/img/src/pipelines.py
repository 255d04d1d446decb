"""The loops that copy while they compute, of chapters 06b to 08: what threads do, and what is in flight meanwhile, in the order of the code."""

from docs.tools.quotes import source
from docs.tools.svg import Picture

TEXT, BARRIER = 15, "__syncthreads()"


def in_order(path, loop, calls):
    """Refuses to draw an order that a kernel no longer has."""
    text = "\n".join(source(path))
    at = text.find(loop)
    for call in calls:
        at = text.find(call, at + 1) if at >= 0 else at
        if at < 0:
            raise SystemExit(f"docs/img/src/pipelines.py: the loop of {path} has no '{call}' at this place")


def pipeline_06():
    loop = [  # (call, width, colour, text)
        ("cp_async_wait<0>()", 58, "c0", "wait Kⱼ"),
        (BARRIER, 14, "c4", ""),
        ("load_async<Shape, Shape::Bc>(V_smem", 72, "c2", "issue Vⱼ"),
        ("add_product(S,", 184, "c1", "S = Q Kⱼᵀ"),
        ("update_max(", 92, "c1", "softmax"),
        ("cp_async_wait<0>()", 58, "c0", "wait Vⱼ"),
        (BARRIER, 14, "c4", ""),
        ("load_async<Shape, Shape::Bc>(K_smem", 84, "c2", "issue Kⱼ₊₁"),
        ("P_smem(row, col) = p", 74, "c1", "P stored"),
        ("add_product(O,", 184, "c1", "O += P Vⱼ"),
    ]
    in_order("06_fa2_forward/3_async_copies.cuh", "for (int key0 = 0;", [call for call, *_ in loop])
    p, y, x = Picture(960, 288, "Step 3: what a block computes and what it copies, in the order of the code"), 66, 102
    p.label(480, 30, "Step 3: one iteration of the loop over keys", 17, bold=True)
    for below, name in [(30, "threads"), (99, "copy of K"), (137, "copy of V")]:
        p.label(x - 10, y + below, name, TEXT, "end")
    at, barriers = [], 0
    for call, wide, kind, text in loop:
        at.append(x)
        p.box(x, y, wide - 3, 48, kind, text, TEXT if wide > 60 else 14)
        if call == BARRIER:
            barriers += 1
            p.label(x + 5.5, y + 66, str(barriers), TEXT, bold=True)
        x += wide
    p.box(at[0], y + 80, at[1] - at[0] - 3, 28, "c2", "Kⱼ", TEXT)
    p.box(at[7], y + 80, x - 3 - at[7], 28, "c2", "Kⱼ₊₁ in flight until the next iteration waits", TEXT)
    p.box(at[2], y + 118, at[6] - 3 - at[2], 28, "c2", "Vⱼ in flight", TEXT)
    p.note(
        480,
        248,
        "Bars 1 and 2 are __syncthreads(). Each product runs while the next operand is in flight.",
        "Widths are not to scale.",
        size=TEXT,
    )
    return p


def pipeline_07():
    loop = [  # (call, width, texts of half 0 and half 1)
        ("cp_async_wait<0>()", 46, "wait", "wait"),
        (BARRIER, 16, "", ""),
        ("add_product(S_or_dP,", 162, "S = Q Kᵀ", "dP = dO Vᵀ"),
        ("store_P(", 56, "P", "idle"),
        (BARRIER, 16, "", ""),
        ("store_dS(", 56, "idle", "dS"),
        (BARRIER, 16, "", ""),
        ("add_product(gradient,", 156, "dV += Pᵀ dO", "dK += dSᵀ Q"),
        (BARRIER, 16, "", ""),
        ("load_queries<Shape>(", 56, "issue", "issue"),
        ("add_product(dQ,", 114, "dQ = dS K", "dQ = dS K"),
        ("add_atomically(", 128, "add dQ to HBM", "add dQ to HBM"),
    ]
    in_order("07_fa2_backward/3_one_kernel.cuh", "for (int query0 = first_query", [call for call, *_ in loop])
    p, y, x = Picture(960, 324, "Step 3: what the halves of a block compute, and what is copied, in the order of the code"), 58, 110
    p.label(480, 30, "Step 3: one iteration of the loop over queries", 17, bold=True)
    for below, name in [(29, "half 0"), (81, "half 1"), (151, "Q, dO, L, D")]:
        p.label(x - 10, y + below, name, TEXT, "end")
    at, barriers = [], 0
    for call, wide, *halves in loop:
        at.append(x)
        if call == BARRIER:
            barriers += 1
            p.rect(x, y, wide - 3, 100, "c4")
            p.label(x + wide / 2 - 1, y + 118, str(barriers), TEXT, bold=True)
        elif halves[0] == halves[1]:
            p.box(x, y, wide - 3, 100, {"wait": "c0", "issue": "c2"}.get(halves[0], "c3"), halves[0], TEXT)
        else:
            for n, text in enumerate(halves):
                p.box(x, y + 52 * n, wide - 3, 48, "c0" if text == "idle" else "c1", text, TEXT)
        x += wide
    p.box(at[0], y + 132, at[1] - at[0] - 3, 28, "c2", "tile", TEXT)
    p.box(at[9], y + 132, x - 3 - at[9], 28, "c2", "the next tile in flight", TEXT)
    p.note(
        480,
        258,
        "Bars 1 to 4 are __syncthreads(). Widths are not to scale.",
        "Up to barrier 4 the loop is that of step 2's dk_dv_kernel. dQ is new in step 3: its product reads only dS and K,",
        "so the next tile of queries may already be in flight.",
        size=TEXT,
    )
    return p


def pipeline_08():
    """Two iterations of step 3, and what each of the two buffers holds meanwhile."""
    loop = [
        ("cp_async_wait_all()", 22, "c0", "1"),
        (BARRIER, 22, "c4", "2"),
        ("load_tile(", 22, "c2", "3"),
        ("add_product(S,", 92, "c1", "S = Q Kᵀ"),
        ("update_max(", 70, "c1", "m, P, ℓ"),
        ("store(P_rows", 74, "c0", "P stored"),
        ("add_product(O,", 92, "c1", "O += P V"),
    ]
    in_order("08_tensor_cores/forward/3_pipeline.cuh", "for (int j = 0; j < visible_tiles", [call for call, *_ in loop])
    p, gap, left = (
        Picture(960, 300, "Double buffering: what a block computes and what it copies, in the order of the code of step 3"),
        3,
        110,
    )
    p.label(480, 30, "Step 3: two iterations of the loop over keys", 17, bold=True)
    for y, text in [(109, "threads"), (173, "buffer 0"), (215, "buffer 1")]:
        p.label(left - 14, y, text, TEXT, "end")
    whole = sum(wide + gap for _, wide, *_ in loop) + 6
    for n, title in enumerate(["iteration j, tile j", "iteration j + 1, tile j + 1"]):
        x = left + n * whole
        p.label(x + whole / 2, 68, title, TEXT)
        for _, wide, kind, text in loop:
            p.box(x, 80, wide, 48, kind, text, TEXT)
            x += wide + gap
    waited, issued, reading, end = (sum(wide + gap for _, wide, *_ in loop[:n]) for n in (1, 2, 3, len(loop)))
    for y, first, last, kind, text in [
        (154, reading, end, "c3", "tile j: read"),
        (154, whole + issued, whole + end, "c2", "tile j + 2: in flight"),
        (196, issued, whole + waited, "c2", "tile j + 1: in flight"),
        (196, whole + reading, whole + end, "c3", "tile j + 1: read"),
    ]:
        p.box(left + first, y, last - first - gap, 28, kind, text, TEXT)
    p.note(
        480,
        256,
        "1: wait until the tile of this iteration has landed.   2: __syncthreads(), the only one per iteration.   3: prefetch the next tile.",
        "A buffer holds a tile of K and a tile of V. Widths are not to scale.",
        size=TEXT,
    )
    return p


def halves_08():
    """Three iterations of the backward loop: half 0 one tile of queries ahead of half 1."""
    calls = [
        "cp_async_wait_all()",
        BARRIER,
        "load_tile(",
        "add_oldest_to_dQ(",
        "add_product(scores,",
        "exponentiate(",
        "add_product(gradient,",
    ]
    in_order("08_tensor_cores/backward/3_staggered.cuh", "for (int iteration = 0;", [*calls, "add_oldest_to_dQ("])
    p, left, column, high = Picture(980, 408, "The backward pass: two halves of a block, one tile of queries apart"), 92, 292, 56
    p.label(490, 26, "Three iterations of the loop: half 0 is one tile of queries ahead of half 1", 17, bold=True)
    for y, name in [(100, "half 0"), (204, "half 1"), (267, "Q, dO"), (305, "P, dS")]:
        p.label(left - 18, y, name, TEXT, "end")
    colours = {"P": "c3", "dS": "c3", "dQ": "c2"}
    tiles = ["i−2", "i−1", "i", "i+1", "i+2", "i+3"]
    places = {}  # of tile i: the left edge of each box
    for n in range(3):
        oldest, previous, now, following = tiles[n : n + 4]
        x0 = left + n * (column + 6)
        p.label(x0 - 6, 54, "barrier", 13)
        p.rect(x0 - 10, 60, 8, 184, "c4")
        for y, parts in [
            (66, [("S", 74, now), ("P", 60, now), ("dV", 74, now), ("dQ", 74, oldest)]),
            (170, [("dQ", 74, oldest), ("dP", 74, previous), ("dS", 60, previous), ("dK", 74, previous)]),
        ]:
            x = x0
            for what, wide, tile in parts:
                p.rect(x, y, wide - 3, high, colours.get(what, "c1"))
                if tile == "i" and what in ("S", "P", "dS", "dQ"):
                    p.rect(x, y, wide - 3, high, "strong")
                    places[what, y] = x + wide / 2 - 2
                p.label(x + wide / 2 - 2, y + 24, what, 16)
                p.label(x + wide / 2 - 2, y + 45, tile, TEXT)
                x += wide
        p.box(x0, 250, column - 13, 28, "c0", f"tile {following} in flight", TEXT)
        p.box(x0, 286, column - 13, 48, "c0", "", TEXT)
        p.label(x0 + column / 2 - 6, 306, f"write P {now}, dS {previous}", TEXT)
        p.label(x0 + column / 2 - 6, 326, f"read P {previous}, dS {oldest}", TEXT)
    p.arrow(places["P", 66], 124, places["dS", 170] - 4, 168)
    p.arrow(places["dS", 170] + 4, 168, places["dQ", 66], 124)
    p.note(
        490,
        362,
        "Framed: tile i, from S to dQ in three iterations; all warps share dQ. Green: no product; the other half multiplies meanwhile.",
        "The barrier is the only one of an iteration. Shared memory holds three tiles of Q, of dO, and of P or dS.",
        size=14,
    )
    return p


PICTURES = [pipeline_06, pipeline_07, pipeline_08, halves_08]
