#include "common/base/error.hpp"
#include "common/base/process.hpp"
#include "common/harness/files.hpp"
#include "common/harness/npy.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <list>
#include <thread>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// Keeps other programs from replacing results in the folder meanwhile. They wait, since a lock lasts for a few renames.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (folder_ >= 0 && flock(folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {  // not every file system has locks
      if (std::chrono::steady_clock::now() > deadline) {
        close(folder_);
        throw UsageError("--save is '" + folder +
                         "', which another program has locked; allowed: another folder, or wait for it");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~FolderLock() {
    if (folder_ >= 0) close(folder_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int folder_;
};

}  // namespace

std::vector<std::string> saved_files(const std::string& folder, Pass pass) {
  std::vector<std::string> files{"o.npy", "lse.npy"};
  if (pass == Pass::backward) files.insert(files.end(), {"dq.npy", "dk.npy", "dv.npy"});
  for (std::string& file : files) file = (fs::path(folder) / file).string();
  return files;
}

void prepare_output_folder(const std::string& folder, Pass pass, const std::string& load) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("--save is '" + folder + "', which cannot be made: " + error.message());
  if (!fs::is_directory(folder)) throw UsageError("--save is '" + folder + "', which is not a folder");
  const bool with_inputs = !load.empty() && fs::equivalent(folder, load, error);
  for (const std::string& file : saved_files(folder, pass)) {
    // Opening it checks the name and that files can be made here; it is removed again at once.
    if (PendingFile(file).replaces_other_than(npy_magic)) {
      throw UsageError(file + " exists and is no .npy file, so it is left as it is; allowed: another folder for --save");
    }
    // Whoever put inputs there may have put what they expect beside them.
    if (with_inputs && fs::exists(file, error)) {
      throw UsageError(
          file + " exists beside the inputs of --load and may be yours; allowed: another folder for --save, or delete it");
    }
  }
}

void save_results(const std::string& folder, Pass pass, const Results<float>& results) {
  const HostTensor<float>* const tensors[]{&results.O, &results.L, &results.dQ, &results.dK, &results.dV};
  // All are written before the first takes its place: a full medium leaves the earlier results whole, and neither Ctrl-C nor another
  // program's results come between them.
  const SignalsHeld held;
  std::list<PendingFile> files;
  for (const std::string& file : saved_files(folder, pass)) {
    const HostTensor<float>& tensor = *tensors[files.size()];
    const std::ptrdiff_t rank = &tensor == &results.L ? 3 : 4;  // L is (B,H,Nq)
    write_npy(files.emplace_back(file), {tensor.shape.begin(), tensor.shape.begin() + rank}, tensor.values);
  }
  for (PendingFile& file : files) file.flush();
  const FolderLock lock(folder);
  for (PendingFile& file : files) file.commit();
}

}  // namespace flash
