#!/usr/bin/env python3
"""check_peers.py with stand-ins for torch and for stage 08, both made of NumPy: what is wrong must be seen.

Exit code 77: NumPy is not installed, the test is skipped."""

import contextlib
import io
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

COMPARE = pathlib.Path(__file__).resolve().parent.parent
NUMPY_TESTS = COMPARE.parent / "harness" / "test"
sys.path[:0] = [str(COMPARE), str(NUMPY_TESTS)]

from test_numpy import np, softmax_attention  # leaves with 77 without NumPy

import check_peers
from rows import usage

# Two variants; the second has a backward pass. BREAK is "TENSOR WHAT" or an exit code.
STAGE = f'''#!{sys.executable} -B
import json, os, pathlib, sys
sys.path[:0] = ["{COMPARE}", "{NUMPY_TESTS}"]
import numpy as np
from check_peers import rounded
from test_numpy import softmax_attention
if "--list" in sys.argv:
    variants = [{{"name": "one_step", "passes": ["forward"]}}, {{"name": "last", "passes": ["forward", "backward"]}}]
    print(json.dumps({{"variants": variants}}))
    sys.exit(0)
tensor, _, what = os.environ.get("BREAK", "").partition(" ")
if tensor.isdigit():
    print("said so", "more", sep="\\n", file=sys.stderr)
    sys.exit(int(tensor))
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given["--device"] == "cpu" and "--no-check" in sys.argv
arrays = [np.load(pathlib.Path(given["--load"], name + ".npy")) for name in ("q", "k", "v", "do")]
assert all(x.dtype == (np.float16 if given["--dtype"] == "fp16" else np.float32) for x in arrays)
arrays = [x.astype(np.float64) for x in arrays]
found = softmax_attention(*arrays, None, ("--causal" in sys.argv) != (what == "mask"))
target = pathlib.Path(given["--save"])
target.mkdir()
for name in ("o", "lse", "dq", "dk", "dv") if given["--pass"] == "backward" else ("o", "lse"):
    values = found[name].astype(np.float32)
    values = values if name == "lse" else rounded(np, values, given["--dtype"])
    if name == tensor:
        at = (1, 0, 17, 5)[: values.ndim]
        if what == "nan": values[at] = np.nan
        if what == "off": values[at] += 0.2 if given["--dtype"] == "bf16" else 0.001 if name == "lse" else 0.05
        if what == "shape": values = values[:, :, :-1]
        if what == "gone": continue
    np.save(target / (name + ".npy"), values)
'''
subprocess_run = subprocess.run
CODE = compile(STAGE, "stand-in for stage 08", "exec")
OFF = {"flash": 0.0}  # added to an element of a peer's dK


def outputs(torch, problem, arrays, device, only):
    """In place of peer_outputs.outputs. Plain torch is off by some units of the last place of its largest element."""
    exact = softmax_attention(*(arrays[name].astype(np.float64) for name in ("q", "k", "v", "do")), None, problem["causal"])
    found = {"float64": exact}
    for name in ("flash", "plain"):
        if name in only or name == "plain":
            unit = 2 * check_peers.HALF_UNIT[problem["dtype"]] if name == "plain" else 0
            found[name] = {tensor: values + (unit * abs(values).max() if tensor != "lse" else 0) for tensor, values in exact.items()}
    if "flash" in found:
        found["flash"]["dk"][0, 0, 3, 3] += OFF["flash"]
        del found["flash"]["lse"]
    return found, {"math": "not today"} if "math" in only else {}


class CheckPeers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        program = self.folder / "08_tensor_cores"
        program.write_text(STAGE)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.every = list(check_peers.problems("cpu"))
        self.problems = [self.every[2], self.every[5]]  # causal in fp16; causal in bf16 with grouped heads
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
        for name, value in (("problems", lambda device: self.problems), ("find_torch", lambda needs_gpu: torch)):
            self.patch(mock.patch.object(check_peers, name, value))
        self.patch(mock.patch.object(check_peers.peer_outputs, "outputs", outputs))
        self.patch(mock.patch.object(check_peers.subprocess, "run", self.run_here))

    def patch(self, patch):
        patch.start()
        self.addCleanup(patch.stop)

    def run_here(self, command, **ignored):
        """The stand-in for stage 08 in this process, which is faster than to start one that imports NumPy."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with (
            mock.patch.object(sys, "argv", [str(word) for word in command]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                exec(CODE, {})
            except SystemExit as end:
                code = end.code
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    def check(self, *arguments, broken=""):
        """(exit code, what it printed)"""
        text = io.StringIO()
        with mock.patch.dict(os.environ, BREAK=broken), contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
            code = check_peers.main([str(self.folder), *arguments])
        return code, text.getvalue()

    def rows(self, *arguments, **given):
        code, text = self.check("--json", *arguments, **given)
        return code, json.loads(text)

    def wrong(self, *arguments, **given):
        code, rows = self.rows(*arguments, **given)
        self.assertEqual(code, 1)
        return {(row["of"], row.get("with"), row.get("tensor")) for row in rows if row["verdict"] == "WRONG"}

    def test_what_is_right_passes(self):
        code, rows = self.rows()
        self.assertEqual(code, 0)
        self.assertEqual({row["verdict"] for row in rows}, {"ok", "refused"})
        self.assertEqual(
            {(row["of"], row["with"]) for row in rows if "with" in row},
            {("flash", "float64"), ("plain", "float64")}
            | {(of, peer) for of in ("one_step", "last") for peer in ("float64", "flash", "plain")},
        )
        of_last = [row["tensor"] for row in rows if row.get("with") == "float64" and row["of"] == "last"]
        self.assertEqual(of_last, 2 * ["o", "lse", "dq", "dk", "dv"])
        self.assertEqual([row["message"] for row in rows if row["verdict"] == "refused"], 2 * ["not today"])

    def test_the_stage_is_a_program(self):
        with mock.patch.object(check_peers.subprocess, "run", subprocess_run):
            self.assertEqual(self.check("--variant", "last")[0], 0)
            self.assertEqual(self.check("--variant", "last", broken="dq nan")[0], 1)
            (self.folder / "08_tensor_cores").write_text("no program")
            with self.assertRaisesRegex(usage.Failure, "cannot be started: Exec format error"):
                self.check()

    def test_every_tensor_counts(self):
        for at, tensor in enumerate(("o", "lse", "dq", "dk", "dv")):
            self.problems = [self.every[2 + 3 * (at % 2)]]  # the types in turn
            for what in ("nan", "off", "shape") if tensor == "dv" else ("nan", "off"):
                wrong = self.wrong("--variant", "last", broken=f"{tensor} {what}")
                peers = {"float64", "plain"} if tensor == "lse" else {"float64", "plain", "flash"}
                self.assertEqual(wrong, {("last", peer, tensor) for peer in peers}, (tensor, what))

    def test_a_wrong_mask_is_seen(self):
        self.assertEqual({name for _, _, name in self.wrong("--variant", "last", broken="none mask")}, {"o", "lse", "dq", "dk", "dv"})

    def test_a_peer_that_is_wrong_is_seen(self):
        with mock.patch.dict(OFF, flash=9.0):
            self.assertEqual(self.wrong(), {("flash", "float64", "dk")})  # not stage 08: the peer's own error is allowed
        with mock.patch.dict(OFF, flash=float("nan")):
            self.assertEqual(self.wrong(), {("flash", "float64", "dk"), ("last", "flash", "dk")})

    def test_a_stage_that_fails(self):
        code, rows = self.rows("--variant", "last", broken="1")
        self.assertEqual(code, 1)
        self.assertEqual([row["message"] for row in rows if row["of"] == "last"], 2 * ["said so"])
        self.assertEqual(self.check(broken="2")[0], 2)  # refuses all
        with self.assertRaisesRegex(usage.Failure, "^said so$") as caught:
            self.check(broken="3")
        self.assertEqual(caught.exception.code, 3)
        self.assertEqual(self.wrong("--variant", "last", broken="dv gone"), {("last", None, None)})

    def test_torch_that_fails(self):
        with mock.patch.object(check_peers.peer_outputs, "outputs", side_effect=RuntimeError("CUDA out of memory\nmore")):
            with self.assertRaisesRegex(usage.Failure, "^torch fails: CUDA out of memory$") as caught:
                self.check()
        self.assertEqual(caught.exception.code, 3)

    def test_choices(self):
        _, rows = self.rows("--variant", "one_step", "--only", "flash")
        self.assertEqual(
            {(row["of"], row["with"]) for row in rows},
            {("one_step", "float64"), ("one_step", "flash"), ("flash", "float64"), ("plain", "float64")},
        )
        for arguments, part in (
            (["--variant", "two_step"], "allowed: one_step, last"),
            (["--only", "cudnn"], "allowed on the CPU: flash, math, plain"),
            (["--only", "triton"], "allowed"),
            (["stray"], "stray"),
            (["--device", "tpu"], "tpu"),
        ):
            with self.assertRaisesRegex(usage.Failure, part) as caught:
                self.check(*arguments)
            self.assertEqual(caught.exception.code, 2)
        with self.assertRaisesRegex(usage.Failure, "allowed: a folder with 08_tensor_cores"):
            check_peers.main([str(self.folder / "none")])

    def test_table(self):
        _, text = self.check("--variant", "last", broken="dv nan")
        self.assertIn("B=2 H=2 N=113 d=64 causal fp16: largest difference / allowed", text)
        self.assertRegex(text, r"\nmath +refused: not today\n")
        self.assertRegex(text, r"\nlast +float64 .* nan / [0-9.e-]+  WRONG\n")
        self.assertRegex(text, r"\nflash +float64 .* - .* ok\n")

    def test_rounding_to_bf16(self):
        values = np.float32([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3e38])
        expected = np.float32([1, 1, 1 + 2**-6, 1 + 2**-7, -1, 3e38])  # ties to even
        got = check_peers.rounded(np, values, "bf16")
        self.assertTrue((got[:5] == expected[:5]).all(), got)
        self.assertTrue((got.view(np.uint32) & 0xFFFF == 0).all())


if __name__ == "__main__":
    unittest.main()
