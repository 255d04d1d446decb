// Inputs from a folder of .npy files (--load) and results into one (--save).
#pragma once

#include "common/attention/option_table.hpp"
#include "common/attention/tensor_table.hpp"

#include <string>
#include <vector>

namespace flash {

struct LoadedInputs {
  FullProblem problem;
  Inputs inputs;
  std::string note;  ///< what was made from the seed because no file gave it; empty if nothing
};

/// Reads q.npy, k.npy, v.npy and, if present, bias.npy, (backward) do.npy and, for a ragged batch, cu_seqlens_q.npy and cu_seqlens_k.npy. The shape
/// comes from the files; an option that contradicts it is refused. bias.npy must be (B or 1, H or 1, 1 or Nq, Nk) and may hold -inf, a mask; no
/// other value may be infinite or NaN. A backward pass without do.npy gets a random dO. UsageError: one line with the names of the files.
LoadedInputs load_inputs(const std::string& folder, GivenOptions, Pass);

/// The files of save_results().
std::vector<std::string> saved_files(const std::string& folder, const FullProblem&, Pass);

/// Makes the folder if there is none, and looks whether results can be written there, so that a kernel does not run in vain. UsageError if
/// something that may be the user's lies where a result would go: what is no .npy file, or any file beside the inputs of --load.
void prepare_output_folder(const std::string& folder, const FullProblem&, Pass, const std::string& load);

/// Writes o.npy (B,H,Nq,d), lse.npy (B,H,Nq) and, after a backward pass, dq.npy, dk.npy, dv.npy and the bias's gradient, if there is one,
/// as dbias.npy. Replaces earlier results.
void save_results(const std::string& folder, const Results<float>&);

}  // namespace flash
