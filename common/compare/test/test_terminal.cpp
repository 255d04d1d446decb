// What a person at a terminal sees of a sweep.
#include "common/compare/test/fake_stages.hpp"
#include "common/harness/test/lines.hpp"

#include <doctest/doctest.h>

#include <pty.h>

#include <cstdlib>

namespace {

using namespace flash::test;

/// What the comparison program writes to `stream` where that is a terminal called `name`; its other stream is nothing.
std::string seen(const FakeStages& stages, const char* name, int stream = STDERR_FILENO, unsigned short columns = 100) {
  int mine = -1, other = -1;
  char its[64];
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(openpty(&mine, &other, its, nullptr, &size) == 0);
  fcntl(mine, F_SETFL, O_NONBLOCK);
  setenv("TERM", name, 1);
  const bool out = stream == STDOUT_FILENO;
  const pid_t program =
      start_compare(stages, {"--device", "cpu", "--sweep", "seq=8,16"}, out ? its : "/dev/null", out ? "/dev/null" : its);
  unsetenv("TERM");
  std::string text;
  int status = 0;
  char chunk[4096];
  // The terminal has no end of its own: it is read until the program has ended and nothing is left in it.
  for (bool ended = false;;) {
    const ssize_t count = read(mine, chunk, sizeof chunk);
    if (count > 0) {
      text.append(chunk, static_cast<std::size_t>(count));
    } else if (ended) {
      break;
    } else {
      ended = waitpid(program, &status, WNOHANG) == program;
      usleep(1000);
    }
  }
  close(mine);
  close(other);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return text;
}

}  // namespace

TEST_CASE("compare: a sweep has one live line on a terminal, and lines on one that cannot take a line back") {
  const FakeStages stages(answers());
  const std::string live = seen(stages, "xterm");
  check_has(live, {"\r\x1b[K[--------------------] 1 of 2: forward 01_first/plain, B=1 H=2",
                   "\r\x1b[K[##########----------] 2 of 2, about "});
  CHECK_MESSAGE(live.ends_with("\r\x1b[K"), live);
  const std::string lines = seen(stages, "dumb");
  CHECK_MESSAGE(contains(lines, " left] forward 01_first/plain ... ok"), lines);
  CHECK_FALSE(contains(lines, "\x1b"));
}

TEST_CASE("compare: tables have the columns that a terminal has room for") {
  const FakeStages stages(answers());
  const std::string wide = seen(stages, "xterm", STDOUT_FILENO, 110), narrow = seen(stages, "xterm", STDOUT_FILENO, 32);
  CHECK_MESSAGE(contains(wide, "error  verdict  new idea\r\n---"), wide);
  CHECK_FALSE(contains(narrow, "new idea"));
  CHECK_MESSAGE(contains(narrow, "\r\nstage/variant     moved  verdict\r\n"), narrow);
}
