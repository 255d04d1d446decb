#!/usr/bin/env bash
# What the simulator says of some mistakes of the bug zoo (common/machine/test), each message on a line, for the page on debugging.
#
#   docs/lab/zoo.sh BUILD_DIR/tests
set -euo pipefail
[ -x "${1-}/machine_test" ] || { echo "zoo: usage: docs/lab/zoo.sh BUILD_DIR/tests" >&2 && exit 2; }
export LC_ALL=C
of_zoo='zoo: divergent*,zoo: early return*,zoo: out of bounds in g*,zoo: misaligned*,zoo: asynchronous*,zoo: phases of*'
watched='zoo: a race says*,zoo: memory of*,zoo: hazards*'
{
  "$1/machine_test" -s -ns -tc="$of_zoo"
  "$1/machine_watch_test" -s -ns -tc="$watched"
} | sed -nE 's/^ *(logged: )?(message|text) := //p' | sort -u
