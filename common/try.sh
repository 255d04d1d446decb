#!/usr/bin/env bash
# Builds one stage or lab program, runs it, and runs its tests: the command to repeat while you edit a kernel. --help says more.
#
# It works in build/, like the presets demo and test, and configures it as demo does if nobody has. What was built stays built.
# Written for bash 3.2 too (macOS).
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: common/try.sh [--all | --seconds N] STAGE [OPTION...]

  Builds STAGE as it is now, runs it with these options, then runs its tests.
  Stops at the first thing that is wrong, and shows it.

  STAGE    its number or folder (04 or 04_fa1_forward), or a program of docs/lab
           (lab_barrier)
  OPTION   of the program, for instance --causal --seq 300. Without any it runs its
           default problem. --variant NAME has only that variant tested
  --all    every test case, however long they take. Otherwise the shortest come
           first, and none goes on once 15 seconds are over in all
  --seconds N
           likewise, but none goes on after N seconds of tests
  --help   this text

Exit code: 0 all that ran is right; 1 it does not compile, or a check or a test failed;
2 bad usage; 3 no such device.
TEXT
}

refuse() { echo "try: $*" >&2 && exit 2; }

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
seconds=""
while :; do
  case ${1:-} in
    --help | -h) usage && exit 0 ;;
    --all) seconds=86400 && shift ;;
    --seconds)
      case ${2:-} in "" | *[!0-9]* | 0* | ??????*) refuse "--seconds is '${2:-}'; allowed: whole numbers from 1 to 99999" ;; esac
      seconds=$2 && shift 2
      ;;
    -*) refuse "unknown option '$1'; allowed before the stage: --all, --seconds, --help; options of the program follow the stage" ;;
    "") refuse "which stage? common/try.sh STAGE [OPTION...]; --help says more" ;;
    *) break ;;
  esac
done

# --- Which program? ---------------------------------------------------------------------------------------------------------

programs() {  # all that can be named, one in a line
  (cd "$root" && for file in [0-9][0-9]_*/CMakeLists.txt; do dirname "$file"; done &&
    for file in docs/lab/*.cpp; do echo "lab_$(basename "$file" .cpp)"; done)
}

wanted=${1%/}
shift
number=$wanted
case $wanted in [0-9]) number=0$wanted ;; esac
name=$(programs | awk -v wanted="$wanted" -v number="$number" '$0 == wanted || (number ~ /^[0-9]+$/ && index($0, number "_") == 1)')
case $name in
  "") refuse "no stage or lab program '$wanted'; there are: $(programs | paste -s -d ' ' -)" ;;
  *$'\n'*) refuse "'$wanted' is each of: $(echo "$name" | paste -s -d ' ' -)" ;;
  lab_*) targets=$name ;;
  *) targets="$name ${name}_test" ;;
esac
test=$build/tests/${name}_test

# --- Build ------------------------------------------------------------------------------------------------------------------

# readable < LOG: the paths of the project's files without what leads to the project.
readable() {
  root=$root/ awk 'BEGIN { root = ENVIRON["root"] }
    { while (at = index($0, root)) $0 = substr($0, 1, at - 1) substr($0, at + length(root))
      sub(/^(\.\.\/)+/, ""); print }'
}

# first PATTERN < LOG: the first message that has it, by a compiler, a linker or CMake; a few lines of it. Of a message about a template also
# which line asked for it: g++ says so before it, clang after it.
first() {
  readable | awk -v pattern="$1" '
    !found && /: In / { asked = "" }
    (found ? /requested here/ : /required from here/) { asked = $0 }
    over && (/(error|warning) ?:/ || /^(\[|ninja|make)/) { exit }
    found && (/^\[/ || /^[^ ]+[:(][0-9]+[:)]/ || /^(ninja|FAILED|In file|make)/ || ++lines > 7) { over = 1 }
    !found && $0 ~ pattern { found = 1 }
    found && (!over || /the comparison reduces to/)
    END { if (found && asked) print asked }'
}

# progress LOG: keeps what it reads, and shows in a terminal how far the build is.
progress() {
  local line shown=no
  while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in \[*/*\]*) [ -t 2 ] && printf '\r%-78.78s' "building $name ${line%%]*}]" >&2 && shown=yes ;; esac
  done >"$1"
  [ $shown = no ] || printf '\r%-78s\r' '' >&2
}

# shellcheck disable=SC2317  # called by the next one
build_all() {
  if [ ! -e "$build/build.ninja" ] && [ ! -e "$build/Makefile" ]; then
    (cd "$root" && cmake --preset demo) || return 1
  fi
  # shellcheck disable=SC2086  # one or two words
  cmake --build "$build" --target $targets
}

command -v cmake >/dev/null || { echo "try: cmake is missing; common/setup.sh installs what a build needs" >&2 && exit 1; }
mkdir -p "$build" || exit 1
logs=$(mktemp -d "${TMPDIR:-/tmp}/flash_try.XXXXXX") || exit 1
trap 'rm -rf "$logs"' EXIT
build_all 2>&1 | progress "$logs/build"
if [ "${PIPESTATUS[0]}" != 0 ]; then
  first '(^|[^-W])[Ee]rror( |:|$)|undefined (reference|symbol)' <"$logs/build" >"$logs/first"
  [ -s "$logs/first" ] || tail -n 8 "$logs/build" >"$logs/first"
  cat "$logs/first"
  if grep -q 'CMake Error' "$logs/first"; then echo "common/setup.sh says what a build needs and is missing here."; fi
  echo "try: $name does not build; all of it: cmake --build build --target $targets" >&2
  exit 1
fi
first 'warning ?:' <"$logs/build"
built=$SECONDS

# --- Run --------------------------------------------------------------------------------------------------------------------

# Of a wrong result the report goes as far as it says what is wrong: counts come after that.
# An endless loop with a barrier in it ends after seconds, not after the many minutes that the simulator would allow it.
FLASH_SIMT_STEPS=${FLASH_SIMT_STEPS:-16777216} "$build/bin/$name" "$@" >"$logs/report"
code=$?
if [ $code = 0 ]; then cat "$logs/report"; else sed '/^  extra memory/,$d' "$logs/report"; fi
if [ $code != 0 ]; then
  case $code in
    2 | 3) ;;  # the program has said why
    *)
      [ $code -lt 128 ] || echo "$name was ended by signal $((code - 128)) ($(kill -l $((code - 128))))."
      echo "try: $name is WRONG; its tests were not run. $SECONDS s" >&2
      code=1
      ;;
  esac
  exit $code
fi
if [ "$targets" = "$name" ]; then
  echo "try: $name is right. $SECONDS s"
  exit 0
fi

# --- Test -------------------------------------------------------------------------------------------------------------------

# run_case NUMBER DEVICE CASE: leaves NUMBER.passed, NUMBER.failed or, if there was no time for it, neither. 255: xargs starts no more.
# shellcheck disable=SC2317  # xargs calls it
run_case() {
  local began code
  began=$(date +%s)
  [ "$began" -lt "$deadline" ] || exit 255
  # A comma would separate two names; ? is any character. The limit is one of CPU time, which ends a process by SIGXCPU.
  (ulimit -S -t $((deadline - began)) && exec "$test" "--device=$2" "--test-case=${3//,/?}" ${variant:+"--variant=$variant"} \
    --abort-after=1 --no-colors=true --no-intro=true) >"$logs/$1.log" 2>&1
  code=$?
  printf '%d\t%s\n' $(($(date +%s) - began)) "$3" >"$logs/$1.seconds"
  case $code in
    0 | 77) touch "$logs/$1.passed" ;;
    152) ;;  # SIGXCPU
    *) touch "$logs/$1.failed" && exit 255 ;;
  esac
}

# Those that took no time when they were last run come first; at the very first time those that are the stage's own.
cases() {
  "$test" --list-test-cases --no-colors=true --no-intro=true | grep -v '^\[doctest\]\|^=' | sort -s -k 1,1 |
    awk -F '\t' 'FILENAME == ARGV[1] { seconds[$2] = $1; next } { print seconds[$1] + 0 "\t" $0 }' "$memory" - | sort -s -n -k 1,1 | cut -f 2-
}

# reproduce < FAILURE: the command that runs the stage on the problem that a test case names.
reproduce() {
  awk -v command="common/try.sh $wanted" '
    / on B=[0-9]+ H=[0-9]+ / && !options {
      split("B batch H heads Hkv kv-heads Nq seq-q Nk seq-k d head-dim scale scale bias bias", names, " ")
      for (i = 1; i < 16; i += 2) option[names[i]] = names[i + 1]
      sub(/^ *logged: /, "")
      gsub(/[:,]( |$)/, " ")
      if ($2 == "backward") backward = " --pass backward"
      options = " --variant " $1
      for (i = 2; i <= NF; ++i) {
        if (split($i, part, /[=[]/) > 1 && part[1] in option && part[2] != "none") options = options " --" option[part[1]] " " part[2]
        if ($i == "causal") options = options " --causal"
        if ($i ~ /^(fp16|bf16)$/) options = options " --dtype " $i
        if ($i ~ /^(bnhd|qkv|kv)$/) options = options " --layout " $i
        if ($i == "tiles") options = options " --tiles " $(i + 1) "," $(i + 3)
      }
    }
    /^d[qkv]: / { backward = " --pass backward" }
    END { if (options) print "The same problem by itself: " command backward options }'
}

variant=""
previous=""
for option in "$@"; do
  case $previous in --variant) variant=$option ;; esac
  case $option in --variant=*) variant=${option#*=} ;; esac
  previous=$option
done
memory=$build/tests/${name}_test$variant.seconds  # of the last run
touch "$memory"
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
[ -n "$seconds" ] || seconds=$((SECONDS < 9 ? 14 - SECONDS : 5))
deadline=$(($(date +%s) + seconds))
export test logs deadline variant
export -f run_case
count=0
# shellcheck disable=SC2016  # the inner shell expands its arguments
{
  "$test" --device=gpu --test-case=none >/dev/null 2>&1 && printf '%s\0' 0 gpu 'grid*'  # ends with 77 where there is none
  cases | while IFS= read -r each; do printf '%s\0' $((count += 1)) cpu "$each"; done
} | tee "$logs/queue" | xargs -0 -n 3 -P "$cores" bash -c 'run_case "$@"' _ 2>/dev/null
cat "$logs"/*.seconds "$memory" 2>/dev/null | awk -F '\t' '!seen[$2]++' >"$logs/memory" && cp "$logs/memory" "$memory"

all=$(($(tr -cd '\0' <"$logs/queue" | wc -c) / 3))
failed=$(find "$logs" -name '*.failed' | sed 's|.*/||' | sort -n | head -n 1)
passed=$(find "$logs" -name '*.passed' | wc -l | tr -d ' ')
times="$SECONDS s, of which $built s to build"
if [ -n "$failed" ]; then
  readable <"$logs/${failed%.failed}.log" >"$logs/failure"
  awk '/^(Aborting|=====)/ && lines { exit } (/^TEST CASE:/ || lines) && NF && !/^  values: CHECK\( false \)/ && ++lines < 14' "$logs/failure"
  reproduce <"$logs/failure"
  echo "try: $name is WRONG: the test case above failed. $times" >&2
  exit 1
fi
if [ "$passed" = "$all" ]; then
  echo "try: $name is right: all $all test cases passed. $times"
else
  echo "try: $name is right as far as it was tested: $passed of $all test cases passed. $times"
  echo "     For the others there was no time: common/try.sh --all $wanted${variant:+ --variant $variant}"
fi
