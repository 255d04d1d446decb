#!/usr/bin/env python3
"""check_peers.py with stand-ins for torch and for stage 08, both made of NumPy: what is wrong must be seen.

Exit code 77: NumPy is not installed, the test is skipped."""

import contextlib
import functools
import io
import json
import sys
import types
import unittest
from unittest import mock

from cases import ROOT, Case

sys.path.insert(0, str(ROOT / "common" / "harness" / "test"))

from test_numpy import np, softmax_attention  # leaves with 77 without NumPy

import check_peers

OFF = {"flash": 0.0}  # added to an element of a peer's dK


def run_stage(broken, program, *arguments):
    """In place of check_peers.run_stage: two variants, of which the second has a backward pass. `broken`: "TENSOR WHAT" or an exit code."""
    if "--list" in arguments:
        variants = [{"name": "one_step", "passes": ["forward"]}, {"name": "last", "passes": ["forward", "backward"]}]
        return 0, "", json.dumps({"variants": variants})
    tensor, _, what = broken.partition(" ")
    if tensor.isdigit():
        return int(tensor), "said so", ""
    given = dict(zip(arguments[::2], arguments[1::2]))
    assert given["--device"] == "cpu" and "--no-check" in arguments
    arrays = [np.load(given["--load"] / f"{name}.npy") for name in ("q", "k", "v", "do")]
    assert {x.dtype for x in arrays} == {np.dtype(np.float16 if given["--dtype"] == "fp16" else np.float32)}
    found = softmax_attention(*(x.astype(np.float64) for x in arrays), None, ("--causal" in arguments) != (what == "mask"))
    given["--save"].mkdir()
    for name in ("o", "lse", "dq", "dk", "dv") if given["--pass"] == "backward" else ("o", "lse"):
        values = found[name].astype(np.float32)
        values = values if name == "lse" else check_peers.rounded(np, values, given["--dtype"])
        if name == tensor:
            at = (1, 0, 17, 5)[: values.ndim]
            off = 0.2 if given["--dtype"] == "bf16" else 0.001 if name == "lse" else 0.05
            values[at] += {"nan": np.nan, "off": off}.get(what, 0)
            values = values[:, :, :-1] if what == "shape" else values
        if (name, "gone") != (tensor, what):
            np.save(given["--save"] / f"{name}.npy", values)
    return 0, "", ""


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


class CheckPeers(Case):
    def setUp(self):
        super().setUp()
        self.program = self.path / "08_tensor_cores"
        self.program.write_text("no program")
        self.every = list(check_peers.problems("cpu"))
        self.problems = [self.every[2], self.every[5]]  # causal in fp16; causal in bf16 with grouped heads
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
        stand_ins = {"problems": lambda device: self.problems, "find_torch": lambda needs_gpu: torch}
        for patch in (mock.patch.multiple(check_peers, **stand_ins), mock.patch.object(check_peers.peer_outputs, "outputs", outputs)):
            patch.start()
            self.addCleanup(patch.stop)

    def check(self, *arguments, broken=""):
        """(exit code, what it printed)"""
        text, stage = io.StringIO(), mock.patch.object(check_peers, "run_stage", functools.partial(run_stage, broken))
        with stage, contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
            code = check_peers.main([str(self.path), *arguments])
        return code, text.getvalue()

    def rows(self, *arguments, code=0, **given):
        found, text = self.check("--json", *arguments, **given)
        self.assertEqual(found, code)
        return json.loads(text)

    def wrong(self, *arguments, **given):
        rows = self.rows(*arguments, code=1, **given)
        return {(row["of"], row.get("with"), row.get("tensor")) for row in rows if row["verdict"] == "WRONG"}

    def test_what_is_right_passes(self):
        rows = self.rows()
        self.assertEqual({row["verdict"] for row in rows}, {"ok", "refused"})
        pairs = {(of, peer) for of in ("one_step", "last") for peer in ("float64", "flash", "plain")}
        pairs |= {("flash", "float64"), ("plain", "float64")}
        self.assertEqual({(row["of"], row["with"]) for row in rows if "with" in row}, pairs)
        of_last = [row["tensor"] for row in rows if row.get("with") == "float64" and row["of"] == "last"]
        self.assertEqual(of_last, 2 * ["o", "lse", "dq", "dk", "dv"])
        self.assertEqual([row["message"] for row in rows if row["verdict"] == "refused"], 2 * ["not today"])

    def test_the_stage_is_a_program(self):
        with self.fails("cannot be started: Permission denied"):
            check_peers.run_stage(self.program)
        self.program.write_text("#!/bin/sh\necho listed\necho said so >&2\necho more >&2\nexit $1\n")
        self.program.chmod(0o755)
        for code in range(3):
            self.assertEqual(check_peers.run_stage(self.program, str(code)), (code, "said so", "listed\n"))
        with self.fails("said so", code=3):
            check_peers.run_stage(self.program, "3")

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
        rows = self.rows("--variant", "last", broken="1", code=1)
        self.assertEqual([row["message"] for row in rows if row["of"] == "last"], 2 * ["said so"])
        self.assertEqual(self.check(broken="2")[0], 2)  # refuses all
        self.assertEqual(self.wrong("--variant", "last", broken="dv gone"), {("last", None, None)})

    def test_torch_that_fails(self):
        with mock.patch.object(check_peers.peer_outputs, "outputs", side_effect=RuntimeError("CUDA out of memory\nmore")):
            with self.fails("torch fails: CUDA out of memory", code=3):
                self.check()

    def test_choices(self):
        rows = self.rows("--variant", "one_step", "--only", "flash")
        pairs = {("one_step", "float64"), ("one_step", "flash"), ("flash", "float64"), ("plain", "float64")}
        self.assertEqual({(row["of"], row["with"]) for row in rows}, pairs)
        for arguments, part in (
            (["--variant", "two_step"], "allowed: one_step, last"),
            (["--only", "cudnn"], "allowed on the CPU: flash, math, plain"),
            (["--only", "triton"], "allowed"),
            (["stray"], "stray"),
            (["--device", "tpu"], "tpu"),
        ):
            with self.fails(part):
                self.check(*arguments)
        with self.fails("allowed: a folder with 08_tensor_cores"):
            check_peers.main([str(self.path / "none")])

    def test_table(self):
        _, text = self.check("--variant", "last", broken="dv nan")
        self.assertIn("B=2 H=2 N=113 d=64 causal fp16: largest difference / allowed", text)
        for line in ("math +refused: not today", "last +float64 .* nan / [0-9.e-]+  WRONG", "flash +float64 .* - .* ok"):
            self.assertRegex(text, f"\n{line}\n")

    def test_rounding_to_bf16(self):
        values = np.float32([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3e38])
        expected = np.float32([1, 1, 1 + 2**-6, 1 + 2**-7, -1, 3e38])  # ties to even
        got = check_peers.rounded(np, values, "bf16")
        self.assertTrue((got[:5] == expected[:5]).all(), got)
        self.assertTrue((got.view(np.uint32) & 0xFFFF == 0).all())


if __name__ == "__main__":
    unittest.main()
