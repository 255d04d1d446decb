#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"
#include "common/machine/error.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// The reason why no result may be written to the file; "" if one may.
std::string protects(const fs::path& file, bool beside_inputs) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  if (!fs::exists(status)) return "";
  if (!fs::is_regular_file(status)) return "exists and is not a regular file";
  // Whoever put inputs there may have put what they expect next to them.
  if (beside_inputs)
    return "exists beside the inputs of --load and may be yours; allowed: another folder for --save, or delete it";
  std::string magic(npy_magic.size(), '\0');
  std::ifstream(file, std::ios::binary).read(magic.data(), static_cast<std::streamsize>(magic.size()));
  if (magic == npy_magic || fs::file_size(file, error) == 0) return "";
  return "exists and is no .npy file, so it is left as it is; allowed: another folder for --save";
}

}  // namespace

std::vector<std::string> saved_files(const std::string& folder, Pass pass, bool bias_gradient) {
  std::vector<std::string> files{"o.npy", "lse.npy"};
  if (pass == Pass::backward) files.insert(files.end(), {"dq.npy", "dk.npy", "dv.npy"});
  if (bias_gradient) files.emplace_back("dbias.npy");
  for (std::string& file : files) file = (fs::path(folder) / file).string();
  return files;
}

void prepare_output_folder(const std::string& folder, Pass pass, const std::string& load, bool bias_gradient) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("--save is '" + folder + "', which cannot be made: " + error.message());
  if (!fs::is_directory(folder)) throw UsageError("--save is '" + folder + "', which is not a folder");
  if (access(folder.c_str(), W_OK) != 0)
    throw UsageError("--save is '" + folder + "', which cannot be written: it is read-only");
  const bool with_inputs = !load.empty() && fs::equivalent(folder, load, error);
  for (const std::string& file : saved_files(folder, pass, bias_gradient)) {
    if (const std::string why = protects(file, with_inputs); !why.empty()) throw UsageError(file + " " + why);
  }
}

void save_results(const std::string& folder, Pass pass, const Results<float>& results) {
  const HostTensor<float>* tensor[]{&results.O, &results.L, &results.dQ, &results.dK, &results.dV, &results.dBias};
  std::size_t n = 0;
  for (const std::string& file : saved_files(folder, pass, !results.dBias.empty())) {
    const HostTensor<float>& saved = *tensor[n++];
    const std::ptrdiff_t rank = &saved == &results.L ? 3 : 4;  // L is (B,H,Nq)
    write_npy(file, {saved.shape.begin(), saved.shape.begin() + rank}, saved.values);
  }
}

}  // namespace flash
