// --load and --save: shapes, consistency, masks, and what a folder must allow.
#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"
#include "common/harness/test/temporary_folder.hpp"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace {

using namespace flash;
using flash::test::npy_file;
using flash::test::TemporaryFolder;
using flash::test::write_bytes;

/// A folder with q (2, 6, 5, 8), k and v (2, 3, 7, 8).
class GoodFolder : public TemporaryFolder {
 public:
  GoodFolder() {
    put("q.npy", 2, 6, 5, 8);
    put("k.npy", 2, 3, 7, 8);
    put("v.npy", 2, 3, 7, 8);
  }
  void put(const char* name, int b, int h, int n, int d) const { write_bytes(path() / name, npy_file(b, h, n, d)); }
  void put(const char* name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) const {
    write_npy(path() / name, shape, values);
  }
};

LoadedInputs load(const TemporaryFolder& folder, const ProblemOptions& options = {}, Pass pass = Pass::forward) {
  return load_inputs(folder.path().string(), options, pass);
}

/// Does loading fail with a message that has all these parts?
bool refuses(const TemporaryFolder& folder, const std::vector<std::string>& parts, const ProblemOptions& options = {},
             Pass pass = Pass::forward) {
  try {
    load(folder, options, pass);
    MESSAGE("loaded");
    return false;
  } catch (const UsageError& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      if (message.find(part) != std::string::npos) continue;
      MESSAGE(message);
      return false;
    }
    return message.find('\n') == std::string::npos;
  }
}

}  // namespace

TEST_CASE("load: the shape comes from the files") {
  const GoodFolder folder;
  ProblemOptions options;
  options.causal = true;
  const LoadedInputs loaded = load(folder, options);
  CHECK(describe(loaded.problem) == "B=2 H=6 Hkv=3 Nq=5 Nk=7 d=8 causal fp32 bhnd bias=none");
  CHECK(loaded.inputs.K.shape == std::array<std::int64_t, 4>{2, 3, 7, 8});
  CHECK(loaded.inputs.V(1, 2, 6, 7) == 0.5f);
  CHECK(loaded.inputs.dO.empty());
  CHECK(loaded.note.empty());
}

TEST_CASE("load: options that agree are accepted, options that contradict are not") {
  const GoodFolder folder;
  ProblemOptions options;
  options.sizes.batch = 2;
  options.sizes.kv_heads = 3;
  CHECK_NOTHROW(load(folder, options));
  options.sizes.seq_k = 8;
  CHECK(refuses(folder, {"--seq-k is 8", "k.npy", "(2, 3, 7, 8)"}, options));
  options.sizes = {};
  options.sizes.seq = 5;
  CHECK(refuses(folder, {"--seq is 5", "k.npy"}, options));
}

TEST_CASE("load: files that do not fit together are both named") {
  struct Case {
    const char* file;
    int b, h, n, d;
    std::vector<std::string> parts;
  };
  for (const auto& [file, b, h, n, d, parts] : {Case{"v.npy", 2, 3, 6, 8, {"k.npy", "v.npy", "(2, 3, 6, 8)"}},
                                                {"q.npy", 1, 6, 5, 8, {"q.npy", "k.npy", "batch"}},
                                                {"q.npy", 2, 6, 5, 9, {"q.npy", "k.npy", "head dimension"}},
                                                {"q.npy", 2, 5, 5, 8, {"q.npy", "k.npy", "multiple"}}}) {
    const GoodFolder folder;
    folder.put(file, b, h, n, d);
    CHECK(refuses(folder, parts));
  }
  const GoodFolder folder;
  folder.put("do.npy", 2, 6, 7, 8);
  CHECK_NOTHROW(load(folder));  // not read in a forward pass
  CHECK(refuses(folder, {"do.npy", "q.npy"}, {}, Pass::backward));
  for (const char* file : {"q.npy", "k.npy", "v.npy"}) folder.put(file, 2, 3, 7, 257);
  CHECK(refuses(folder, {"head-dim 257"}));
  std::filesystem::remove(folder.path() / "k.npy");
  CHECK(refuses(folder, {"k.npy", "no such file"}));
}

TEST_CASE("load: bias.npy decides what kind of bias there is") {
  const GoodFolder folder;
  const auto bias_of = [&](int b, int h, int nq) {
    folder.put("bias.npy", b, h, nq, 7);
    return load(folder).problem;
  };
  CHECK(bias_of(1, 1, 1).bias == BiasKind::vector);
  CHECK(bias_of(2, 6, 5).bias == BiasKind::matrix);
  CHECK(bias_of(2, 1, 5).bias_per_batch);
  CHECK_FALSE(bias_of(2, 1, 5).bias_per_head);
  CHECK(bias_of(1, 6, 1).bias_per_head);
  CHECK_FALSE(bias_of(1, 6, 1).bias_per_batch);

  folder.put("bias.npy", 2, 3, 5, 7);  // as many as key/value heads: not allowed
  CHECK(refuses(folder, {"bias.npy", "(2, 3, 5, 7)", "6 or 1"}));
  ProblemOptions options;
  folder.put("bias.npy", 1, 1, 1, 7);
  for (const BiasKind wrong : {BiasKind::none, BiasKind::matrix, BiasKind::alibi}) {
    options.bias = wrong;
    CHECK(refuses(folder, {"--bias is", "bias.npy"}, options));
  }
  std::filesystem::remove(folder.path() / "bias.npy");
  options.bias = BiasKind::vector;
  CHECK(refuses(folder, {"--bias vector", "bias.npy"}, options));
  options.bias = BiasKind::alibi;  // needs no file
  CHECK(load(folder, options).inputs.bias.values.size() == 6);
}

TEST_CASE("load: cu_seqlens make a ragged batch, and are refused in one line if they do not cover the tensors") {
  const GoodFolder folder;
  for (const char* file : {"q.npy", "k.npy", "v.npy"}) folder.put(file, 1, 3, *file == 'q' ? 5 : 7, 8);
  const auto offsets = [&](const char* name, const auto& values, const char* type) {
    const std::string shape = "(" + std::to_string(values.size()) + ",)";
    write_bytes(folder.path() / name, test::npy_header(test::dictionary(type, shape)) + test::data(values));
  };
  const auto queries = [&](const std::vector<std::int32_t>& values) { offsets("cu_seqlens_q.npy", values, "<i4"); };
  offsets("cu_seqlens_k.npy", std::vector<std::int64_t>{0, 0, 7}, "<i8");
  CHECK(refuses(folder, {"cu_seqlens_k.npy without", "cu_seqlens_q.npy"}));
  queries({0, 3, 5});
  CHECK(to_string(load(folder).problem.sequences) == "3:0,2:7");
  queries({0, 3, 3, 5});
  CHECK(refuses(folder, {"cu_seqlens_q.npy has 4 offsets", "cu_seqlens_k.npy has 3"}));
  for (const auto& [wrong, why] : {std::pair{std::vector<std::int32_t>{0, 3, 2, 5}, "offset 2 is 2"},
                                   {{1, 3, 5}, "offset 0 is 1"},
                                   {{0, 6, 6}, "offset 1 is 6"},
                                   {{0, 3, 4}, "the last of 3 offsets is 4"},
                                   {{0}, "the last of 1 offsets is 0"}}) {
    queries(wrong);
    CHECK(refuses(folder, {"cu_seqlens_q.npy: ", why, "the 5 rows of", "q.npy"}));
  }
  queries({0, 5});
  std::filesystem::remove(folder.path() / "cu_seqlens_k.npy");  // as many keys as queries, then
  CHECK(refuses(folder, {"cu_seqlens_q.npy: the last of 2 offsets is 5", "the 7 rows of", "k.npy"}));
  offsets("cu_seqlens_q.npy", std::vector<float>{0, 5}, "<f4");
  CHECK(refuses(folder, {"cu_seqlens_q.npy: type '<f4'; allowed: little-endian int32 '<i4', int64 '<i8'"}));
  ProblemOptions options;
  options.sequences = {{0, 5}, {0, 7}};
  CHECK(refuses(folder, {"--load and --lengths are both given"}, options));
  for (const char* file : {"q.npy", "k.npy", "v.npy"}) folder.put(file, 2, 3, 5, 8);
  queries({0, 5});
  CHECK(refuses(folder, {"(2, 3, 5, 8); allowed with cu_seqlens_q.npy: a batch of 1"}));
}

TEST_CASE("load: NaN and infinity are refused with their place, a bias may mask with -inf") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const GoodFolder folder;
  std::vector<float> values(2 * 6 * 5 * 8, 1);
  for (const float bad : {nan, inf, -inf}) {
    values[241] = bad;  // 241 = ((1*6 + 0)*5 + 0)*8 + 1
    folder.put("q.npy", {2, 6, 5, 8}, values);
    CHECK(refuses(folder, {"q.npy", "[1, 0, 0, 1]", "finite numbers"}));
  }
  values[241] = 1e6f;
  folder.put("q.npy", {2, 6, 5, 8}, values);
  CHECK_NOTHROW(load(folder));
  ProblemOptions half;
  half.dtype = Dtype::fp16;
  CHECK(refuses(folder, {"q.npy", "fp16", "[1, 0, 0, 1]"}, half));

  folder.put("q.npy", 2, 6, 5, 8);
  folder.put("bias.npy", {1, 1, 1, 7}, {0, -inf, 0, 0, 0, 0, 1});
  CHECK(load(folder).inputs.bias.values[1] == -inf);
  folder.put("bias.npy", {1, 1, 1, 7}, {0, inf, 0, 0, 0, 0, 1});
  CHECK(refuses(folder, {"bias.npy", "[0, 0, 0, 1]"}));
}

TEST_CASE("load: a backward pass without do.npy gets a random dO and says so") {
  const GoodFolder folder;
  const LoadedInputs loaded = load(folder, {}, Pass::backward);
  CHECK(loaded.inputs.dO.shape == loaded.inputs.Q.shape);
  CHECK(loaded.note.find("dO is random") != std::string::npos);
  folder.put("do.npy", 2, 6, 5, 8);
  CHECK(load(folder, {}, Pass::backward).inputs.dO.values[0] == 0.5f);
  CHECK(load(folder, {}, Pass::backward).note.empty());
}

TEST_CASE("save: results of both passes, earlier ones are replaced, what may be the user's is not") {
  const TemporaryFolder parent;
  const std::filesystem::path folder = parent.path() / "new" / "folder";
  Results<float> results;
  results.O = HostTensor<float>({1, 2, 3, 4}, 5.0f);
  results.L = HostTensor<float>({1, 2, 3, 1}, 6.0f);
  results.dQ = results.dK = results.dV = HostTensor<float>({1, 2, 3, 4}, 7.0f);
  results.dBias = HostTensor<float>({1, 1, 3, 5}, 8.0f);
  for (int run = 0; run < 2; ++run) {
    prepare_output_folder(folder.string(), Pass::backward, "", /*bias_gradient=*/true);
    CHECK(std::filesystem::is_empty(folder) == (run == 0));
    save_results(folder.string(), Pass::backward, results);
  }
  CHECK(read_npy(folder / "lse.npy", 3).values == results.L.values);
  CHECK(read_npy(folder / "dv.npy", 4).values == results.dV.values);
  CHECK(read_npy(folder / "dbias.npy", 4).values == results.dBias.values);

  const auto refusal = [&](const std::string& load) -> std::string {
    try {
      prepare_output_folder(folder.string(), Pass::backward, load);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  CHECK(refusal("/") == "");
  CHECK(refusal((folder / ".").string()).find("o.npy exists beside the inputs of --load") != std::string::npos);
  write_bytes(folder / "dv.npy", "my notes");  // the last one: all are looked at
  CHECK(refusal("").find("dv.npy exists and is no .npy file") != std::string::npos);
  std::filesystem::remove(folder / "dv.npy");
  std::filesystem::create_symlink("o.npy", folder / "dv.npy");
  CHECK(refusal("").find("dv.npy exists and is not a regular file") != std::string::npos);
  CHECK_THROWS_AS(prepare_output_folder((folder / "lse.npy").string(), Pass::forward, ""), UsageError);
}
