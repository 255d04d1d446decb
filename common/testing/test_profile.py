#!/usr/bin/env python3
"""profile_gpu.py with stand-ins for ncu and for a stage program: names that a GPU lacks, names that ncu refuses, one head counted."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "profile_gpu.py"
NCU = r"""#!/usr/bin/env python3
import sys
words = sys.argv[1:]
if words == ["--query-metrics"]:
    print("Device NVIDIA Test (T100)\nMetric Name  Metric Type\n----")
    for name in ["sm__pipe_tensor_cycles_active", "lts__t_sector_hit_rate", "smsp__average_warps_issue_stalled_wait_per_issue_active"]:
        print(name, " Counter")
    sys.exit(0)
metrics = words[words.index("--metrics") + 1].split(",")
if "REFUSED" in metrics:
    sys.exit("==ERROR== Failed to find metric REFUSED")
print("==PROF== Profiling")
print(",".join(['"ID"', '"Kernel Name"'] + ['"%s"' % name for name in metrics]))
print(",".join(['""', '""'] + ['"%"' for _ in metrics]))
kernel = "void flash::<unnamed>::forward_kernel<__half, flash::<unnamed>::Shape<(int)128>>(flash::Problem)"
print(",".join(['"0"', '"%s"' % kernel] + ['"n/a"' if name.startswith("lts__") else '"1,%03d.5"' % i for i, name in enumerate(metrics)]))
"""
STAGE = r"""#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
heads = [words[words.index(name) + 1] for name in ("--batch", "--heads", "--kv-heads", "--device", "--tiles")]
print(json.dumps({"counters": {"seen": heads}}))
"""
SIZES = {"batch": 2, "heads": 4, "kv_heads": 4, "seq_q": 8, "seq_k": 8, "head_dim": 16, "scale": 0.25, "causal": True}
PROBLEM = {**SIZES, "bias": "none", "dtype": "fp16", "layout": "bhnd", "input": "normal", "seed": 1}
ROW = {
    "stage": "09_test",
    "variant": "v",
    "pass": "forward",
    "verdict": "ok",
    "device": {"kind": "gpu", "name": "T100"},
    "problem": PROBLEM,
}
ROW["tiles"] = {"br": 64, "bc": 32}


def run(*options, ncu=NCU):
    """(exit code, what was printed, the row)"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for program, text in [("ncu", ncu), ("09_test", STAGE)]:
            (folder / program).write_text(text)
            (folder / program).chmod(0o755)
        rows = folder / "rows.jsonl"
        rows.write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW | {'variant': 'cpu', 'device': {'kind': 'cpu', 'name': 'A CPU'}})}\n")
        before = rows.read_text()
        command = [sys.executable, "-B", SCRIPT, folder, rows, *options]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": f"{folder}:/usr/bin:/bin"})
        assert sorted(path.name for path in folder.iterdir()) == ["09_test", "ncu", "rows.jsonl"]
        assert done.returncode == 0 or rows.read_text() == before
        return done.returncode, done.stdout + done.stderr, json.loads(rows.read_text().splitlines()[0])


class Profile(unittest.TestCase):
    def test_plain(self):
        code, text, row = run()
        self.assertEqual(code, 0, text)
        (kernel,) = row["profile"]
        self.assertEqual(kernel["kernel"], "forward_kernel")
        self.assertAlmostEqual(kernel["time_us"], 1.0005)
        self.assertNotIn("tensor_percent", kernel)
        self.assertNotIn("counters_of_a_head", row)

    def test_details(self):
        code, text, row = run("--details")
        self.assertEqual(code, 0, text)
        (kernel,) = row["profile"]
        self.assertGreater(kernel["tensor_percent"], 1000)  # the second name of the list
        self.assertGreater(kernel["stall_wait"], 1000)
        self.assertIsNone(kernel["l2_hit_percent"])  # n/a
        self.assertNotIn("stall_barrier", kernel)
        self.assertIn("does not count smsp__average_warps_issue_stalled_barrier", text)
        self.assertEqual(row["counters_of_a_head"], {"seen": ["1", "1", "1", "cpu", "64,32"]})

    def test_refused_name(self):
        code, text, row = run("--details", ncu=NCU.replace("REFUSED", "lts__t_sector_hit_rate.pct"))
        self.assertEqual(code, 0, text)
        self.assertIn("details left out", text)
        self.assertGreater(row["profile"][0]["sm_percent"], 1000)

    def test_no_permission(self):
        code, text, row = run("--details", ncu="#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'\nexit 1\n")
        self.assertEqual(code, 1)
        self.assertIn("ERR_NVGPUCTRPERM", text)
        self.assertNotIn("profile", row)


if __name__ == "__main__":
    unittest.main()
