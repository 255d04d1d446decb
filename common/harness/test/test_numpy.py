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

# (B, H, Hkv, Nq, Nk, d), causal, shape of the bias or None, type of the files
CASES = (
    ((2, 6, 2, 19, 45, 24), True, None, np.float16),
    ((1, 4, 1, 40, 23, 8), True, None, np.float64),  # more queries than keys: rows without keys
    ((2, 4, 2, 13, 21, 64), False, (1, 4, 13, 21), np.float32),
)
BIAS_GRADIENT = ("01_naive", "07_fa2_backward", "08_tensor_cores")


def softmax_attention(q, k, v, do, bias, causal):
    """O, LSE, dQ, dK, dV and each head's dBias in float64, all heads at once."""
    group, nq, nk, scale = q.shape[1] // k.shape[1], q.shape[2], k.shape[2], 1 / np.sqrt(q.shape[3])
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))
    s = scale * q @ keys.swapaxes(2, 3) + (0 if bias is None else bias)
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
    ds = p * (do @ values.swapaxes(2, 3) - (do * o).sum(axis=3, keepdims=True))

    def sum_groups(x):
        return x.reshape(*k.shape[:2], group, *k.shape[2:]).sum(axis=2)

    dk, dv = sum_groups(scale * ds.swapaxes(2, 3) @ q), sum_groups(p.swapaxes(2, 3) @ do)
    return {"o": o, "lse": lse, "dq": scale * ds @ keys, "dk": dk, "dv": dv, "dbias": ds}


def check_case(program, case, backward, kind):
    (b, h, hkv, nq, nk, d), causal, bias_shape, dtype = case
    rng = np.random.default_rng(2)
    inputs = {
        name: rng.standard_normal((b, *shape)).astype(dtype)
        for name, shape in {"q": (h, nq, d), "k": (hkv, nk, d), "v": (hkv, nk, d), "do": (h, nq, d)}.items()
    }
    rounded = [x.astype(np.float16 if kind == "fp16" else np.float32).astype(np.float64) for x in inputs.values()]  # as the program does
    if bias_shape:
        inputs["bias"] = np.where(rng.random(bias_shape) < 0.2, -np.inf, rng.standard_normal(bias_shape)).astype(np.float32)
    with_dbias = backward and bias_shape is not None and program.name in BIAS_GRADIENT
    names = ["o", "lse", *(["dq", "dk", "dv"] if backward else []), *(["dbias"] if with_dbias else [])]
    expected = softmax_attention(*rounded, inputs.get("bias"), causal)
    if with_dbias:  # the sum over what the bias is broadcast over
        expected["dbias"] = expected["dbias"].sum(axis=tuple(axis for axis in (0, 1) if bias_shape[axis] == 1), keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, array in inputs.items():
            np.save(f"{folder}/{name}.npy", array)
        out = pathlib.Path(folder, "out")
        command = [
            program,
            "--device=cpu",
            "--no-watch",
            f"--load={folder}",
            f"--save={out}",
            f"--pass={'backward' if backward else 'forward'}",
        ]
        command += [f"--dtype={kind}", f"--causal={str(causal).lower()}", f"--bias-gradient={str(with_dbias).lower()}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert sorted(p.stem for p in out.iterdir()) == sorted(names), "the saved files are not those promised"
        for name in names:
            got, tolerance = np.load(out / f"{name}.npy"), 2e-2 if kind == "fp16" else 2e-5
            assert got.dtype == np.float32 and got.shape == expected[name].shape, (command, name, got.dtype, got.shape)
            np.testing.assert_allclose(got, expected[name], rtol=tolerance, atol=tolerance, err_msg=f"{command}, {name}")


def main():
    for program in sorted(pathlib.Path(sys.argv[1]).glob("[0-9][0-9]_*")):
        listed = subprocess.run([program, "--list", "--json"], capture_output=True, text=True, check=True)
        for kind in ("fp32", "fp16"):
            passes = {p for variant in json.loads(listed.stdout)["variants"] if kind in variant["dtypes"] for p in variant["passes"]}
            for which in sorted(passes, reverse=True):
                for case in CASES if kind == "fp32" else CASES[2:]:
                    check_case(program, case, which == "backward", kind)
        print(f"ok: {program.name}")


if __name__ == "__main__":
    main()
