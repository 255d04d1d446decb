#include "common/device/error.hpp"
#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"

#include <filesystem>
#include <fstream>

namespace flash {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> result_files(Pass pass) {
  if (pass == Pass::forward) return {"o.npy", "lse.npy"};
  return {"o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy"};
}

void write(const fs::path& file, const HostTensor<float>& tensor, std::size_t rank = 4) {
  write_npy(file, {tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(rank)}, tensor.values);
}

}  // namespace

void prepare_output_folder(const std::string& folder, Pass pass) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("--save is '" + folder + "', which cannot be made: " + error.message());
  if (!fs::is_directory(folder)) throw UsageError("--save is '" + folder + "', which is not a folder");
  for (const std::string& name : result_files(pass)) {
    const fs::file_status status = fs::symlink_status(fs::path(folder) / name, error);
    if (fs::exists(status) && !fs::is_regular_file(status)) {
      throw UsageError("--save: " + (fs::path(folder) / name).string() + " exists and is not a regular file");
    }
  }
  const fs::path trial = fs::path(folder) / "o.npy.part";  // the name that write_npy() will use
  const bool opened = std::ofstream(trial).is_open();
  fs::remove(trial, error);
  if (!opened) throw UsageError("--save is '" + folder + "', where no file can be written");
}

void save_results(const std::string& folder, Pass pass, const Results<float>& results) {
  write(fs::path(folder) / "o.npy", results.O);
  write(fs::path(folder) / "lse.npy", results.L, 3);
  if (pass == Pass::forward) return;
  write(fs::path(folder) / "dq.npy", results.dQ);
  write(fs::path(folder) / "dk.npy", results.dK);
  write(fs::path(folder) / "dv.npy", results.dV);
}

}  // namespace flash
