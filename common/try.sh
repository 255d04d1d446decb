#!/usr/bin/env bash
# Builds one stage or lab program, runs it, and runs its tests: the command to repeat while you edit a kernel.
#
# usage: common/try.sh [--all] STAGE [OPTION...]
#        common/try.sh STAGE --serve | --build, or FILE.cu --serve
#
#   Builds STAGE, runs it with these options, then its tests, up to the first thing wrong.
#
#   STAGE    its number or folder (04 or 04_fa1_forward), or a program of docs/lab
#            (lab_barrier)
#   OPTION   of the program, for instance --causal --seq 300. If they name no problem, it
#            runs its default problem, then some with odd lengths, threads in two orders.
#            --variant NAME has only that variant tested
#   --all    every test case, however long they take. Otherwise the shortest come
#            first, and none goes on once 15 seconds are over in all
#   --serve  instead of all this: a page with an editor for the stage's kernels, or a plain
#            file's, at an address of this machine alone. Each save runs and says what is wrong
#   --build  instead of all this: builds STAGE, or says why it does not compile
#   --help   this text
#
# Exit code: 0 all that ran is right; 1 it does not compile, or a check or a test failed;
# 2 bad usage; 3 no such device, or too little memory.
#
# It works in build/, like the presets demo and test, and configures it as demo does if nobody has, or if the folder was copied or moved.
set -uo pipefail  # bash 3.2 of macOS takes it, too

refuse() { echo "try: $*" >&2 && exit 2; }

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
me=$(printf %q "$0")  # in commands to paste, wherever the caller is
seconds=${TRY_SECONDS:-}  # of tests, for tests of this script
while :; do
  case ${1:-} in
    --help | -h) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" && exit 0 ;;
    --all) seconds=86400 && shift ;;
    -*) refuse "unknown option '$1'; allowed before the stage: --all, --help; options of the program follow the stage" ;;
    "") refuse "which stage? common/try.sh STAGE [OPTION...]; --help says more" ;;
    *) break ;;
  esac
done

# --- Which program? ---------------------------------------------------------------------------------------------------------

programs() {  # all that can be named, one in a line
  (cd "$root" && printf '%s\n' [0-9][0-9]_*/CMakeLists.txt docs/lab/*.cpp docs/lab/first.cu) | sed 's|/CMakeLists.txt$||; s|^docs/lab/\(.*\)\.c[pu]*$|lab_\1|'
}

wanted=${1%/}
shift
name=$(programs | awk -v wanted="$wanted" '$0 == wanted || (wanted ~ /^[0-9]+$/ && /^[0-9]/ && $0 + 0 == wanted + 0)')
case $name:$wanted in
  :*.cu) [ "${1:-}" = --serve ] || refuse "common/run runs $wanted; here is an editor for it, --serve" ;;
  :*) refuse "no stage or lab program '$wanted'; there are: $(programs | paste -s -d ' ' -)" ;;
  *$'\n'*) refuse "'$wanted' is each of: $(echo "$name" | paste -s -d ' ' -)" ;;
  lab_*) targets=$name ;;
  *) targets="$name ${name}_test" ;;
esac
test=$build/tests/${name}_test

if [ "${1:-}" = --serve ]; then
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || refuse "--serve needs Python 3.11 or newer"
  exec python3 -B -X utf8 "$root/docs/playground/serve.py" "${name:-$wanted}" "${@:2}"
fi
[ "${1:-}" != --build ] || targets=$name

# --- Build ------------------------------------------------------------------------------------------------------------------

# readable < LOG: the paths of the project's files without what leads to the project.
readable() {
  root=$root/ awk 'BEGIN { root = ENVIRON["root"] }
    { while (at = index($0, root)) $0 = substr($0, 1, at - 1) substr($0, at + length(root))
      sub(/^(\.\.\/)+/, ""); print }'
}

# first PATTERN < LOG: the first message that has it, by a compiler, a linker or CMake; a few lines of it. If it is about a template of a
# helper, also the innermost line of a kernel that asked for it: g++ says that before the message, clang after it.
first() {
  readable | awk -v pattern="$1" '
    function is_helper(line) { return line ~ /^ *(common\/|\/|[^:]*\/parts\/)/ }
    found && /(error|warning) ?:|^(\[|ninja|FAILED|make)/ { exit }
    / required (from|by) |requested here/ { over = found; if (!asked && !is_helper($0)) asked = $0; next }
    !found && $0 !~ pattern { if (/: In |(error|warning) ?:/) asked = ""; next }
    !found { helper = is_helper($0) }
    found && /^[^ ]+[:(][0-9]+[:)]|^In file/ || ++found > 8 { over = 1 }
    !over || /the comparison reduces to/
    END { if (helper && asked && sub(/: *(required|note:).*/, ": required from here", asked)) print asked }'
}

configure=true
configured=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null)
if [ ! "$configured" -ef "$root" ] || { [ ! -e "$build/build.ninja" ] && [ ! -e "$build/Makefile" ]; }; then
  check=$("$root/common/setup.sh" --check) || { echo "try: ${check##*setup: }" >&2 && exit 1; }
  configure="cmake --preset demo --fresh"
fi
logs=$(mktemp -d "${TMPDIR:-/tmp}/flash_try.XXXXXX") || exit 1
trap 'rm -rf "$logs"' EXIT
[ -e "$build/common/machine/libflash_machine.a" ] || echo "try: building the simulator, once: half a minute to two" >&2
# shellcheck disable=SC2086  # lists of words
{ cd "$root" && $configure && cmake --build "$build" --target $targets; } 2>&1 | tee "$logs/build" | {
  [ -t 2 ] || exec cat >/dev/null
  while IFS= read -r line; do printf '%-78.78s\r' "$line" >&2; done  # how far it is; not awk: some read a pipe in blocks
  printf '%78s\r' "" >&2
}
if [ "${PIPESTATUS[0]}" != 0 ]; then
  first '(^|[^-W])[Ee]rror( |:|$)|undefined (reference|symbol)' <"$logs/build" >"$logs/first"
  [ -s "$logs/first" ] || tail -n 8 "$logs/build" >"$logs/first"
  cat "$logs/first"
  echo "try: $name does not build; all of it: cmake --build $(printf %q "$build") --target $targets" >&2
  exit 1
fi
first 'warning ?:' <"$logs/build" | tee "$logs/warning"
built=$SECONDS

[ "${1:-}" != --build ] || exit 0

# --- Run --------------------------------------------------------------------------------------------------------------------

# An endless loop ends after seconds, not after the many minutes that the simulator would allow it.
export FLASH_SIMT_STEPS=${FLASH_SIMT_STEPS:-16777216}

# show_wrong: the report of a wrong result, up to what is wrong; the counts come after that.
show_wrong() { sed '/^  extra memory/,$d' "$logs/report"; }

wrong() {
  [ ! -s "$logs/warning" ] || echo "try: the compiler warned of something, above: begin there" >&2
  echo "try: $name is WRONG${1:-}. $SECONDS s, of which $built s to build" >&2 && exit 1
}

variant=$(echo " $*" | sed -n 's/.* --variant[ =]\([^ ]*\).*/\1/p')
problem=$(printf '%s\n' "$@" | grep -Ev '^--(variant|pass|dtype|device)' | grep '^--')  # the options that name one

"$build/bin/$name" "$@" >"$logs/report"
code=$?
case $code in
  0) cat "$logs/report" ;;
  2 | 3) cat "$logs/report" && exit $code ;;  # the program has said why
  *)
    show_wrong
    [ $code -lt 128 ] || echo "$name was ended by signal $((code - 128)) ($(kill -l $((code - 128))))."
    wrong
    ;;
esac
if [ "$targets" = "$name" ]; then
  echo "try: $name is right: every finding above is as its source says. $SECONDS s"
  sed -n 's|^// Next: |Next: |p' "$root/docs/lab/${name#lab_}".c{pp,u} 2>/dev/null
  exit 0
fi

# Full tiles, a head of K for each of Q, and one order of threads hide mistakes. A causal mask shows some, and hides others at the last keys.
# The largest tiles have the most warps. A block that draws work from a counter draws a second tile if there are more than multiprocessors.
if [ -z "$problem" ]; then
  # For the edges the program might choose another variant. The tiles next to the default are its largest.
  "$build/bin/$name" "$@" --json --no-check --no-watch >"$logs/run"
  "$build/bin/$name" --list --json --head-dim 64 >"$logs/list"
  python3 -c 'if True:
    import json, sys
    run, listed = (json.load(open(file)) for file in sys.argv[1:])
    edge = "--seq-q 70 --seq-k 201 --kv-heads 1 --head-dim 59"
    few_keys = "--seq-q 101 --seq-k 70 --kv-heads 1 --head-dim 59 --causal"  # the first queries see none
    print(run["variant"], edge, few_keys, sep="\n")
    for tiles in next(variant["tiles"] for variant in listed["variants"] if variant["name"] == run["variant"])[:1]:
        for choice in tiles["choices"][1:2]:
            print(edge, "--heads 4 --tiles {br},{bc}".format(**choice))
    if "counter" in run.get("counters", {}).get("tensors", {}):
        print("--seq-q 9 --seq-k 101 --heads 133 --kv-heads 1 --head-dim 136")' "$logs/run" "$logs/list" >"$logs/edges"
  exec 3<"$logs/edges"
  read -r ran <&3
  [ -n "$variant" ] || set -- "$@" --variant "$ran"
  while IFS= read -r edge <&3; do
    for order in "" FLASH_SIMT_ORDER=random:1; do
      # shellcheck disable=SC2086  # lists
      env $order "$build/bin/$name" "$@" $edge >"$logs/report" 2>"$logs/said"
      case $? in
        0) [ -z "$order" ] || echo "It is right with $edge, too." ;;
        2 | 3) ;;  # a kernel need not take it
        *)
          echo "That is right. This is wrong: ${order:+$order }$me $wanted ${*:+$(printf '%q ' "$@")}$edge"
          cat "$logs/said" >&2 && show_wrong
          wrong
          ;;
      esac
    done
  done
fi

# The compiler of the simulator takes what nvcc would not.
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
changed=$(sed -n "s|.* \($name/\)CMakeFiles/[^/]*/\(.*\)_cpu\.cpp\.o\$|\1\2.cuh|p" "$logs/build")
find "$root/$name" -name '*.cuh' -exec awk -f "$root/common/tests/host_only.awk" {} + | first error >"$logs/refused"
[ ! -s "$logs/refused" ] || { cat "$logs/refused" && wrong ": on a GPU it would not compile"; }

# --- Test -------------------------------------------------------------------------------------------------------------------

# run_case NUMBER DEVICE CASE: leaves NUMBER.passed, NUMBER.failed or NUMBER.stopped with its seconds, unless time was over. 255: xargs starts no more.
# shellcheck disable=SC2317  # xargs calls it
run_case() {
  local began verdict only=$variant
  case $3 in *"a tiny problem"*) only=${variant:-$changed} ;; esac
  began=$(date +%s)
  [ "$began" -lt "$deadline" ] || exit 255
  # A comma would separate two names; ? is any character. The limit is one of CPU time, which ends a process by SIGXCPU.
  (ulimit -S -t $((deadline - began)) && exec "$test" "--device=$2" "--test-case=${3//,/?}" ${only:+"--variant=$only"} \
    --abort-after=1 --no-colors=true --no-intro=true) >"$logs/$1.log" 2>&1
  case $? in 0 | 77) verdict=passed ;; 152) verdict=stopped ;; *) verdict=failed ;; esac  # 152: SIGXCPU
  printf '%d\t%s\n' $(($(date +%s) - began)) "$3" >"$logs/$1.$verdict"
  [ $verdict != failed ] || exit 255
}

# First the tile sizes, since the default problem runs one of many. Then those that took no time when they were last run; at the very first time
# those that are the stage's own.
cases() {
  "$test" --list-test-cases --no-colors=true --no-intro=true | grep -v '^\[doctest\]\|^=' | sort |
    awk -F '\t' 'FILENAME == ARGV[1] { seconds[$2] = $1; next } { print (/a tiny problem/ ? -1 : seconds[$1] + 0) "\t" $0 }' "$memory" - |
    sort -s -n -k 1,1 | cut -f 2-
}

memory=$build/tests/${name}_test$variant.seconds  # of the last run
touch "$memory"
[ -n "$seconds" ] || seconds=$((SECONDS < 9 ? 14 - SECONDS : 5))
deadline=$(($(date +%s) + seconds))
case $changed in *$'\n'*) changed="" ;; esac  # else the one kernel that has changed
export test logs deadline variant changed
export -f run_case
count=0
# shellcheck disable=SC2016  # the inner shell expands its arguments
{
  "$test" --device=gpu --test-case=none >/dev/null 2>&1 && printf '%s\0' 0 gpu 'grid*'  # ends with 77 where there is none
  cases | while IFS= read -r each; do printf '%s\0' $((count += 1)) cpu "$each"; done
} | tee "$logs/queue" | xargs -0 -n 3 -P "$cores" bash -c 'run_case "$@"' _ 2>/dev/null
cat "$logs"/*.*ed "$memory" 2>/dev/null | awk -F '\t' '!seen[$2]++' >"$logs/memory" && cp "$logs/memory" "$memory"

all=$(($(tr -cd '\0' <"$logs/queue" | wc -c) / 3))
failed=$(find "$logs" -name '*.failed' | sed 's|.*/||' | sort -n | head -n 1)
passed=$(find "$logs" -name '*.passed' | wc -l | tr -d ' ')
if [ -n "$failed" ]; then
  readable <"$logs/${failed%.failed}.log" >"$logs/failure"
  awk '/^(Aborting|=====|The same)/ && lines { exit } (/^TEST CASE:/ || lines) && NF && !/^  values: CHECK\( false \)/ && ++lines < 14' "$logs/failure"
  command=$(sed -n 's/^The same problem by itself: //p' "$logs/failure")
  if [ -n "$command" ]; then
    target=${command%%common/try.sh*} options=${command#*common/try.sh * }  # maybe a variable for the simulator, options
    echo "The same problem by itself: $target$me $wanted $options"
    # shellcheck disable=SC2086  # lists
    if (ulimit -S -t 30 && exec env $target "$build/bin/$name" $options >"$logs/report"); then
      echo "By itself it is right. The test case has other numbers or looks at more, or the result depends on memory that nobody has written."
    else
      show_wrong
    fi
  fi
  wrong ": the test case above failed"
fi

# Of each variant that takes less than others, all that test cases have skipped.
untested=$(cat "$logs"/*.log | awk -F ': it does not know ' '
  sub(/^not tested: /, "") && NF == 2 {
    count = split($2, names, ", ")
    for (i = 1; i <= count; ++i) if (!seen[$1, names[i]]++) skipped[$1] = skipped[$1] (skipped[$1] ? ", " : "") names[i]
  }
  END { for (name in skipped) print "Not tested, since variant " name " does not take it: " skipped[name] }' | sort)
[ -z "$untested" ] || echo "$untested"
if [ "$passed" = "$all" ]; then
  echo "try: $name is right: all $all test cases passed. $SECONDS s, of which $built s to build"
else
  echo "try: no mistake found in $passed of $all test cases ($SECONDS s); all of them: $me --all $wanted${variant:+ --variant $variant}"
fi
barrier=$(cd "$root" && grep -rl --include='*.cuh' "\"${variant:-${ran:--}}\"" "$name" | xargs grep -n '^ *__syncthreads();' /dev/null | tail -n 1 | cut -d: -f1,2)
[ -z "$barrier" ] || echo "Next: delete the barrier at $barrier, and run this again."
