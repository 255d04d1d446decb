"""The loops that copy while they compute, of chapters 06b to 08: what threads do, and what is in flight meanwhile, in the order of the code."""

from docs.tools.quotes import source
from docs.tools.svg import Picture

TEXT, BARRIER = 17, "__syncthreads()"


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
        ("cp_async_wait<0>()", 46, "c0", "wait"),
        (BARRIER, 14, "bar", ""),
        ("load_async<Shape, Shape::Bc>(V_smem", 54, "v", "issue"),
        ("add_product(S,", 126, "s", "S = Q Kᵀ"),
        ("update_max(", 76, "s", "softmax"),
        ("cp_async_wait<0>()", 46, "c0", "wait"),
        (BARRIER, 14, "bar", ""),
        ("load_async<Shape, Shape::Bc>(K_smem", 54, "k", "issue"),
        ("P_smem(row, col) = p", 62, "p", "P"),
        ("add_product(O,", 126, "o", "O += P V"),
    ]
    in_order("06_fa2_forward/3_async_copies.cuh", "for (int key0 = 0;", [call for call, *_ in loop])
    p, y, x = (
        Picture(
            720, "Step 3: what a block computes and what it copies, in the order of the code", "Step 3: one iteration of the loop over keys"
        ),
        58,
        94,
    )
    for below, name in [(30, "threads"), (102, "copy of K"), (140, "copy of V")]:
        p.label(x - 8, y + below, name, TEXT, "end")
    at, barriers = [], 0
    for call, wide, kind, text in loop:
        at.append(x)
        p.box(x, y, wide - 3, 48, kind, text, TEXT)
        if call == BARRIER:
            barriers += 1
            p.label(x + 5.5, y + 70, str(barriers), TEXT, bold=True)
        x += wide
    p.box(at[0], y + 82, at[1] - at[0] - 3, 30, "k", "Kⱼ", TEXT)
    p.box(at[7], y + 82, x - 3 - at[7], 30, "k", "Kⱼ₊₁ until the next wait", TEXT)
    p.box(at[2], y + 120, at[6] - 3 - at[2], 30, "v", "Vⱼ in flight", TEXT)
    p.caption(
        "Bars 1 and 2 are __syncthreads(). Each product runs while the next operand is in flight. Colours: the matrix that is "
        "computed or copied. Widths are not to scale."
    )
    return p


def pipeline_07():
    loop = [  # (call, width, colours and texts of half 0 and half 1)
        ("cp_async_wait<0>()", 44, "c0 wait", "c0 wait"),
        (BARRIER, 13, "", ""),
        ("add_product(S_or_dP,", 104, "s S = Q Kᵀ", "dp dP = dO Vᵀ"),
        ("store_P(", 42, "p P", "c0 idle"),
        (BARRIER, 13, "", ""),
        ("store_dS(", 42, "c0 idle", "ds dS"),
        (BARRIER, 13, "", ""),
        ("add_product(gradient,", 110, "dv dV += Pᵀ dO", "dk dK += dSᵀ Q"),
        (BARRIER, 13, "", ""),
        ("load_queries<Shape>(", 50, "q issue", "q issue"),
        ("add_product(dQ,", 92, "dq dQ = dS K", "dq dQ = dS K"),
        ("add_atomically(", 90, "dq add dQ", "dq add dQ"),
    ]
    in_order("07_fa2_backward/3_one_kernel.cuh", "for (int query0 = first_query", [call for call, *_ in loop])
    p, y, x = (
        Picture(
            720,
            "Step 3: what the halves of a block compute, and what is copied, in the order of the code",
            "Step 3: one iteration of the loop over queries",
        ),
        58,
        82,
    )
    for below, name in [(29, "half 0"), (81, "half 1"), (152, "Q, dO")]:
        p.label(x - 8, y + below, name, 16, "end")
    at, barriers = [], 0
    for call, wide, *halves in loop:
        at.append(x)
        if call == BARRIER:
            barriers += 1
            p.rect(x, y, wide - 3, 100, "bar")
            p.label(x + wide / 2 - 1, y + 122, str(barriers), TEXT, bold=True)
        else:
            parts = [half.split(" ", 1) for half in halves]
            both = parts[0] == parts[1]
            for n, (kind, text) in enumerate(parts[:1] if both else parts):
                p.box(x, y + 52 * n, wide - 3, 100 if both else 48, kind, text, 15.5 if len(text) > 9 else 16)
        x += wide
    p.box(at[0], y + 134, at[1] - at[0] - 3, 30, "q", "tile", 16)
    p.box(at[9], y + 134, x - 3 - at[9], 30, "q", "the next tile in flight", TEXT)
    p.caption(
        "Bars 1 to 4 are __syncthreads(). Up to barrier 4 the loop is that of step 2's dk_dv_kernel. dQ is new in step 3, added to HBM: "
        "its product reads only dS and K, so the next tile of queries may already be in flight. Widths are not to scale."
    )
    return p


def pipeline_08():
    """Two iterations of step 3, and what each of the two buffers holds meanwhile."""
    loop = [
        ("cp_async_wait_all()", 17, "c0", "1"),
        (BARRIER, 17, "hit", "2"),
        ("load_tile(", 17, "k", "3"),
        ("add_product(S,", 68, "s", "S"),
        ("update_max(", 62, "p", "m, P"),
        ("store(P_rows", 36, "c0", "P"),
        ("add_product(O,", 72, "o", "O"),
    ]
    in_order("08_tensor_cores/forward/3_pipeline.cuh", "for (int j = 0; j < visible_tiles", [call for call, *_ in loop])
    p, gap, left = (
        Picture(
            720,
            "Double buffering: what a block computes and what it copies, in the order of the code of step 3",
            "Step 3: two iterations of the loop over keys",
        ),
        2,
        90,
    )
    for y, text in [(113, "threads"), (179, "buffer 0"), (221, "buffer 1")]:
        p.label(left - 10, y, text, TEXT, "end")
    whole = sum(wide + gap for _, wide, *_ in loop) + 6
    for n, title in enumerate(["iteration j", "iteration j + 1"]):
        x = left + n * whole
        p.label(x + whole / 2, 70, title, TEXT)
        for _, wide, kind, text in loop:
            p.box(x, 82, wide, 48, kind, text, TEXT)
            x += wide + gap
    waited, issued, reading, end = (sum(wide + gap for _, wide, *_ in loop[:n]) for n in (1, 2, 3, len(loop)))
    for y, first, last, used, text in [
        (158, reading, end, True, "tile j: read"),
        (158, whole + issued, whole + end, False, "tile j + 2: in flight"),
        (200, issued, whole + waited, False, "tile j + 1: in flight"),
        (200, whole + reading, whole + end, True, "tile j + 1: read"),
    ]:
        wide = last - first - gap
        for n, kind in enumerate("kv"):
            p.rect(left + first + 14 * n, y, 14, 30, kind)
        p.box(left + first + 28, y, wide - 28, 30, "smem" if used else "c0", text, TEXT)
    p.caption(
        "1: wait until the tile of this iteration has landed. 2: __syncthreads(), the only one per iteration. 3: prefetch the next tile. "
        "S = Q Kᵀ, then m, P and ℓ, P is stored, O += P V. A buffer holds a tile of K and one of V. Widths are not to scale."
    )
    return p


def halves_08():
    """Three iterations of the backward loop: half 0 one tile of queries ahead of half 1."""
    calls = [
        "cp_async_wait_all()",
        BARRIER,
        "load_queries<",
        "add_oldest_to_dQ(",
        "add_product(St_or_dPt,",
        "recompute_P(",
        "add_product(gradient,",
    ]
    in_order("08_tensor_cores/backward/4_staggered.cuh", "for (int iteration = 0;", [*calls, "add_oldest_to_dQ("])
    p, left, column, high = (
        Picture(
            720, "The backward pass: two halves of a block, one tile of queries apart", "Half 0 is one tile of queries ahead of half 1"
        ),
        76,
        210,
        56,
    )
    for y, name in [(100, "half 0"), (204, "half 1"), (271, "Q, dO"), (310, "P, dS")]:
        p.label(left - 14, y, name, TEXT, "end")
    tiles = ["i−2", "i−1", "i", "i+1", "i+2", "i+3"]
    places = {}  # of tile i: the left edge of each box
    for n in range(3):
        oldest, previous, now, following = tiles[n : n + 4]
        x0 = left + n * (column + 4)
        p.rect(x0 - 9, 60, 6, 184, "bar")
        for y, parts in [
            (66, [("S", now), ("P", now), ("dV", now), ("dQ", oldest)]),
            (170, [("dQ", oldest), ("dP", previous), ("dS", previous), ("dK", previous)]),
        ]:
            x = x0
            for what, tile in parts:
                p.rect(x, y, 48, high, what.lower())
                if tile == "i" and what in ("S", "P", "dS", "dQ"):
                    p.rect(x + 1, y + 1, 46, high - 2, "strong")
                    places[what, y] = x + 24
                p.label(x + 24, y + 23, what, 18)
                p.label(x + 24, y + 46, tile, TEXT)
                x += 50
        for at, kind in enumerate(("q", "do")):
            p.rect(x0 + 14 * at, 252, 14, 28, kind)
        p.box(x0 + 28, 252, 168, 28, "c0", f"tile {following} in flight", TEXT)
        p.rect(x0, 286, 196, 48, "c0")
        p.label(x0 + 98, 306, f"write P {now}, dS {previous}", 16)
        p.label(x0 + 98, 327, f"read P {previous}, dS {oldest}", 16)
    p.arrow(places["P", 66], 124, places["dS", 170] - 4, 168)
    p.arrow(places["dS", 170] + 4, 168, places["dQ", 66], 124)
    p.caption(
        "Three iterations. Framed: tile i, from S to dQ in three iterations; all warps share dQ. P and dS are no products; the other half "
        "multiplies meanwhile. The bar is a barrier, the only one of an iteration. Shared memory holds three tiles of Q, of dO, and of P or dS."
    )
    return p


PICTURES = [pipeline_06, pipeline_07, pipeline_08, halves_08]
