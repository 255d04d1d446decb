#!/usr/bin/env python3
"""resources.py on what cuobjdump prints: good kernels, a spilled one, none at all."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "resources.py"
GOOD = """
Fatbin elf code:
================
arch = sm_90a
Resource usage:
 Common:
  GLOBAL:0
 Function _ZN5flash46_GLOBAL__N__0123abcd_13_kernel_gpu_cu_89abcdef14forward_kernelILi64E6float4EEvNS_7ProblemE:
  REG:240 STACK:0 SHARED:8448 LOCAL:0 CONSTANT[2]:20 CONSTANT[0]:800 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function plain:
  REG:32 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def run(printed):
    """(exit code, stdout and stderr, what was saved)"""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fake = folder / "cuobjdump"
        fake.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
        fake.chmod(0o755)
        saved = folder / "out" / "resources.json"
        command = [sys.executable, "-B", SCRIPT, "--stage", "09_test", "--cuobjdump", fake, "--strict", "75,90a"]
        command += ["--save", saved, "kernel_gpu.cu.o"]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr, json.loads(saved.read_text()) if saved.exists() else None


class Resources(unittest.TestCase):
    def test_good_kernels(self):
        code, text, saved = run(GOOD)
        self.assertEqual(code, 0, text)
        self.assertIn("not checked: sm_80", text)
        self.assertEqual(saved["stage"], "09_test")
        self.assertEqual([row["kernel"] for row in saved["kernels"]], ["forward_kernel<64, float4>", "plain"])
        self.assertEqual(
            saved["kernels"][0],
            {
                "arch": "sm_90a",
                "file": "09_test/kernel.cuh",
                "kernel": "forward_kernel<64, float4>",
                "registers": 240,
                "static_shared_bytes": 8448,
                "stack_bytes": 0,
                "local_bytes": 0,
            },
        )

    def test_a_stack_or_local_memory_fails(self):
        for bad in (GOOD.replace("REG:32 STACK:0", "REG:32 STACK:200"), GOOD.replace("SHARED:0 LOCAL:0", "SHARED:0 LOCAL:8")):
            code, text, _ = run(bad)
            self.assertEqual(code, 1)
            self.assertIn("FAILED: plain of 09_test/kernel.cuh for sm_90a", text)

    def test_elsewhere_a_spill_is_said_and_no_failure(self):
        elsewhere = GOOD.replace("sm_90a", "sm_89").replace("REG:32 STACK:0", "REG:32 STACK:8")
        code, text, _ = run(elsewhere)
        self.assertEqual(code, 0)
        self.assertIn("slower than it could be: plain of 09_test/kernel.cuh for sm_89 uses 8 bytes of stack", text)
        self.assertEqual(run(elsewhere + GOOD.replace("REG:32 STACK:0", "REG:32 STACK:8"))[0], 1)

    def test_no_kernel_is_no_success(self):
        code, text, _ = run("nothing")
        self.assertNotEqual(code, 0)
        self.assertIn("no kernel", text)


if __name__ == "__main__":
    unittest.main()
