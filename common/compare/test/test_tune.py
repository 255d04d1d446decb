#!/usr/bin/env python3
"""tune.py with a stand-in for a stage program: which problems it asks for, what it saves, and what is left of an interrupted run."""
import contextlib
import io
import json
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tune  # noqa: E402
from rows import usage  # noqa: E402

# `last` is about the backward pass; its forward pass is that of `second`. In a folder with `bad` in its name, d = 64 fails.
STAGE = f'''#!{sys.executable}
import json, os, sys
if "--list" in sys.argv:
    tiles = [dict(zip(("pass", "head_dims"), two)) for two in (("forward", [64, 32]), ("backward", [32]))]
    print(json.dumps({{"variants": [{{"name": "first", "passes": ["forward"], "tiles": tiles[:1]}},
                                    {{"name": "second", "passes": ["forward"], "tiles": tiles[:1]}},
                                    {{"name": "last", "passes": ["forward", "backward"], "tiles": tiles}}]}}))
    sys.exit(0)
words = sys.argv[1:]
of = {{words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}}
if of["--head-dim"] == "64" and "bad" in sys.argv[0]:
    print("no room", file=sys.stderr)
    sys.exit(3)
problem = {{"batch": int(of["--batch"]), "heads": int(of["--heads"]), "seq_q": int(of["--seq"]), "head_dim": int(of["--head-dim"]), "causal": "--causal" in words}}
choice = {{"br": 64, "bc": 32, "time": {{"median_ms": 1.0, "iterations": int(of["--iterations"])}}}}
print(json.dumps({{"stage": os.path.basename(sys.argv[0]), "variant": of["--variant"], "pass": of["--pass"], "kernel": "01_naive/kernel.cuh", "problem": problem,
                  "device": {{"kind": of["--device"]}}, "asked": " ".join(words), "tune": {{"choices": [choice], "default": {{"br": 64, "bc": 32}}, "fastest": None}}}}))
'''


class Tune(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "tuned.json"
        self.partial = self.folder / "tuned.json.partial"

    def bin_dir(self, name="bin"):
        path = self.folder / name
        path.mkdir()
        for stage in ("06_a", "08_b"):
            (path / stage).write_text(STAGE)
            (path / stage).chmod(stat.S_IRWXU)
        return path

    def tune(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = tune.main([str(word) for word in arguments])
        return code, out.getvalue(), err.getvalue()

    def test_of_each_pass_the_last_variant_over_widths_and_masks(self):
        code, out, _ = self.tune(self.bin_dir(), "--only", "08", "--tokens", "8192", "--save", self.file)
        self.assertEqual(code, 0)
        asked = [row["asked"] for row in json.loads(self.file.read_text())]
        shape = "--tune --json --device gpu --variant {} --pass {} --batch 2 --heads {} --seq 4096 --head-dim {} --iterations 5{}"
        expected = [("second", "forward", 32, 32), ("second", "forward", 16, 64), ("last", "backward", 32, 32)]
        self.assertEqual(asked, [shape.format(*one, mask) for one in expected for mask in ("", " --causal")])
        self.assertEqual(len(out.splitlines()), 6)
        self.assertIn("08_b last backward d=32 causal: default 64,32, fastest -", out)
        self.assertFalse(self.partial.exists())
        self.assertIn("01_naive/kernel.cuh", json.loads(self.file.read_text())[0]["sources"])

    def test_a_failed_run_is_said_and_the_others_are_kept_apart(self):
        self.file.write_text("[]")
        out = io.StringIO()
        with self.assertRaisesRegex(usage.Failure, "2 of 6 runs failed; .*partial has the rows of the others, --resume goes on") as caught:
            with contextlib.redirect_stderr(out):
                self.tune(self.bin_dir("bad"), "--only", "06", "--save", self.file)
        self.assertEqual(caught.exception.code, 1)
        self.assertEqual(self.file.read_text(), "[]")
        self.assertEqual(len(json.loads(self.partial.read_text())), 4)

    def interrupted(self):
        """After the first row."""
        with mock.patch.object(tune, "tiles_text", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.tune(self.bin_dir(), "--only", "08", "--save", self.file)

    def test_an_interrupted_run_leaves_its_rows_and_the_file_of_before(self):
        self.file.write_text("[]")
        self.interrupted()
        self.assertEqual(self.file.read_text(), "[]")
        self.assertEqual(len(json.loads(self.partial.read_text())), 1)
        with self.assertRaisesRegex(usage.Failure, "interrupted; allowed: --resume"):
            self.tune(self.folder / "bin", "--save", self.file)
        self.assertEqual(len(json.loads(self.partial.read_text())), 1)

    def test_resume_runs_what_is_missing_or_no_longer_holds(self):
        self.interrupted()
        kept = json.loads(self.partial.read_text())
        kept[0]["asked"] = "before"
        cases = [({}, "before"), ({"sources": {"01_naive/kernel.cuh": "0" * 40}}, None), ({"device": {"kind": "cpu"}}, None)]
        cases.append(({"tune": {**kept[0]["tune"], "choices": [{"time": {"iterations": 7}}]}}, None))
        for changes, asked in cases:
            with self.subTest(changes):
                self.partial.write_text(json.dumps([{**kept[0], **changes}]))
                self.assertEqual(self.tune(self.folder / "bin", "--only", "08", "--save", self.file, "--resume")[0], 0)
                rows = json.loads(self.file.read_text())
                self.assertEqual(len(rows), 6)
                self.assertEqual(rows[0]["asked"] == "before", asked == "before")

    def test_what_is_not_its_own_is_not_replaced(self):
        programs = self.bin_dir()
        for text in ("my notes", json.dumps([{"stage": "peer"}])):
            for more in ([], ["--resume"], ["--force"]):
                self.file.write_text(text)
                with self.assertRaisesRegex(usage.Failure, "tuned.json exists and is not a file of rows that tune.py saved, so it is left"):
                    self.tune(programs, "--save", self.file, *more)
                self.assertEqual(self.file.read_text(), text)

    def test_rows_of_a_gpu_are_replaced_by_those_of_the_cpu_with_force_alone(self):
        run = [self.bin_dir(), "--only", "08", "--save", self.file]
        self.assertTrue(self.tune(*run)[2].endswith("wrote " + str(self.file) + ": 6 rows\n"))
        before = self.file.read_text()
        with self.assertRaisesRegex(usage.Failure, "tuned.json holds rows of a GPU, which this run would replace"):
            self.tune(*run, "--device", "cpu")
        self.assertEqual(self.file.read_text(), before)
        self.tune(*run, "--device", "cpu", "--force")
        self.assertEqual({row["device"]["kind"] for row in json.loads(self.file.read_text())}, {"cpu"})
        self.tune(*run)  # those of the CPU are made again in a minute

    def test_counts_hold_for_the_gpu_that_was_simulated(self):
        run = [self.bin_dir(), "--only", "08", "--save", self.file, "--device", "cpu"]
        self.tune(*run)
        rows = json.loads(self.file.read_text())
        for row, sm in zip(rows, (75, 90)):
            row["device"]["simulates_sm"] = sm
        self.file.write_text(json.dumps([{**row, "asked": "before"} for row in rows]))
        self.tune(*run, "--resume")
        asked = [row["asked"] for row in json.loads(self.file.read_text())]
        self.assertEqual([one == "before" for one in asked], [False] + [True] * 5)

    def test_bad_usage(self):
        for words in ([], [self.folder], [self.bin_dir(), "--only", "05"], [self.folder / "bin", "--tokens", "0"], [self.folder / "bin", "--resume"], [self.folder / "bin", "--force"],
                      [self.folder / "bin", "--save", self.folder / "none" / "tuned.json"]):  # fmt: skip
            with self.assertRaises(usage.Failure) as caught:
                self.tune(*words)
            self.assertEqual(caught.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
