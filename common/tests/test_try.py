#!/usr/bin/env python3
"""common/try.sh in a copy of the project, on what people do to a kernel; and host_only.awk."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = "01_naive/kernel.cuh"


class Try(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash try.")
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name).resolve()
        for path in ROOT.iterdir():
            if re.match(r"\d\d_|common$|docs$", path.name):
                shutil.copytree(path, self.root / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.name.startswith("CMake"):
                shutil.copy2(path, self.root)

    def run_it(self, *words, seconds="1"):
        """(exit code, what it printed)"""
        env = {**os.environ, "TRY_SECONDS": seconds}
        options = {"env": env, "text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run([self.root / "common/try.sh", *words], cwd="/", **options)
        return done.returncode, done.stdout

    def edited(self, text, by, seconds="1"):
        """What it says of a kernel with this edit, which is undone"""
        path = self.root / KERNEL
        before = path.read_text()
        self.assertIn(text, before)
        path.write_text(before.replace(text, by, 1))
        answer = self.run_it("01", "--device", "cpu", seconds=seconds)
        path.write_text(before)
        return answer

    def test_bad_usage_is_one_line(self):
        for words in ((), ("17",), ("fa",), ("--seconds", "1")):
            code, out = self.run_it(*words)
            self.assertEqual((code, out.count("\n")), (2, 1), out)

    def test_a_stage(self):
        code, out = self.run_it("1")
        self.assertEqual((code, "It is right with" in out, "try: no mistake found in" in out), (0, True, True), out)
        self.assertEqual(self.run_it("01", "--nonsense")[0], 2)
        code, out = self.edited("\n  const int", "\n  foo;\n  const int")
        self.assertEqual(
            (code, out.startswith(f"{KERNEL}:"), "error: 'foo'" in out.replace("‘", "'").replace("’", "'")), (1, True, True), out
        )
        self.assertLess(out.count("\n"), 12)
        code, out = self.edited("\n  const int", "\n  (void)std::max(1, 2);\n  const int")
        self.assertEqual((code, "'std::max' belongs to the host" in out), (1, True), out)
        line = (self.root / KERNEL).read_text().partition("\n  const int")[0].count("\n") + 2
        wrong = "const auto wrong = [](auto x) { return sizeof(Vector<decltype((x))>); };\n  const auto call = [&](auto x) { wrong(x); };"
        code, out = self.edited("\n  const int", f"\n  {wrong}\n  call(1);\n  const int")
        self.assertRegex(out, rf"common/[\w/]+/view.\w+:\d+:\d+: error: (.*\n)+{KERNEL}:{line}:\d+: required from here\n")
        code, out = self.edited("= plain_problem}", "= Features::none}", seconds="9")
        self.assertRegex(out, "Not tested, since variant naive does not take it: .*--seq-q unlike --seq-k.*\ntry: no mistake")
        self.assertNotIn("It is right with", out)
        turns = "\n  __shared__ unsigned turn;\n  if (threadIdx.x == 0) turn = 0;\n  __syncthreads();\n"
        code, out = self.edited("\n  const int", turns + "  if (atomicAdd(&turn, 1u) > threadIdx.x + 1) return;\n  const int")
        self.assertRegex(out, "This is wrong: FLASH_SIMT_ORDER=random:1 .*try.sh 01 --device cpu --variant naive --seq-q 70 ")
        code, out = self.edited("expf(S(i, j)) * inverse", "S(i, j) * inverse")
        self.assertEqual((code, "01_naive is WRONG" in out), (1, True), out)


class HostOnly(unittest.TestCase):
    def refused(self, *files):
        return subprocess.run(["awk", "-f", ROOT / "common/tests/host_only.awk", *files], capture_output=True, text=True).stdout

    def test_no_kernel_of_the_project_is_refused(self):
        self.assertEqual(self.refused(*ROOT.glob("[0-9][0-9]_*/**/*.cuh"), *ROOT.glob("common/*/*.cuh")), "")

    def test_names_in_cuda_functions_alone(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cuh") as file:
            file.write(
                "std::vector<int> host() { return {rand()}; }\n"
                "template <class T>\n__device__ inline T f(std::array<T, 3> x,\n T y) {  // std::list\n"
                '  if (std::is_same_v<T, float>) { return "std::map"[0]; }\n'
                "  return rand() + operand(std::int64_t{1});\n}\n"
                "__global__ void kernel();\nint other() { return std::max(1, 2); }\n"
            )
            file.flush()
            found = [line.split(":")[1] + line.split("'")[1] for line in self.refused(file.name).splitlines() if "error" in line]
        self.assertEqual(found, ["3std::array", "6rand"])


if __name__ == "__main__":
    unittest.main()
