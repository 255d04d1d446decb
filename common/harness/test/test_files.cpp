// --load and --save: .npy files, shapes, consistency, masks, and what a folder must allow. test_numpy.py reads and writes with NumPy itself.
#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"
#include "common/machine/error.hpp"

#include <unistd.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <tuple>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// It removes itself.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "flash-steps-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void put(const char* name, const std::string& bytes) const { std::ofstream(path / name, std::ios::binary) << bytes; }
  void put(const char* name, std::int64_t b, std::int64_t h, std::int64_t n, std::int64_t d) const {
    write_npy(path / name, {b, h, n, d}, std::vector<float>(static_cast<std::size_t>(b * h * n * d), 0.5f));
  }
};

/// q (2, 6, 5, 8), k and v (2, 3, 7, 8).
struct Inputs268 : Folder {
  Inputs268() {
    put("q.npy", 2, 6, 5, 8);
    put("k.npy", 2, 3, 7, 8);
    put("v.npy", 2, 3, 7, 8);
  }
};

/// Magic, version and length around a dictionary that is taken as it is, and the bytes of the values.
template <class T>
std::string npy(const std::string& dictionary, const std::vector<T>& values, char version = 1) {
  std::string bytes = std::string(npy_magic) + version + '\0' + static_cast<char>(dictionary.size()) + '\0' + dictionary;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return bytes;
}
std::string dictionary(const std::string& type, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

/// The UsageError, which is one line; "" if there is none.
std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
}

LoadedInputs load(const Folder& folder, const Given& given = {}, Pass pass = Pass::forward) {
  return load_inputs(folder.path.string(), given, pass);
}

/// Is loading refused with a message that has all these parts?
bool refuses(const Folder& folder, const std::vector<std::string>& parts, const Given& given = {}, Pass pass = Pass::forward) {
  const std::string message = refusal_of([&] { load(folder, given, pass); });
  CAPTURE(message);
  return std::ranges::all_of(parts, [&](const std::string& part) { return message.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("npy: malformed files are refused by name") {
  const std::vector<float> six{1, 2, 3, -4, 0.5f, 6}, five(5);
  const std::string good = dictionary("<f4", "(2, 3)");
  const Folder folder;
  const fs::path file = folder.path / "x.npy";
  for (const std::string& bytes :
       {std::string(), std::string("not a NumPy file at all"), npy(good, six, 2), npy(good, six).substr(0, 40), npy(good, five),
        npy(good, six) + "x", npy(dictionary("<f4", "(2, 3)", "True"), six), npy(dictionary(">f4", "(2, 3)"), six),
        npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", six), npy(dictionary("<f4", "(6,)"), six),
        npy(dictionary("<f4", "()"), std::vector<float>{1}), npy(dictionary("<f4", "(0, 3)"), std::vector<float>{}),
        npy(dictionary("<f4", "(4294967296, 4294967296)"), six), npy(dictionary("<f4", "(9223372036854775808, 1)"), six),
        npy("__import__('os').system('true')", six)}) {
    CAPTURE(bytes);
    folder.put("x.npy", bytes);
    CHECK(refusal_of([&] { read_npy<float>(file, 2); }).starts_with(file.string()));
  }
  for (const char* other : {"absent.npy", ".", "/dev/zero"})
    CHECK_FALSE(refusal_of([&] { read_npy<float>(folder.path / other, 2); }).empty());
  write_npy(file, {6}, six);
  CHECK(read_npy<float>(file, 1).values == six);
  CHECK((fs::file_size(file) - 24) % 64 == 0);
  CHECK_THROWS_AS(write_npy(folder.path / "no" / "x.npy", {6}, six), UsageError);
}

TEST_CASE("load: the shape comes from the files, and options may agree but not contradict") {
  const Inputs268 folder;
  const LoadedInputs loaded = load(folder, {{"--causal", "true"}, {"--batch", "2"}, {"--kv-heads", "3"}});
  CHECK(describe(loaded.problem) == "B=2 H=6 Hkv=3 Nq=5 Nk=7 d=8 causal fp32 bhnd bias=none");
  CHECK(loaded.inputs.K.shape == std::array<std::int64_t, 4>{2, 3, 7, 8});
  CHECK(loaded.inputs.V(1, 2, 6, 7) == 0.5f);
  CHECK(refuses(folder, {"--seq-k is 8", "7"}, {{"--seq-k", "8"}}));
}

TEST_CASE("load: files that do not fit together are both named") {
  for (const auto& [file, b, h, n, d] : {std::tuple{"v.npy", 2, 3, 6, 8}, {"q.npy", 1, 6, 5, 8}, {"q.npy", 2, 6, 5, 9}}) {
    const Inputs268 folder;
    folder.put(file, b, h, n, d);
    CHECK(refuses(folder, {file, "k.npy"}));
  }
  const Inputs268 folder;
  folder.put("do.npy", 2, 6, 7, 8);
  CHECK_NOTHROW(load(folder));  // not read in a forward pass
  CHECK(refuses(folder, {"do.npy", "q.npy"}, {}, Pass::backward));
  for (const char* file : {"q.npy", "k.npy", "v.npy"}) folder.put(file, 2, 3, 7, 257);
  CHECK(refuses(folder, {"--head-dim is '257'"}));
  folder.put("q.npy", 2, 5, 7, 257);
  CHECK(refuses(folder, {"--head"}));
}

TEST_CASE("load: bias.npy decides what kind of bias there is") {
  const Inputs268 folder;
  const auto bias_of = [&](int b, int h, int nq) {
    folder.put("bias.npy", b, h, nq, 7);
    return load(folder).problem;
  };
  CHECK(bias_of(1, 6, 1).bias == BiasKind::vector);
  CHECK_FALSE(bias_of(1, 6, 1).bias_per_batch);
  CHECK(bias_of(1, 6, 1).bias_per_head);
  CHECK(bias_of(2, 1, 5).bias == BiasKind::matrix);
  CHECK(bias_of(2, 1, 5).bias_per_batch);
  CHECK_FALSE(bias_of(2, 1, 5).bias_per_head);
  folder.put("bias.npy", 2, 3, 5, 7);  // as many as key/value heads: not allowed
  CHECK(refuses(folder, {"bias.npy", "(2, 3, 5, 7)", "6 or 1"}));
  folder.put("bias.npy", 1, 1, 1, 7);
  for (const char* wrong : {"none", "matrix", "alibi"}) CHECK(refuses(folder, {"--bias is", "bias.npy"}, {{"--bias", wrong}}));
  fs::remove(folder.path / "bias.npy");
  CHECK(refuses(folder, {"--bias vector", "bias.npy"}, {{"--bias", "vector"}}));
  CHECK(load(folder, {{"--bias", "alibi"}}).inputs.bias.values.size() == 6);  // needs no file
}

TEST_CASE("load: cu_seqlens make a ragged batch, and are refused if they do not cover the tensors") {
  const Inputs268 folder;
  for (const char* file : {"q.npy", "k.npy", "v.npy"}) folder.put(file, 1, 3, *file == 'q' ? 5 : 7, 8);
  const auto offsets = [&](const char* name, const auto& values, const char* type) {
    folder.put(name, npy(dictionary(type, "(" + std::to_string(values.size()) + ",)"), values));
  };
  const auto queries = [&](const std::vector<std::int32_t>& values) { offsets("cu_seqlens_q.npy", values, "<i4"); };
  offsets("cu_seqlens_k.npy", std::vector<std::int64_t>{0, 0, 7}, "<i8");
  CHECK(refuses(folder, {"cu_seqlens_k.npy without", "cu_seqlens_q.npy"}));
  queries({0, 3, 5});
  CHECK(load(folder).problem.sequences == parse_lengths("3:0,2:7"));
  CHECK_NOTHROW(load(folder, {{"--lengths", "3:0,2:7"}}));
  CHECK(refuses(folder, {"--lengths"}, {{"--lengths", "3:0,2:6"}}));
  queries({0, 3, 3, 5});
  CHECK(refuses(folder, {"cu_seqlens_q.npy", "cu_seqlens_k.npy"}));
  for (const std::vector<std::int32_t>& wrong : {std::vector{0, 3, 2, 5}, {1, 3, 5}, {0, 6, 6}, {0, 3, 4}, {0}}) {
    queries(wrong);
    CHECK(refuses(folder, {"cu_seqlens_q.npy", "the 5 rows of", "q.npy"}));
  }
  queries({0, 5});
  fs::remove(folder.path / "cu_seqlens_k.npy");  // as many keys as queries, then
  CHECK(refuses(folder, {"cu_seqlens_q.npy", "the 7 rows of", "k.npy"}));
  offsets("cu_seqlens_q.npy", std::vector<float>{0, 5}, "<f4");
  CHECK(refuses(folder, {"cu_seqlens_q.npy: type '<f4'"}));
  for (const char* file : {"q.npy", "k.npy", "v.npy"}) folder.put(file, 2, 3, 5, 8);
  queries({0, 5});
  CHECK(refuses(folder, {"a batch of 1"}));
}

TEST_CASE("load: NaN and infinity are refused with their place, a bias may mask with -inf") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Inputs268 folder;
  std::vector<float> values(2 * 6 * 5 * 8, 1);
  for (const float bad : {nan, inf, -inf, 1e6f}) {
    values[241] = bad;  // 241 = ((1*6 + 0)*5 + 0)*8 + 1
    write_npy(folder.path / "q.npy", {2, 6, 5, 8}, values);
    CHECK(refuses(folder, {"q.npy", "(1, 0, 0, 1)"}, {{"--dtype", "fp16"}}));
  }
  CHECK_NOTHROW(load(folder));
  write_npy(folder.path / "bias.npy", {1, 1, 1, 7}, {0, -inf, 0, 0, 0, 0, 1});
  CHECK(load(folder).inputs.bias.values[1] == -inf);
  write_npy(folder.path / "bias.npy", {1, 1, 1, 7}, {0, inf, 0, 0, 0, 0, 1});
  CHECK(refuses(folder, {"bias.npy", "(0, 0, 0, 1)"}));
}

TEST_CASE("load: a backward pass without do.npy gets a random dO and says so") {
  const Inputs268 folder;
  const LoadedInputs loaded = load(folder, {}, Pass::backward);
  CHECK(loaded.inputs.dO.shape == loaded.inputs.Q.shape);
  CHECK_FALSE(loaded.note.empty());
  folder.put("do.npy", 2, 6, 5, 8);
  CHECK(load(folder, {}, Pass::backward).inputs.dO.values[0] == 0.5f);
  CHECK(load(folder, {}, Pass::backward).note.empty());
}

TEST_CASE("save: results of both passes, earlier ones are replaced, what may be the user's is not") {
  const Folder parent;
  const fs::path folder = parent.path / "new" / "folder";
  Results<float> results;
  results.O = HostTensor<float>({1, 2, 3, 4}, 5.0f);
  results.L = HostTensor<float>({1, 2, 3, 1}, 6.0f);
  results.dQ = results.dK = results.dV = HostTensor<float>({1, 2, 3, 4}, 7.0f);
  results.dBias = HostTensor<float>({1, 1, 3, 5}, 8.0f);
  for (int run = 0; run < 2; ++run) {
    prepare_output_folder(folder.string(), Pass::backward, "", /*bias_gradient=*/true);
    CHECK(fs::is_empty(folder) == (run == 0));
    save_results(folder.string(), Pass::backward, results);
  }
  CHECK(read_npy<float>(folder / "lse.npy", 3).values == results.L.values);
  CHECK(read_npy<float>(folder / "dv.npy", 4).values == results.dV.values);
  CHECK(read_npy<float>(folder / "dbias.npy", 4).values == results.dBias.values);

  const auto refusal = [&](const fs::path& to, const std::string& from) {
    return refusal_of([&] { prepare_output_folder(to.string(), Pass::backward, from); });
  };
  CHECK(refusal(folder, "/") == "");
  CHECK(refusal(folder, (folder / ".").string()).find("o.npy exists") != std::string::npos);
  std::ofstream(folder / "dv.npy") << "my notes";  // the last one: all are looked at
  CHECK(refusal(folder, "").find("dv.npy exists") != std::string::npos);
  fs::remove(folder / "dv.npy");
  fs::create_symlink("o.npy", folder / "dv.npy");
  CHECK(refusal(folder, "").find("dv.npy exists") != std::string::npos);
  CHECK_FALSE(refusal(folder / "lse.npy", "").empty());
}

}  // namespace flash
