#!/usr/bin/env python3
"""--load and --save of the stage programs: .npy files, shapes, consistency, masks, and what a folder must allow.

usage: test_files.py FOLDER_OF_STAGE_PROGRAMS    without NumPy the last test is skipped
"""

import array
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    np = None

BIN = pathlib.Path(sys.argv.pop(1))
NAIVE, OPTIONS, HALF = BIN / "01_naive", BIN / "06_fa2_forward", BIN / "08_tensor_cores"


def npy(shape, values, kind="<f4", order="False", version=1):
    """The bytes of a file; `shape` and `kind` may be wrong, and are then taken as they are."""
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    numbers = array.array({"<i4": "i", "<i8": "q"}.get(kind, "f"), values)
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + numbers.tobytes()


class Files(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash-steps.")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.put(q=(2, 6, 5, 8), k=(2, 3, 7, 8), v=(2, 3, 7, 8))

    def put(self, **shapes):
        for name, shape in shapes.items():
            (self.folder / f"{name}.npy").write_bytes(npy(shape, [0.5] * math.prod(shape)))

    def run_it(self, options="", program=NAIVE):
        command = [program, "--device=cpu", "--no-watch", f"--load={self.folder}", *options.split()]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def load(self, options="", program=NAIVE):
        done = self.run_it(options, program)
        self.assertEqual((done.returncode, done.stderr), (0, ""), options)
        return done.stdout

    def refused(self, *says, options="", program=NAIVE):
        done = self.run_it(options, program)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), (options, done))
        for word in says:
            self.assertIn(word, done.stderr)

    def test_malformed_files_are_refused_by_name(self):
        shape, values = (1, 1, 2, 3), [1, 2, 3, -4, 0.5, 6]
        file, good = self.folder / "q.npy", npy(shape, values)
        for wrong in (
            b"",
            b"not a NumPy file at all",
            npy(shape, values, version=2),
            good[:40],
            good[:-4],
            good + b"x",
            npy(shape, values, order="True"),
            npy(shape, values, kind=">f4"),
            npy(shape, values, kind="f4,"),
            npy((2, 3), values),
            npy("()", values[:1]),
            npy((1, 1, 0, 3), []),
            npy((1, 1, 2**32, 2**32), values),
            npy((1, 1, 1, 2**63), values),
            b"\x93NUMPY\x01\x00\x20\x00__import__('os').system('true')\n",
        ):
            file.write_bytes(wrong)
            self.refused("q.npy: ")
        file.unlink()
        self.refused("q.npy: no such file")
        file.symlink_to("/dev/zero")
        self.refused("q.npy: not a regular file")

    def test_the_shape_comes_from_the_files(self):
        self.assertIn("B=2 H=6 Hkv=3 Nq=5 Nk=7 d=8 causal fp32 bhnd bias=none", self.load("--causal --batch 2 --kv-heads 3"))
        self.assertIn(f"loaded from {self.folder}", self.load())
        self.refused("--seq-k is 8", "7", options="--seq-k 8")

    def test_files_that_do_not_fit_together_are_both_named(self):
        for name, shape in (("v", (2, 3, 6, 8)), ("q", (1, 6, 5, 8)), ("q", (2, 6, 5, 9))):
            self.put(q=(2, 6, 5, 8), v=(2, 3, 7, 8))
            self.put(**{name: shape})
            self.refused(f"{name}.npy", "k.npy")
        self.put(q=(2, 6, 5, 8), do=(2, 6, 7, 8))
        self.load()  # not read in a forward pass
        self.refused("do.npy", "q.npy", options="--pass backward")
        self.put(q=(2, 3, 7, 257), k=(2, 3, 7, 257), v=(2, 3, 7, 257))
        self.refused("--head-dim is '257'")

    def test_the_file_decides_what_kind_of_bias_there_is(self):
        for shape, kind in (((1, 6, 1, 7), "vector"), ((2, 1, 5, 7), "matrix bias-per-batch bias-per-head=false")):
            self.put(bias=shape)
            self.assertIn(f"bias={kind}\n", " ".join(self.load().split(" ")).replace("\n               ", " "))
        self.put(bias=(2, 3, 5, 7))  # as many as key/value heads: not allowed
        self.refused("bias.npy", "(2, 3, 5, 7)", "allowed: (2, 6, 5, 7)")
        self.put(bias=(1, 1, 1, 7))
        for wrong in ("none", "matrix", "alibi"):
            self.refused("--bias is", "bias.npy", options=f"--bias {wrong}")
        self.put(q=(2, 1, 5, 8), k=(2, 1, 7, 8), v=(2, 1, 7, 8))
        self.load("--bias-per-head")  # as every bias of a single head is
        (self.folder / "bias.npy").unlink()
        self.refused("--bias vector", "bias.npy", options="--bias vector")
        self.load("--bias alibi")  # needs no file

    def test_cu_seqlens_make_a_ragged_batch(self):
        def offsets(name, values, kind="<i4"):
            (self.folder / f"cu_seqlens_{name}.npy").write_bytes(npy((len(values),), values, kind))

        self.put(q=(1, 3, 5, 8), k=(1, 3, 7, 8), v=(1, 3, 7, 8))
        offsets("k", [0, 0, 7], "<i8")
        self.refused("cu_seqlens_k.npy without", "cu_seqlens_q.npy", program=OPTIONS)
        offsets("q", [0, 3, 5])
        for options in ("", "--lengths 3:0,2:7"):
            self.assertIn("lengths=3:0,2:7", self.load(options, OPTIONS))
        self.refused("--lengths", options="--lengths 3:0,2:6", program=OPTIONS)
        offsets("q", [0, 3, 3, 5])
        self.refused("cu_seqlens_q.npy", "cu_seqlens_k.npy", program=OPTIONS)
        for wrong in ([0, 3, 2, 5], [1, 3, 5], [0, 6, 6], [0, 3, 4], [0]):
            offsets("q", wrong)
            self.refused("cu_seqlens_q.npy", "the 5 rows of", "q.npy", program=OPTIONS)
        offsets("q", [0, 5])
        (self.folder / "cu_seqlens_k.npy").unlink()  # as many keys as queries, then
        self.refused("cu_seqlens_q.npy", "the 7 rows of", "k.npy", program=OPTIONS)
        offsets("q", [0, 5], "<f4")
        self.refused("cu_seqlens_q.npy: type '<f4'", program=OPTIONS)
        offsets("q", [0, 5])
        self.put(q=(2, 3, 5, 8), k=(2, 3, 5, 8), v=(2, 3, 5, 8))
        self.refused("a batch of 1", program=OPTIONS)

    def test_only_a_bias_may_hold_infinity(self):
        values = [1.0] * 480
        for bad in (math.nan, math.inf, -math.inf, 1e6):
            values[241] = bad  # 241 = ((1*6 + 0)*5 + 0)*8 + 1
            (self.folder / "q.npy").write_bytes(npy((2, 6, 5, 8), values))
            self.refused("q.npy", "(1, 0, 0, 1)", options="--dtype fp16", program=HALF)
        self.load("--no-check")
        self.put(q=(2, 6, 5, 8))
        for masked in (-math.inf, math.inf):
            (self.folder / "bias.npy").write_bytes(npy((1, 1, 1, 7), [0, masked, 0, 0, 0, 0, 1]))
            self.load() if masked < 0 else self.refused("bias.npy", "(0, 0, 0, 1)")

    def test_a_backward_pass_without_do_gets_a_random_one(self):
        self.assertIn("no do.npy", self.load("--pass backward"))
        self.put(do=(2, 6, 5, 8))
        self.assertNotIn("do.npy", self.load("--pass backward"))

    def test_earlier_results_are_replaced_and_what_may_be_the_users_is_not(self):
        out = self.folder / "new" / "folder"
        options = f"--pass backward --save {out}"
        for _ in range(2):
            self.load(options)
        self.assertEqual(sorted(os.listdir(out)), ["dk.npy", "dq.npy", "dv.npy", "lse.npy", "o.npy"])
        self.assertEqual((out / "lse.npy").stat().st_size, 128 + 4 * 2 * 6 * 5)
        self.put(o=(1, 1, 1, 1))
        self.refused("o.npy exists", options=f"--save {self.folder}")
        file = out / "dv.npy"  # the last one: all are looked at
        file.write_text("my notes")
        self.refused("dv.npy exists", options=options)
        file.unlink()
        file.symlink_to("o.npy")
        self.refused("dv.npy exists", options=options)
        self.assertEqual(file.readlink(), pathlib.Path("o.npy"))
        self.refused(options=f"--save {out}/lse.npy")

    @unittest.skipIf(np is None, "NumPy is not installed")
    def test_numpy_reads_and_writes_the_same(self):
        rng, out = np.random.default_rng(2), self.folder / "out"
        bias = np.where(rng.random((2, 1, 19, 45)) < 0.2, -np.inf, rng.standard_normal((2, 1, 19, 45))).astype(np.float32)
        np.save(self.folder / "bias.npy", bias)
        for program, kind, tolerance in ((NAIVE, np.float32, 2e-5), (NAIVE, np.float64, 2e-5), (HALF, np.float16, 2e-2)):
            q, k, v = (rng.standard_normal((2, heads, rows, 24)).astype(kind) for heads, rows in ((6, 19), (2, 45), (2, 45)))
            for name, values in (("q", q), ("k", k), ("v", v)):
                np.save(self.folder / f"{name}.npy", values)
            self.load(f"--pass backward --bias-gradient --save {out}", program)
            keys, values = (np.repeat(x.astype(np.float64), 3, axis=1) for x in (k, v))
            scores = np.exp(q.astype(np.float64) @ keys.swapaxes(2, 3) / np.sqrt(24) + bias)
            sums = scores.sum(axis=3, keepdims=True)
            for name, expected in (("o", scores / sums @ values), ("lse", np.log(sums)[..., 0])):
                np.testing.assert_allclose(np.load(out / f"{name}.npy"), expected, rtol=tolerance, atol=tolerance)
            for name, like in (("dq", q), ("dk", k), ("dv", v), ("dbias", bias)):
                self.assertEqual((np.load(out / f"{name}.npy").shape, np.load(out / f"{name}.npy").dtype), (like.shape, np.float32))


if __name__ == "__main__":
    unittest.main()
