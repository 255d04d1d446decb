"""The formulas of docs/reference/jacobians.md against finite differences, in plain Python and double precision. Exits with 1 if one is wrong."""

import math
import random
import sys


def matrix(rows, cols):
    return [[random.gauss(0, 1) for _ in range(cols)] for _ in range(rows)]


def product(A, B):
    return [[sum(a * b for a, b in zip(row, col)) for col in zip(*B)] for row in A]


def transpose(A):
    return [list(col) for col in zip(*A)]


def flat(A):
    return [x for row in A for x in row]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


def softmax(s):
    """Of one row; a row that sees nothing, all -inf, gives zeros."""
    m = max(s)
    if m == -math.inf:
        return [0.0] * len(s)
    e = [math.exp(x - m) for x in s]
    return [x / sum(e) for x in e]


def differences(f, A, step=1e-5):
    """The Jacobian of f at A: f takes a matrix and returns a flat list; column n belongs to the n-th element of A, row by row."""
    columns = []
    for row in A:
        for j, x in enumerate(row):
            row[j] = x + step
            above = f(A)
            row[j] = x - step
            below = f(A)
            row[j] = x
            columns.append([(a - b) / (2 * step) for a, b in zip(above, below)])
    return transpose(columns)


def compare(what, formula, measured, limit=1e-7):
    worst = max(abs(a - b) for a, b in zip(flat(formula), flat(measured)))
    print(f"{what:<64} {'ok' if worst <= limit else f'WRONG by {worst:.1e}'}")
    return worst <= limit


def check_product():
    A, B = matrix(3, 4), matrix(4, 2)
    rows, cols = [(i, k) for i in range(3) for k in range(2)], [(i, l) for i in range(3) for l in range(4)]
    kronecker = [[B[l][k] if i == j else 0.0 for j, l in cols] for i, k in rows]
    return compare("(J.3) Jacobian of a product", kronecker, differences(lambda X: flat(product(X, B)), A))


def check_softmax():
    s = matrix(1, 6)
    p = softmax(s[0])
    jacobian = [[p[j] * ((j == k) - p[k]) for k in range(6)] for j in range(6)]
    right = compare("(J.6) Jacobian of the softmax", jacobian, differences(lambda X: softmax(X[0]), s))
    dp = matrix(1, 6)
    short = [[p[k] * (dp[0][k] - dot(p, dp[0])) for k in range(6)]]
    return compare("(J.7) its product with a vector, without the matrix", short, product(dp, jacobian)) and right


def check_attention(nq, nk, d, offset):
    """Query i sees key j if j <= i + offset. With offset = nk - nq < 0 the first rows see nothing."""
    Q, K, V, dO = matrix(nq, d), matrix(nk, d), matrix(nk, d), matrix(nq, d)
    tau = 1 / math.sqrt(d)

    def forward():
        S = product(Q, transpose(K))
        P = [softmax([tau * s if j <= i + offset else -math.inf for j, s in enumerate(row)]) for i, row in enumerate(S)]
        return P, product(P, V)

    def loss(_):
        return [dot(flat(dO), flat(forward()[1]))]

    P, O = forward()
    dP = product(dO, transpose(V))
    D = [dot(o, g) for o, g in zip(O, dO)]
    right = compare("(J.9) D from P and dP", [D], [[dot(p, g) for p, g in zip(P, dP)]])
    dS = [[p * (g - D[i]) for p, g in zip(P[i], dP[i])] for i in range(nq)]
    gradients = {
        "dQ": (Q, [[tau * x for x in row] for row in product(dS, K)]),
        "dK": (K, [[tau * x for x in row] for row in product(transpose(dS), Q)]),
        "dV": (V, product(transpose(P), dO)),
    }
    for name, (X, formula) in gradients.items():
        right &= compare(f"{name} of attention, {nq} queries, {nk} keys, causal", [flat(formula)], differences(loss, X))
    return right


if __name__ == "__main__":
    random.seed(1)
    results = [check_product(), check_softmax(), check_attention(4, 6, 3, offset=2), check_attention(6, 4, 3, offset=-2)]
    sys.exit(0 if all(results) else 1)
