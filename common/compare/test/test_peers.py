#!/usr/bin/env python3
"""peers.py with a stand-in for torch: arguments, rows, refusals, exit codes. No figure here is a measurement."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "peers.py"
# What peers.py uses of torch. A GPU is there unless NO_GPU is set; each timed run takes 2, 4, 6, ... ms; flash and cudnn refuse fp32;
# plain torch runs out of memory beyond 4096 queries.
TORCH = '''
import os, types, warnings
__version__ = "9.9"
float32, float16, bfloat16, bool, uint8 = "float32", "float16", "bfloat16", "bool", "uint8"
version = types.SimpleNamespace(cuda="13.0")
log = []

class Tensor:
    def __init__(self, shape=(), dtype=None): self.shape, self.dtype = shape, dtype
    def transpose(self, a, b): return self
    def masked_fill(self, mask, value): log.append("mask"); return self
    def triu(self, k): assert k == 1; return self
    def zero_(self): return self
    def __mul__(self, other): return self

def randn(shape, device, dtype, requires_grad=False):
    assert device == "cuda"
    return Tensor(shape, dtype)
def empty(count, device, dtype): assert count == 4 * 1000 and dtype == uint8; return Tensor()
def ones(*shape, device, dtype): return Tensor(shape)
def matmul(a, b):
    if a.shape and a.shape[2] > 4096: raise RuntimeError("CUDA out of memory. Tried to allocate")
    return a
def softmax(x, dim): return x
def manual_seed(seed): pass
def set_float32_matmul_precision(name): assert name == "highest"
def set_warn_always(flag): pass

class no_grad:
    def __enter__(self): return self
    def __exit__(self, *ignored): pass

def grad(out, inputs, gradient, retain_graph): assert retain_graph and len(inputs) == 3
autograd = types.SimpleNamespace(grad=grad)

class Event:
    ms = 0
    def __init__(self, enable_timing): pass
    def record(self): pass
    def elapsed_time(self, other): Event.ms += 2; return float(Event.ms)

cuda = types.SimpleNamespace(
    is_available=lambda: not os.environ.get("NO_GPU"), synchronize=lambda: None, Event=Event, empty_cache=lambda: None,
    get_device_properties=lambda i: types.SimpleNamespace(name="Test GPU", major=9, minor=0, L2_cache_size=1000))

def scaled_dot_product_attention(q, k, v, is_causal):
    if q.dtype == float32 and current[-1] != "EFFICIENT_ATTENTION":
        warnings.warn("Flash attention kernel not used because: (Triggered internally at /x.cpp:1.)")
        warnings.warn("Expected fp16 or bf16. (Triggered internally at /x.cpp:2.)")
        warnings.warn("Other attention has been runtime disabled. (Triggered internally at /x.cpp:3.)")
        raise RuntimeError("No available kernel. Aborting execution.")
    return q

current = []
class sdpa_kernel:
    def __init__(self, backend): self.backend = backend
    def __enter__(self): current.append(self.backend)
    def __exit__(self, *ignored): current.pop()
SDPBackend = types.SimpleNamespace(**{name: name for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")})
functional = types.SimpleNamespace(scaled_dot_product_attention=scaled_dot_product_attention)
'''


class Peers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        torch = self.path / "torch" / "nn" / "attention"
        torch.mkdir(parents=True)
        (self.path / "torch" / "__init__.py").write_text(TORCH + "from . import nn\n")
        (self.path / "torch" / "nn" / "__init__.py").write_text("import torch\nfunctional = torch.functional\n")
        (torch / "__init__.py").write_text("from torch import SDPBackend, sdpa_kernel\n")

    def run_peers(self, *arguments, torch=True, **variables):
        environment = {**os.environ, "PYTHONPATH": self.folder.name if torch else str(self.path / "none"), **variables}
        command = [sys.executable, "-B", SCRIPT, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def rows(self, *arguments):
        done = self.run_peers("--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_rows_have_the_shape_of_the_comparison(self):
        saved = self.path / "peers.json"
        rows = self.rows("--iterations", "3", "--save", str(saved))
        self.assertEqual(json.loads(saved.read_text()), rows)
        self.assertEqual(len(rows), 8)
        row = next(row for row in rows if row["variant"] == "memory_efficient" and row["pass"] == "forward")
        self.assertEqual(row["stage"], "peer")
        self.assertEqual(row["verdict"], "ok")
        self.assertEqual(row["device"]["name"], "Test GPU")
        self.assertEqual(row["device"]["sm"], 90)
        self.assertEqual(row["problem"]["head_dim"], 64)
        self.assertTrue(row["problem"]["causal"])
        self.assertEqual(row["flops"], 4 * 8 * 12 * (1024 * 1025 // 2) * 64)
        self.assertEqual(row["time"], {"median_ms": 4, "min_ms": 2, "max_ms": 6, "iterations": 3, "cold_l2": True})
        self.assertAlmostEqual(row["tflops"], row["flops"] / 4e9)
        self.assertEqual(len(row["date"]), 20)
        backward = next(row for row in rows if row["variant"] == "plain" and row["pass"] == "backward")
        self.assertEqual(backward["flops"], 2.5 * row["flops"])

    def test_a_backend_that_cannot_is_listed_with_its_reason(self):
        rows = self.rows("--pass", "forward")
        refused = {row["variant"]: row["message"] for row in rows if row["verdict"] == "refused"}
        self.assertEqual(refused, {"flash": "Expected fp16 or bf16.", "cudnn": "Expected fp16 or bf16."})
        self.assertTrue(all(row["verdict"] == "ok" for row in self.rows("--dtype", "bf16")))
        self.assertEqual(self.run_peers("--only", "flash,cudnn").returncode, 2)

    def test_too_little_memory_is_a_row(self):
        rows = self.rows("--seq", "8192", "--pass", "forward", "--no-causal")
        self.assertEqual([row["verdict"] for row in rows if row["variant"] == "plain"], ["cannot run"])
        self.assertEqual(self.run_peers("--seq", "8192", "--only", "plain").returncode, 3)

    def test_sweep_and_mask(self):
        rows = self.rows("--sweep", "seq=3..13", "--only", "plain", "--pass", "forward", "--no-causal", "--batch", "2")
        self.assertEqual([row["problem"]["seq_q"] for row in rows], [3, 6, 12])
        self.assertEqual(rows[1]["flops"], 4 * 2 * 12 * 36 * 64)

    def test_several_problems_in_one_run(self):
        rows = self.rows("--only", "plain", "--pass", "forward", "--dtype", "fp16", "--problem", "--seq 16 --no-causal",
                         "--problem", "--seq 32 --head-dim 96 --dtype bf16")  # fmt: skip
        shown = [(row["problem"]["seq_q"], row["problem"]["head_dim"], row["problem"]["causal"], row["problem"]["dtype"]) for row in rows]
        self.assertEqual(shown, [(16, 64, False, "fp16"), (32, 96, True, "bf16")])
        for bad in ("--seq 0", "--save x", "--problem x", "stray"):
            self.assertEqual(self.run_peers("--problem", bad).returncode, 2, bad)

    def test_table(self):
        done = self.run_peers("--iterations", "2")
        self.assertEqual(done.returncode, 0)
        for part in ("forward, B=8 H=12 N=1024 d=64 causal fp32, on Test GPU, torch 9.9", "TFLOP/s",
                     "refused: Expected fp16 or bf16."):  # fmt: skip
            self.assertIn(part, done.stdout)

    def test_without_torch_or_gpu(self):
        (self.path / "none" / "torch").mkdir(parents=True)
        (self.path / "none" / "torch" / "__init__.py").write_text("raise ImportError('not here')\n")
        for done, part in ((self.run_peers(torch=False), "torch cannot be imported (not here)"),
                           (self.run_peers(NO_GPU="1"), "finds no GPU")):  # fmt: skip
            self.assertEqual(done.returncode, 3)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(done.stdout, "")

    def test_bad_usage_is_one_line(self):
        for arguments in (["--seq", "0"], ["--seq", "1e3"], ["--sweep", "width=1..8"], ["--sweep", "seq=9..8"], ["--dtype", "fp8"],
                          ["--only", "triton"], ["--only", ","], ["--pass", "both"], ["--iterations", "-1"], ["--batc", "1"],
                          ["--save", "/no/such/folder/x"], ["stray"]):  # fmt: skip
            done = self.run_peers(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
