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
FAKE = pathlib.Path(__file__).with_name("fake_torch.py")


class Peers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        torch = self.path / "torch" / "nn" / "attention"
        torch.mkdir(parents=True)
        (self.path / "torch" / "__init__.py").write_text(FAKE.read_text() + "from . import nn\n")
        (self.path / "torch" / "nn" / "__init__.py").write_text("import torch\nfunctional = torch.functional\n")
        (torch / "__init__.py").write_text("from torch import SDPBackend, sdpa_kernel\n")

    def run_peers(self, *arguments, torch=True, **variables):
        environment = {**os.environ, "PYTHONPATH": self.folder.name if torch else str(self.path / "none"), **variables}
        command = [sys.executable, "-B", SCRIPT, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def rows(self, *arguments, **variables):
        done = self.run_peers("--json", *arguments, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_rows_have_the_shape_of_the_comparison(self):
        saved = self.path / "peers.json"
        rows = self.rows("--iterations", "3", "--save", str(saved), SYNC_S="0.003")
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
        timing = row["time"]
        self.assertEqual({**timing, "enqueue_ms": 0, "first_enqueue_ms": 0},
                         {"median_ms": 4, "min_ms": 2, "max_ms": 6, "iterations": 3, "cold_l2": True, "enqueue_ms": 0, "first_enqueue_ms": 0})  # fmt: skip
        self.assertGreaterEqual(timing["first_enqueue_ms"], 20)
        self.assertLess(timing["enqueue_ms"], 2)  # does not wait for the GPU
        self.assertEqual(row["extra_memory_bytes"], 77)
        self.assertAlmostEqual(row["tflops"], row["flops"] / 4e9)
        self.assertEqual(len(row["date"]), 20)
        backward = next(row for row in rows if row["variant"] == "plain" and row["pass"] == "backward")
        self.assertEqual(backward["flops"], 2.5 * row["flops"])
        self.assertEqual(backward["extra_memory_bytes"], 77)

    def test_a_backend_that_cannot_is_listed_with_its_reason(self):
        rows = self.rows("--pass", "forward")
        refused = {row["variant"]: row["message"] for row in rows if row["verdict"] == "refused"}
        self.assertEqual(refused, {"flash": "Expected fp16 or bf16.", "cudnn": "Expected fp16 or bf16."})
        self.assertTrue(all(row["verdict"] == "ok" for row in self.rows("--dtype", "bf16")))
        self.assertEqual(self.run_peers("--only", "flash,cudnn").returncode, 2)

    def test_too_little_memory_is_a_row(self):
        rows = self.rows("--seq", "8192", "--batch", "1", "--pass", "forward", "--no-causal")
        self.assertEqual([row["verdict"] for row in rows if row["variant"] == "plain"], ["cannot run"])
        self.assertEqual(self.run_peers("--seq", "8192", "--batch", "1", "--only", "plain").returncode, 3)

    def problems(self, *arguments, of=("batch", "heads", "seq_q", "head_dim", "causal", "dtype")):
        rows = self.rows("--only", "memory_efficient", "--pass", "forward", "--iterations", "1", *arguments)
        return [tuple(row["problem"][name] for name in of) for row in rows]

    def test_sweeps(self):
        rows = self.rows("--sweep", "seq=3..13", "--only", "plain", "--pass", "forward", "--no-causal", "--batch", "2")
        self.assertEqual([row["problem"]["seq_q"] for row in rows], [3, 6, 12])
        self.assertEqual(rows[1]["flops"], 4 * 2 * 12 * 36 * 64)
        self.assertEqual(self.problems("--sweep", "d=64,111", "--sweep", "causal=yes,no", of=("head_dim", "causal")),
                         [(64, True), (64, False), (111, True), (111, False)])  # fmt: skip
        self.assertEqual(self.problems("--sweep", "dtype=bf16,fp32", of=("dtype",)), [("bf16",), ("fp32",)])
        self.assertEqual(self.problems("--sweep", "head-dim=8,8000,9", of=("head_dim",)), [(8,), (8000,), (9,)])

    def test_tokens_and_width(self):
        self.assertEqual(self.problems("--tokens", "100", "--width", "200", "--sweep", "seq=30,200", "--sweep", "d=64,256"),
                         [(3, 3, 30, 64, True, "fp32"), (3, 1, 30, 256, True, "fp32"), (1, 3, 200, 64, True, "fp32"),
                          (1, 1, 200, 256, True, "fp32")])  # fmt: skip

    def test_what_contradicts_is_refused(self):
        for arguments, part in ((["--sweep", "seq=1,2", "--seq", "3"], "--sweep seq and an option for the same"),
                                (["--sweep", "causal=no,yes", "--no-causal"], "--sweep causal and"),
                                (["--sweep", "dtype=fp16", "--dtype", "fp16"], "--sweep dtype and"),
                                (["--sweep", "d=64", "--sweep", "head-dim=32"], "--sweep head_dim is given twice"),
                                (["--tokens", "64", "--batch", "2"], "--tokens and a size for batch"),
                                (["--tokens", "64", "--sweep", "batch=1,2"], "--tokens and"),
                                (["--width", "64", "--heads", "2"], "--width and a size for heads"),
                                (["--width", "64", "--sweep", "heads=1..2"], "--width and"),
                                (["--resume"], "--resume is given without --save"),
                                (["--seq", "5", "--problem", "--sweep seq=1,2"], "--sweep seq and")):  # fmt: skip
            done = self.run_peers(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_what_would_not_fit_is_skipped(self):
        rows = self.rows("--seq", "8192", "--dtype", "fp16", "--iterations", "1")
        skipped = {(row["variant"], row["pass"]): row["message"] for row in rows if row["verdict"] == "skipped"}
        # 96 heads of 8192 x 8192 in 16 bits are 12 GiB: two of them, with 384 MiB of tensors and 64 MiB of mask, or three
        self.assertEqual(skipped, {
            ("plain", "forward"): "its tensors and matrices need 24.44 GiB of GPU memory; 9.313 GiB are free",
            ("plain", "backward"): "its tensors and matrices need 36.81 GiB of GPU memory; 9.313 GiB are free"})  # fmt: skip
        self.assertFalse([row for row in rows if row["verdict"] == "skipped" and "time" in row])
        done = self.run_peers("--seq", "8192", "--batch", "9999", "--only", "memory_efficient")
        self.assertEqual(done.returncode, 3)
        self.assertIn("skipped: its tensors alone need", done.stdout)
        self.assertIn("2 of 2 runs were skipped", done.stdout)

    def test_what_would_take_too_long_is_skipped(self):
        sweep = ["--only", "memory_efficient", "--pass", "forward", "--no-causal", "--sweep", "seq=1024..4096"]
        rows = self.rows(*sweep, "--time-limit", "1")  # 24 calls of 21 ms, then four times as long
        self.assertEqual([row["verdict"] for row in rows], ["ok", "skipped", "skipped"])
        self.assertRegex(rows[1]["message"], r"^would take about 2 s; the limit is 1 s$")
        self.assertEqual([row["verdict"] for row in self.rows(*sweep, "--time-limit", "60")], ["ok", "ok", "ok"])

    def test_progress(self):
        done = self.run_peers("--only", "memory_efficient", "--sweep", "seq=1024,4096", "--pass", "forward", "--dtype", "fp16")
        lines = done.stderr.splitlines()
        self.assertEqual(lines[0], "[1/2] forward memory_efficient B=8 H=12 N=1024 d=64 causal fp16 ... ok")
        self.assertRegex(lines[1], r"^\[2/2, about \d+ s left\] forward memory_efficient B=8 H=12 N=4096 .* \.\.\. ok$")

    def test_several_problems_in_one_run(self):
        rows = self.rows("--only", "plain", "--pass", "forward", "--dtype", "fp16", "--problem", "--seq 16 --no-causal",
                         "--problem", "--seq 32 --head-dim 96 --dtype bf16")  # fmt: skip
        shown = [(row["problem"]["seq_q"], row["problem"]["head_dim"], row["problem"]["causal"], row["problem"]["dtype"]) for row in rows]
        self.assertEqual(shown, [(16, 64, False, "fp16"), (32, 96, True, "bf16")])
        self.assertEqual(len(self.problems("--problem", "--seq 16", "--problem", "--seq 32", "--problem", "--seq 16")), 2)
        for bad in ("--seq 0", "--save x", "--resume", "--time-limit 3", "--problem x", "stray"):
            self.assertEqual(self.run_peers("--problem", bad).returncode, 2, bad)

    def test_table(self):
        done = self.run_peers("--iterations", "2")
        self.assertIn("enqueue ms", done.stdout)
        self.assertEqual(done.returncode, 0)
        for part in ("forward, B=8 H=12 N=1024 d=64 causal fp32, on Test GPU, torch 9.9", "TFLOP/s",
                     "refused: Expected fp16 or bf16."):  # fmt: skip
            self.assertIn(part, done.stdout)

    def test_an_interrupted_sweep_goes_on(self):
        saved, partial = self.path / "rows.json", self.path / "rows.json.partial"
        sweep = ["--only", "memory_efficient", "--sweep", "seq=16..64", "--iterations", "2", "--save", str(saved)]
        done = self.run_peers(*sweep, INTERRUPT_AT_MS="10")  # in the third of six runs
        self.assertEqual(done.returncode, 130)
        self.assertIn(f"peers: interrupted; {partial} has the rows so far", done.stderr)
        self.assertFalse(saved.exists())
        first = json.loads(partial.read_text())
        self.assertEqual(len(first), 2)

        done = self.run_peers(*sweep)  # would throw them away
        self.assertEqual(done.returncode, 2)
        self.assertIn("--resume", done.stderr)
        self.assertEqual(json.loads(partial.read_text()), first)

        done = self.run_peers(*sweep, "--resume")
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"2 of 6 rows are kept from {partial}", done.stderr)
        rows = json.loads(saved.read_text())
        self.assertEqual(rows[:2], first)
        self.assertEqual([(row["pass"], row["problem"]["seq_q"]) for row in rows],
                         [(which, n) for n in (16, 32, 64) for which in ("forward", "backward")])  # fmt: skip
        self.assertEqual([row["time"]["median_ms"] for row in rows], [3, 7, 3, 7, 11, 15])  # the clock began anew
        self.assertEqual([path.name for path in self.path.iterdir() if "rows" in path.name], ["rows.json"])
        self.assertTrue(done.stderr.endswith(f"\nwrote {saved}: 6 rows\n"), done.stderr)

    def test_resume_runs_what_no_longer_fits_and_loses_nothing(self):
        saved = self.path / "rows.json"
        sweep = ["--only", "memory_efficient", "--pass", "forward", "--iterations", "2", "--save", str(saved), "--resume"]
        self.assertEqual(self.run_peers(*sweep, "--sweep", "seq=16..128").returncode, 0)  # nothing to resume is no error
        before = json.loads(saved.read_text())
        before[0]["torch"] = "9.8"
        before[1]["device"]["name"] = "another GPU"
        del before[2]["time"]["enqueue_ms"]
        before[3] = {**{key: value for key, value in before[3].items() if key != "time"}, "verdict": "skipped", "message": "too long"}
        kept = [{**before[0], "variant": "of a later version"}, {**before[0], "torch": "9.9", "problem": {"seq_q": 1}}]
        saved.write_text(json.dumps([*before, *kept]))
        done = self.run_peers(*sweep, "--sweep", "seq=16..128")
        self.assertNotIn("are kept", done.stderr)
        rows = json.loads(saved.read_text())
        self.assertEqual([row["problem"]["seq_q"] for row in rows[:4]], [16, 32, 64, 128])
        self.assertTrue(all(row["torch"] == "9.9" and row["device"]["name"] == "Test GPU" and "enqueue_ms" in row["time"] for row in rows[:4]))
        self.assertEqual(rows[4:], kept)
        self.assertIn("4 of 4 rows are kept", self.run_peers(*sweep, "--sweep", "seq=16..128").stderr)
        self.assertNotIn("are kept", self.run_peers(*sweep, "--sweep", "seq=16..128", "--iterations", "3").stderr)

    def test_a_damaged_file_is_refused_and_left_alone(self):
        other = {"stage": "01_naive", "variant": "naive", "pass": "forward", "problem": {}, "device": {}, "verdict": "ok", "torch": ""}
        for name in ("rows.json", "rows.json.partial"):
            for text in (json.dumps([other]), "[{]", '{"a": 1}', "[1]", '[{"stage": "01_naive"}]', "[" * 100000):
                (self.path / name).write_text(text)
                for more in ([], ["--resume"]):
                    done = self.run_peers("--save", str(self.path / "rows.json"), *more)
                    self.assertEqual(done.returncode, 2, text)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    self.assertIn(f"{name} exists and is not a file of rows that peers.py saved, so it is left as it is", done.stderr)
                    self.assertEqual((self.path / name).read_text(), text)
            (self.path / name).unlink()
        (self.path / "rows.json").write_text("[]")
        (self.path / "rows.json").chmod(0o444)
        self.assertIn("is read-only", self.run_peers("--save", str(self.path / "rows.json")).stderr)
        (self.path / "link").symlink_to("rows.json")
        self.assertEqual(self.run_peers("--save", str(self.path / "link")).returncode, 2)
        self.assertEqual(self.run_peers("--save", str(self.path)).returncode, 2)

    def test_a_broken_gpu_ends_the_sweep(self):
        done = self.run_peers("--sweep", "seq=16..64", "--only", "plain,memory_efficient", "--save", str(self.path / "rows.json"), BROKEN="1")
        self.assertEqual(done.returncode, 3)
        self.assertTrue(done.stderr.endswith("peers: the GPU fails: CUDA error: an illegal memory access was encountered\n"), done.stderr)
        self.assertEqual(len(json.loads((self.path / "rows.json.partial").read_text())), 1)

    def test_without_torch_or_gpu(self):
        (self.path / "none" / "torch").mkdir(parents=True)
        (self.path / "none" / "torch" / "__init__.py").write_text("raise ImportError('not here')\n")
        for done, part in ((self.run_peers(torch=False), "torch cannot be imported (not here)"),
                           (self.run_peers(NO_GPU="1"), "finds no GPU")):  # fmt: skip
            self.assertEqual(done.returncode, 3)
            self.assertIn(part, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(done.stdout, "")

    def test_help_fits_a_terminal(self):
        done = self.run_peers("--help", torch=False)
        self.assertEqual(done.returncode, 0)
        self.assertLessEqual(max(len(line) for line in done.stdout.split("\n")), 80)
        self.assertIn("--sweep is FIRST..LAST, doubling,", done.stdout)
        self.assertIn("\n    peers.py --dtype fp16 --problem", done.stdout)

    def test_bad_usage_is_one_line(self):
        for arguments in (["--seq", "0"], ["--seq", "1e3"], ["--sweep", "width=1..8"], ["--sweep", "seq=9..8"], ["--sweep", "seq=1,1"], ["--sweep", "seq="], ["--sweep", "seq"],
                          ["--sweep", "causal=1"], ["--sweep", "dtype=fp16..fp32"], ["--tokens", "0"], ["--time-limit", "x"], ["--dtype", "fp8"],
                          ["--only", "triton"], ["--only", ","], ["--pass", "both"], ["--iterations", "-1"], ["--batc", "1"],
                          ["--save", "/no/such/folder/x"], ["stray"]):  # fmt: skip
            done = self.run_peers(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
