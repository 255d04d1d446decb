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
PAGE = dict(re.findall(r"```(cpp|text|cmake)\n(.*?)```", (HERE.parents[2] / "docs/howto/any_cuda_file.md").read_text(), re.S))
FINE = "__global__ void k(int* x) { x[threadIdx.x] = 1; }\nint main() { int* x; cudaMalloc(&x, 128); k<<<1, 32>>>(x); return %d; }\n"


def common_run(*words):
    done = subprocess.run([str(RUN), *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


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
MISTAKES = r"""Exit code, an option, what is said; a kernel, before START
2 --counts x.cu:3: does not compile:  ;; __global__ void k(int* x) {\n  if (threadIdx.x) return\n  *x = 1;\n}
2 --counts x.cu:2: does not compile:  ;; __global__ void k(int*) {\n  __synchthreads();\n}
2 --counts x.cu:3: this_cluster is not simulated ;; #include <cooperative_groups.h>\n__global__ void k(int*) {\n  cooperative_groups::this_cluster().sync(); }
2 --counts x.cu:2: cudaGraphCreate is not simulated ;; void f() {\n  cudaGraphCreate(0, 0);\n}
2 --counts x.cu:1: thrust/sort.h is not simulated ;; #include <thrust/sort.h>
2 --counts x.cu:1: cub/cub.cuh is not simulated: write .* by hand ;; #include <cub/cub.cuh>
2 --counts x.cu:2: k launches kernel f: dynamic ;; __global__ void f(int*) {}\n__global__ void k(int* x) { f<<<1, 1>>>(x); }
2 --counts block \(0,0,0\), thread \(0,0,0\): it launches kernel f: ;; __global__ void f(int*) {}\nstruct S { __device__ void g(int* x) { f<<<1, 1>>>(x); } };\n__global__ void k(int* x) { S().g(x); }
2 --counts x.cu:1: new in k is valid CUDA, .* cudaMalloc ;; __global__ void k(int* x) { int* p = new int[4]; *p = *x; }
2 --counts x.cu:1: there is no header none.h ;; #include <none.h>
2 --counts x.cu:2: cudaTextureObject_t is not simulated \(read the array by its pointer ;; __global__ void k(\n    cudaTextureObject_t t) {}
2 --without=2 x.cu:2: nothing to leave out ;; __global__ void k(int*) {\n}
2 --counts inline PTX tcgen05.fence ;; __global__ void k(int*) {\n  asm("tcgen05.fence::before_thread_sync;");\n}
2 --counts x.cu:1: exit\(\) is a function of the host; a kernel ends ;; __global__ void k(int* x) { if (threadIdx.x) exit(0); }
2 --counts x.cu:2: std::cout is the host's; a kernel prints by printf ;; #include <iostream>\n__global__ void k(int* x) { std::cout << *x; }
2 --counts x.cu:1: cudaDeviceSynchronize\(\) is a function of the host ;; __global__ void k(int*) { cudaDeviceSynchronize(); }
2 --counts x.cu:2: kernel k calls f\(\), which has no __device__ ;; int f(int x) { return x; }\n__global__ void k(int* x) { *x = f(1); }
2 --counts x.cu:2: a kernel is started by k<<<blocks, threads>>> ;; __global__ void k(int*) {}\nvoid f(int* x) { k(x); }
2 --counts x.cu:1: kernel k returns int: nvcc requires __global__ void ;; __global__ int k(int*) { return 1; }
2 --counts x.cu:1: __shfl_xor was removed from CUDA for GPUs since Volta ;; __global__ void k(int* x) { *x = __shfl_xor(*x, 1); }
2 --counts x.cu:2: this '\)' closes nothing ;; __global__ void k(int* x) {\n  *x = 1);\n}
2 --counts x.cu:2: k is launched, but is no kernel ;; void k(int* x) { *x = 1; }
2 --counts x.cu:2: sync\(\) is .*__syncthreads.*\n    2 \|   sync\(\);\n      \|   \^\n ;; __global__ void k(int* x) {\n  sync();\n}
2 --counts x.cu:1: thread_local is the host's ;; __global__ void k(int* x) { thread_local int i; *x = i; }
2 --counts x.cu:2: the comment that begins here is never closed ;; __global__ void k(int* x) {\n  /* *x = 1; }
2 --counts x.cu:4: kernels have another f ;; __device__ int f, g;\n__global__ void k(int* x) {}\nint i(int g) { cudaMemcpyFromSymbol(&g, f, 4); return g; }\nint j() { return f; }
2 --counts x.cu:2: .* not declared.*\n    2 \|   printf\("", y\);\n      \|              \^\n ;; __global__ void k(int*) {\n  printf("", y);\n}
2 --counts x.cu:2: .* invalid conversion from 'int' to 'int\*'\n ;; __global__ void k(int*) {}\nvoid f() { k<<<1, 1>>>(3); }
2 --counts x.cu:1: a parameter of kernel k is a reference ;; __global__ void k(int* x, const int& n = 3) { *x = n; }
2 --counts x.cu:2: std::mutex is the host's ;; #include <mutex>\n__global__ void k(int*) { std::mutex m; }
2 --counts x.cu:1: try: kernels have no exceptions ;; __global__ void k(int* x) { try { *x = 1; } catch (...) {} }
2 --counts x.cu:2: a launch takes two numbers ;; __global__ void k(int*) {}\nvoid f(int* x) { k<<<8>>>(x); }
2 --counts x.cu:2: .*: three '<' and three ;; __global__ void k(int*) {}\nvoid f(int* x) { k<<1, 8>>(x); }
2 --counts x.cu:1: does not compile: an argument too many ;; __global__ void k(int*) { __syncthreads(255); }
2 --counts x.cu:1: .*like have parts: threadIdx.x ;; __global__ void k(int* x) { x[threadIdx] = 1; }
0 --counts \Akernel j.*nothing ;; #define ONE 1, 1\n#define KERNEL __global__ void\nKERNEL j() {}\nstruct S { S() { j<<<ONE>>>(); } } s;\n__global__ void k(int*) {}
1 --strict 8..31, .*; it is the default, and __syncwarp\(0xff\) fits ;; __global__ void j() { __syncwarp(); }\nstruct S { S() { j<<<1, 8>>>(); } } s;\n__global__ void k(int*) {}
1 --counts (?s)out_of_bounds.* 2 \| x\[ ;; struct S { S() { fclose(fopen(__FILE__, "w")); } } s; __global__ void k(int* x) {\nx[threadIdx.x + 32] = 1; }
0 --counts (?s)cu:1: warning: format '%d' expects.*cu:2: warning: too many ;; __global__ void k(int*) { printf("%d", 1.0);\nprintf("a", 1); }
0 --counts (?s)cu:2: warning: .*'if'.*cu:3: .*'=' assigns.*cu:4: .*not call.*cu:5: .*result of __shfl.*cu:6: .*'s' is used uninit.*\n +6 \| s \+= i;\n ;; __global__ void k(int* x) { int i = threadIdx.x, s;\nif (i > 3);\nx[i] == 1;\n__syncthreads;\n__shfl_sync(~0, i, 1);\ns += i;\nx[i] = s; }
0 --counts cu:[12]: warning: 's' may be used uninit ;; __global__ void k(int* x) { int s; for (int i = 0; i < threadIdx.x; ++i)\ns += 1;\nx[threadIdx.x] = s; }
1 --strict \[same_value\] .*, but each time the same value ;; __global__ void k(int* x) { *x = 5; }
0 --counts remark \[divergent_barrier\] undefined in CUDA, .* wait in __syncthreads at \S*x.cu:2, the rest exited ;; __global__ void k(int*) { for (int d = 16; d > 0; d /= 2) if (threadIdx.x < d)\n__syncthreads(); }
0 --counts \Akernel k.*nothing ;; int f(int x) { return x; }\n__device__ double f(double x) { return x; }\nvoid k(int*, int);\n__global__ void k(int* x) { *x = f(1.0); }
1 --counts or an index far outside of cudaMalloc at .*x.cu:2 ;; __global__ void k(int* x) { x[1'000'000'000'000] = 5; }
1 --strict in __syncthreads at \S*x.cu:1, called from \S*x.cu:2, the rest ;; __device__ void f() { __syncthreads(); }\n__global__ void k(int*) { if (threadIdx.x) f(); }
1 --strict with mask 0, which names no lane ;; __global__ void k(int* x) { x[threadIdx.x] = __shfl_sync(0, 1, 1); }
1 --strict thread \(7,0,0\): __shfl_sync: lane 7 reads from lane 8 ;; __global__ void k(int* x) { int i = threadIdx.x; if (i < 8) x[i] = __shfl_sync(255, i, i == 7 ? 8 : i); }
1 --counts the mask also names lanes 4..7, which never come ;; __global__ void k(int* x) { if (threadIdx.x < 4) *x = __shfl_sync(255, 1, 1); __syncthreads(); }
0 --counts \Akernel k.*nothing ;; #include <cuda/atomic>\n__device__ cuda::atomic<int> flash;\n__global__ void k(int* x) { if (threadIdx.x == 0) x[1] = 7, flash.store(1, cuda::memory_order_release);\nif (threadIdx.x == 1 && flash.load(cuda::memory_order_acquire)) x[2] = x[1]; }
1 --counts \[race\] \S*x.cu:3 writes and \S*x.cu:4 reads .*\n    3 \| __global__ void k.*\n    4 \| if ;; #include <cuda/atomic>\n__device__ cuda::atomic<int> flash;\n__global__ void k(int* x) { if (threadIdx.x == 0) x[1] = 7, flash.store(1, cuda::memory_order_release);\nif (threadIdx.x == 1 && flash.load(cuda::memory_order_relaxed)) x[2] = x[1]; }
0 --counts \Akernel k.*nothing ;; __global__ void k(int*) { for (int i = 0; i < 40000; ++i) __syncthreads(); }
1 --counts \[trap\] .*x.cu:2\n ;; #include <cassert>\n__global__ void k(int*) { assert(threadIdx.x < 30); }
1 --counts \[unwritten_read\] \S*x.cu:2 ;; __global__ void k(int*) { __shared__ int s;\natomicAdd(&s, 1); }
1 --counts \[race\] .*x.cu:5 ;; struct Both { int a, b; };\n__device__ int sum(Both b) { return b.a + b.b; }\n__global__ void k(int* x) { __shared__ Both t[32];\nt[31 - threadIdx.x] = Both{1, 2};\nx[threadIdx.x] = sum(t[threadIdx.x]); }
1 --counts \[race\] .*x.cu:4 ;; #include <cuda_fp16.h>\n__global__ void k(int* x) { __shared__ __half2 t[32];\nt[31 - threadIdx.x] = __float2half2_rn(1);\nx[threadIdx.x] = __low2float(t[threadIdx.x] * t[threadIdx.x]); }
1 --counts \[not_awaited\] .*x.cu:2\n ;; __global__ void k(int* x) { __shared__ int t[32];\nasm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(unsigned(__cvta_generic_to_shared(t + threadIdx.x))), "l"(x + threadIdx.x)); }
0 --counts nothing found\n  cuda ;; __device__ int d; __device__ volatile int f;\n__global__ void k(int* x) { if (threadIdx.x == 1) { d = 42; __threadfence(); f = 1; }\nif (threadIdx.x == 0) { while (f == 0) {} __threadfence(); *x = d; } }
0 --counts nothing found\n  cuda ;; __global__ void k(int* x) { __shared__ int f, d; if (threadIdx.x == 1) atomicExch(&f, 0); __syncthreads(); if (threadIdx.x == 1) { d = 42; __threadfence_block(); atomicExch(&f, 1); }\nif (threadIdx.x == 0) { while (atomicAdd(&f, 0) == 0) {} __threadfence_block(); *x = d; } }
0 --counts nothing found\n  cuda ;; __constant__ float w[2];\ntemplate <class F> __global__ void map(int* x, F f) { *x = f(1.0f); }\nvoid run(int* x) { map<<<1, 1>>>(x, [=] __device__(float y) { return y + w[1]; }); }\n__global__ void k(int* x) { x[threadIdx.x] = 1; }
1 --counts \[race\] \S*x.cu:2 writes and \S*x.cu:3 reads ;; __device__ int a, d; __device__ volatile int f;\n__global__ void k(int* x) { if (threadIdx.x == 0) { while (atomicAdd(&a, 0) == 0) {} __threadfence(); f = 1, d = 2, __threadfence(), atomicAdd(&a, 1); }\nif (threadIdx.x == 1) { atomicAdd(&a, 1); while (!f) {} __threadfence(); *x = d; } }
1 --strict divergent barrier.*: threads 0..3 wait in __syncthreads at \S*x.cu:2, threads 4..31 wait in __syncthreads at \S*x.cu:2\n ;; __global__ void k(int*) {\nif (threadIdx.x < 4) __syncthreads(); else __syncthreads(); }
1 --counts \[endless_loop\] .*x.cu:2\n.*\n    The loop that begins in line 2 ;; __global__ void k(int*) {\nwhile (true) printf(""); }
1 --strict \[endless_loop\] .*x.cu:5\n    5 .*\n    2 .* while.*\n    The loop that begins in line 2 ;; __global__ void k(int* x) {\n  while (*x < 9) {\n    for (int i = 0; i < 2; ++i) { x[i] = 0; }  // {\n    if (*x) {}\n    __syncthreads();\n  }\n}
1 --strict line 3 or 2 does not end ;; __global__ void k(int* x) {\n  for (int i = 0; i < 9; i *= 2)\n    do { *x = i;\n    } while (*x != i);\n}
2 --counts x.cu:2: .*; did you mean 'if' ;; __global__ void k(int* x) {\n  If (*x) return;\n}
2 --counts x.cu:1: .*is its type missing ;; __global__ void k(int*) { const y = 1; }
2 --counts x.cu:1: kernel k has no type ;; __global__ k(int* x) { *x = 1; }
2 --counts x.cu:2: '\{' is never closed: count the braces before line 3 ;; __global__ void k(int* x) {\n  if (*x) { *x = 1;\n__global__ void l(int* x) {}
2 --counts x.cu:2: this <<< has no >>> ;; __global__ void k(int*) {}\nvoid f(int* x) { k<<<1, 8>>(x); }
2 --counts x.cu:2: a kernel is started by ;; __global__ void k(int*) {}\nvoid f(int* x) { k<1, 8>(x); }
1 --strict divergent .* called from \S*x.cu:4\n( +\d \| .*\n){4} ;; __device__ void f() { __syncthreads(); }\n__device__ void g() {\n__syncthreads(); }\n__global__ void k(int*) { if (threadIdx.x) f(); else g(); }
1 --counts \[race\] \S*x.cu:7 writes and \S*x.cu:10 reads the same shared ;; #include <cuda/pipeline>\n#include <cooperative_groups.h>\n__global__ void k(int* x) { __shared__ int s[32]; auto block = cooperative_groups::this_thread_block(); int sum = 0;\n__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state; auto pipe = cuda::make_pipeline(block, &state);\nfor (int i = 0; i < 2; ++i) {\npipe.producer_acquire();\ncuda::memcpy_async(block, s, x, 128, pipe); pipe.producer_commit();\npipe.consumer_wait();\npipe.consumer_release();\nsum += s[31 - threadIdx.x]; }\n__syncthreads(); x[threadIdx.x] = sum; }
0 --counts \Akernel k.*nothing ;; #include <cuda/pipeline>\n__global__ void k(int* x) { __shared__ int s[32]; auto pipe = cuda::make_pipeline(); int sum = 0;\nfor (int i = 0; i < 3; ++i) { pipe.producer_acquire(); cuda::memcpy_async(s + threadIdx.x, x + threadIdx.x, 4, pipe); pipe.producer_commit(); pipe.consumer_wait(); __syncthreads(); sum += s[31 - threadIdx.x]; __syncthreads(); if (i == 0) pipe.consumer_release(); }\nx[threadIdx.x] = sum; }
1 --counts \[not_awaited\] .*x.cu:4\n ;; #include <cuda/pipeline>\n__global__ void k(int* x) { __shared__ int s[3][32]; auto pipe = cuda::make_pipeline(); int t = threadIdx.x;\nfor (int i = 0; i < 3; ++i) { if (i == 2) { pipe.consumer_wait(); pipe.consumer_release(); pipe.consumer_release(); }\ncuda::memcpy_async(s[i] + t, x + t, 4, pipe); pipe.producer_commit(); }\npipe.consumer_wait(); x[t] = s[1][t]; }
1 --counts 1 finding\n  \[unwritten_read\] \S*x.cu:4 ;; #define cudaMalloc cudaMallocManaged\n#define cudaMemset(...) for (P* p = (P*)x; p < (P*)x + 4; ++p) p->a = 1, p->b = -1\nstruct P { double a; int b; };  __global__ void k(int* x) { __shared__ P p[32]; p[threadIdx.x] = ((P*)x)[threadIdx.x % 4];\natomicAdd(x + 16 + threadIdx.x % 16, 1); }
2 --counts x.cu:2: __nv_fp8_e4m3 is not simulated ;; #include <cuda_fp8.h>\n__global__ void k(int*, const __nv_fp8_e4m3* y = 0) {}
0 --counts \Akernel k.*nothing ;; #include <cuda_fp8.h>\n__global__ void k(int* x) { x[threadIdx.x] = umax(umin(x[threadIdx.x], 3u), 2u); }\nvoid f(int* x) { k << <1, 1 >> >(x); }
1 --counts \[out_of_bounds\] .*x.cu:1, called from \S*x.cu:3\n ;; __device__ int f(int* p) { return p[1]; }\n__global__ void k(int* x) { int sum = threadIdx.x < 31 ? f(x + threadIdx.x) : 0;\nsum += f(x + threadIdx.x);\nx[threadIdx.x] = sum; }
1 --counts 1 finding\n  \[unwritten_read\] \S*x.cu:2 ;; #define cudaMemset(...)\n__global__ void k(int* x) { __shared__ int t[32]; asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(unsigned(__cvta_generic_to_shared(t + threadIdx.x))), "l"(x + threadIdx.x));\nasm volatile("cp.async.wait_all;"); }
1 --counts \[race\] \S*x.cu:5 writes and \S*x.cu:7 reads ;; #include <cuda/pipeline>\n#include <cooperative_groups.h>\n__global__ void k(int* x) { __shared__ int s[32], t[32]; __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state; auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state); const int i = threadIdx.x;\npipe.producer_acquire(); cuda::memcpy_async(s + i, x + i, 4, pipe); pipe.producer_commit();\nt[i] = i;\npipe.consumer_wait();\nx[i] = t[31 - i];\nx[i] += s[31 - i]; }
1 --counts (?s)\[unwritten_read\] \S*x.cu:2.*\[race\] \S*x.cu:3 writes .*\[unwritten_read\] \S*x.cu:4 ;; __global__ void k(int* x) { __shared__ int n, s[32];\n*x = n;\ns[threadIdx.x] = 1;\nx[threadIdx.x] = s[31 - threadIdx.x]; }
1 --counts lanes of one warp .* wait in __syncthreads at \S*x.cu:\d\n ;; __global__ void k(int*) {\nif (threadIdx.x % 2) __syncthreads();\nelse __syncthreads(); }
1 --counts \[out_of_bounds\] .* element 32 of shared variable a, whose last is 31, at \S*x.cu:2\n ;; __global__ void k(int* x) { __shared__ int a[32], b[32]; int* p = a; a[threadIdx.x] = b[threadIdx.x] = 1; __syncthreads();\nx[threadIdx.x] = p[threadIdx.x + 1]; }
1 --counts \[trap\] .*x.cu:2\n ;; __global__ void k(int*) { int m[4]; for (int i = 0; i < 8; ++i) m[i % 4] = max(m[i % 4], i);\nassert(m[0] == 4); }
1 --counts \[unwritten_read\] \S*x.cu:2 reads .* nothing orders ;; __global__ void k(int* x) { __shared__ int f; if (threadIdx.x == 0) atomicExch(&f, 1);\nif (threadIdx.x == 1) while (atomicAdd(&f, 0) != 1) {} }
0 --counts nothing found\n  cuda ;; __global__ void k(int* x) { __shared__ volatile int f; __shared__ int d; if (threadIdx.x == 0) f = 0; __syncthreads(); if (threadIdx.x == 1) { d = 42; __threadfence_block(); f = 1; }\nif (threadIdx.x == 0) { while (f == 0) {} __threadfence_block(); *x = d; } }
1 --counts \[race\] \S*x.cu:1 writes and \S*x.cu:2 reads the same shared ;; __global__ void k(int* x) { __shared__ volatile int f; __shared__ int d; f = 0; __syncthreads(); if (threadIdx.x == 1) { d = 42; f = 1; }\nif (threadIdx.x == 0) { while (f == 0) {} __threadfence_block(); *x = d; } }
0 --counts remark \[divergent_barrier\] .* ended for one .*: threads 0..7 wait ;; __global__ void k(int* x) { __shared__ int s[32]; s[threadIdx.x] = 1; if (threadIdx.x < 8) __syncthreads(); x[threadIdx.x] = s[threadIdx.x]; }
0 --counts \Akernel k.*nothing ;; __global__ void k(int* x) { for (int k = 1; k < 32; k *= 2) x[threadIdx.x] += (k); }
0 --strict \Akernel k.*nothing ;; #include <cuda/barrier>\n__global__ void k(int*) { __shared__ cuda::barrier<cuda::thread_scope_block> b; if (threadIdx.x == 0) init(&b, 32); __syncthreads(); if (threadIdx.x < 8) (void)b.arrive(); }
0 --counts remark \[read_before_atomic\] .*x.cu:2 reads ;; __global__ void k(int* x) { unsigned long long* p = (unsigned long long*)x;\nunsigned long long old = *p, assumed;\ndo { assumed = old;\nold = atomicCAS(p, assumed, __double_as_longlong(1.0 + __longlong_as_double(assumed))); } while (assumed != old); }
1 --counts \[race\] .*x.cu:2 reads ;; __global__ void k(int* x) { unsigned long long* p = (unsigned long long*)x;\nunsigned long long old = *p, assumed;\n__threadfence(); do { assumed = old;\nold = atomicCAS(p, assumed, __double_as_longlong(1.0 + __longlong_as_double(assumed))); } while (assumed != old); }
1 --counts \[race\] .*x.cu:5 reads ;; __global__ void k(int* x) { unsigned long long* p = (unsigned long long*)x;\nunsigned long long old = *p, assumed;\ndo { assumed = old;\nold = atomicCAS(p, assumed, __double_as_longlong(1.0 + __longlong_as_double(assumed))); } while (assumed != old);\nif (threadIdx.x < 30) x[threadIdx.x + 2] = *p; }
1 --strict \[race\] .*x.cu:1 writes and .*x.cu:2 reads ;; __global__ void k(int* x) { if (threadIdx.x == 0) { x[1] = 7; __threadfence(); atomicExch(x, 1); }\nif (threadIdx.x == 1 && *x) atomicAdd(x, x[1]); }
1 --counts \[deadlock\] .* changes element 5 of shared variable s; none ;; __global__ void k(int*) { __shared__ int s[8]; s[threadIdx.x % 8] = 0; __syncthreads(); while (atomicAdd(s + 5, 0) == 0) {} }
"""

KERNELS = r"""Blocks and threads, what is said of the kernel; its body, of a program whose kernels come one after the other
1, 1 out_of_bounds\] .*: reads 64 bytes past the end of the 4096 bytes of cudaMalloc at \S*x.cu:\d+ \(element 1040, and the last is 1023\), at ;; x[1040] += 1;
1, 1 out_of_bounds\] .*: reads 8 bytes before the 4096 bytes .* \(element -2, ;; x[*x - 2] += 1;
1, 1 out_of_bounds\] .*: reads right past the end of the 16 bytes of variable \(element 4, and the last is 3\), at ;; int* p = variable; *x = p[*x + 4];
1, 1 foreign_memory\] .*: reads the host's variable host, ;; *x = host[*x + 5000];
1, 1 misaligned\] .* must be a multiple of 16, it is 4 bytes beyond one at ;; *x = reinterpret_cast<int4*>(x + 5)->x;
1, 32 nothing found.*128 bytes in 4 sectors read, 128 bytes in 4 sectors written ;; x[threadIdx.x] += 1;
1, 12 nothing found.*960 bytes in \d+ sectors read, 960 bytes in ;; struct Wide { float values[20]; } *a = (Wide*)x; a[threadIdx.x + 12] = a[threadIdx.x];
1, 64 write_race\] ;; __shared__ int s; s = threadIdx.x / 63; __syncthreads(); x[threadIdx.x] = s;
1, 64 nothing found\n  remark \[same_value\] ;; __shared__ int s; s = threadIdx.x / 64; __syncthreads(); x[threadIdx.x] = s;
1, 64 write_race\] ;; *(float4*)x = make_float4(threadIdx.x < 1, 0, 0, 0);
1, 64 nothing found\n  remark \[same_value\] ;; *(float4*)x = make_float4(threadIdx.x < 0, 0, 0, 0);
1, 2 \[race\] ;; if (threadIdx.x == 0) x[1] = *x; else *x = 0;
4, 32 nothing found\n  remark \[ticket\] .*__threadfence\(\) ;; if (arrives(x, 1) && threadIdx.x == 1) x[9] = x[1] + x[2];
4, 32 nothing found\n(?!  remark) ;; if (arrives(x, 3) && threadIdx.x == 1) x[9] = x[1] + x[2];
4, 32 \[race\] ;; if (arrives(x, 2) && threadIdx.x == 1) x[9] = x[1] + x[2];
4, 32 \[race\] ;; if (arrives(x, 7) && threadIdx.x == 1) x[9] = x[1] + x[2];
1, 32 \[race\] ;; if (threadIdx.x == 1) { __threadfence(); atomicExch(x, 1); x[1] = 1; __threadfence(); atomicExch(x, 2); } if (threadIdx.x == 0) { while (atomicAdd(x, 0) < 1) {} __threadfence(); x[2] = x[1]; }
1, 32 nothing found\n(?!  remark) ;; if (threadIdx.x == 1) { __threadfence(); atomicExch(x, 1); x[1] = 1; __threadfence(); atomicExch(x, 2); } if (threadIdx.x == 0) { while (atomicAdd(x, 0) < 2) {} __threadfence(); x[2] = x[1]; }
1, 128 nothing found\n(?!  remark) ;; __shared__ int s; if (threadIdx.x == 0) s = 1; __syncthreads(); x[threadIdx.x] = s;
1, 128 \[race\] ;; __shared__ int s; if (threadIdx.x == 0) s = 1; __syncwarp(); x[threadIdx.x] = s;
4, 32 \[race\] ;; const int i = blockIdx.x * 32 + threadIdx.x; if (i == 0) *x = 1; __syncthreads(); x[i + 1] = *x;
1, 32 nothing found ;; y[threadIdx.x] = 1;
1, 1 nothing found ;; for (int i = 0; i < 33; ++i) *x += y[i];
1, 1 unwritten_read\] ;; for (int i = 0; i < 34; ++i) *x += y[i];
1, 64 nothing found\n(?!  remark) ;; __shared__ half row[64]; __shared__ __nv_bfloat162 pair; const int i = threadIdx.x; row[i] = float(i); if (i == 0) pair = __float2bfloat162_rn(2); __syncthreads(); x[i] = float(row[63 - i]) + float(pair.y);
1, 64 nothing found\n(?!  remark) ;; __shared__ int row[64]; const int i = threadIdx.x; if (i >= 40) return; for (int n = 0; n < 3; ++n) { row[i] = i; __syncthreads(); x[i] = row[39 - i]; __syncthreads(); }
1, 64 nothing found\n  remark \[divergent_barrier\] .* count who comes .*\n ;; __shared__ int row[64]; if (threadIdx.x < 32) { row[threadIdx.x] = row[threadIdx.x + 32] = 1; __syncthreads(); } else { __syncthreads(); x[threadIdx.x] = row[threadIdx.x]; }
1, 28 nothing found\n(?!  remark) ;; const int i = threadIdx.x; if (i == 24 || i == 27) return; const float v = __shfl_up_sync(~0u, 1.0f, 1) + __all_sync(~0u, 1) + __popc(__match_any_sync(~0u, 3)); __syncwarp(); assert(i != 20 || v == 28); assert(isnan(v) == (i == 25));
1, 28 nothing found\n(?!  remark) ;; const int i = threadIdx.x; if (i == 24 || i == 27) return; const float v = __shfl_down_sync(~0u, 1.0f, 1); assert(isnan(v) == (i == 23 || i == 26));
1, 32 absent_lane\] ;; if (threadIdx.x < 16) __syncwarp(); else __syncthreads();
1, 16 absent_lane\] ;; unsigned r; asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(0)); *x = r;
1, 32 nothing found\n  remark \[divergent_barrier\] ;; if (threadIdx.x < 16) __syncthreads(); x[threadIdx.x] = 1;
1, 32 nothing found\n(?!  remark) ;; x[threadIdx.x] = pointer(1);
1, 32 misaligned\] .*: the address of memcpy_async's source or target must be a multiple of 16 ;; __shared__ int t[64]; __shared__ cuda::barrier<cuda::thread_scope_block> b; cuda::memcpy_async(t + 1, x, cuda::aligned_size_t<16>(16), b);
1, 1 nothing found ;; float s, c; sincospif(0.5f, &s, &c); assert(s == 1 && fabsf(c) < 1e-6f);
1, 32 \[race\] ;; __shared__ int s[32]; const int i = threadIdx.x; s[i] = i; const int other = __shfl_xor_sync(~0u, i, 1); x[i] = s[i ^ 1] + other;
1, 32 \[race\] ;; __shared__ int s[32]; const int i = threadIdx.x; s[i] = i; __syncwarp(i < 16 ? 0xffffu : 0xffff0000u); x[i] = s[i ^ 16];
1, 32 nothing found ;; __shared__ int s[32]; const int i = threadIdx.x; s[i] = i; __syncwarp(i < 16 ? 0xffffu : 0xffff0000u); x[i] = s[i ^ 8];
1, 32 write_race\] ;; if (threadIdx.x == 0) *x = 1; if (threadIdx.x < 2) __syncwarp(3); if (threadIdx.x > 0) atomicAdd(x, 1);
1, 32 nothing found\n(?!  remark) ;; if (threadIdx.x == 0) *x = 1; if (threadIdx.x < 2) __syncwarp(3); if (threadIdx.x == 1) atomicAdd(x, 1);
7, 128, 512 nothing found\n(?!  remark) ;; extern __shared__ int t[]; __shared__ int s; if (threadIdx.x == 0) s = 0; __syncthreads(); atomicAdd(&s, 1); t[threadIdx.x] = 1; __syncthreads(); if (threadIdx.x == 0) x[blockIdx.x] = s;
1, 32 \n  992 bank conflicts at ;; columns<32>(x, 32);
1, 32 \n  480 bank conflicts at ;; columns<32>(x, 16);
1, 32 \n  96 bank conflicts at ;; columns<36>(x, 32);
1, 32 nothing found(?!.*bank conflicts) ;; columns<33>(x, 32);
1, 32 element 32 of an array of type 'int ?\[32\]' does not exist at ;; __shared__ int s[32]; s[threadIdx.x] = 1; __syncthreads(); *x = s[*x + 32];
1, 32 element -1 of an array ;; __shared__ int s[32]; s[threadIdx.x] = 1; __syncthreads(); *x = s[*x - 1];
1, 1 element 4 of an array of type 'int ?\[4\]' ;; int s[4] = {1, 2, 3, 4}; *x = s[*x + 4];
1, 1 division\] ;; *x = 7 / *x;
1, 1 division\] ;; *x = 7u % unsigned(*x);
1, 1 0x40 ;; *x = *reinterpret_cast<int*>(64 + *x);
1, 32 nothing found ;; x[threadIdx.x] = table[threadIdx.x % 4];
1, 1 foreign_memory\] .*: writes the host's variable host, ;; host[*x + 5000] = 1;
1, 4 foreign_memory\] .*thread \(1,0,0\): writes a local variable of thread \(2,0,0\), ;; __shared__ int* s; int mine[4] = {1, 2, 3, 4}; if (threadIdx.x == 2) s = mine; __syncthreads(); if (threadIdx.x == 1) s[2] = 0; __syncthreads(); x[threadIdx.x] = mine[2];
1, 1 foreign_memory\] .*: writes the simulator's own memory ;; threadIdx.x = 7;
1, 64 absent_lane\] .*threads 32..39, 41..63 wait in __shfl_xor_sync .*, thread 40 waits in __syncthreads ;; const int i = threadIdx.x; if (i == 40) { __syncthreads(); return; } if (i >= 32) x[i] = __shfl_xor_sync(~0u, i, 1);
1, 64 nothing found\n(?!  remark) ;; const int i = threadIdx.x; if (i >= 32) x[i] = __shfl_xor_sync(~0u, i, 1); __syncthreads();
1, 32 absent_lane\] .* a mask that names only lanes 0..30 ;; x[threadIdx.x] = __any_sync(0x7fffffff, 1);
1, 32 absent_lane\] .*threads 0, 2, 4.* wait in __any_sync .*, threads 1, 3, 5.* wait in __all_sync ;; x[threadIdx.x] = threadIdx.x % 2 == 0 ? __any_sync(~0u, 1) : __all_sync(~0u, 1);
1, 32 bad_argument\] .*: a width of 12 ;; x[threadIdx.x] = __shfl_sync(~0u, 1, 0, 12);
1, 1 stack_overflow\] ;; *x = deep(1000);
1, 1 nothing found ;; *x = deep(20);
1, 1 stack_overflow\] ;; volatile float frame[1 << 20]; for (int i = *x; i < 1024; ++i) frame[i * 1024] = i; *x = frame[1024];
"""
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
        for wanted, option, said, text in re.findall("^(.) (--.+?) (.+) ;; (.+)", MISTAKES, re.M):
            code, _, err = common_run(option, self.file(text.replace(r"\n", "\n") + START % ""))
            self.assertEqual((code, bool(re.search(said, err)), code != 2 or err.count("\n") < 4), (int(wanted), True, True), err)
        code, out, err = common_run(self.file("__global__ void k(int*) {}" + START % '\nputs("before");\nx = 0; *x = 1;'))
        self.assertEqual((code, out, "x.cu:4: the host's code crashes" in err), (3, "before\n", True), err)
        self.assertRegex(common_run(self.folder / "y.cu")[2], r"y.cu is no file; did you mean \S+x.cu\?")

    def test_kernels_of_one_program(self):
        rows = re.findall("^(\\d, [\\d, ]+) (.+) ;; (.+)", KERNELS, re.M)
        kernels = "\n".join(f"__global__ void k{n}(int* x, int* y) {{ {body} }}" for n, (*_, body) in enumerate(rows))
        calls = "\n".join(f"cudaMemset(x, 0, 4096); k{n}<<<{shape}>>>(x, y);" for n, (shape, *_) in enumerate(rows))
        file = self.file(
            f"{PROGRAM}{kernels}\nint main() {{ int *x, *y; cudaMalloc(&x, 4096); cudaMalloc(&y, 256); cudaMemset(y + 32, 0, 4);\n{calls} }}"
        )
        for order in ("forward", "reverse"):
            report = common_run("--counts", "--order", order, file)[2]
            for n, (_, said, body) in enumerate(rows):
                with self.subTest(body, order=order):
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
