// A file that comes into being whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace flash {

/// Bytes for a file, written to a new neighbour of it that takes its place on commit(). The neighbour's name is one that nothing
/// had before, so that no other file and no link's target is touched; without commit() it is removed again.
class PendingFile {
 public:
  /// UsageError if something that is no regular file has the name (a folder, a link, a pipe), if the file is read-only, or if no file
  /// can be made there.
  explicit PendingFile(const std::filesystem::path& target);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  /// Is there a file, not an empty one, that does not start with these bytes? It may be the user's.
  bool replaces_other_than(std::string_view start) const;

  /// Where the bytes are until commit().
  const std::string& temporary() const { return temporary_; }

  /// Appends. UsageError if the medium is full.
  void write(std::string_view bytes);

  /// Puts the bytes in the target's place, for good. UsageError if that fails.
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path target_;
  std::string temporary_;  ///< empty once it is gone
  int file_ = -1;
};

}  // namespace flash
