#include "common/harness/files.hpp"

#include "common/harness/inputs.hpp"
#include "common/harness/npy.hpp"
#include "common/machine/error.hpp"
#include "common/machine/isa/float16.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// One input file and what it holds.
struct InputFile {
  fs::path file;
  NpyArray<float> array;

  std::int64_t extent(std::size_t axis) const { return array.shape[axis]; }
  std::string text() const { return file.string() + " has shape " + shape_text(array.shape); }
};

fs::path file_of(const fs::path& folder, const char* tensor) { return folder / (std::string(tensor) + ".npy"); }

InputFile read_input_file(const fs::path& file) { return {file, read_npy<float>(file, 4)}; }

/// Anything of that name counts, so that a broken link is an error and not an absence.
bool is_there(const fs::path& file) {
  std::error_code hidden;  // in a folder that may not be looked into
  return fs::exists(fs::symlink_status(file, hidden));
}

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError(what);
}

/// The offsets of a ragged batch, whose tensors have this many rows.
std::vector<int> read_offsets(const fs::path& file, const InputFile& tensor) {
  const std::vector<std::int64_t> offsets = read_npy<std::int64_t>(file, 1).values;
  require(offsets.size() > 1 && offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()) &&
              offsets.back() == tensor.extent(2),
          file.string() + " has other offsets than those allowed: numbers that ascend from 0 to the " +
              std::to_string(tensor.extent(2)) + " rows of " + tensor.file.string());
  return {offsets.begin(), offsets.end()};
}

/// Of cu_seqlens_q.npy and cu_seqlens_k.npy; empty without them. Keys are as many as queries if the second is missing.
Sequences read_sequences(const fs::path& folder, const InputFile& q, const InputFile& k) {
  const fs::path queries = folder / "cu_seqlens_q.npy", keys = folder / "cu_seqlens_k.npy";
  if (!is_there(queries)) {
    require(!is_there(keys), keys.string() + " without " + queries.string() + "; allowed: both, or that of the queries");
    return {};
  }
  Sequences sequences{read_offsets(queries, q), read_offsets(is_there(keys) ? keys : queries, k)};
  require(sequences.queries.size() == sequences.keys.size(),
          queries.string() + " and " + keys.string() + " have different sizes; every sequence needs an offset in both");
  require(q.extent(0) == 1, q.text() + "; allowed with cu_seqlens_q.npy: a batch of 1, since the sequences are the batch");
  return sequences;
}

/// Rounds to the dtype and takes over the values. A mask is allowed as -inf where `may_mask` is set.
HostTensor<float> to_tensor(InputFile&& source, Dtype dtype, bool may_mask) {
  HostTensor<float> tensor;
  std::copy_n(source.array.shape.begin(), 4, tensor.shape.begin());
  tensor.values = std::move(source.array.values);
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    float& value = tensor.values[i];
    value = round_to(dtype, value);
    if (std::isfinite(value) || (may_mask && value == -HUGE_VALF)) continue;
    std::vector<std::int64_t> place(4);
    for (std::size_t axis = 4, rest = i; axis-- > 0; rest /= static_cast<std::size_t>(tensor.shape[axis]))
      place[axis] = static_cast<std::int64_t>(rest % static_cast<std::size_t>(tensor.shape[axis]));
    require(false, source.file.string() + ": " + std::to_string(value) + " in " + to_string(dtype) + " at " +
                       shape_text(place) + "; allowed: finite numbers" + (may_mask ? " and -inf" : ""));
  }
  return tensor;
}

/// Says which kind of bias the file's shape means, and which batches and heads share it; load_inputs() then compares the shape with that of such a
/// bias. With a single query a vector and a matrix look alike, and are.
void give_bias_options(GivenOptions& given, const InputFile& bias, const InputFile& q) {
  const bool asked_for_matrix = given.contains("--bias") && given.at("--bias") == "matrix";
  const bool matrix = bias.extent(2) > 1 || (q.extent(2) == 1 && asked_for_matrix);
  give_option(given, "--bias", matrix ? "matrix" : "vector", bias.text());
  give_option(given, "--bias-per-batch", bias.extent(0) > 1 ? "true" : "false", bias.text());
  give_option(given, "--bias-per-head", bias.extent(1) > 1 || q.extent(1) == 1 ? "true" : "false", bias.text());
}

/// The reason why no result may be written to the file; "" if one may.
std::string why_not_replaced(const fs::path& file, bool beside_inputs) {
  if (!is_there(file)) return "";
  std::error_code ignored;
  if (!fs::is_regular_file(fs::symlink_status(file, ignored))) return "exists and is not a regular file";
  // Whoever put inputs there may have put what they expect next to them.
  if (beside_inputs)
    return "exists beside the inputs of --load and may be yours; allowed: another folder for --save, or delete it";
  std::string magic(npy_magic.size(), '\0');
  std::ifstream(file, std::ios::binary).read(magic.data(), static_cast<std::streamsize>(magic.size()));
  if (magic == npy_magic || fs::file_size(file, ignored) == 0) return "";
  return "exists and is no .npy file, so it is left as it is; allowed: another folder for --save";
}

}  // namespace

LoadedInputs load_inputs(const std::string& folder, GivenOptions given, Pass pass) {
  const fs::path in(folder);
  std::map<std::string, InputFile> files;  // by the name of their tensor
  for (const char* name : {"q", "k", "v"}) files[name] = read_input_file(file_of(in, name));
  const InputFile &q = files["q"], &k = files["k"], &v = files["v"];
  require(k.array.shape == v.array.shape, k.text() + " but " + v.text() + "; they must be equal");
  require(q.extent(0) == k.extent(0) && q.extent(3) == k.extent(3),
          q.text() + " but " + k.text() + "; batch and head dimension must be equal");
  for (const auto& [name, size] : given_sizes({q.extent(0), q.extent(1), k.extent(1), q.extent(2), k.extent(2), q.extent(3)}))
    give_option(given, name, size, "the files say");
  const bool has_bias = is_there(file_of(in, "bias"));
  if (has_bias) {
    files["bias"] = read_input_file(file_of(in, "bias"));
    give_bias_options(given, files["bias"], q);
  }

  LoadedInputs loaded;
  FullProblem& problem = loaded.problem;
  problem = make_problem(given);
  const Sequences sequences = read_sequences(in, q, k);
  require(!given.contains("--lengths") || problem.sequences == sequences,
          "--lengths is given with --load; allowed: cu_seqlens_q.npy in " + folder);
  problem.sequences = sequences;
  require(has_bias || problem.bias == BiasKind::none || problem.bias == BiasKind::alibi,
          std::string("--bias ") + to_string(problem.bias) + " with --load needs " + folder + "/bias.npy; there is none");
  check_problem(problem);

  std::vector<std::pair<const ProblemTensor*, InputFile*>> found;
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    if (each.input == nullptr) return;
    const fs::path file = file_of(in, each.file);
    if (!files.contains(each.file) && is_there(file)) files[each.file] = read_input_file(file);
    if (!files.contains(each.file)) {  // ALiBi's slopes, or dO
      loaded.inputs.*each.input = make_input(problem, each);
      if (each.backward)
        loaded.note = "no " + file.filename().string() + ": " + each.name + " is random, seed " + std::to_string(problem.seed);
      return;
    }
    const Extents shape = each.shape(problem);
    const std::vector<std::int64_t>& found_shape = files[each.file].array.shape;
    require(std::equal(shape.begin(), shape.end(), found_shape.begin(), found_shape.end()),
            files[each.file].text() + " but " + q.text() + "; allowed: " + shape_text({shape.begin(), shape.end()}));
    found.emplace_back(&each, &files[each.file]);
  });
  for (const auto& [tensor, source] : found)
    loaded.inputs.*tensor->input = to_tensor(std::move(*source), tensor->dtype(problem), tensor->role == Role::bias);
  return loaded;
}

std::vector<std::string> saved_files(const std::string& folder, const FullProblem& problem, Pass pass) {
  std::vector<std::string> files;
  each_tensor(problem, pass, [&](const ProblemTensor& each) {
    if (each.result != nullptr) files.push_back(file_of(folder, each.file).string());
  });
  return files;
}

void prepare_output_folder(const std::string& folder, const FullProblem& problem, Pass pass, const std::string& load) {
  std::error_code error;
  fs::create_directories(folder, error);
  require(!error && fs::is_directory(folder), "--save is '" + folder + "', which is no folder and cannot be made");
  require(access(folder.c_str(), W_OK) == 0, "--save is '" + folder + "', which cannot be written: it is read-only");
  const bool with_inputs = !load.empty() && fs::equivalent(folder, load, error);
  for (const std::string& file : saved_files(folder, problem, pass)) {
    const std::string why = why_not_replaced(file, with_inputs);
    require(why.empty(), file + " " + why);
  }
}

void save_results(const std::string& folder, const Results<float>& results) {
  for (const ProblemTensor& each : problem_tensors()) {
    if (each.result == nullptr || (results.*each.result).empty()) continue;
    const HostTensor<float>& saved = results.*each.result;
    const std::ptrdiff_t rank = each.role == Role::lse ? 3 : 4;  // (B,H,Nq)
    write_npy(file_of(folder, each.file), {saved.shape.begin(), saved.shape.begin() + rank}, saved.values);
  }
}

}  // namespace flash
