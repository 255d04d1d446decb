"""The pictures of 06_fa2_forward/more/hyperbolic.md: a distance on the hyperboloid; two values, their mean and their centroid."""

from math import asinh, cosh, hypot, sinh

from docs.tools.svg import Picture

LEFT, RIGHT = -0.5, 2.0  # arguments of sinh: positions along the sheet, so that their difference is the distance
UNIT, ORIGIN, BASE = 88, 150, 424  # pixels per unit, and where the origin is


def at(x, t):
    return ORIGIN + UNIT * x, BASE - UNIT * t


def curve(p, start, end, kind):
    """The sheet between two positions along it."""
    steps = 48
    points = [at(sinh(s), cosh(s)) for s in (start + (end - start) * n / steps for n in range(steps + 1))]
    for (x1, y1), (x2, y2) in zip(points, points[1:], strict=False):
        p.line(x1, y1, x2, y2, kind)


def octagon(cx, cy, r):
    near = 0.414 * r
    return [(cx + a, cy + b) for a, b in [(r, near), (near, r), (-near, r), (-r, near), (-r, -near), (-near, -r), (near, -r), (r, -near)]]


def centroid():
    """The mean of two points leaves the sheet. Straight down it returns too far to the right, towards the origin in the middle."""
    p = Picture(720, "Two points on the hyperboloid: the mean of both lies above the sheet; scaled towards the origin it is their midpoint")
    p.label(360, 28, "Two values with weights of ½, and two ways back to the sheet", 18, bold=True)
    p.arrow(*at(-1.55, 0), *at(5.0, 0))
    p.arrow(*at(0, -0.12), *at(0, 3.95))
    p.note(ORIGIN + UNIT * 4.6, BASE + 22, "space: what is stored")
    p.note(ORIGIN - 10, 88, "time", anchor="end")

    curve(p, -1.05, LEFT, "line")
    curve(p, LEFT, RIGHT, "strong")
    curve(p, RIGHT, 2.05, "line")
    (x1, t1), (x2, t2) = (sinh(LEFT), cosh(LEFT)), (sinh(RIGHT), cosh(RIGHT))
    p.line(*at(x1, t1), *at(x2, t2))
    ox, ot = (x1 + x2) / 2, (t1 + t2) / 2
    norm = ((ot - ox) * (ot + ox)) ** 0.5
    yx, yt = ox / norm, ot / norm
    p.line(*at(0, 0), *at(yx, yt), "thin")
    p.arrow(*at(ox, ot), *at(yx + 0.05 * (ox - yx), yt + 0.05 * (ot - yt)))
    lifted = hypot(1, ox)
    p.arrow(*at(ox, ot), *at(ox, lifted + 0.05))

    for x, t, kind in [(x1, t1, "v"), (x2, t2, "v"), (ox, ot, "c0"), (yx, yt, "o"), (ox, lifted, "hit")]:
        p.polygon(octagon(*at(x, t), 7), kind)
    middle, shifted = asinh(yx), asinh(ox)
    p.label(*at(x1 - 0.1, t1 - 0.18), "v₁", 17, "end", bold=True)
    p.label(*at(x2 - 0.14, t2 + 0.02), "v₂", 17, "end", bold=True)
    ax, ay = at(ox, ot)
    p.label(ax - 14, ay - 26, "o = ½ v₁", 17, "end")
    p.label(ax - 14, ay - 4, "+ ½ v₂", 17, "end")
    bx, by = at(yx, yt)
    p.label(bx + 14, by + 20, "centroid y = o / n", 17, "start", bold=True)
    p.note(bx + 14, by + 42, f"{middle - LEFT:.2f} along the sheet from v₁, {RIGHT - middle:.2f} from v₂", anchor="start")
    cx, cy = at(ox, lifted)
    p.label(cx + 16, cy + 14, "mean of what is stored", 17, "start", bold=True)
    p.note(cx + 16, cy + 36, f"{shifted - LEFT:.2f} from v₁, {RIGHT - shifted:.2f} from v₂", anchor="start")
    p.note(*at(2.98, 2.75), "the sheet: time = √(1 + |space|²)", anchor="start")
    return p


def hyperboloid():
    """The smallest example: q = (0) and k = (1), with their time components and the distance along the sheet."""
    p = Picture(640, "The rows q = 0 and k = 1 as points of the hyperboloid, and their distance along it")
    unit, origin, base = 150, 250, 262

    def place(s):
        return origin + unit * sinh(s), base - unit * cosh(s)

    def sheet(start, end, kind):
        points = [place(start + (end - start) * n / 32) for n in range(33)]
        for one, other in zip(points, points[1:], strict=False):
            p.line(*one, *other, kind)

    far = asinh(1)
    p.arrow(origin - 230, base, origin + 330, base)
    p.arrow(origin, base + 12, origin, 24)
    p.note(origin + 310, base + 22, "space: the row")
    p.note(origin - 10, 36, "time", anchor="end")
    sheet(-1.05, 0, "line")
    sheet(0, far, "strong")
    sheet(far, 1.1, "line")
    (qx, qy), (kx, ky) = place(0), place(far)
    p.line(kx, ky, kx, base, "thin")
    for x, y, kind in [(qx, qy, "q"), (kx, ky, "k")]:
        p.polygon(octagon(x, y, 7), kind)
    p.label(qx - 12, qy + 22, "q = (0)", 17, "end", bold=True)
    p.note(qx - 12, qy + 42, "q₀ = 1", anchor="end")
    p.label(kx + 16, ky + 14, "k = (1)", 17, "start", bold=True)
    p.note(kx + 8, (ky + base) / 2 + 20, "k₀ = √2", anchor="start")
    p.note(qx + 32, qy + 22, "distance 0.881", "(Lorentz metric)", anchor="start")
    return p


PICTURES = [hyperboloid, centroid]
