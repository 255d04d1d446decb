// Where what kernels print goes.
#pragma once

#include <cstdio>

namespace flash {
inline namespace simt {

/// To this file until the end of a scope; null: nowhere, as where a launch is repeated. At first to stdout.
class PrintsTo {
 public:
  explicit PrintsTo(std::FILE*);
  ~PrintsTo();
  PrintsTo(const PrintsTo&) = delete;
  PrintsTo& operator=(const PrintsTo&) = delete;

 private:
  std::FILE* const before_;
};

}  // namespace simt
}  // namespace flash
