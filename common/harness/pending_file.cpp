#include "common/harness/pending_file.hpp"

#include "common/base/error.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <regex>
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
  remove_abandoned();
  for (int attempt = 0; !create(attempt); ++attempt) {
    if (attempt == 10000) fail(EEXIST);
  }
}

/// False if the name is taken.
bool PendingFile::create(int attempt) {
  const std::string name = target_.string() + "." + std::to_string(getpid()) + "-" + std::to_string(attempt) + ".part";
  // O_EXCL: a file or link of this name, even one that dangles, is left alone and another name tried.
  file_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file_ < 0 && errno != EEXIST) fail(errno);
  if (file_ < 0) return false;
  temporary_ = name;
  struct stat status {};
  const bool locked = flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;  // not every file system has locks
  // Another program may have taken it for abandoned before it was locked.
  if (locked && fstat(file_, &status) == 0 && status.st_nlink > 0) return true;
  close(file_);
  file_ = -1;
  temporary_.clear();
  return false;
}

/// Removes what killed programs have left of this target: a live one holds a lock.
void PendingFile::remove_abandoned() const {
  static const std::regex numbers("\\.[0-9]+-[0-9]+\\.part");
  const std::string start = target_.filename().string();
  const std::filesystem::path parent = target_.parent_path();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(parent.empty() ? "." : parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(start) || !std::regex_match(name.substr(start.size()), numbers)) continue;
    const int file = open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status {};
    if (file < 0) continue;
    const bool dead = flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink > 0;
    if (dead && S_ISREG(status.st_mode) && status.st_uid == geteuid()) unlink(entry->path().c_str());
    close(file);
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

void PendingFile::flush() {
  if (fsync(file_) != 0 && errno != EINVAL) fail(errno);  // some media cannot
  if (close(dup(file_)) != 0) fail(errno);                // some file systems report a full medium only here; the lock stays
}

void PendingFile::commit() {
  flush();  // or a power cut could leave an empty file under the target's name
  std::error_code error;
  std::filesystem::rename(temporary_, target_, error);
  if (error) fail(error.value());
  temporary_.clear();
}

void let_large_writes_fail() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace flash
