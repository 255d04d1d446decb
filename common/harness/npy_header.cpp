// The dictionary in the header of an .npy file, for example
//   {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }
#include "common/base/error.hpp"
#include "common/harness/npy.hpp"

#include <charconv>

namespace flash {
namespace {

/// Reads tokens from left to right; every expectation that fails ends in a UsageError.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        header.descr = quoted();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = tuple();
        has_shape = true;
      } else {
        fail("has the key '" + key + "' unknown or twice");
      }
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (!rest_.empty()) fail("goes on after its closing brace");
    if (!has_descr || !has_order || !has_shape) fail("lacks one of the keys descr, fortran_order, shape");
    return header;
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw UsageError("malformed header: it " + what); }

  void skip_space() {
    const std::size_t start = rest_.find_first_not_of(" \n");
    rest_.remove_prefix(start == std::string_view::npos ? rest_.size() : start);
  }

  bool take(char wanted) {
    skip_space();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("lacks a '") + wanted + "'");
  }

  std::string quoted() {
    const char quote = take('\'') ? '\'' : '"';
    if (quote == '"' && !take('"')) fail("lacks a quoted word (a structured type is not allowed)");
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail("lacks a closing quote");
    const std::string word(rest_.substr(0, end));
    for (const char c : word) {
      if (c < ' ' || c > '~' || c == '\\') fail("has an odd character in a word");
    }
    rest_.remove_prefix(end + 1);
    return word;
  }

  bool boolean() {
    skip_space();
    for (const std::string_view word : {"False", "True"}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return word == "True";
    }
    fail("lacks True or False for fortran_order");
  }

  /// (), (3,), (3, 4), (3, 4,): a single number without a comma is no tuple.
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> numbers;
    expect('(');
    bool comma = true;
    while (!take(')')) {
      if (!comma) fail("lacks a ',' in the shape");
      numbers.push_back(number());
      comma = take(',');
    }
    if (numbers.size() == 1 && !comma) fail("has a shape that is not a tuple");
    return numbers;
  }

  std::int64_t number() {
    skip_space();
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{} || value < 0) fail("has a shape with something other than whole numbers below 2^63");
    rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
    return value;
  }

  std::string_view rest_;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text) { return HeaderParser(text).parse(); }

}  // namespace flash
