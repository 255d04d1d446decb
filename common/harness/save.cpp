#include "common/device/error.hpp"
#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"

#include <filesystem>
#include <list>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// In the order of Results.
std::vector<std::string> result_files(Pass pass) {
  if (pass == Pass::forward) return {"o.npy", "lse.npy"};
  return {"o.npy", "lse.npy", "dq.npy", "dk.npy", "dv.npy"};
}

}  // namespace

void prepare_output_folder(const std::string& folder, Pass pass) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("--save is '" + folder + "', which cannot be made: " + error.message());
  if (!fs::is_directory(folder)) throw UsageError("--save is '" + folder + "', which is not a folder");
  // Opening each checks its name and that files can be made here; all are removed again at once.
  for (const std::string& name : result_files(pass)) PendingFile(fs::path(folder) / name);
}

void save_results(const std::string& folder, Pass pass, const Results<float>& results) {
  const HostTensor<float>* const tensors[]{&results.O, &results.L, &results.dQ, &results.dK, &results.dV};
  // All are written before the first takes its place: a full medium leaves the earlier results whole.
  std::list<PendingFile> files;
  for (const std::string& name : result_files(pass)) {
    const HostTensor<float>& tensor = *tensors[files.size()];
    const std::ptrdiff_t rank = &tensor == &results.L ? 3 : 4;  // L is (B,H,Nq)
    write_npy(files.emplace_back(fs::path(folder) / name), {tensor.shape.begin(), tensor.shape.begin() + rank}, tensor.values);
  }
  for (PendingFile& file : files) file.commit();
}

}  // namespace flash
