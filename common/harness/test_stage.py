#!/usr/bin/env python3
"""Stage programs as their users run them: what they accept and refuse, their exit codes, what runs without --variant and --dtype.

usage: test_stage.py FOLDER_OF_STAGE_PROGRAMS
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = sys.argv.pop(1)
NAIVE, TILES, BACKWARD, HALF = (pathlib.Path(BIN, name) for name in ("01_naive", "06_fa2_forward", "07_fa2_backward", "08_tensor_cores"))
SMALL = "--heads 1 --seq 20 --head-dim 8"


def run(options, program=NAIVE, **environment):
    words = options.split() if isinstance(options, str) else options
    command = [program, "--device=cpu", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environment})


class Stages(unittest.TestCase):
    def report(self, options, program=NAIVE):
        done = run(f"{options} --json", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def refused(self, options, code=2, program=NAIVE, says="", **environment):
        done = run(options, program, **environment)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1), (options, done))
        self.assertTrue(done.stderr.startswith(f"{program.name}: "), done.stderr)
        self.assertIn(says, done.stderr)

    def test_bad_input_is_one_line_and_exit_code_2(self):
        for options in (
            "--batc 1;--batch;--batch 1 --batch 2;--seq 8 --seq-q 8;--seq 1073741824;--layout qkv --heads 4 --kv-heads 2;--window 3,-2"
            ";--causal=maybe;--pass sideways;--values centroid;--lengths 0,0:9;--lengths 5,6 --seq 12;--bias-gradient;--head-dim 129"
            ";--dtype fp16;--window 3,0 --variant naive;--variant no-such;--list --variant no-such;--bench;--iterations 5;--tiles 32,32"
            ";--tiles 8x8;--load /no/such/folder;--load / --input normal;--save /dev/null/folder;--save /proc"
        ).split(";"):
            self.refused(options)
        for option in ("--variant", "--load", "--save", "--kv-heads", "--tiles"):
            self.refused([option, ""])
        self.refused("--tiles 7,9", program=TILES, says="64,")
        self.refused("--causal=1", says="--causal: 1 ")
        self.refused("--dtype fp32", program=HALF, says="fp16, bf16")
        self.refused("--pass backward", program=TILES, says="07_fa2_backward has one")
        self.refused("--bias matrix --bias-gradient", program=TILES, says="07_fa2_backward has one")
        self.refused("--dtype bf16", program=TILES, says="stage 08")
        for option in ("--device=tpu", "--devise=gpu", "gpu", "--variant=no-such"):
            done = run(["--list-test-cases", option], NAIVE.parents[1] / "tests/01_naive_test")
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), option)
        self.refused(["--variant", "a\nb\x1b[31m\r"], says=r"a\nb\x1b[31m\x0d")

    def test_a_refusal_names_other_stages_only_if_they_take_the_problem(self):
        safe = NAIVE.with_name("02_safe_softmax")
        self.refused("--bias matrix", program=safe, says="07")
        self.refused("--score lorentz --bias alibi", program=safe, says="07")
        self.refused("--head-dim 200", program=safe, says="08")
        for options in (
            "--head-dim 200 --window 3,0",
            "--score lorentz --softcap 2",
            "--head-dim 300",
            "--dtype fp16 --score lorentz --window 3,0",
        ):
            self.assertNotIn("stage", run(options, safe).stderr)

    def test_the_environment(self):
        for name, value in (("STEPS", "0"), ("TRAGET", "75"), ("ORDER", "a\nb")):
            self.refused(SMALL, **{f"FLASH_SIMT_{name}": value}, says=f"FLASH_SIMT_{name}")
        done = run(f"{SMALL} --json", FLASH_SIMT_TARGET="75", FLASH_SIMT_ORDER="random:7", FLASH_ATTENTION_FORCE_BUILD="1")
        device = json.loads(done.stdout)["device"]
        self.assertEqual((device["simulates_sm"], device["order"]), (75, "random:7"))
        self.refused("--variant mma --dtype bf16", 3, HALF, says="8.0", FLASH_SIMT_TARGET="75")

    def test_exit_codes_and_answers(self):
        for answer in ("--help", "--version", "--list"):
            done = run(answer)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertLessEqual(max(map(len, done.stdout.split("\n"))), 100 if answer == "--list" else 80)
        self.assertEqual(run(f"{SMALL} --input large").returncode, 1)  # 01_naive does not subtract the max
        self.refused("--heads 1 --seq 2000000 --head-dim 1", 3)
        for options in ("--help", f"{SMALL} --json"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([NAIVE, *options.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done)

    def test_a_result_that_does_not_fit_is_not_left_half_written(self):
        with tempfile.TemporaryDirectory() as folder:
            limited = "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "bash", NAIVE, *f"--device cpu --seq 32 --save {folder}".split()
            done = subprocess.run(["bash", "-c", *limited], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, os.listdir(folder)), (2, []), done)

    def test_the_problem_of_a_report_is_a_command(self):
        for options in (
            f"{SMALL} --causal --bias matrix --scale=-1e-7",
            "--lengths 9,0:4,7 --head-dim 8 --dropout 0.1 --window 3,-1 --softcap 2",
            "--heads 2 --kv-heads 1 --seq-q 5 --seq-k 7 --score lorentz --values centroid --input ramp --seed 18446744073709551615",
        ):
            problem = self.report(options)["problem"]
            words = " ".join(f"--{key.replace('_', '-')}={str(value).lower()}" for key, value in problem.items())
            self.assertEqual(self.report(words)["problem"], problem)

    def test_a_step_of_the_backward_pass_decides_the_pass(self):
        def ran(options, program):
            report = self.report(f"{SMALL} {options}", program)
            return report["pass"], report["variant"], report["kernel"].split("/")[-1]

        self.assertEqual(ran("--variant early", HALF), ("backward", "early", "5_early.cuh"))
        self.assertEqual(ran("", BACKWARD), ("backward", "one_kernel", "3_one_kernel.cuh"))
        self.assertEqual(ran("--pass forward", BACKWARD), ("forward", "one_kernel", ""))  # another step's kernel
        self.assertEqual(ran("", HALF), ("forward", "lazy_maximum", "10_lazy_maximum.cuh"))  # not the last one, which is backward
        self.assertEqual(ran("", NAIVE)[0], "forward")  # has both
        passes = {variant["name"]: variant["passes"] for variant in self.report("--list", HALF)["variants"]}
        self.assertEqual((passes["early"], passes["mma"]), (["backward"], ["forward"]))

    def test_what_runs_without_a_variant_and_a_dtype(self):
        ladder = [variant["name"] for variant in self.report("--list", TILES)["variants"] if "/more/" not in variant["kernel"]]
        self.assertEqual(self.report(SMALL, TILES)["variant"], ladder[-1])  # the others are for some problems only
        self.assertEqual(self.report(SMALL, HALF)["problem"]["dtype"], "fp16")
        for option in ("--window 5,0", "--softcap 2", "--lengths 9,11", "--dropout 0.2"):
            self.assertEqual(self.report(f"{option} --heads 1", TILES)["variant"], "options")
            self.refused(f"{option} --variant tuned", program=TILES, says=option.split()[0])

    def test_tiles(self):
        listed = self.report("--list --head-dim 80", TILES)["variants"][1]
        tiles = [(t["pass"], t["head_dims"], t["choices"][0]["br"], t["choices"][0]["threads"]) for t in listed["tiles"]]
        self.assertEqual(tiles, [("forward", [80], 32, 64)])
        problem = "--variant register_tiles --seq 40 --head-dim 8 --heads 1"
        for options, tiles, barriers in (("", (64, 32), 4), (" --tiles 128,64", (128, 64), 2)):
            report = self.report(problem + options, TILES)
            self.assertEqual((report["tiles"]["br"], report["tiles"]["bc"], report["counters"]["barriers"]), (*tiles, barriers))


if __name__ == "__main__":
    unittest.main()
