#include "common/attention/tensor.hpp"
#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"
#include "common/machine/error.hpp"
#include "common/machine/isa/float16.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

namespace flash {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<std::int64_t>;

/// One input file and what it holds.
struct Source {
  fs::path file;
  NpyArray array;

  const Shape& shape() const { return array.shape; }
  std::string text() const { return file.string() + " has shape " + shape_text(array.shape); }
};

Source read_source(const fs::path& folder, const char* name) {
  const fs::path file = folder / name;
  return {file, read_npy(file, 4)};
}

/// Anything of that name counts, so that a broken link is an error and not an absence.
bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

/// The source if there is such a file.
std::optional<Source> read_optional(const fs::path& folder, const char* name) {
  return is_there(folder / name) ? std::optional(read_source(folder, name)) : std::nullopt;
}

/// The offsets of a ragged batch, whose tensors have this many rows. UsageError if they do not ascend from 0 to that.
std::vector<int> read_offsets(const fs::path& file, const Source& tensor) {
  std::vector<int> offsets;
  const std::int64_t rows = tensor.shape()[2];
  for (const std::int64_t value : read_npy_integers(file)) {
    const std::int64_t before = offsets.empty() ? 0 : offsets.back();
    if (value < before || (offsets.empty() && value > 0) || value > rows) {
      throw UsageError(file.string() + ": offset " + std::to_string(offsets.size()) + " is " + std::to_string(value) +
                       "; allowed: numbers that ascend from 0 to the " + std::to_string(rows) + " rows of " +
                       tensor.file.string());
    }
    offsets.push_back(static_cast<int>(value));
  }
  if (offsets.size() < 2 || offsets.back() != rows) {
    throw UsageError(file.string() + ": the last of " + std::to_string(offsets.size()) + " offsets is " +
                     std::to_string(offsets.back()) + "; allowed: the " + std::to_string(rows) + " rows of " +
                     tensor.file.string());
  }
  return offsets;
}

/// Of cu_seqlens_q.npy and cu_seqlens_k.npy; empty without them. Keys are as many as queries if the second is missing.
Sequences read_sequences(const fs::path& folder, const Source& q, const Source& k) {
  const fs::path queries = folder / "cu_seqlens_q.npy", keys = folder / "cu_seqlens_k.npy";
  if (!is_there(queries)) {
    if (is_there(keys))
      throw UsageError(keys.string() + " without " + queries.string() + "; allowed: both, or that of the queries");
    return {};
  }
  Sequences sequences{read_offsets(queries, q), read_offsets(is_there(keys) ? keys : queries, k)};
  if (sequences.queries.size() != sequences.keys.size()) {
    throw UsageError(queries.string() + " has " + std::to_string(sequences.queries.size()) + " offsets but " + keys.string() +
                     " has " + std::to_string(sequences.keys.size()) + "; every sequence needs one in both");
  }
  if (q.shape()[0] != 1)
    throw UsageError(q.text() + "; allowed with cu_seqlens_q.npy: a batch of 1, since the sequences are the batch");
  return sequences;
}

void check_option(const char* option, const std::optional<std::int64_t>& given, const Source& source, std::size_t axis) {
  if (!given || *given == source.shape()[axis]) return;
  throw UsageError(std::string(option) + " is " + std::to_string(*given) + " but " + source.text() +
                   "; with --load the shape comes from the files");
}

RequestedSizes sizes_of(const Source& q, const Source& k, const Source& v, const SizeOptions& options) {
  if (k.shape() != v.shape()) throw UsageError(k.text() + " but " + v.text() + "; they must be equal");
  if (q.shape()[0] != k.shape()[0] || q.shape()[3] != k.shape()[3]) {
    throw UsageError(q.text() + " but " + k.text() + "; batch and head dimension must be equal");
  }
  if (q.shape()[1] % k.shape()[1] != 0) {
    throw UsageError(q.text() + " but " + k.text() + "; the heads of the first must be a multiple of those of the second");
  }
  check_option("--batch", options.batch, q, 0);
  check_option("--heads", options.heads, q, 1);
  check_option("--kv-heads", options.kv_heads, k, 1);
  check_option("--seq-q", options.seq_q, q, 2);
  check_option("--seq-k", options.seq_k, k, 2);
  check_option("--seq", options.seq, q, 2);
  check_option("--seq", options.seq, k, 2);
  check_option("--head-dim", options.head_dim, q, 3);
  return {q.shape()[0], q.shape()[1], k.shape()[1], q.shape()[2], k.shape()[2], q.shape()[3]};
}

/// "[1, 0, 3, 2]" of the element with this row-major number.
std::string position_text(const Shape& shape, std::size_t number) {
  std::array<std::size_t, 4> index{};
  for (std::size_t axis = 4; axis-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[axis]);
    index[axis] = number % extent;
    number /= extent;
  }
  return "[" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " + std::to_string(index[2]) + ", " +
         std::to_string(index[3]) + "]";
}

/// Rounds to the dtype and takes over the values. A mask is allowed as -inf where `may_mask` is set.
HostTensor<float> to_tensor(Source&& source, Dtype dtype, bool may_mask) {
  std::vector<float>& values = source.array.values;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float rounded = round_to(dtype, values[i]);
    if (std::isfinite(rounded) || (may_mask && rounded == -HUGE_VALF)) {
      values[i] = rounded;
      continue;
    }
    const char* what = std::isnan(rounded) ? "NaN" : rounded > 0 ? "+infinity" : "-infinity";
    throw UsageError(source.file.string() + ": " + what + " in " + to_string(dtype) + " at " +
                     position_text(source.shape(), i) +
                     "; allowed: " + (may_mask ? "finite numbers and -inf" : "finite numbers"));
  }
  HostTensor<float> tensor;
  std::copy_n(source.shape().begin(), 4, tensor.shape.begin());
  tensor.values = std::move(values);
  return tensor;
}

/// Sets the bias of the problem from the file's shape, or checks that the options need no file.
void set_bias(FullProblem& problem, const std::optional<Source>& bias, const ProblemOptions& options,
              const std::string& folder) {
  const BiasKind wanted = options.bias.value_or(BiasKind::none);
  if (!bias) {
    if (wanted == BiasKind::vector || wanted == BiasKind::matrix) {
      throw UsageError(std::string("--bias ") + to_string(wanted) + " with --load needs " + folder +
                       "/bias.npy; there is none");
    }
    return;
  }
  const Shape& shape = bias->shape();
  const bool fits = (shape[0] == problem.B || shape[0] == 1) && (shape[1] == problem.H || shape[1] == 1) &&
                    (shape[2] == problem.Nq || shape[2] == 1) && shape[3] == problem.Nk;
  if (!fits) {
    throw UsageError(bias->text() + "; allowed: (" + std::to_string(problem.B) + " or 1, " + std::to_string(problem.H) +
                     " or 1, " + std::to_string(problem.Nq) + " or 1, " + std::to_string(problem.Nk) + ")");
  }
  // With a single query a vector and a matrix look alike, and are.
  const bool asked_matrix = wanted == BiasKind::matrix && problem.Nq == 1;
  problem.bias = shape[2] == 1 && !asked_matrix ? BiasKind::vector : BiasKind::matrix;
  problem.bias_per_batch = shape[0] == problem.B;
  problem.bias_per_head = shape[1] == problem.H;
  if (options.bias && wanted != problem.bias) {
    throw UsageError(std::string("--bias is ") + to_string(wanted) + " but " + bias->text() + ", a " + to_string(problem.bias) +
                     "; leave --bias out");
  }
}

}  // namespace

LoadedInputs load_inputs(const std::string& folder, const ProblemOptions& given, Pass pass) {
  if (!fs::is_directory(folder)) throw UsageError("--load is '" + folder + "'; allowed: a folder with q.npy, k.npy and v.npy");
  Source q = read_source(folder, "q.npy"), k = read_source(folder, "k.npy"), v = read_source(folder, "v.npy");

  ProblemOptions options = given;
  if (!given.sequences.empty()) {
    throw UsageError("--load and --lengths are both given; with --load the lengths come from cu_seqlens_q.npy");
  }
  options.sequences = read_sequences(folder, q, k);
  options.bias_gradient = false;  // of which bias, is not known yet
  LoadedInputs loaded;
  FullProblem& problem = loaded.problem;
  problem = make_problem(options, sizes_of(q, k, v, options.sizes));
  std::optional<Source> bias = read_optional(folder, "bias.npy");
  set_bias(problem, bias, options, folder);
  problem.bias_gradient = given.bias_gradient;
  if (const std::string error = check_options(problem); !error.empty()) throw UsageError(error);

  Inputs& inputs = loaded.inputs;
  if (pass == Pass::backward) {
    if (std::optional<Source> dO = read_optional(folder, "do.npy")) {
      if (dO->shape() != q.shape()) throw UsageError(dO->text() + " but " + q.text() + "; they must be equal");
      inputs.dO = to_tensor(std::move(*dO), problem.dtype, false);
    } else {
      inputs.dO = make_input(problem, InputKind::normal, options.seed, InputTensor::dO);
      loaded.note = "no do.npy: dO is random, seed " + std::to_string(options.seed);
    }
  }
  inputs.Q = to_tensor(std::move(q), problem.dtype, false);
  inputs.K = to_tensor(std::move(k), problem.dtype, false);
  inputs.V = to_tensor(std::move(v), problem.dtype, false);
  inputs.bias = bias ? to_tensor(std::move(*bias), Dtype::fp32, true)
                     : make_input(problem, options.input, options.seed, InputTensor::bias);  // ALiBi slopes, or nothing
  return loaded;
}

}  // namespace flash
