#!/usr/bin/env python3
"""NumPy writes q, k, v; the stage program loads them; NumPy's own attention in float64 judges what it saves.

usage: test_numpy.py FOLDER_OF_STAGE_PROGRAMS    exit code 77: NumPy is not installed, the test is skipped
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("NumPy is not installed: skipped")
    sys.exit(77)

# (name, B, H, Hkv, Nq, Nk, d, causal, shape of the bias or None, type of the files)
CASES = [
    ("plain", 2, 2, 2, 17, 17, 16, False, None, np.float32),
    ("float64, one row", 1, 1, 1, 1, 33, 7, False, None, np.float64),
    ("float16, causal", 1, 2, 2, 31, 31, 32, True, None, np.float16),
    ("GQA, causal, more keys", 2, 6, 2, 19, 45, 24, True, None, np.float32),
    ("MQA, more queries: rows without keys", 1, 4, 1, 40, 23, 8, True, None, np.float64),
    ("bias per key, masked", 2, 2, 1, 9, 21, 16, False, (2, 1, 1, 21), np.float32),
    ("bias per query and key", 2, 4, 2, 13, 21, 64, True, (1, 4, 13, 21), np.float32),
]


# (lengths of queries, lengths of keys), for the last variant of these programs
RAGGED = [([17, 0, 40, 1], [17, 0, 40, 1]), ([9, 30, 0, 5], [20, 11, 7, 0])]
RAGGED_PROGRAMS = {"01_naive": "options", "06_fa2_forward": "options", "07_fa2_backward": "options"}


def drop_factors(shape, probability, seed):
    """0 or 1 / (1 - p) for each head, query and key: Philox4x32-10 of (key / 4, query, head, 0), word key % 4."""
    b, h, nq, nk = shape
    head, i, j = np.ogrid[: b * h, :nq, :nk]
    zeros = np.zeros((b * h, nq, nk), np.uint64)
    c0, c1, c2 = (zeros + x.astype(np.uint64) for x in (j // 4, i, head))
    c3, low = zeros, np.uint64(0xFFFFFFFF)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        left, right = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (right >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            right & low,
            (left >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            left & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    word = np.choose(j % 4, [c0, c1, c2, c3])
    return np.where(word < probability * 2.0**32, 0, 1 / (1 - probability)).reshape(shape)


def softmax_attention(q, k, v, do, bias, causal, dropout=None):
    """O, LSE, dQ, dK, dV in float64, all heads at once. dropout: its probability and seed."""
    group = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))
    nq, nk, scale = q.shape[2], k.shape[2], 1 / np.sqrt(q.shape[3])
    s = scale * q @ keys.swapaxes(2, 3)
    if bias is not None:
        s = s + bias
    if causal:
        s = np.where(np.arange(nk) <= np.arange(nq)[:, None] + nk - nq, s, -np.inf)
    m = s.max(axis=3, keepdims=True, initial=-np.inf)
    m = np.where(np.isfinite(m), m, 0)  # a row without visible keys
    e = np.exp(s - m)
    total = e.sum(axis=3, keepdims=True)
    p = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = (m + np.log(total))[..., 0]
    z = 1 if dropout is None else drop_factors(p.shape, *dropout)
    o = (z * p) @ values
    dp = z * (do @ values.swapaxes(2, 3))
    ds = p * (dp - (do * o).sum(axis=3, keepdims=True))

    def sum_groups(x):
        return x.reshape(k.shape[0], k.shape[1], group, nk, k.shape[3]).sum(axis=2)

    dk = sum_groups(scale * ds.swapaxes(2, 3) @ q)
    dv = sum_groups((z * p).swapaxes(2, 3) @ do)
    return {"o": o, "lse": lse, "dq": scale * ds @ keys, "dk": dk, "dv": dv}


def run(program, arguments):
    result = subprocess.run([program, "--device", "cpu", "--no-watch", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")


def passes_in_fp32(program):
    """The passes that some variant of the program does in fp32."""
    listed = subprocess.run([program, "--list", "--json"], capture_output=True, text=True, check=True)
    variants = [v for v in json.loads(listed.stdout)["variants"] if "fp32" in v["dtypes"]]
    return sorted({p for v in variants for p in v["passes"]}, reverse=True)  # forward first


def check_case(program, case, backward, dropout=None):
    name, b, h, hkv, nq, nk, d, causal, bias_shape, dtype = case
    rng = np.random.default_rng(2)
    q, k, v, do = (rng.standard_normal(shape).astype(dtype) for shape in ((b, h, nq, d), (b, hkv, nk, d), (b, hkv, nk, d), (b, h, nq, d)))
    bias = None
    if bias_shape:
        bias = rng.standard_normal(bias_shape).astype(np.float32)
        bias[rng.random(bias_shape) < 0.2] = -np.inf
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
        inputs.mkdir()
        for stem, array in (("q", q), ("k", k), ("v", v), ("do", do), ("bias", bias)):
            if array is not None:
                np.save(inputs / f"{stem}.npy", array)
        arguments = ["--load", str(inputs), "--save", str(outputs), "--pass", "backward" if backward else "forward"]
        options = [] if dropout is None else ["--dropout", str(dropout[0]), "--dropout-seed", str(dropout[1])]
        run(program, arguments + options + (["--causal"] if causal else []))

        # The program works on float32: float64 files are rounded first, as it does.
        rounded = [x.astype(np.float32).astype(np.float64) for x in (q, k, v, do)]
        expected = softmax_attention(*rounded, bias, causal, dropout)
        names = ["o", "lse"] + (["dq", "dk", "dv"] if backward else [])
        assert sorted(p.stem for p in outputs.iterdir()) == sorted(names), "the saved files are not those promised"
        for stem in names:
            got = np.load(outputs / f"{stem}.npy")
            assert got.dtype == np.float32 and got.shape == expected[stem].shape, f"{name}, {stem}: {got.dtype} {got.shape}"
            np.testing.assert_allclose(got, expected[stem], rtol=2e-5, atol=2e-5, err_msg=f"{program}, {name}, {stem}")
    print(f"ok: {pathlib.Path(program).name} {'backward' if backward else 'forward'}: {name}{', dropout' if dropout else ''}")


def check_ragged(program, lengths, backward, causal):
    """Each sequence by itself in NumPy, all in one call of the program."""
    offsets = [np.concatenate([[0], np.cumsum(n)]) for n in lengths]
    rng = np.random.default_rng(3)
    rows = {"q": offsets[0], "k": offsets[1], "v": offsets[1], "do": offsets[0], "o": offsets[0], "lse": offsets[0]}
    rows |= {"dq": offsets[0], "dk": offsets[1], "dv": offsets[1]}
    arrays = {x: rng.standard_normal((1, 4 if x in ("q", "do") else 2, rows[x][-1], 24), dtype=np.float32) for x in ("q", "k", "v", "do")}
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = pathlib.Path(folder, "in"), pathlib.Path(folder, "out")
        inputs.mkdir()
        for stem, array in arrays.items():
            np.save(inputs / f"{stem}.npy", array)
        np.save(inputs / "cu_seqlens_q.npy", offsets[0].astype(np.int32))
        if lengths[0] != lengths[1]:
            np.save(inputs / "cu_seqlens_k.npy", offsets[1])
        arguments = ["--load", str(inputs), "--save", str(outputs), "--pass", "backward" if backward else "forward"]
        variant = RAGGED_PROGRAMS[pathlib.Path(program).name]
        run(program, [*arguments, "--variant", variant] + (["--causal"] if causal else []))
        for s in range(len(lengths[0])):
            q, k, v, do = (arrays[x][:, :, rows[x][s] : rows[x][s + 1]].astype(np.float64) for x in ("q", "k", "v", "do"))
            for stem, expected in softmax_attention(q, k, v, do, None, causal).items():
                if backward or stem in ("o", "lse"):
                    got = np.load(outputs / f"{stem}.npy")[:, :, rows[stem][s] : rows[stem][s + 1]]
                    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5, err_msg=f"{program}, sequence {s}, {stem}")
    print(f"ok: {pathlib.Path(program).name} {'backward' if backward else 'forward'}: ragged {lengths}")


def main():
    programs = sorted(pathlib.Path(sys.argv[1]).glob("[0-9][0-9]_*"))
    assert programs, f"no stage programs in {sys.argv[1]}"
    for program in programs:
        for direction in passes_in_fp32(program):
            for case in CASES:
                check_case(str(program), case, direction == "backward")
            if program.name in RAGGED_PROGRAMS:
                check_case(str(program), CASES[3], direction == "backward", dropout=(0.25, 2**33 + 1))
                for causal, lengths in enumerate(RAGGED):
                    check_ragged(str(program), lengths, direction == "backward", causal == 1)


if __name__ == "__main__":
    main()
