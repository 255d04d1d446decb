#!/usr/bin/env python3
"""compare --only peer: peers.py with a stand-in for torch, alone and beside a stage. No figure here is a measurement.

test_peers.py COMPARE
"""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from rows import changed  # noqa: E402

COMPARE = sys.argv.pop(1)
FAKE = pathlib.Path(__file__).with_name("fake_torch.py")
PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers.py"
SWEEP = "--only peer --variant memory_efficient --pass forward --sweep seq=16,32,64 --iterations 2"
# A stage program with a GPU; what it is asked to do goes to its log.
STAGE = f"""#!{sys.executable}
import json, sys
words = sys.argv[1:]
if "--list" in words:
    variants = [{{"name": "tiled", "idea": "i", "kernel": "01_naive/kernel.cuh", "passes": ["forward"], "dtypes": ["fp32", "fp16"]}}]
    print(json.dumps({{"stage": "01_first", "variants": variants}}))
    sys.exit()
of = dict(zip(words, words[1:]))
open(sys.argv[0] + ".log", "a").write(of["--device"] + " " + of.get("--seq-q", "probe") + "\\n")
if "no_gpu" in sys.argv[0] and of["--device"] == "gpu":
    sys.exit("no GPU answers")
print(json.dumps({{"device": {{"kind": "gpu", "name": "Test GPU"}}, "time": {{"median_ms": 1.0, "iterations": 20}}, "tflops": 1.0}}))
"""


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.file = self.path / "rows.jsonl"
        self.write("torch/__init__.py", FAKE.read_text() + "from . import nn\n")
        self.write("torch/nn/__init__.py", "import torch\nfunctional = torch.functional\n")
        self.write("torch/nn/attention/__init__.py", "from torch import SDPBackend, sdpa_kernel\n")
        self.write("triton.py", "raise ImportError('no Triton here')")
        self.write("bin/README", "")

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o700)
        return path

    def start(self, words, **variables):
        python = {"PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.path)}
        command = [COMPARE, "--bin", str(self.path / "bin"), *shlex.split(words)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env={**os.environ, **python, **variables}, **streams)

    def compare(self, words, code=0, **variables):
        program = self.start(words, **variables)
        self.stdout, self.stderr = program.communicate(timeout=60)
        self.assertEqual(program.returncode, code, self.stderr)
        return self.stdout

    def rows(self, words, **how):
        """What a run saves."""
        self.file.unlink(missing_ok=True)
        self.compare(f"{words} --save {self.file}", **how)
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def refused(self, words, code, part, **variables):
        self.assertEqual((self.compare(words, code, **variables), self.stderr.count("\n")), ("", 1), self.stderr)
        self.assertIn(part, self.stderr)

    def test_after_the_stages_in_the_same_table(self):
        log = self.write("bin/01_first", STAGE).with_name("01_first.log")
        table = self.compare(f"--only 01,peer --dtype fp16 --pass forward --sweep seq=64,128 --wide --save {self.file}")
        self.assertEqual(log.read_text().split("\n")[1:], ["gpu 64", "gpu 128", ""])
        for part in ("01_first/tiled", "peer/flash", "torch SDPA, cuDNN"):
            self.assertIn(part, table[: table.index("Nq=128")])
        rows = [json.loads(line) for line in self.file.read_text().splitlines()]
        expected = [("01_first", 64), ("01_first", 128)] + [("peer", n) for n in (64, 128) for _ in range(6)]
        self.assertEqual([(row["stage"], row["problem"]["seq_q"]) for row in rows], expected)
        self.assertEqual((len(rows[0]["sources"]) > 0, changed(rows[0]["sources"])), (True, []))  # compare's hashes are those of rows.py
        self.assertNotIn("peer", self.compare("--only 01"))

    def test_a_row_says_what_was_timed(self):
        sizes = {"batch": 3, "heads": 3, "kv_heads": 3, "seq_q": 30, "seq_k": 30, "head_dim": 64, "scale": 0.125, "seed": 1}
        (row,) = self.rows("--only peer --variant plain --pass forward --dtype fp16 --tokens 100 --width 200 --seq 30 --iterations 3")
        self.assertEqual(row["problem"], {**sizes, "causal": True, "bias": "none", "dtype": "fp16", "layout": "bhnd", "input": "normal"})
        timing = {key: value for key, value in row["time"].items() if "enqueue" not in key}
        self.assertEqual(timing, {"median_ms": 4, "min_ms": 2, "max_ms": 6, "iterations": 3, "cold_l2": True})
        self.assertEqual((row["torch"], row["cudnn"], row["device"]["name"]), ("9.9", "9.19.0", "Test GPU"))
        self.assertEqual((row["flops"], row["extra_memory_bytes"]), (4 * 3 * 3 * 30 * 31 / 2 * 64, 77))
        self.assertEqual({"commit", "date"} - set(row), set())

    def test_refusals_and_lack_of_memory_are_rows(self):
        rows = self.rows("--only peer --pass forward")
        said = {row["variant"]: row["message"] for row in rows if row["verdict"] == "refused"}
        missing = {"triton": "Triton cannot be imported (no Triton here)"}
        missing["flash3"] = "FlashAttention-3 is not installed (pip install xformers==0.0.34)"
        self.assertEqual(said, {"flash": "Expected fp16 or bf16.", "cudnn": "Expected fp16 or bf16."} | missing)
        self.compare("--only peer --variant flash,cudnn", 2)
        table = self.compare("--only peer --seq 8192 --batch 9999 --variant memory_efficient", 3)
        self.assertRegex(table, "cannot run(.|\n)*its tensors alone need")
        self.compare("--only peer --kv-heads 6 --variant plain", 2)
        self.assertIn("plain is not timed with 12 heads with 6 for keys and values", self.stderr)

    def test_shared_heads_and_other_lengths(self):
        words = "--only peer --pass forward --dtype fp16 --batch 1 --heads 4 --kv-heads 2 --seq-q 32 --seq-k 64 --head-dim 64"
        rows = self.rows(f"{words} --no-causal --variant flash,cudnn,plain")
        self.assertEqual([row["verdict"] for row in rows], ["ok", "ok", "refused"])
        self.assertEqual([row["flops"] for row in rows], [4 * 4 * 32 * 64 * 64] * 3)
        self.compare(f"{words} --causal --variant cudnn", 2)
        self.assertIn("cudnn is not timed with 32 queries with 64 keys", self.stderr)

    def test_what_hangs_or_dies_is_a_row_and_the_others_run(self):
        gpu_fails = "peers: the GPU fails: CUDA error: an illegal"
        for way, verdict, message in (("DIE", "CRASHED", "ended by signal 9"), ("BROKEN", "STOPPED", gpu_fails), ("HANG", "TIMED OUT", "")):
            limit, code = ("--time-limit 1", 0) if way == "HANG" else ("", 1)
            rows = self.rows(f"{SWEEP} {limit}", code=code, LOAD_S="1.1" if way == "HANG" else "0", **{way: "32"})  # loading is no run
            self.assertEqual([row["verdict"] for row in rows], ["ok", verdict, "ok"])
            self.assertEqual((rows[1]["problem"]["seq_q"], rows[1]["torch"]), (32, "9.9"))
            self.assertIn(message, rows[1].get("message", ""))
            self.assertEqual(rows[2]["time"]["median_ms"], 3)  # in a new process, whose clock begins anew

    def test_an_interrupted_sweep_goes_on_and_another_torch_runs_all(self):
        sweep = f"{SWEEP} --save {self.file} --resume"
        program = self.start(sweep, HANG="32")
        while program.poll() is None and not (self.file.exists() and self.file.read_text()):
            time.sleep(0.02)
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=20)
        self.assertEqual(program.returncode, -signal.SIGTERM)
        self.compare(sweep)
        self.assertIn("1 of 3 runs are saved", self.stderr)
        for variables, held in (({}, 3), ({"TORCH": "9.10"}, 0)):
            self.compare(sweep, **variables)
            self.assertIn(f"{held} of 3 runs", self.stderr)

    def test_without_what_peers_need(self):
        needs = "--only peer needs Python, torch and a GPU"
        self.refused("--only peer", 3, f"{needs}: peers: torch 9.9 finds no GPU", NO_GPU="1")
        self.refused("--only peer", 2, needs, PYTHON="/no/such/python")
        self.refused("--only peer --device cpu", 2, "--only peer and --device cpu are both given")
        self.refused("--only peer --variant jax", 2, "allowed: cudnn, flash, flash3, memory_efficient, plain, triton")
        self.write("bin/01_no_gpu", STAGE)
        self.refused("--only 01,peer", 3, "--only peer needs a GPU, but it does not work: no GPU answers")

    def test_bad_input_of_peers_is_one_line(self):
        environment = {**os.environ, "PYTHONPATH": str(self.path), "PYTHONDONTWRITEBYTECODE": "1"}
        sizes = dict.fromkeys(("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim"), 1)
        problem = {**sizes, "causal": False, "dtype": "fp32", "bias": "none", "layout": "bhnd"}
        good = {"problem": problem, "variant": "plain", "pass": "forward", "iterations": 1}
        wrong = (
            {"pass": "both"},
            {"variant": "jax"},
            {"variant": []},
            {"iterations": 0},
            {"problem": {**problem, "seq_q": 0}},
            {"problem": 3},
        )
        for line in ("{", "3", "[]", "{}", *(json.dumps({**good, **change}) for change in wrong)):
            done = subprocess.run([sys.executable, PEERS], input=line, capture_output=True, text=True, env=environment)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
