"""The formulas of chapter 09 on dropout, in plain Python and double precision. Exits with 1 if one is wrong."""

import random
import sys

from jacobians import compare, differences, dot, flat, matrix, product, softmax, transpose

MASK = 0xFFFFFFFF
ROUNDS = 10


def philox(counter, key):
    """Four words of 32 bits, from a counter of four and a key of two: Philox4x32-10."""
    c, (k0, k1) = list(counter), key
    for _ in range(ROUNDS):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ k0, right & MASK, left >> 32 ^ c[3] ^ k1, left & MASK]
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c


def factor(seed, head, i, j, p):
    """(9.11)  Of the pair (i, j): 0 with probability p, else 1 / (1 - p). Queries 2n and 2n + 1 share a call for keys 16 apart."""
    word = philox((j & ~16, i // 2, head, 0), (seed & MASK, seed >> 32))[2 * (i % 2) + j // 16 % 2]
    return 0.0 if word < p * 2**32 else 1.0 / (1.0 - p)


def tile(seed, head, rows, cols, p):
    return [[factor(seed, head, i, j, p) for j in cols] for i in rows]


def check_philox():
    """Of the known answers that the authors publish with Random123, all that belong to 4x32 with 10 rounds."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
    good = True
    for words, answer in [
        ((0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK,) * 6, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (pi, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ]:
        good &= tuple(philox(words[:4], words[4:])) == answer
    print(f"{'Philox4x32-10, the three known answers':<64} {'ok' if good else 'WRONG'}")
    return good


def check_mean():
    """The mean over many seeds is the output without dropout."""
    P, V = softmax([random.gauss(0, 1) for _ in range(8)]), matrix(8, 1)
    means, seeds, p = [0.0] * 8, 20000, 0.25
    for seed in range(seeds):
        for j, x in enumerate(tile(seed, 0, [5], range(8), p)[0]):
            means[j] += x / seeds
    return compare("(9.12) the mean over 20,000 seeds", [[dot(P, flat(V))]], [[dot([a * b for a, b in zip(P, means)], flat(V))]], 0.03)


def check_gradients():
    nq, nk, d, p, scale = 4, 6, 3, 0.3, 0.5
    Q, K, V, dO = matrix(nq, d), matrix(nk, d), matrix(nk, d), matrix(nq, d)
    Z = tile(2, 1, range(nq), range(nk), p)

    def weights(Q, K):
        return [softmax([scale * dot(q, k) for k in K]) for q in Q]

    def times_Z(A):
        return [[a * z for a, z in zip(row, zs)] for row, zs in zip(A, Z)]

    def loss(Q, K, V):
        return [dot(flat(product(times_Z(weights(Q, K)), V)), flat(dO))]

    P = weights(Q, K)
    O = product(times_Z(P), V)
    dP = times_Z(product(dO, transpose(V)))  # (9.13)
    D = [dot(a, b) for a, b in zip(dO, O)]  # (9.14)
    dS = [[w * (x - own) for w, x in zip(ws, xs)] for ws, xs, own in zip(P, dP, D)]
    dQ = [[scale * x for x in row] for row in product(dS, K)]
    dK = [[scale * x for x in row] for row in product(transpose(dS), Q)]
    dV = product(transpose(times_Z(P)), dO)  # (9.12)
    good = compare("(9.14) D from P and dP", [[dot(a, b) for a, b in zip(P, dP)]], [D])
    good &= compare("dQ of attention with dropout", [flat(dQ)], differences(lambda X: loss(X, K, V), Q))
    good &= compare("dK of attention with dropout", [flat(dK)], differences(lambda X: loss(Q, X, V), K))
    good &= compare("(9.12) dV of attention with dropout", [flat(dV)], differences(lambda X: loss(Q, K, X), V))
    return good


if __name__ == "__main__":
    random.seed(1)
    checks = [check_philox(), check_mean(), check_gradients()]
    sys.exit(0 if all(checks) else 1)
