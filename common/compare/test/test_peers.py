#!/usr/bin/env python3
"""peers.py with a stand-in for torch, by itself and driven by compare: rows, refusals, time limit, resume, exit codes. No figure here is a
measurement.

    test_peers.py COMPARE
"""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import unittest

import cases

COMPARE = sys.argv.pop(1)
SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "peers.py"
SWEEP = "--variant memory_efficient --pass forward --sweep seq=16..64 --iterations 2"
FAKE = pathlib.Path(__file__).with_name("fake_torch.py")
# A stage program with a GPU; what it is asked to do goes to its log.
STAGE = f"""#!{sys.executable}
import json, sys
words = sys.argv[1:]
if "--list" in words:
    variants = [{{"name": "tiled", "idea": "i", "kernel": "", "passes": ["forward"], "dtypes": ["fp32", "fp16"]}}]
    print(json.dumps({{"stage": "01_first", "variants": variants}}))
    sys.exit()
of = dict(zip(words, words[1:]))
open(sys.argv[0] + ".log", "a").write(of["--device"] + " " + of.get("--seq-q", "probe") + "\\n")
if "no_gpu" in sys.argv[0] and of["--device"] == "gpu":
    sys.exit("no GPU answers")
print(json.dumps({{"device": {{"kind": "gpu", "name": "Test GPU"}}, "time": {{"median_ms": 1.0, "iterations": 20}}, "tflops": 1.0}}))
"""


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.write("torch/__init__.py", FAKE.read_text() + "from . import nn\n")
        self.write("torch/nn/__init__.py", "import torch\nfunctional = torch.functional\n")
        self.write("torch/nn/attention/__init__.py", "from torch import SDPBackend, sdpa_kernel\n")
        self.write("triton.py", "raise ImportError('no Triton here')")
        (self.path / "bin").mkdir()
        self.file = self.path / "rows.json"

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def environment(self, variables, torch=True):
        python = {"PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.path if torch else self.path / "none")}
        return {**os.environ, **python, **variables}

    def one_line(self, done, code, part):
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1), done.stderr)
        self.assertIn(part, done.stderr)


class Instrument(Case):
    """A line in, rows out."""

    def run_peers(self, *arguments, lines=(), torch=True, **variables):
        given = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        command = [sys.executable, SCRIPT, *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, env=self.environment(variables, torch))

    def rows(self, *lines, **variables):
        done = self.run_peers(lines=lines, **variables)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_rows_have_the_shape_of_the_comparison(self):
        rows = {(row["variant"], row["pass"]): row for row in self.rows({"iterations": 3}, SYNC_S="0.003")}
        self.assertEqual(len(rows), 10)
        row, backward = rows["memory_efficient", "forward"], rows["plain", "backward"]
        self.assertEqual((row["stage"], row["verdict"], row["device"]["name"], row["device"]["sm"]), ("peer", "ok", "Test GPU", 90))
        sizes = {"batch": 8, "heads": 12, "kv_heads": 12, "seq_q": 1024, "seq_k": 1024, "head_dim": 64, "scale": 0.125, "seed": 1}
        self.assertEqual(row["problem"], {**sizes, "causal": True, "bias": "none", "dtype": "fp32", "layout": "bhnd", "input": "normal"})
        timing = row["time"]
        self.assertGreaterEqual(timing.pop("first_enqueue_ms"), 20)
        self.assertLess(timing.pop("enqueue_ms"), 2)  # does not wait for the GPU
        self.assertEqual(timing, {"median_ms": 4, "min_ms": 2, "max_ms": 6, "iterations": 3, "cold_l2": True})
        self.assertEqual((row["torch"], row["extra_memory_bytes"], backward["extra_memory_bytes"]), ("9.9", 77, 77))
        self.assertEqual((row["flops"], backward["flops"]), (4 * 8 * 12 * (1024 * 1025 // 2) * 64, 2.5 * row["flops"]))
        self.assertAlmostEqual(row["tflops"], row["flops"] / 4e9)

    def test_a_warm_l2_is_said(self):
        asked = {"variant": "flash", "pass": "forward", "problem": {"dtype": "fp16"}}
        self.assertEqual([row["time"]["cold_l2"] for row in self.rows(asked, asked | {"cold_l2": False})], [True, False])

    def test_a_backend_that_cannot_is_listed_with_its_reason(self):
        refused = {row["variant"]: row["message"] for row in self.rows({"pass": "forward"}) if row["verdict"] == "refused"}
        no_triton = {"triton": "Triton cannot be imported (no Triton here)"}
        self.assertEqual(refused, {"flash": "Expected fp16 or bf16.", "cudnn": "Expected fp16 or bf16."} | no_triton)
        rows = self.rows({"problem": {"dtype": "bf16"}})
        self.assertEqual({row["variant"] for row in rows if row["verdict"] != "ok"}, {"triton"})

    def test_what_does_not_fit_cannot_run(self):
        rows = self.rows(
            {"problem": {"seq_q": 8192, "dtype": "fp16"}, "variant": "plain"},
            {"problem": {"seq_q": 8192, "batch": 1, "causal": False}, "variant": "plain"},
            {"problem": {"seq_q": 8192, "batch": 9999}, "variant": "memory_efficient", "pass": "forward"},
        )
        self.assertEqual({row["verdict"] for row in rows}, {"cannot run"})
        # 96 heads of 8192 x 8192 in 16 bits are 12 GiB: two of them, with 384 MiB of tensors and 64 MiB of mask, or three
        need = "its tensors and matrices need {} GiB of GPU memory; 9.31 GiB are free"
        said = [row["message"] for row in rows]
        self.assertEqual(said[:4], [need.format(24.4), need.format(36.8), "not enough GPU memory", "not enough GPU memory"])
        self.assertIn("its tensors alone need", said[4])

    def test_what_torch_is_not_asked_for_is_refused(self):
        others = {"bias": "alibi", "layout": "qkv", "input": "ones", "scale": 2.0, "window": 128}
        said = {name: f"{name} {value}" for name, value in others.items()}
        said.update(kv_heads="12 heads with 6 for keys", seq_k="1024 queries with 9 keys")
        for name, value in {**others, "kv_heads": 6, "seq_k": 9}.items():
            (row,) = self.rows({"problem": {name: value}, "variant": "memory_efficient", "pass": "forward"})
            self.assertEqual(row["verdict"], "refused", name)
            self.assertIn(f"torch is not timed with {said[name]}", row["message"])
        self.assertEqual(self.rows({"problem": {"seed": 7}, "variant": "plain", "pass": "forward"})[0]["verdict"], "ok")

    def test_bad_input_is_one_line(self):
        for line, part in (
            ("{", "no JSON"),
            ("[" * 100000, "no JSON"),
            ("3", "no object with problem"),
            ({"pas": "forward"}, "no object with"),
            ({"problem": 3}, "no object with"),
            ({"pass": "both"}, 'pass is "both"; allowed: forward, backward'),
            ({"variant": "jax"}, "allowed: flash, cudnn"),
            ({"iterations": 0}, "iterations is 0"),
            ({"cold_l2": 1}, "cold_l2 is 1; allowed: true, false"),
            ({"problem": {"seq_q": 0}}, "problem.seq_q is 0"),
            ({"problem": {"dtype": "fp8"}}, 'dtype is "fp8"'),
        ):
            self.one_line(self.run_peers(lines=[line]), 2, part)
        self.assertIn("unrecognized arguments: --seq 5", self.run_peers("--seq", "5").stderr)
        self.assertEqual(len(self.run_peers(lines=[{"pass": "forward"}, "{"]).stdout.splitlines()), 5)  # what came before stands

    def test_a_broken_gpu_ends_it(self):
        done = self.run_peers(lines=[{"variant": "memory_efficient"}], BROKEN="1024")
        self.one_line(done, 1, "peers: the GPU fails: CUDA error: an illegal memory access was encountered")

    def test_without_torch_or_gpu(self):
        self.write("none/torch.py", "raise ImportError('not here')\n")
        self.one_line(self.run_peers(torch=False), 3, "torch cannot be imported (not here)")
        self.one_line(self.run_peers(NO_GPU="1"), 3, "finds no GPU")
        done = self.run_peers("--help", torch=False)
        self.assertEqual(done.returncode, 0)
        self.assertLessEqual(max(len(line) for line in done.stdout.split("\n")), 80)
        self.assertIn("\n    build/bin/compare --only peer ", done.stdout)


class Driven(Case):
    """By compare."""

    def command(self, words, *more):
        return [COMPARE, "--bin", str(self.path / "bin"), *shlex.split(words), *map(str, more)]

    def compare(self, words, *more, **variables):
        return subprocess.run(self.command(words, *more), capture_output=True, text=True, env=self.environment(variables), timeout=60)

    def peers(self, words, *more, code=0, **variables):
        done = self.compare(f"--only peer --json {words}", *more, **variables)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def saved(self):
        return json.loads(self.file.read_text())

    def stage(self, name="01_first"):
        path = self.write(f"bin/{name}", STAGE)
        path.chmod(0o700)
        return path

    def test_beside_the_stages_and_after_them(self):
        log = self.stage().with_name("01_first.log")
        done = self.compare("--peers --dtype fp16 --pass forward --no-counts --sweep seq=64,128 --wide --save", self.file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(log.read_text().split("\n")[1:], ["gpu 64", "gpu 128", ""])
        rows = self.saved()
        expected = [("01_first", 64), ("01_first", 128)] + [("peer", n) for n in (64, 128) for _ in range(5)]
        self.assertEqual([(row["stage"], row["problem"]["seq_q"]) for row in rows], expected)
        known = {"commit", "date", "torch", "sources", "kernel", "wall_s"}
        self.assertEqual([known - set(row) for row in rows[1:3]], [{"kernel", "torch"}, {"kernel", "sources"}])
        said = "^comparing 1 stage and torch 9.9 on the GPU, each stage checked against .*: 12 runs over 2 problems\n"
        self.assertRegex(done.stderr, said)
        table = done.stdout[: done.stdout.index("Nq=128")]
        for part in ("01_first/tiled", "peer/flash", "enqueue", "min", "torch SDPA, cuDNN"):
            self.assertIn(part, table)
        self.assertNotIn("peer", self.compare("--only 01 --no-counts").stdout)
        rows = json.loads(self.compare("--only peer,01 --json --no-counts").stdout)
        self.assertEqual({row["stage"] for row in rows}, {"01_first", "peer"})

    def test_sweeps_and_problems(self):
        sweep = "--variant plain --pass forward --dtype fp16 --tokens 100 --width 200 --sweep seq=30,200 --iterations 2"
        rows = self.peers(f"{sweep} --problem --no-causal --problem '--head-dim 96 --dtype bf16' --problem --no-causal")
        names = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "causal", "dtype")
        expected = [(3, 3, 3, 30, 30, 64, False, "fp16"), (1, 3, 3, 200, 200, 64, False, "fp16")]
        expected += [(3, 2, 2, 30, 30, 96, True, "bf16"), (1, 2, 2, 200, 200, 96, True, "bf16")]
        self.assertEqual([tuple(row["problem"][name] for name in names) for row in rows], expected)
        self.assertEqual([row["time"]["iterations"] for row in rows], [2] * 4)
        for bad, part in (
            ("--seq 0", "--problem is '--seq 0': --seq is '0'"),
            ("--save x", "--save"),
            ("--help", "--help"),
            ("", "allowed: options of a problem"),
            ("stray", "stray"),
            ("--seq 5 --seq-q 6", "are both given"),
            ("--causal --no-causal", "are both given"),
            ("--sweep d=8,16 --head-dim 8", "are both given"),
        ):
            self.one_line(self.compare("--only peer --problem", bad), 2, part)
        self.one_line(self.compare("--only peer --dtype fp16 --problem '--sweep dtype=fp16,bf16'"), 2, "are both given")

    def test_refusals_and_lack_of_memory_are_rows(self):
        self.assertEqual(self.compare("--only peer --variant flash,cudnn").returncode, 2)
        done = self.compare("--only peer --seq 8192 --batch 9999 --variant memory_efficient")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stdout, "cannot run(.|\n)*its tensors alone need")
        rows = self.peers("--kv-heads 6 --variant plain", code=2)
        self.assertEqual({row["message"] for row in rows}, {"torch is not timed with 12 heads with 6 for keys and values"})

    def test_what_hangs_or_dies_is_a_row_and_the_others_run(self):
        began = time.monotonic()
        rows = self.peers(f"{SWEEP} --time-limit 1", HANG="32", LOAD_S="1.1")  # loading torch is no part of a run
        self.assertEqual([row["verdict"] for row in rows], ["ok", "TIMED OUT", "skipped"])
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual((rows[1]["problem"]["seq_q"], rows[1]["torch"], rows[1]["device"]["name"]), (32, "9.9", "Test GPU"))
        apart = SWEEP.replace("--sweep seq=16..64", "--problem '--seq 16' --problem '--seq 32' --problem '--seq 8'")
        rows = self.peers(f"{apart} --time-limit 1", HANG="32")
        self.assertEqual([row["verdict"] for row in rows], ["ok", "TIMED OUT", "ok"])
        self.assertEqual([row["time"]["median_ms"] for row in rows[::2]], [3, 3])  # the last in a new process, whose clock begins anew
        gpu_fails = "peers: the GPU fails: CUDA error: an illegal"
        for way, verdict, message in (("DIE", "CRASHED", "ended by signal 9"), ("BROKEN", "STOPPED", gpu_fails)):
            rows = self.peers(SWEEP, code=1, **{way: "32"})
            self.assertEqual([row["verdict"] for row in rows], ["ok", verdict, "ok"])
            self.assertIn(message, rows[1]["message"])

    def test_what_would_take_too_long_is_skipped(self):
        sweep = "--only peer --variant memory_efficient --pass forward --no-causal --sweep seq=1024,8192 --iterations 5 --batch 1"
        done = self.compare(f"{sweep} --time-limit 1", SYNC_S="0.02")
        end = r"(ok|skipped: would take about \d+ s; the limit is 1 s)\n"
        self.assertRegex(done.stderr, r"\[2/2, about \d+ s left\] forward peer/memory_efficient \.\.\. " + end)

    def test_an_interrupted_sweep_leaves_its_rows(self):
        sweep = self.command("--only peer --variant memory_efficient --sweep seq=16..64 --iterations 2 --save", self.file)
        environment = self.environment({"HANG": "32"})
        program = subprocess.Popen(sweep, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        partial = self.path / "rows.json.partial"
        while not partial.exists() or len(json.loads(partial.read_text())) < 2:
            self.assertIsNone(program.poll(), "it ended before it had two rows")
            time.sleep(0.02)
        program.send_signal(signal.SIGTERM)
        said = program.communicate(timeout=20)[1]
        self.assertEqual(program.returncode, -signal.SIGTERM)
        self.assertIn("compare: stopped; 2 of 6 runs are saved, the others run with", said)

    def test_resume_runs_what_no_longer_holds_and_loses_nothing(self):
        sweep = f"--variant memory_efficient --pass forward --sweep d=64,96 --sweep seq=16,32 --iterations 2 --save {self.file} --resume"
        before = self.peers(sweep)
        self.assertEqual(before, self.saved())
        before[0]["torch"] = "9.8"
        before[1]["device"]["name"] = "another GPU"
        before[2]["problem"]["scale"] = 96**-0.5  # with the digits of Python
        before[3].update(verdict="skipped", message="too long")
        self.file.write_text(json.dumps(before))
        self.assertIn("1 of 4 runs are saved and still hold", self.compare(f"--only peer {sweep}").stderr)
        rows = self.saved()
        self.assertEqual([row["problem"]["seq_q"] for row in rows], [16, 32, 16, 32, 32])
        self.assertEqual({(row["verdict"], row["torch"]) for row in rows}, {("ok", "9.9")})
        self.assertEqual((rows[2], rows[4]), (before[2], before[1]))
        self.assertIn("4 of 4 runs", self.compare(f"--only peer {sweep}").stderr)
        self.assertIn("0 of 4 runs", self.compare(f"--only peer {sweep}", TORCH="9.10").stderr)
        self.assertIn("0 of 4 runs", self.compare(f"--only peer {sweep}".replace("iterations 2", "iterations 3")).stderr)

    def test_rows_of_peers_are_replaced_by_rows_of_peers(self):
        run = f"--pass forward --seq 16 --dtype fp16 --save {self.file}"
        self.peers(run)
        self.stage()
        self.one_line(self.compare(f"{run} --no-counts"), 2, "holds rows of peers.py, which this run would replace")
        self.assertEqual(len(self.saved()), 5)
        self.assertEqual(self.compare(f"{run} --no-counts --peers").returncode, 0)
        self.assertEqual(len(self.saved()), 6)

    def test_without_what_peers_need(self):
        needs = "--peers needs Python, torch and a GPU"
        self.one_line(self.compare("--only peer", NO_GPU="1"), 3, f"{needs}: peers: torch 9.9 finds no GPU")
        self.one_line(self.compare("--only peer", PYTHON="/no/such/python"), 2, needs)
        self.one_line(self.compare("--peers --device cpu"), 2, "--peers and --device cpu are both given")
        self.one_line(self.compare("--only peer --variant jax"), 2, "allowed: flash, cudnn, memory_efficient, triton, plain")
        self.stage("01_no_gpu")
        self.one_line(self.compare("--peers"), 3, "--peers needs a GPU, but it does not work: no GPU answers")


if __name__ == "__main__":
    unittest.main()
