// A file that comes into being whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace flash {

/// Bytes for a file, written to a new neighbour of it that takes its place on commit(). The neighbour's name is one that nothing
/// had before, so that no other file and no link's target is touched; without commit() it is removed again. If the program is killed
/// first, the next PendingFile for the same target removes it.
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

  /// Waits until the medium has all bytes. UsageError if it is full.
  void flush();

  /// Puts the bytes in the target's place, for good. UsageError if that fails.
  void commit();

 private:
  [[noreturn]] void fail(int error) const;
  bool create(int attempt);
  void remove_abandoned() const;

  std::filesystem::path target_;
  std::string temporary_;  ///< empty once it is gone
  int file_ = -1;          ///< locked while it lives: an unlocked neighbour is what a killed program left
};

/// From now on a write beyond `ulimit -f` fails with a message, as on a full medium, instead of ending the program.
void let_large_writes_fail();

}  // namespace flash
