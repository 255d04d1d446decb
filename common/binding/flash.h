/* The kernels of a stage for other languages: one shared library for each stage, all with this interface. Plain C.
 *
 * A caller describes one problem by a `flash_call`, asks how much workspace a pass needs, and runs the pass. All memory is the caller's.
 * What joins the two passes is O and L alone: a backward pass may run long after the forward pass, and by another variant. */
#ifndef FLASH_H
#define FLASH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FLASH_FP32 = 0, FLASH_FP16 = 1, FLASH_BF16 = 2 };

/* A tensor [B, H, N, d] in that logical order, whatever the order in memory. Strides are in elements; columns are adjacent. If
 * rows have a multiple of 16 bytes, each begins at one. */
typedef struct flash_tensor {
  void* data;
  int64_t shape[4];
  int64_t stride[4];
} flash_tensor;

typedef struct flash_call {
  const char* variant;   /* as in --variant; "": on a GPU the fastest that runs the problem, where a stage says which; else the last
                            step of the ladder that takes it, else the last one that does */
  const char* options;   /* of the problem, as the programs take them, one a line: "--causal=true\n--window=100,0\n--dropout=0.1". Sizes, dtype,
                            layout, and whether there is a bias, are seen from the tensors; "--bias=alibi" says that the bias is slopes */
  int32_t on_gpu;        /* 1: the tensors lie in the memory of the thread's current GPU; 0: in main memory, and the simulator runs the kernels */
  int32_t dtype;         /* of all tensors but L and the bias */
  int32_t deterministic; /* 1: no variant whose dQ differs in its last bits between runs */
  uint64_t seed;         /* of dropout, for which no plan is made anew; 0: that of the options */
  void* stream;          /* the cudaStream_t that the pass is queued on; 0 on the CPU, where a pass is over when its function returns */
  flash_tensor Q, K, V;  /* K and V may have fewer heads than Q, if their number divides Q's */
  flash_tensor O, L;     /* L [B, H, N, 1], the log-sum-exp of each row in fp32: outputs forward, inputs backward */
  flash_tensor dO, dQ, dK, dV; /* of the backward pass */
  flash_tensor bias, dBias;    /* in fp32, or all zeros: [B or 1, H or 1, N or 1, Nk], or slopes [B or 1, H or 1, 1, 1]; the gradient of a
                                  bias [B or 1, H or 1, N, Nk] is dense and of its shape */
  flash_tensor ends, firsts;   /* of a forward pass over a cache, or all zeros; dense int32 that only the kernel reads, so that a CUDA graph
                                  may change it, [1, 1, B, 1]: how many keys each sequence has, and, if not all, the first that it sees */
  flash_tensor pages;          /* likewise, [1, 1, B, any], if keys lie in pages: which. K and V are [all pages, Hkv, rows of one, d];
                                  a sequence with several has pages of a multiple of 64 rows */
  void* workspace;             /* of the pass, aligned to 256 bytes */
  volatile int32_t stop;       /* set to 1 by another thread: a pass on the CPU ends after the blocks that run, and fails */
} flash_call;

/* Each returns 0, or what a stage's program exits with: 1 for a kernel that does something undefined, 2 for a call that the variant does
 * not take, 3 for a device that cannot do it. flash_error() then says why in one line; it is this thread's, until its next call. */

/* The workspace of a pass, in bytes, the first `zeroed` of which have to be zero when it begins. Pointers of the call are not looked at. */
int flash_workspace(const flash_call* call, int32_t backward, int64_t* bytes, int64_t* zeroed);
int flash_forward(const flash_call* call);
int flash_backward(const flash_call* call);

const char* flash_error(void);
int32_t flash_call_size(void); /* sizeof(flash_call): a caller that declares it in another language sees whether both are of one version */

#ifdef __cplusplus
}
#endif
#endif
