#!/usr/bin/env python3
"""common/try.sh, in a project of scripts: what it builds and runs, what it shows of a failure, and its exit codes."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = """#!/bin/sh
echo "$*" >>"$FAKE/cmake.txt"
case "$*" in
--preset*) mkdir -p build && touch build/build.ninja ;;
*) cat "$FAKE/build.txt"; exit ${BUILD:-0} ;;
esac
"""
STAGE = """#!/bin/bash
echo "report in $PWD of $#: $*"
echo "steps $FLASH_SIMT_STEPS, target $FLASH_SIMT_TARGET"
printf '  extra memory\\n  counts\\n'
[ "$CODE" != signal ] || kill -SEGV $$
case "$*" in
*"--seq-q 70"*) echo said >&2; exit ${EDGES:-0} ;;
*"--seq-q 61"*) exit ${AGAIN:-1} ;;
esac
exit ${CODE:-0}
"""
NVCC = """#!/bin/sh
echo "$PWD $*" >>"$FAKE/nvcc.txt"
printf "$NVCC_SAYS"
[ -z "$NVCC_SAYS" ]
"""
TEST = r"""#!/bin/bash
echo "$*" >>"$FAKE/tests.txt"
case "$*" in
*--device=gpu*) exit ${GPU:-77} ;;
*--list-test-cases*)
  printf '[doctest] listing\n=====\ngrid: lengths\ngrid: sums, and more\nchapter: one\nfar: offsets\n=====\n[doctest] 4\n' ;;
*"--test-case=${FAIL:-nothing} "*)
  printf '=====\n%s/common/grid_test.cpp:38:\nTEST CASE:  %s\n\n' "$FAKE" "$FAIL"
  printf '../common/support.cpp:75: ERROR: CHECK( failed.empty() ) is NOT correct!\n  values: CHECK( false )\n'
  printf 'dk: max error 3 > 1\n\nThe same problem by itself: FLASH_SIMT_TARGET=75 common/try.sh 04 --variant two --seq-q 61\n\nAborting - too many failed asserts!\n=====\n[doctest] Status: FAILURE!\n'
  exit 1 ;;
*"--test-case=grid"*) exit ${GRID:-0} ;;
esac
"""
ERROR = """[1/70] Building CXX object x.o
FAILED: x.o
{0}/common/first.hpp: In function 'int f()':
{0}/04_first/kernel.cuh:12:3: error: 'foo' was not declared
   12 |   foo;
{0}/04_first/kernel.cuh:20:3: error: a later one
ninja: build stopped: subcommand failed.
"""


class Try(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="flash try.")
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name).resolve()
        self.command = str(self.root / "common/try.sh").replace(" ", "\\ ")  # as a shell reads it
        for name in (
            "common/testing",
            "docs/lab",
            "04_first",
            "08_second",
            "09_a",
            "09_b",
            "programs",
            "elsewhere",
            "build/bin",
            "build/04_first",
        ):
            (self.root / name).mkdir(parents=True)
        for name in (
            "04_first/CMakeLists.txt",
            "08_second/CMakeLists.txt",
            "09_a/CMakeLists.txt",
            "09_b/CMakeLists.txt",
            "04_first/kernel.cuh",
            "docs/lab/hello.cpp",
            "nvcc.txt",
            "build.txt",
            "tests.txt",
        ):
            (self.root / name).touch()
        (self.root / "build/tests").mkdir()
        for name in ("try.sh", "testing/host_only.awk"):
            shutil.copy(ROOT / "common" / name, self.root / "common" / name)
        for name, text in {
            "programs/cmake": CMAKE,
            "programs/nvcc": NVCC,
            "build/bin/04_first": STAGE,
            "build/bin/lab_hello": STAGE,
            "build/tests/04_first_test": TEST,
        }.items():
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755)

    def run_it(self, *arguments, **settings):
        """(exit code, stdout, stderr)"""
        path = f"{self.root / 'programs'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [self.root / "common/try.sh", *arguments],
            cwd=self.root / "elsewhere",
            text=True,
            capture_output=True,
            env={**os.environ, "FAKE": str(self.root), "PATH": path, **settings},
        )
        return done.returncode, done.stdout, done.stderr

    def program(self, name, text):
        (self.root / "programs" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.root / "programs" / name).chmod(0o755)

    def read(self, name):
        return (self.root / name).read_text()

    def test_all_right(self):
        code, out, _ = self.run_it("04", "--load", "my data")
        self.assertEqual(code, 0)
        self.assertIn(f"report in {self.root}/elsewhere of 2: --load my data\n", out)  # where the caller is
        self.assertIn("try: 04_first is right: all 4 test cases passed.", out)
        self.assertNotIn("--all", out)
        self.assertIn("counts", out)
        self.assertEqual(self.read("cmake.txt"), f"--preset demo\n--build {self.root}/build --target 04_first 04_first_test\n")
        ran = [line.split("--test-case=")[1].split(" --abort")[0] for line in self.read("tests.txt").splitlines() if "--abort" in line]
        self.assertEqual(sorted(ran), ["chapter: one", "far: offsets", "grid: lengths", "grid: sums? and more"])

    def test_what_is_configured_stays_so(self):
        (self.root / "build/build.ninja").touch()
        self.assertEqual(self.run_it("4")[0], 0)
        self.assertNotIn("--preset", self.read("cmake.txt"))

    def test_a_copied_or_moved_checkout_is_configured_anew(self):
        (self.root / "build/build.ninja").touch()
        (self.root / "original").mkdir()
        cache = self.root / "build/CMakeCache.txt"
        for home in (self.root / "original", "/nowhere"):
            (self.root / "cmake.txt").unlink(missing_ok=True)
            cache.write_text(f"# x\nCMAKE_HOME_DIRECTORY:INTERNAL={home}\n")
            code, _, err = self.run_it("4")
            self.assertEqual((code, err), (0, f"try: build/ builds another folder, {home}; configuring it anew for this one\n"))
            self.assertTrue(self.read("cmake.txt").startswith("--preset demo --fresh\n"))
        (self.root / "link").symlink_to(self.root)
        (self.root / "cmake.txt").unlink()
        cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root / 'link'}\n")
        self.assertEqual(self.run_it("4")[::2], (0, ""))
        self.assertNotIn("--fresh", self.read("cmake.txt"))

    def test_the_stage_by_number_or_folder(self):
        for name in ("04", "4", "04_first", "04_first/"):
            self.assertEqual(self.run_it(name)[0], 0, name)
        code, out, _ = self.run_it("lab_hello")
        self.assertEqual((code, "lab_hello is right" in out), (0, True))
        self.assertTrue(self.read("cmake.txt").endswith("--target lab_hello\n"))

    def test_bad_usage_is_one_line(self):
        for arguments, said in (
            ((), "which stage?"),
            (("7",), "'7'; there are: 04_first 08_second 09_a 09_b lab_hello"),
            (("fa",), "'fa'"),
            (("--al", "04"), "unknown option '--al'"),
            (("--seconds", "04"), "--seconds is '04'"),
            (("--seconds",), "--seconds is ''"),
            (("09",), "'09' is each of: 09_a 09_b"),
        ):
            code, out, err = self.run_it(*arguments)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1), arguments)
            self.assertIn(said, err)

    def test_help(self):
        code, out, _ = self.run_it("--help")
        self.assertEqual(code, 0)
        self.assertLessEqual(max(map(len, out.splitlines())), 90)

    def test_the_first_error_of_the_compiler_alone(self):
        (self.root / "build.txt").write_text(ERROR.format(self.root))
        code, out, err = self.run_it("04", BUILD="1")
        self.assertEqual((code, out), (1, "04_first/kernel.cuh:12:3: error: 'foo' was not declared\n   12 |   foo;\n"))
        self.assertIn("04_first does not build", err)
        self.assertEqual(self.read("tests.txt"), "")

    def test_which_line_asked_for_a_template(self):
        error = "{0}/common/l.hpp:34:1: error: as many arguments\n   34 | assert\n"
        gcc = "{0}/common/l.hpp: In instantiation of 'f':\n{0}/04_first/kernel.cuh:9:3:   required from here\n"
        more = "{0}/common/l.hpp:34:2: note: the comparison reduces to '(2 == 3)'\n{0}/common/l.hpp:35:1: error: later\n"
        first = "common/l.hpp:34:1: error: as many arguments\n   34 | assert\n"
        (self.root / "build.txt").write_text((gcc + error + more).format(self.root))
        note = "common/l.hpp:34:2: note: the comparison reduces to '(2 == 3)'\n"
        self.assertEqual(self.run_it("04", BUILD="1")[1], first + note + "04_first/kernel.cuh:9:3:   required from here\n")
        clang = (
            "{0}/common/l.hpp:30:1: note: in f requested here\n  30 | f\n{0}/04_first/kernel.cuh:9:3: note: in g requested here\n  9 | g\n"
        )
        (self.root / "build.txt").write_text((error + clang + error + gcc).format(self.root))
        self.assertEqual(self.run_it("04", BUILD="1")[1], first + "04_first/kernel.cuh:9:3: note: in g requested here\n")

    def test_errors_of_the_linker_and_of_cmake(self):
        (self.root / "build.txt").write_text(
            "/usr/bin/ld: x.o: in function `f':\nx.cpp:(.text+0x5): undefined reference to `g'\ncollect2: error: ld\n"
        )
        self.assertEqual(self.run_it("04", BUILD="1")[1], "x.cpp:(.text+0x5): undefined reference to `g'\ncollect2: error: ld\n")
        (self.root / "build.txt").write_text("-- fine\nCMake Error at CMakeLists.txt:2 (project):\n  No compiler.\n")
        self.assertIn("No compiler.\ncommon/setup.sh", self.run_it("04", BUILD="1")[1])
        (self.root / "build.txt").write_text("something else\n")
        self.assertEqual(self.run_it("04", BUILD="1")[1], "something else\n")

    def test_warnings_show(self):
        (self.root / "build.txt").write_text(
            f"[1/2] x\n{self.root}/04_first/kernel.cuh:7:1: warning: index 8 of 8\n    7 | x[8]\n[2/2] y\n"
        )
        code, out, err = self.run_it("04")
        self.assertTrue(out.startswith("04_first/kernel.cuh:7:1: warning: index 8 of 8\n    7 | x[8]\nreport"))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("the compiler warned of something, above: begin there\ntry: 04_first is WRONG", self.run_it("04", EDGES="1")[2])

    def test_a_wrong_result_ends_it(self):
        code, out, err = self.run_it("04", CODE="1")
        self.assertEqual((code, out.startswith("report"), self.read("tests.txt")), (1, True, ""))
        self.assertIn("04_first is WRONG", err)
        self.assertNotIn("counts", out)
        code, out, _ = self.run_it("04", CODE="signal")
        self.assertEqual((code, "ended by signal 11 (SEGV)" in out), (1, True))

    def test_a_refusal_of_the_program_is_its_own(self):
        for refusal in ("2", "3"):
            code, _, err = self.run_it("04", "--nonsense", CODE=refusal)
            self.assertEqual((code, err), (int(refusal), ""))

    def test_a_failed_test_case_is_shown_shortly(self):
        code, out, err = self.run_it("04", FAIL="grid: lengths")
        self.assertEqual(code, 1)
        shown = out.partition("TEST CASE:")[2]
        self.assertEqual(shown.splitlines()[0], "  grid: lengths")
        self.assertIn("common/support.cpp:75: ERROR", shown)
        self.assertIn("dk: max error 3 > 1", shown)
        self.assertNotIn("[doctest]", shown)
        self.assertIn("04_first is WRONG", err)
        self.assertEqual(self.run_it("04", FAIL="grid: sums? and more")[0], 1)

    def test_the_problem_of_a_failed_test_case_is_run_by_itself(self):
        command = f"The same problem by itself: FLASH_SIMT_TARGET=75 {self.command} 04 --variant two --seq-q 61\n"
        out = self.run_it("04", FAIL="grid: lengths")[1]
        report = f"report in {self.root}/elsewhere of 4: --variant two --seq-q 61\nsteps 16777216, target 75\n"
        self.assertTrue(out.endswith(command + report), out)
        out = self.run_it("04", FAIL="grid: lengths", AGAIN="0")[1]
        self.assertIn(command + "Its result is right: the test case has numbers of its own", out)

    def test_the_default_problem_is_followed_by_one_with_edges(self):
        for options in ((), ("--variant", "two"), ("--pass=backward",)):
            code, out, err = self.run_it("04", *options)
            self.assertEqual((code, re.findall("It is right with --seq-q 70.*59(.*), too", out), err), (0, ["", " --causal"], ""), options)
        for options in (("--seq", "8"), ("--causal",), ("--load", "folder")):
            self.assertNotIn("101", self.run_it("04", *options, EDGES="1")[1])
        self.assertNotIn("101", self.run_it("lab_hello", EDGES="1")[1])

    def test_a_wrong_result_with_edges_ends_it(self):
        code, out, err = self.run_it("04", "--variant", "two", EDGES="1")
        self.assertEqual((code, self.read("tests.txt")), (1, ""))
        self.assertIn(f"This is wrong: {self.command} 04 --variant two --seq-q 70", out)
        self.assertIn("--variant two --seq-q 70", out.splitlines()[-2])  # the report
        self.assertIn("said\ntry: 04_first is WRONG", err)

    def test_a_kernel_that_does_not_take_the_edges(self):
        code, out, err = self.run_it("04", EDGES="2")
        self.assertEqual((code, "101" in out, err), (0, False, ""))

    def test_functions_of_the_host_in_a_kernel(self):
        (self.root / "04_first/kernel.cuh").write_text("__device__ void f() {\n  std::vector<int> all(5);\n}\n")
        code, out, err = self.run_it("04")
        self.assertEqual((code, self.read("tests.txt"), self.read("nvcc.txt")), (1, "", ""))
        self.assertIn("\n04_first/kernel.cuh:2: error: 'std::vector' belongs to the host", out)
        self.assertIn("04_first is WRONG: on a GPU", err)

    def test_nvcc_sees_each_edit_once(self):
        (self.root / "build.txt").write_text(
            "[1/3] Building CXX object 04_first/CMakeFiles/step_04_first_part_two_cpu.dir/part/two_cpu.cpp.o\n"
            "[2/3] Building CXX object 04_first/CMakeFiles/04_first.dir/main.cpp.o\n"
        )
        refusal = f"{self.root}/common/x.hpp(1): warning: w\n{self.root}/04_first/kernel.cuh(9): error: a __host__ function\n\n"
        code, out, _ = self.run_it("04", NVCC_SAYS=refusal)
        self.assertEqual((code, self.read("tests.txt")), (1, ""))
        self.assertTrue(out.endswith("04_first/kernel.cuh(9): error: a __host__ function\n\n"), out)
        self.assertRegex(self.read("nvcc.txt"), f"^{self.root}/build -std=c\\+\\+20 .*04_first/part/two_cpu.cpp\n$")
        (self.root / "build.txt").write_text("")
        self.assertEqual(self.run_it("04", NVCC_SAYS=refusal)[0], 1)  # nothing was edited, and it is still refused
        self.assertEqual(self.run_it("04", NVCC_SAYS="host_config.h:143: error: unsupported compiler")[0], 0)
        (self.root / "nvcc.txt").write_text("")
        self.assertEqual((self.run_it("04")[0], self.read("nvcc.txt")), (0, ""))  # it has been seen

    def test_nvcc_is_not_asked_where_the_build_asks_it(self):
        (self.root / "build/04_first/kernel_gpu.cu").touch()
        (self.root / "build.txt").write_text("[1/3] Building CXX object 04_first/CMakeFiles/step_k_cpu.dir/k_cpu.cpp.o\n")
        self.assertEqual((self.run_it("04")[0], self.read("nvcc.txt")), (0, ""))

    def test_an_endless_loop_ends_soon(self):
        self.assertIn("steps 16777216,", self.run_it("04")[1])
        self.assertIn("steps 5,", self.run_it("04", FLASH_SIMT_STEPS="5")[1])

    def test_no_more_tests_after_a_failure(self):
        self.program("getconf", "echo 1")
        self.assertEqual(self.run_it("04", FAIL="chapter: one")[0], 1)
        self.assertEqual(self.read("tests.txt").count("--abort"), 1)

    def test_a_case_that_skips_itself_is_no_failure(self):
        code, out, _ = self.run_it("04", GRID="77")
        self.assertEqual((code, "all 4 test cases passed" in out), (0, True))

    def test_on_a_gpu_too(self):
        code, out, _ = self.run_it("04", GPU="0")
        self.assertEqual((code, "all 5 test cases passed" in out), (0, True))
        self.assertEqual(self.run_it("04", GPU="1")[0], 0)  # the probe for one fails, and so there is none

    def test_one_variant(self):
        for options in (("--variant", "two"), ("--variant=two",)):
            (self.root / "tests.txt").write_text("")
            self.assertEqual(self.run_it("04", *options)[0], 0)
            self.assertEqual(self.read("tests.txt").count("--variant=two --abort"), 4)

    def test_the_shortest_first_and_what_was_left_out(self):
        (self.root / "build/tests/04_first_test.seconds").write_text(
            "9\tchapter: one\n5\tgrid: lengths\n0\tfar: offsets\n1\tgrid: sums, and more\n"
        )
        self.program("getconf", "echo 1")
        self.program("date", 'echo x >>"$FAKE/dates"\n[ $(wc -l <"$FAKE/dates") -lt 6 ] && echo 100 || echo 200')
        code, out, _ = self.run_it("04", "--variant=")  # one process; the clock jumps in the third case
        self.assertEqual((code, "no mistake found in 2 of 4 test cases" in out, f"{self.command} --all 04" in out), (0, True, True), out)
        self.assertIn("9\tchapter: one\n", self.read("build/tests/04_first_test.seconds"))  # it was not run: as before
        self.assertIn("0\tgrid: sums, and more\n", self.read("build/tests/04_first_test.seconds"))
        os.remove(self.root / "dates")
        self.assertIn("all 4", self.run_it("--seconds", "200", "04")[1])
        os.remove(self.root / "dates")
        self.assertIn("2 of 4", self.run_it("--seconds", "100", "04")[1])
        ran = [line for line in self.read("tests.txt").splitlines() if "--abort" in line]
        self.assertEqual(["far" in ran[0], "sums" in ran[1]], [True, True])
        os.remove(self.root / "dates")
        self.assertIn("all 4", self.run_it("--all", "04")[1])


class HostOnly(unittest.TestCase):
    def refused(self, *files):
        return subprocess.run(["awk", "-f", ROOT / "common/testing/host_only.awk", *files], capture_output=True, text=True).stdout

    def test_no_kernel_of_the_project_is_refused(self):
        files = [file for pattern in ("[0-9][0-9]_*/**/*.cuh", "common/device/*.cuh") for file in ROOT.glob(pattern)]
        self.assertGreater(len(files), 30)
        self.assertEqual(self.refused(*files), "")

    def test_names_in_cuda_functions_alone(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cuh") as file:
            file.write(
                "std::vector<int> host() { return {rand()}; }\n"
                "__device__ float constant;\n"
                "std::string word() { return {}; }\n"
                "template <class T>\n__device__ inline T f(std::array<T, 3> x,\n T y) {  // std::list\n"
                '  if (std::is_same_v<T, float>) { return "std::map"[0]; }\n'
                "  return rand() + operand(std::int64_t{1});\n}\n"
                "std::string more() { return {}; }\n"
                "__global__ void kernel();\nint other() { return std::max(1, 2); }\n"
                "__global__ void kernel() { std::sort(a, b); }\n"
            )
            file.flush()
            found = [line.split(":")[1] + line.split("'")[1] for line in self.refused(file.name).splitlines() if "error" in line]
        self.assertEqual(found, ["5std::array", "8rand", "13std::sort"])


if __name__ == "__main__":
    unittest.main()
