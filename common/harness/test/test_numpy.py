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
    ("GQA, causal, more keys", 2, 6, 2, 19, 45, 24, True, None, np.float16),
    ("MQA, more queries: rows without keys", 1, 4, 1, 40, 23, 8, True, None, np.float64),
    ("bias per query and key, masked", 2, 4, 2, 13, 21, 64, False, (1, 4, 13, 21), np.float32),
]
BIAS_GRADIENT_PROGRAMS = ("01_naive", "07_fa2_backward", "08_tensor_cores")
FP16_PROGRAMS = ("08_tensor_cores",)


def softmax_attention(q, k, v, do, bias, causal):
    """O, LSE, dQ, dK, dV and each head's dBias in float64, all heads at once."""
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
    o = p @ values
    dp = do @ values.swapaxes(2, 3)
    ds = p * (dp - (do * o).sum(axis=3, keepdims=True))

    def sum_groups(x):
        return x.reshape(k.shape[0], k.shape[1], group, nk, k.shape[3]).sum(axis=2)

    dk = sum_groups(scale * ds.swapaxes(2, 3) @ q)
    dv = sum_groups(p.swapaxes(2, 3) @ do)
    return {"o": o, "lse": lse, "dq": scale * ds @ keys, "dk": dk, "dv": dv, "dbias": ds}


def run(program, arguments):
    result = subprocess.run([program, "--device", "cpu", "--no-watch", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")


def passes_in_fp32(program):
    """The passes that some variant of the program does in fp32."""
    listed = subprocess.run([program, "--list", "--json"], capture_output=True, text=True, check=True)
    variants = [v for v in json.loads(listed.stdout)["variants"] if "fp32" in v["dtypes"]]
    return sorted({p for v in variants for p in v["passes"]}, reverse=True)  # forward first


def check_case(program, case, backward, kind="fp32"):
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
        with_dbias = backward and bias_shape is not None and pathlib.Path(program).name in BIAS_GRADIENT_PROGRAMS
        arguments += ["--dtype", kind] + (["--causal"] if causal else []) + (["--bias-gradient"] if with_dbias else [])
        run(program, arguments)

        # The program works on float32 or float16: files of more bits are rounded first, as it does.
        rounded = [x.astype(np.float16 if kind == "fp16" else np.float32).astype(np.float64) for x in (q, k, v, do)]
        tolerance = 2e-2 if kind == "fp16" else 2e-5
        expected = softmax_attention(*rounded, bias, causal)
        names = ["o", "lse"] + (["dq", "dk", "dv"] if backward else []) + (["dbias"] if with_dbias else [])
        if with_dbias:  # the sum over what the bias is broadcast over
            shared = tuple(axis for axis in (0, 1) if bias_shape[axis] == 1)
            expected["dbias"] = expected["dbias"].sum(axis=shared, keepdims=True)
        assert sorted(p.stem for p in outputs.iterdir()) == sorted(names), "the saved files are not those promised"
        for stem in names:
            got = np.load(outputs / f"{stem}.npy")
            assert got.dtype == np.float32 and got.shape == expected[stem].shape, f"{name}, {stem}: {got.dtype} {got.shape}"
            np.testing.assert_allclose(got, expected[stem], rtol=tolerance, atol=tolerance, err_msg=f"{program}, {name}, {stem}")
    print(f"ok: {pathlib.Path(program).name} {'backward' if backward else 'forward'}: {name}")


def main():
    programs = sorted(pathlib.Path(sys.argv[1]).glob("[0-9][0-9]_*"))
    assert programs, f"no stage programs in {sys.argv[1]}"
    for program in programs:
        for direction in passes_in_fp32(program):
            for case in CASES:
                check_case(str(program), case, direction == "backward")
        if program.name in FP16_PROGRAMS:
            check_case(str(program), CASES[2], backward=True, kind="fp16")


if __name__ == "__main__":
    main()
