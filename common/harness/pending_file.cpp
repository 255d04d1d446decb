#include "common/harness/pending_file.hpp"

#include "common/base/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

namespace flash {

PendingFile::PendingFile(const std::filesystem::path& target) : target_(target) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(target, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw UsageError(target.string() + " exists and is not a regular file");
  }
  // A rename asks no leave of the file that it replaces, and root may write everything.
  using std::filesystem::perms;
  const bool nobody_writes =
      (status.permissions() & (perms::owner_write | perms::group_write | perms::others_write)) == perms::none;
  if (std::filesystem::exists(status) && (nobody_writes || access(target.c_str(), W_OK) != 0)) {
    throw UsageError(target.string() + " cannot be written: it is read-only");
  }
  for (int attempt = 0;; ++attempt) {
    temporary_ = target.string() + "." + std::to_string(getpid()) + "-" + std::to_string(attempt) + ".part";
    // O_EXCL: a file or link of this name, even one that dangles, is left alone and another name tried.
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file_ >= 0) return;
    if (errno != EEXIST || attempt == 10000) fail(errno);
  }
}

PendingFile::~PendingFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

bool PendingFile::replaces_other_than(std::string_view start) const {
  std::ifstream file(target_, std::ios::binary);
  std::string found(start.size(), '\0');
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  return file.gcount() > 0 && found != start;
}

void PendingFile::fail(int error) const {
  throw UsageError(target_.string() + " cannot be written: " + std::system_category().message(error));
}

void PendingFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) fail(errno);
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void PendingFile::commit() {
  // Before the name changes hands, or a power cut could leave an empty file under it. Some media cannot (EINVAL).
  if (fsync(file_) != 0 && errno != EINVAL) fail(errno);
  const int closed = close(file_);  // some file systems report a full medium only here
  file_ = -1;
  if (closed != 0) fail(errno);
  std::error_code error;
  std::filesystem::rename(temporary_, target_, error);
  if (error) fail(error.value());
  temporary_.clear();
}

}  // namespace flash
