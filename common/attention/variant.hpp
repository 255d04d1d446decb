// What a kernel file tells the harness about itself in its last lines.
#pragma once

#include "common/attention/tensor.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace flash {

/// What a thread holds of a matrix in registers: rows x cols numbers. `lanes` threads share a row; of neighbouring rows a thread
/// takes row_run at a time, of columns col_run.
struct ThreadPart {
  const char* matrix;
  int rows, cols, lanes, row_run, col_run;
};

/// One of the tile sizes that a kernel file has compiled.
struct TileChoice {
  Tiles tiles;
  int threads = 0;                   ///< of a block
  std::size_t shared_bytes = 0;      ///< dynamic shared memory of a block
  std::string why;                   ///< why to choose it, in a few words
  std::vector<ThreadPart> thread{};  ///< where a kernel says so
};

struct Variant;
struct Prediction;  // cost.hpp

/// What a pass of a variant does with these tiles, of no rows if it has none, on such a device: a stage's predicted.hpp.
using Predict = Prediction (*)(const Variant&, const FullProblem&, Pass, const TileChoice&, const DeviceLimits&);

/// Copies rows, padded with zeros or cut off where those of `to` have another length: common/parts/copy_rows.cuh.
using CopyRows = void (*)(const TensorRef& from, const TensorRef& to);

/// One kernel file of a stage. launch functions start kernels on this thread's stream, allocate nothing and do not wait.
struct Variant {
  const char* name;                              ///< as in --variant
  const char* idea;                              ///< one line: what is new here
  void (*forward)(const Attention&) = nullptr;   ///< null: the one of a step after FORWARD in the stage's add_stage()
  void (*backward)(const Attention&) = nullptr;  ///< runs after forward on the same buffers; null: no backward pass here
  /// Buffers that the pass needs besides those of another step's forward pass. Null: none. Callers ask workspaces_of().
  std::vector<WorkspaceSpec> (*workspace)(const Problem&, Pass) = nullptr;
  /// "" or why this variant cannot take a problem. Null: it takes what the fields below allow.
  std::string (*refuse)(const Problem&) = nullptr;
  /// The compiled tile sizes that take a problem on such a device, the default first; empty: none does. Null: nothing to choose.
  std::function<std::vector<TileChoice>(const Problem&, Pass, const DeviceLimits&)> tiles = nullptr;
  bool atomic_dQ = false;     ///< dQ is summed in the order in which blocks happen to end: its last bits differ between runs
  bool by_launches = false;   ///< but in Attention::launches launches, each of which adds to a row of dQ once, they do not
  bool subtracts_max = true;  ///< false: large scores overflow, and the report says so
  bool reads_cache = false;   ///< knows Attention::ends, firsts and pages
  std::vector<Dtype> dtypes = {Dtype::fp32};  ///< what the kernels take; a run without --dtype takes the first
  int max_head_dim = 128;                     ///< the largest d that the kernels take
  int row_multiple = 1;                       ///< kernels get tensors whose d is a multiple of it: others are padded
  Features takes = plain_problem;             ///< what it knows of problems; others are refused
  Features needs = Features::none;            ///< what a problem must have for it; others are refused
  /// "" or why a device cannot run a problem, which another one could: "bf16 needs compute capability 8.0". Null: every device can.
  std::string (*refuse_on)(const Problem&, const DeviceLimits&) = nullptr;
  /// Is it the stage's fastest for a problem, on any GPU that can run it? A run that names no variant takes it there. Null: never.
  bool (*fastest)(const FullProblem&, Pass) = nullptr;
  const char* file = "";  ///< path of the kernel file in the project; registration fills it in
  bool in_more = false;   ///< likewise: its folder is more/; by default it runs where the ladder knows too little or is slower
  Predict predict = nullptr;              ///< likewise; null: nothing is predicted
  CopyRows copy_rows = nullptr;           ///< likewise, of the variant's backend
  const Variant* forward_step = nullptr;  ///< likewise; the step whose forward pass it runs, if it has none of its own
};

}  // namespace flash
