"""common/run: what the rewriter leaves alone and what it turns launches into, what is found and where, and exit codes."""

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "run"))
import rewrite  # noqa: E402

RUN = HERE.parents[1] / "run"
TEXT = (HERE.parents[2] / "docs/howto/any_cuda_file.md").read_text()
PAGE = dict(re.findall(r"```(cpp|text|cmake)\n(.*?)```", TEXT, re.S))
FINE = "__global__ void k(int* x) { x[threadIdx.x] = 1; }\nint main() { int* x; cudaMalloc(&x, 128); k<<<1, 32>>>(x); return %d; }\n"


def common_run(*words):
    done = subprocess.run([str(RUN), *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


class Rules(unittest.TestCase):
    def test_each_is_on_the_page_and_in_a_test(self):
        listed = (HERE.parent / "rules.hpp").read_text().partition("rule_names")[2].partition("};")[0]
        folders = (HERE, "*"), (HERE.parents[1] / "harness", "test_*"), (HERE.parents[2] / "docs/course/exercises", "*/wrong.toml")
        tests = "".join([path.read_text() for folder, names in folders for path in folder.glob(names) if path.is_file()])
        for name in re.findall(r'"(\w+)"', listed):
            with self.subTest(name):
                self.assertIn(f"`{name}`", TEXT)
                self.assertTrue(re.search(rf"\b{name}\b", tests))

    def test_an_address_without_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "x.cu")
            file.write_text("__global__ void k(int* p) { *p = 1; }\nint main() { k<<<1, 1>>>((int*)16); cudaDeviceSynchronize(); }\n")
            self.assertRegex(common_run(file)[2], r"\[bad_address\] .*there is no memory at address 0x10 at \S*x.cu:1\n")


class Rewriter(unittest.TestCase):
    def test_text_that_only_looks_like_a_launch(self):
        text = "auto s = \"k<<<1, 2>>>(x);\"; R\"(k<<<1, 2>>>(x);)\"; /* k<<<1, 2>>>(x); */ int n = 1'000'000; char c = '<'; // k<<<1, 2>>>(x);"
        self.assertEqual(rewrite.rewrite("x.cu", text), f'#line 1 "x.cu"\n{text}')

    def test_launches(self):
        for before, name in [
            ("k<<<1, 2>>>(x);", "k"),
            ("a::k<float, 4>\n  <<<\n  dim3(1, f<g<h<int>>>(2)),\n  2>>>\n  (x);", "a::k<float, 4>"),
            ("if (y) table[i]<<<1, 2, 3, s>>>(x);", "table[i]"),
            ("(*k)<<<1, 2>>>(x);", "(*k)"),
            ("return ::k<sizeof(int) == 4><<<1, 2>>>(x);", "::k<sizeof(int) == 4>"),
            ("k << <1, 2 >> >(x); a = operator<< <int>(b);", "k"),
            ("#define RUN(kernel, n) \\\n  kernel<<<n, 2>>>(x)\nint z;", "kernel"),
        ]:
            after, quoted = rewrite.rewrite("x.cu", before), "#kernel" if name == "kernel" else f'"{name}"'
            self.assertIn(
                f"::flash::plain::flash_kernel({quoted}, [=](auto... flash_a) FLASH_UNWATCHED {{ return {name}(flash_a...); }}).flash_on(",
                after,
            )
            self.assertEqual(after.count("\n"), before.count("\n") + 1)
            self.assertNotIn("<<<", after)


START = "\nint main() { int* x; cudaMalloc(&x, 128); cudaMemset(x, 0, 128); k<<<1, 32>>>(x); %s }\n"


def cases(file, title):
    """(what the title's groups match..., code) of each case of a file: a line "### TITLE: what is said", and its code up to the next."""
    return re.findall(rf"^### {title}: (.+)\n((?:(?!### ).*\n)+)", (HERE / file).read_text(), re.M)


PROGRAM = r"""#include <cassert>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
constexpr int table[4] = {1, 2, 3, 4};
__device__ int variable[4];
int host[9999];  // between those of the device
__device__ int arrived;
__device__ int next(int i) { return i + 1; }
__device__ int (*pointer)(int) = next;
/// The index is known only at run time.
__device__ __noinline__ int deep(int levels) {
  volatile char frame[2000];
  frame[levels] = 1;
  return levels > 0 ? deep(levels - 1) + frame[levels] : 0;
}
/// Fences: before the atomic (1), and behind it (2); those of a block alone (4).
__device__ bool arrives(int* x, int fences) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    x[blockIdx.x] = 1;
    if (fences & 1) fences < 4 ? __threadfence() : __threadfence_block();
    last = atomicAdd(&arrived, 1) == gridDim.x - 1;
    if (fences & 2) fences < 4 ? __threadfence() : __threadfence_block();
    if (last) atomicExch(&arrived, 0);
  }
  __syncthreads();
  return last;
}
/// The first lanes write rows and read columns of a tile.
template <int Width>
__device__ void columns(int* x, int lanes) {
  __shared__ int tile[32][Width];
  if (threadIdx.x >= lanes) return;
  for (int row = 0; row < 32; ++row) tile[row][threadIdx.x] = 1;
  __syncwarp((1ull << lanes) - 1);
  for (int col = 0; col < 32; ++col) x[threadIdx.x] += tile[threadIdx.x][col];
}
"""


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, text, name="x.cu"):
        (self.folder / name).write_text(text)
        return self.folder / name

    def test_exit_codes(self):
        code, out, err = common_run("--json", self.file(FINE % 0))
        self.assertEqual((code, json.loads(out)["exit"], err), (0, 0, ""))
        for before, after, rule in (
            ("k<<<", "cudaFree(x); k<<<", "use_after_free"),
            ("cudaMalloc(&x, 128)", "static int host[32]; x = host", "foreign_memory"),
        ):
            self.assertRegex(common_run(self.file(FINE.replace(before, after) % 0))[2], rf"\[{rule}\] .*x.cu:1\n")
        code, _, err = common_run(self.file(FINE.replace("%d", "\nx[1]")))
        self.assertEqual(code, 1)
        self.assertRegex(err, r"host: \[foreign_memory\] the host reads .*cudaMalloc at .*x.cu:2.* at .*x.cu:3")
        copy = "\ncudaMemcpy(new int[32], x, 128, cudaMemcpyDeviceToHost)"
        code, _, err = common_run(self.file(FINE.replace("1, 32", "1, 31").replace("%d", copy)))
        self.assertEqual(code, 1)
        self.assertRegex(err, r"host: \[unwritten_read\] cudaMemcpy reads 4 bytes .* 124 bytes into the 128 bytes .* at .*x.cu:3")
        code, _, err = common_run(self.file(FINE % 7))
        self.assertEqual((code, "exit code 7" in err), (3, True))
        spoilt = "float* p = new float[4]; cudaMemcpy(p, x, 128, cudaMemcpyDeviceToHost); delete[] p; delete[] p; return 0"
        code, _, err = common_run(self.file(FINE.replace("return %d", spoilt)))
        self.assertEqual((code, "SIGABRT" in err), (3, True), err)
        for words in (["none.cu"], [self.file(""), "--order", "up"], [self.file(""), "--without", "x.cu"]):
            self.assertEqual(common_run(*words)[0], 2)

    def test_keep(self):
        kept = self.file(FINE % 7).parent / "kept"
        self.assertEqual(common_run("--keep", kept, self.file(FINE % 7))[0], 3)
        self.assertEqual(subprocess.run([kept / "program"], check=False, capture_output=True).returncode, 7)
        code, _, err = common_run("--keep", kept, self.file(FINE % 0))
        self.assertEqual((code, "kept: File exists" in err), (2, True), err)

    def test_mistakes_of_beginners(self):
        for wanted, option, said, kernel in cases("run_mistakes.txt", r"(\d) (--\S+)"):
            with self.subTest(said, kernel=kernel):
                code, _, err = common_run(option, self.file(kernel.strip() + START % ""))
                self.assertRegex(err, said)
                self.assertEqual(code, int(wanted), err)
                self.assertTrue(code != 2 or err.count("\n") < 4, err)
        code, out, err = common_run(self.file("__global__ void k(int*) {}" + START % '\nputs("before");\nx = 0; *x = 1;'))
        self.assertEqual((code, out, "x.cu:4: the host's code crashes" in err), (3, "before\n", True), err)
        self.assertRegex(common_run(self.folder / "y.cu")[2], r"y.cu is no file; did you mean \S+x.cu\?")

    def test_kernels_of_one_program(self):
        rows = cases("run_kernels.txt", r"(\d, [\d, ]+)")
        kernels = "\n".join(f"__global__ void k{n}(int* x, int* y) {{\n{body}}}" for n, (*_, body) in enumerate(rows))
        calls = "\n".join(f"cudaMemset(x, 0, 4096); k{n}<<<{shape}>>>(x, y);" for n, (shape, *_) in enumerate(rows))
        file = self.file(
            f"{PROGRAM}{kernels}\nint main() {{ int *x, *y; cudaMalloc(&x, 4096); cudaMalloc(&y, 256); cudaMemset(y + 32, 0, 4);\n{calls} }}"
        )
        for order in ("forward", "reverse"):
            report = common_run("--counts", "--order", order, file)[2]
            for n, (_, said, body) in enumerate(rows):
                with self.subTest(said, body=body, order=order):
                    self.assertRegex(re.search(rf"(?ms)^kernel k{n}: .*?(?=^kernel |\Z)", report)[0], f"(?s){said}")

    def test_much_dynamic_shared_memory_has_to_be_allowed(self):
        allow, most = "cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, {});", 227 * 1024
        for allowed, asked, said in (
            (None, 48 * 1024, ""),
            (None, 48 * 1024 + 4, r"\[launch_limits\] .*cudaFuncSetAttribute\(k, .*x.cu:3\n"),
            (64 * 1024, 64 * 1024 + 4, r"\[launch_limits\] .*cudaFuncSetAttribute\(k, .*x.cu:3\n"),
            (most, most, ""),
            (most + 4, most + 4, rf"\[launch_limits\] .*allows {most} bytes.*x.cu:3\n"),
        ):
            text = FINE.replace("k<<<", f"{allow.format(allowed) if allowed else ''}\nk<<<").replace("1, 32>>>", f"1, 32, {asked}>>>")
            file = self.file(text.replace("return %d", "printf(cudaGetErrorString(cudaGetLastError()))"))
            code, out, err = common_run(file)
            self.assertEqual((code, out), (1, "invalid argument") if said else (0, "no error"), err)
            self.assertTrue(re.search(said, err), err)

    def test_a_kernel_that_prints_on_and_on(self):
        file = self.file('__global__ void k(int*) { while (true) printf("one\\n"); }' + START % r'printf("two\n");')
        code, out, _ = common_run(file)
        self.assertEqual((code, 0 < out.count("one") < 10000, out.endswith("two\n")), (1, True, True))

    def test_causes_come_before_consequences(self):
        """Kernel k runs before b and after it, and what it reads then b has not written."""
        kernels = """__global__ void k(int* x) { x[threadIdx.x] += 1; }
__global__ void b(int* y) { __shared__ int s[32]; s[threadIdx.x] = 1;
if (threadIdx.x > 0) y[threadIdx.x] = s[threadIdx.x - 1]; }"""
        file = self.file(kernels + START % "int* y; cudaMalloc(&y, 128); b<<<1, 32>>>(y); k<<<1, 32>>>(y);")
        self.assertRegex(common_run(file)[2], r"(?s)kernel b: .*\[race\].*kernel k: .*\[unwritten_read\]")

    def test_races_that_one_barrier_would_order_are_one_finding(self):
        store, read = "  a[i] = b[i] = 1;\n", "  x[i] = a[i ^ 1];\n  x[i] += b[i ^ 1];\n"
        kernel = "__global__ void k(float* x) {\n  __shared__ float a[32], b[32]; const int i = threadIdx.x;\n"
        file = self.file(
            f"{kernel}{store}  __syncthreads();\n  a[i] = 2;\n  b[i] = 3;\n{read}}}\n"
            + (FINE % 0).partition("\n")[2].replace("int*", "float*")
        )
        code, _, err = common_run(file)
        self.assertEqual((code, err.count("[race]")), (1, 1), err)
        self.assertIn("and 1 more pair of lines; one barrier between lines 5-6 and 7-8, or", err)

    def test_blocks_wait_for_each_other(self):
        kernel = """__device__ unsigned arrived;
__global__ void k(int* x, int* y) {
  x[blockIdx.x] = 1;
  __threadfence();
  atomicAdd(&arrived, 1);
  while (atomicAdd(&arrived, 0) < gridDim.x) {}
  __threadfence();
  y[blockIdx.x] = x[(blockIdx.x + 1) % gridDim.x];
}
int main() {
  int *x, *y;
  cudaMalloc(&x, 800);
  cudaMalloc(&y, 800);
  void* arguments[] = {&x, &y};
  cudaLaunchCooperativeKernel((void*)k, dim3(4), dim3(1), arguments);
}
"""
        launch = kernel.replace("cudaLaunchCooperativeKernel((void*)k, dim3(4), dim3(1), arguments)", "k<<<4, 1>>>(x, y)")
        flag = launch.replace("atomicAdd(&arrived, 0)", "*(volatile unsigned*)&arrived")
        atomic = "#include <cuda/atomic>\n" + launch.replace("unsigned", "cuda::atomic<unsigned>").replace("__threadfence();", "")
        atomic = atomic.replace("atomicAdd(&arrived, 1)", "arrived.fetch_add(1, cuda::memory_order_release)")
        atomic = atomic.replace("atomicAdd(&arrived, 0)", "arrived.load(cuda::memory_order_acquire)")
        for right, wrong in (
            (launch, ("  __threadfence();\n  atomic", "  atomic")),
            (launch, ("  __threadfence();\n  atomic", "  __threadfence_block();\n  atomic")),
            (launch, ("atomicAdd(&arrived, 1)", "atomicAdd_block(&arrived, 1)")),
            (flag, ("{}\n  __threadfence();", "{}")),
            (atomic, ("_acquire", "_relaxed")),
            (atomic, ("_release", "_relaxed")),
        ):
            self.assertEqual(common_run(self.file(right))[0], 0)
            code, _, err = common_run(self.file(right.replace(*wrong)))
            self.assertEqual(code, 1)
            self.assertRegex(err, r"race\] .* writes and .* the same global memory")
            self.assertEqual(wrong[1].startswith("atomicAdd_block"), "an atomic of one block" in err)
        self.assertRegex(
            common_run(self.file(launch.replace("4, 1", "200, 1")))[2], r"\[deadlock\] .*only 128 are resident at once.*x.cu:6\n"
        )
        file = self.file(kernel)
        self.assertEqual(common_run(file)[0], 0)
        self.assertRegex(common_run(file, "--without", "4")[2], r"\[race\] .*x.cu:3 writes and .*x.cu:8 reads")
        self.assertRegex(common_run(self.file(kernel.replace("gridDim.x) {}", "5) {}")))[2], r"\[deadlock\] .* arrived \(element 0")

    def test_left_out_guard_through_a_local_header(self):
        self.file("__global__ void k(int* x) {\n  int i = threadIdx.x + 8;\n  if (i > 31) return;\n  x[i] = 1;\n}\n", "k.cuh")
        file = self.file('#include "k.cuh"\n' + FINE.partition("\n")[2] % 0)
        self.assertEqual(common_run(file)[0], 0)
        said = r"\[out_of_bounds\] .*past the end of the 128 bytes of cudaMalloc at .*x\.cu:2 .*, at .*k\.cuh:4\n"
        self.assertRegex(common_run(file, "--without", f"{self.folder}/k.cuh:3")[2], said)

    def test_the_page_shows_what_is_said(self):
        self.file(PAGE["cpp"], "block_sum.cu")
        done = subprocess.run([str(RUN), "block_sum.cu"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (1, PAGE["text"]))


LAB = HERE.parents[2] / "docs/lab"
ANSWERS = tuple(re.findall(r"\|\| (.*)", (LAB / "hints.txt").read_text())[:5])
ENDLESS = (("for (;;) out[i] = 1;",), "an endless loop, .* a save stops it")
STEPS = [  # a key or the lines of puzzles.cu that are saved, and what is said then
    ((), "1 of 5, twice: .*not yet.*quit"),
    ("?", "h.* hint .*quit"),
    ("h", "twice. Hint: Write"),
    ("h", r"Answer: out\[i\]"),
    (("2 a[i];",), "cu:9: does not compile.*quit"),
    ("h", "no other hint"),
    ENDLESS,
    (ANSWERS[:1], "twice: .*right.*guard: .*the numbers are right, but the kernel was stopped.*quit"),
    ("h", "Hint: .return. ends"),
    ((*ANSWERS[:2], "for (;;);"), "a save stops it"),
    ("h", "barrier. Hint: One"),
    ((*ANSWERS[:2], "out[i] *= 2;"), r"unwritten_read. \S+puzzles.cu:24 .*; 2 of 5 are right.* run again.*quit"),
    ("b", "Press b again "),
    ("?", "quit"),
    ("b", "Press b again "),
    ("b", "3 of 5, barrier: .*not yet.*quit"),
    ("r", "3 of 5, barrier: .*not yet.*quit"),
    ("rename", "puzzles.cu is gone"),
    ("r", r"puzzles.cu is gone[^\n]*\n.*b.* whole file.*quit"),
    ("empty", "no main.*h.* hint.*b.* whole file.*quit"),
    ("b", "Press b again to put the whole"),
    ("b", "1 of 5, twice: .*not yet.*quit"),
    ("halve", "never closed.*h.* hint.*b.* whole file.*quit"),
    (ANSWERS, "n.* next, flash.cu.*quit"),
    ("n", "1 of 5, safe.* hint .*quit"),
]


class Watch(unittest.TestCase):
    def test_keys_and_saves_count_while_a_program_runs(self):
        for steps in ([*STEPS, ("q", "")], [ENDLESS, ("b", "b needs git"), ("\x03", "")]):
            with tempfile.TemporaryDirectory() as folder:
                for file in ("puzzles.cu", "flash.cu", "judge.hpp", "hints.txt"):
                    shutil.copy(LAB / file, folder)
                git = "git init -q && git add . && git -c user.name=a -c user.email=b commit -qm c"
                subprocess.run(git if len(steps) > 3 else ":", shell=True, check=True, cwd=folder)
                self.drive(pathlib.Path(folder, "puzzles.cu"), steps)
                kept = [file.read_text() for file in pathlib.Path(folder).glob("*.cu.*[0-9]")]
                self.assertEqual("out[i] *= 2;" in "".join(kept), len(steps) > 3)

    def test_a_line_that_is_right_for_some_numbers_only_is_refused(self):
        for file, number, line in (
            ("puzzles", 1, "out[i] = 2 * (int)a[i];"),
            ("puzzles", 1, "out[i] = 2 * a[i]; if (i == 7) out[9] = 0;"),
            ("puzzles", 2, "if (i >= 10) return;"),
            ("puzzles", 5, "o = 50.44073f;"),
            ("flash", 1, "l += expf(s[j] - 100);"),
            ("flash", 5, "if (tile == 0) __syncthreads();"),
        ):
            lines = re.findall(r"\|\| (.*)", (LAB / "hints.txt").read_text())[5 if file == "flash" else 0 :]
            answers = iter([*lines[: number - 1], line, *lines[number:]])
            with tempfile.TemporaryDirectory() as folder, self.subTest(line):
                shutil.copy(LAB / "judge.hpp", folder)
                tried = pathlib.Path(folder, "tried.cu")
                text = (LAB / f"{file}.cu").read_text()
                tried.write_text(re.sub(r"// YOUR LINE \d", lambda _, answers=answers: next(answers), text))
                self.assertRegex(common_run(tried)[1], rf"(?m)^{number} of 5, \w+: (?!right$)")

    def drive(self, puzzles, steps):
        text = puzzles.read_text()
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(RUN, [RUN, "--watch", puzzles], {**os.environ, "FLASH_SIMT_STEPS": str(1 << 40)})
        for does, wanted in steps:
            said = ""
            if isinstance(does, tuple):
                lines = iter((*does, *(f"// YOUR LINE {number}" for number in range(len(does) + 1, 6))))
                puzzles.write_text(re.sub(r"// YOUR LINE \d", lambda _, lines=lines: next(lines), text))
            elif does == "rename":
                self.assertRegex(puzzles.read_text(), r"(?s)>= n\) return;.*// YOUR LINE 3")
                puzzles.rename(f"{puzzles}.away")
            elif does in ("empty", "halve"):
                puzzles.write_text(text[: len(text) * 3 // 4] if does == "halve" else "")
            else:
                os.write(terminal, does.encode())
            while wanted and not re.search(wanted, said, re.S):
                said += os.read(terminal, 9999).decode()
            self.assertNotRegex(said, "^[hnp]")  # no echo
        self.assertNotEqual(os.waitpid(pid, 0)[0], 0)


class Project(unittest.TestCase):
    def test_the_page_s_project(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "block_sum.cu").write_text(PAGE["cpp"])
            (folder / "CMakeLists.txt").write_text(PAGE["cmake"].replace("/tmp/flash-steps/common/machine", str(HERE.parent)))
            subprocess.run(["cmake", "-S", folder, "-B", folder / "build", "-DFLASH_UNITY=ON"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["cmake", "--build", folder / "build", "-j2", "--target", "block_sum"], check=True, stdout=subprocess.DEVNULL)
            done = subprocess.run(
                ["ctest", "--test-dir", folder / "build", "-R", "block_sum", "--output-on-failure"], capture_output=True, text=True
            )
            self.assertRegex(done.stdout, r"\[race\] block_sum.cu:9 writes and block_sum.cu:9 reads")


if __name__ == "__main__":
    unittest.main()
