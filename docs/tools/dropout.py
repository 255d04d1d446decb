"""Of docs/dropout.md: what random numbers for each score would cost beside tensor cores."""

from .formatting import tabled
from .shapes import WARP
from .tensor_bounds import EXAMPLE, Needs, needs

PER_ROUND = 4  # two multiplications of 32 bits to 64, two exclusive ors of three numbers; keys are the same for all threads
TO_DROP = 2  # to compare a number with the threshold, and to take 0 in place of the weight
# What is drawn: rounds of Philox, and the scores that the 128 bits of a call serve.
DRAWS = [("nothing", 0, 1), ("a byte for each score, 7 rounds", 7, 16), ("a word for each score, 10 rounds", 10, 4)]


def per_score(rounds, scores):
    return rounds * PER_ROUND / scores + (TO_DROP if rounds else 0)


@tabled("d | drawn | instructions more for each score | others beside each product | TFLOP/s, at most")
def cost():
    """(8.0)  For the tiles of the last forward step."""
    for width in (64, 128):
        plain = needs("tuned", width)
        for what, rounds, scores in DRAWS:
            more = per_score(rounds, scores)
            n = Needs(plain.products, plain.softmax + more * EXAMPLE[0] * EXAMPLE[1] / WARP, plain.ex2, plain.shared_bytes)
            yield [width, what, f"{more:.3g}", f"{n.beside:.2g}", f"{n.tflops():.0f}"]


def mask(n="4096", heads="32", batch="4"):
    """How much memory a stored mask takes."""
    bits = int(n) ** 2 * int(heads) * int(batch)
    return f"For $`B = {batch}`$, $`H = {heads}`$, $`N = {n}`$ that is {bits / 8 / 2**20:,.0f} MiB at one bit for each score."
